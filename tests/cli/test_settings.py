"""Settings: configs that are shipped, `longloop config`, what a run writes down, and what may change on resuming."""

import json
import re
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from longloop import build, config
from longloop.config import GIVEN, Config, WorkerConfig, settings
from longloop.envs.guess import Guess
from longloop.options import environment_options, options_of
from longloop.registry import ALGOS, ENGINES, ENVS
from longloop.store.run_reader import RunReader, read_changes, stored_config
from longloop.types import UserError
from tests.support.helpers import GUESS, load_config, train, write_config

ROOT = Path(__file__).parents[2]


# --- configs by name ---


def test_shipped_configs_have_names(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert set(config.SHIPPED) == {"quickstart", "guess", "compare"}
    assert config.load(Path("quickstart")).env["name"] == "errands"
    code, printed, error = command("config", "guess", "--toml")
    assert code == 0 and tomllib.loads(printed)["name"] == "guess", error
    (tmp_path / "quickstart").write_text("[env]\nname = 'guess'\n")
    assert config.load(Path("quickstart")).env["name"] == "guess", "a file of the user's goes first"


def test_the_first_advice_is_one_that_works(command):
    assert "longloop train quickstart" in command("--help")[1]
    assert "longloop train quickstart" in command("train", "--help")[1]
    code, _, error = command("train")
    assert code == 2 and "longloop train quickstart" in error
    code, _, error = command("train", "quikstart")
    assert code == 2 and "quickstart" in error


# --- the reference ---


def test_every_key_is_explained(command):
    code, printed, _ = command("config")
    assert code == 0
    for setting in settings({}):
        assert setting.key in printed
        assert setting.meaning and setting.type, setting.key
    assert "rollout.max_turns = 40" in printed and "(int)" in printed
    assert {f"env.{name}" for name in WorkerConfig.model_fields} <= {setting.key for setting in settings({})}


@pytest.mark.parametrize(("section", "known"), [("algo", ALGOS), ("env", ENVS), ("engine", ENGINES)])
def test_the_reference_has_the_options_of_every_class(section, known):
    """What is read from the source is what the constructor takes, and every option has a meaning."""
    import inspect

    for name, where in known.items():
        found = environment_options(where) if section == "env" else options_of(where)
        named = build.named({"name": name}, known, section)
        parameters = inspect.signature(named.Options if section == "env" else named).parameters
        assert list(found) == [key for key, one in parameters.items() if one.kind is not one.VAR_KEYWORD], name
        for key, option in found.items():
            assert bool(option.default) == (parameters[key].default is not inspect.Parameter.empty), (name, key)
            assert option.meaning or key in GIVEN.get(section, ()), (name, key)


def test_values_of_a_config_and_what_differs_from_the_defaults(command, tmp_path):
    code, printed, _ = command("config", write_config(tmp_path), "algo.clip=0.3")
    assert code == 0
    assert re.search(r"algo\.clip = 0\.3 +The clip range [^)]*\)[^)]*default 0\.1\)", printed) and re.search(
        r"env\.tries = 2 .*default 3", printed
    )
    assert "algo.weight_decay = 0.01" in printed and "engine.step_tokens = 4096" in printed
    code, printed, _ = command("config", "algo.name=ppo", "env.name=guess")
    assert code == 0 and "algo.lam = 1.0" in printed and "env.highest = 7" in printed
    code, printed, _ = command("config", write_config(tmp_path), "--toml")
    assert config.resolve(tomllib.loads(printed), "printed").algo["clip"] == 0.1
    assert command("config", "--toml")[0] == 2


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lr=1e-4", "Did you mean 'algo.lr'?"),
        ("clip=0.2", "Did you mean 'algo.clip'?"),
        ("tries=3", "Did you mean 'env.tries'?"),
        ("temperature=0.5", "Did you mean 'rollout.temperature' or 'eval.temperature'?"),
        ("keep=3", "Did you mean 'save.keep'?"),
        ("workers=3", "Did you mean 'env.workers'?"),
    ],
)
def test_a_key_without_its_table_is_found(tmp_path, word, meant):
    with pytest.raises(UserError) as error:
        load_config(tmp_path, word)
    assert meant in str(error.value) and "command line" in str(error.value)


# --- what a run writes down ---


class Odd(Guess):
    """Defaults of all kinds, some of which a file cannot hold."""

    @dataclass(frozen=True)
    class Options:
        size: int = 4
        none: int | None = None
        both: tuple[int, ...] = (1, 2)
        thing: object = object()
        words: list[str] = field(default_factory=list)


def test_every_default_is_written_out(command, tmp_path):
    """`config.toml` says what was used even when a later longloop has other defaults, and reads back as the same."""
    code, _, error = command("train", write_config(tmp_path), f"folder={tmp_path}", "steps=1")
    assert code == 0, error
    written = tomllib.loads((tmp_path / "test" / "config.toml").read_text())
    assert written["algo"] == {
        **{
            "name": "loop",
            "k": 4,
            "lr": 1e-3,
            "epochs": 2,
            "minibatch": 32,
            "weight_decay": 0.01,
            "max_grad_norm": 1.0,
        },
        **{"kl_guard": 20.0, "drop_below": 0.01, "clip": 0.1, "ratio": "token", "normalize": False},
    }
    assert written["env"] == {"name": "guess", "highest": 3, "tries": 2} | WorkerConfig().model_dump()
    assert written["engine"] == {
        **{"name": "native", "tokens": 0, "step_tokens": 4096},
        **{"compile": False, "batch_invariant": False},
    }
    again = stored_config(tmp_path / "test")
    assert build.written_out(again) == again
    assert command("eval", tmp_path / "test")[0] == 0


def test_defaults_that_a_file_cannot_hold_are_left_out(tmp_path):
    full = build.written_out(load_config(tmp_path, f"env={{name='{__name__}:Odd'}}"))
    assert full.env == {"name": f"{__name__}:Odd", "size": 4, "words": []} | WorkerConfig().model_dump()
    assert Config.model_validate(tomllib.loads(full.to_toml())) == full


# --- resuming with other settings ---


@pytest.fixture
def run(tmp_path) -> Path:
    return train(tmp_path, "steps=2", "save.keep=5")[1].folder


def test_what_may_change_does_and_is_recorded(command, run):
    changed = ("algo.lr=0.0", "algo.weight_decay=0.0", "rollout.temperature=0.5", "save.keep=9", "eval.attempts=2")
    code, printed, error = command("train", "--resume", run, "steps=4", *changed)
    assert code == 0, error
    assert "from step 3: algo.lr = 0.0 (was 0.001)" in printed
    assert "after step 4" in printed and "after step 2" not in printed, "other attempts than before do not compare"
    (line,) = read_changes(run)
    assert (
        line.step == 3
        and line.time
        and line.changed
        == {
            "algo.lr": (0.001, 0.0),
            "algo.weight_decay": (0.01, 0.0),
            "eval.attempts": (1, 2),
            "rollout.temperature": (1.0, 0.5),
            "save.keep": (5, 9),
            "steps": (2, 4),
        }
    )
    weights = [(run / "checkpoints" / f"{step:06d}" / "model" / "model.safetensors").read_bytes() for step in (1, 2, 4)]
    assert weights[0] != weights[1] == weights[2], "with a learning rate of 0 nothing moves"
    assert tomllib.loads((run / "config.toml").read_text())["algo"]["lr"] == 1e-3, "what it began with stays"

    code, _, error = command("train", "--resume", run, "algo.lr=1e-4", "steps=5")
    assert code == 0, error
    assert [change.step for change in read_changes(run)] == [3, 5] and read_changes(run)[0] == line, "append-only"
    now = stored_config(run)
    assert (now.steps, now.algo["lr"], now.rollout.temperature, now.save.keep) == (5, 1e-4, 0.5, 9)
    assert command("train", "--resume", run)[0] == 0 and len(read_changes(run)) == 2, "nothing new, no line"
    assert RunReader(run).settings["algo"]["lr"] == 1e-4 and RunReader(run).config.steps == 5
    printed = command("config", run)[1]
    assert "Changed at step 3: algo.lr = 0.0 (was 0.001)." in printed and "algo.lr = 0.0001" in printed


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("algo.clip=0.3", "different methods"),
        ("algo.name=grpo", "different methods"),
        ("seed=1", "random number"),
        ("env.tries=3", "the same tasks"),
        ("model.lora_rank=4", "weights belong"),
        ("split=dev", "gone through a part"),
    ],
)
def test_what_must_not_change_is_refused_with_a_reason(command, run, word, reason):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, _, error = command("train", "--resume", run, "steps=4", word)
    assert code == 2 and reason in error and f"model.path={run}" in error and "Traceback" not in error
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_runs_of_before_are_resumed_as_well(command, run):
    """A config.toml that leaves defaults out: one that is stated now is no change, another value is."""
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(r"^(clip|weight_decay|highest) = .*\n", "", text, flags=re.M))
    code, _, error = command("train", "--resume", run, "steps=3", "algo.clip=0.1")
    assert code == 0 and list(read_changes(run)[0].changed) == ["steps"], error
    assert command("train", "--resume", run, "steps=4", "algo.clip=0.2")[0] == 2


# --- a run as a model ---


@pytest.mark.parametrize("rank", [0, 4])
def test_a_run_is_a_model(command, tmp_path, rank):
    """What another run starts from is what this one ended as, adapters merged; which checkpoint is written down."""
    path = write_config(tmp_path, GUESS.replace("lr = 1e-3", "lr = 1e-2"))
    short = ("algo.name=sft", "algo.k=1", "steps=2", "eval.every=2", "eval.attempts=3", f"folder={tmp_path}")
    code, _, error = command("train", path, "name=first", f"model.lora_rank={rank}", *short)
    assert code == 0, error
    first = json.loads((tmp_path / "first" / "metrics.jsonl").read_text().splitlines()[-1])["eval"]
    code, _, error = command(
        "train", path, "name=second", f"model.path={tmp_path / 'first'}", "model.lora_rank=2", *short
    )
    assert code == 0, error
    second = [json.loads(line) for line in (tmp_path / "second" / "metrics.jsonl").read_text().splitlines()]
    assert second[0]["step"] == 0 and second[0]["eval"] == first
    pinned = str(tmp_path / "first" / "checkpoints" / "000002")
    assert stored_config(tmp_path / "second").model.path == pinned, "and not the newest of some later day"
    code, said, error = command("eval", path, f"model.path={tmp_path / 'second'}", "eval.attempts=3", "--json")
    assert code == 0 and json.loads(said) == second[-1]["eval"], error
    code, said, error = command("doctor", path, "--memory", "--json", f"model.path={tmp_path / 'second'}")
    assert code == 0 and json.loads(said)["fits"], error
    shutil.rmtree(pinned)
    assert command("eval", tmp_path / "first", "--step", "1")[0] == 0
    code, _, error = command("train", path, "name=third", f"model.path={pinned}", *short)
    assert code == 2 and "not a checkpoint (any more); the run has those of these steps: 1" in error


def test_a_run_without_a_model_is_no_model(command, tmp_path):
    path: Any = write_config(tmp_path)
    assert command("demos", path, f"folder={tmp_path}", "name=shown")[0] == 0
    code, _, error = command("train", path, f"folder={tmp_path}", f"model.path={tmp_path / 'shown'}")
    assert code == 2 and "without a checkpoint" in error


@pytest.mark.parametrize("engine", ["native", "vllm", "openai"])
def test_what_an_engine_may_be_told_is_explained_in_whole_sentences(engine: str) -> None:
    """Also where the explanation takes several lines."""
    options = options_of(ENGINES[engine]).items()
    meanings = {name: option.meaning for name, option in options if name not in ("policy", "chat")}
    assert meanings and all(meaning.endswith(".") for meaning in meanings.values()), meanings
    assert engine != "native" or meanings["context"].endswith("In a run, rollout.context unless it is set.")
