"""Every command, as a user types it."""

import hashlib
import json
import os
import pty
import re
import select
from pathlib import Path
from statistics import fmean

import pytest
from rich.console import Console

from longloop import config
from longloop.cli import listing, settings
from longloop.model import download
from longloop.registry import ALGOS, ENVS
from longloop.store.run import checkpoints
from longloop.store.trajectories import Trajectories
from tests.support.helpers import write_config
from tests.support.processes import Longloop


@pytest.fixture
def longloop(command):
    """What a command printed that must not fail."""

    def run(*arguments: str) -> str:
        code, out, err = command(*arguments)
        assert not code, err
        return out

    return run


def test_train_eval_resume(longloop, tmp_path):
    """Train, measure, go on: before and after stand side by side, and plain lines tell each step."""
    runs = tmp_path / "runs"
    printed = longloop("train", str(write_config(tmp_path)), f"folder={runs}", "eval.every=2", "eval.attempts=4")
    for words in ("step 3/3", "success", "tokens/s", "before training", "after step 3", "doing nothing", "pass@4"):
        assert words in printed
    assert "\x1b" not in printed, "no terminal, no control codes"
    log = (runs / "test" / "logs" / "train.log").read_text()
    assert log.count("\nstep ") == 3 and "the sampler's are used" in log
    assert json.loads((runs / "test" / "run.json").read_text())["status"] == "finished"

    measured = json.loads(longloop("eval", str(runs / "test"), "--json", "eval.attempts=4"))
    assert measured["tasks"] == 3 and measured["attempts"] == 4
    last = [json.loads(line) for line in (runs / "test" / "metrics.jsonl").read_text().splitlines()][-1]
    assert measured == last["eval"], "the same checkpoint, tasks and seed give the same evaluation"
    assert "success [95%]" in longloop("eval", str(runs / "test"), "--step", "2", "eval.split=test")
    assert "success [95%]" in longloop("eval", str(write_config(tmp_path)))
    both = json.loads(longloop("eval", str(runs / "test"), "--json", "--split", "dev", "--split", "test"))
    assert list(both) == ["dev", "test"] and both["dev"]["tasks"] > 0

    kept = tmp_path / "kept"
    again = json.loads(longloop("eval", str(runs / "test"), "--json", "eval.attempts=4", "--out", str(kept)))
    assert again == measured, "keeping the attempts changes nothing"
    groups = Trajectories(kept / "dev" / "evaluations").read(3)
    assert fmean(t.success for group in groups for t in group.scored) == pytest.approx(measured["success"])
    assert "after step 3" in longloop("analyze", str(kept / "dev"))
    assert groups[0].task.id in longloop("show", str(kept / "dev"), "eval/3/0/1")

    longloop("train", "--resume", str(runs / "test"), "steps=5")
    assert max(checkpoints(runs / "test")) == 5


def test_checkpoint_is_a_hugging_face_model(longloop, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    longloop("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", "steps=1")
    folder = tmp_path / "runs" / "test" / "checkpoints" / "000001" / "model"
    assert AutoModelForCausalLM.from_pretrained(folder).config.hidden_size == 64
    assert AutoTokenizer.from_pretrained(folder).chat_template


def test_lora_run_resumes_and_evaluates(longloop, tmp_path):
    longloop("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", "model.lora_rank=2", "algo.name=grpo")
    run = tmp_path / "runs" / "test"
    assert (run / "checkpoints" / "000003" / "model" / "adapter_model.safetensors").exists()
    longloop("train", "--resume", str(run), "steps=4")
    assert "success" in longloop("eval", str(run))


def test_second_copy_is_stated(longloop, tmp_path):
    printed = longloop("train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", "algo.name=grpo", "steps=1")
    assert "second copy" in printed


def test_lists_name_everything(longloop):
    printed = longloop("algos")
    assert ALGOS and all(name in printed for name in ALGOS)
    printed = longloop("envs")
    assert ENVS and all(name in printed for name in ENVS)
    assert "tiny" in longloop("models")


@pytest.mark.parametrize("name", ALGOS)
def test_an_algorithm_in_full(longloop, name):
    printed = longloop("algos", name)
    assert "algo.k" in printed and "algo.lr" in printed
    assert "maximize" in printed or "minimize" in printed or re.search(r"^    .* = ", printed, re.MULTILINE)


MINE = """
from dataclasses import dataclass
from longloop.algos.loop import Loop
from longloop.envs.guess import Guess

class MyEnv(Guess):
    \"\"\"My own game.\"\"\"

    @dataclass(frozen=True)
    class Options(Guess.Options):
        highest: int = 3
        \"\"\"the highest number there is\"\"\"

@dataclass(frozen=True, kw_only=True)
class MyAlgo(Loop):
    \"\"\"My own method.\"\"\"

    clip: float = 0.7
    boost: float = 2.0
    \"\"\"How much more a success counts.\"\"\"
"""


def test_ones_own_are_shown_in_full(longloop, command, tmp_path, monkeypatch):
    """From the folder where they lie, which is not where Python looks for modules."""
    (tmp_path / "mine_to_list.py").write_text(MINE)
    (tmp_path / "again_to_list.py").write_text("from mine_to_list import MyAlgo\n")
    monkeypatch.chdir(tmp_path)
    for name in ("mine_to_list:MyAlgo", "again_to_list:MyAlgo"):
        printed = longloop("algos", name)
        assert "My own method." in printed and "How much more a success" in printed  # a narrow table breaks the line
        assert "algo.clip" in printed and "0.7" in printed and "algo.lr" in printed, "inherited settings, too"
    printed = longloop("envs", "mine_to_list:MyEnv")
    assert "My own game." in printed and "the highest" in printed and "nothing" in printed
    printed = longloop("config", "env.name=mine_to_list:MyEnv", "algo.name=mine_to_list:MyAlgo")
    assert "algo.boost = 2.0" in printed and "env.highest = 3" in printed
    for words in (["algos", "mine_to_list:Nothing"], ["envs", "nowhere_to_list:MyEnv"], ["algos", "grppo"]):
        code, _, error = command(*words)
        assert code == 2 and error.startswith("longloop: ") and "Traceback" not in error


@pytest.mark.parametrize("name", ["errands", "errands_tools", "guess", "crossroads"])
def test_an_environment_in_full(longloop, name):
    printed = longloop("envs", name)
    assert "train" in printed and "nothing" in printed, "its splits, and what doing nothing scores on them"


@pytest.mark.parametrize("name", sorted({*ENVS} - {"errands", "errands_tools", "guess", "crossroads"}))
def test_an_environment_that_needs_something_says_what(longloop, monkeypatch, name):
    monkeypatch.delenv("LONGLOOP_DATA", raising=False)
    printed = longloop("envs", name)
    needs = (f"longloop envs install {name}", "env.data=FOLDER", "needs env.id", "env.command")
    assert any(text in printed for text in needs)


def test_model_shape(longloop, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    assert "llama" in longloop("models", "show", str(tmp_path))


def test_the_shape_of_a_model_by_its_name(longloop, command, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert re.search(r"hidden_size +64\b", longloop("models", "show", "tiny"))
    assert re.search(r"hidden_size +160\b", longloop("models", "show", "novice"))
    code, _, error = command("models", "show", "smollm2")
    assert code == 2 and "`longloop models get smollm2` fetches it" in error
    folder = download.model_folder("smollm2")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"hidden_size": 576}')
    sha256 = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{sha256}  config.json\n")
    assert "576" in longloop("models", "show", "smollm2")
    code, _, error = command("models", "show", tmp_path / "nowhere")
    assert code == 2 and "Name novice, tiny, smollm2, a run folder or a model's folder" in error


@pytest.mark.parametrize("rank", [0, 2])
def test_the_shape_of_a_runs_model(longloop, tmp_path, rank):
    """Of adapters, that of the model that they were trained on."""
    options = ("steps=1", "model.hidden=48", f"model.lora_rank={rank}", f"folder={tmp_path / 'runs'}")
    longloop("train", str(write_config(tmp_path)), *options)
    run = tmp_path / "runs" / "test"
    for name in (run, run / "checkpoints" / "000001"):
        assert re.search(r"hidden_size +48\b", longloop("models", "show", str(name)))


@pytest.mark.parametrize("name", ["tiny", "novice"])
def test_a_built_in_model_need_not_be_fetched(longloop, name):
    assert longloop("models", "get", name) == f"{name} comes with longloop. Use it with model.path={name}.\n"


def test_a_misspelt_model_is_not_looked_for_on_the_hub(command, longloop, monkeypatch):
    monkeypatch.setattr(download, "get", lambda name, tell: Path("fetched"))
    code, _, error = command("models", "get", "smolm2")
    assert code == 2 and "There is no model 'smolm2'. Did you mean 'smollm2'?" in error
    for name in ("smollm2", "someone/tiny", "gpt2"):
        assert longloop("models", "get", name) == f"{name} is in fetched. Use it with model.path={name}.\n"


@pytest.mark.parametrize(
    ("words", "heading", "names"),
    [
        (["algos"], "algo.name", ALGOS),
        (["algos", "loop"], "setting", ["algo.weight_decay", "algo.max_grad_norm"]),
        (["algos", "gigpo", "--compare", "dapo"], "slot", ["credit", "objective", "hold"]),
        (["envs"], "env.name", ENVS),
        (["envs", "guess"], "setting", ["env.highest", "env.tries"]),
        (["models"], "model.path", ["novice", "tiny", *download.KNOWN]),
        (["config"], "format = 1", [setting.key for setting in config.settings({})]),
    ],
)
def test_nothing_is_cut_in_a_narrow_terminal(longloop, monkeypatch, words, heading, names):
    for module in (listing, settings):
        monkeypatch.setattr(module, "console", Console(highlight=False, width=40))
    printed = longloop(*words)
    width = len(re.search(f"^{heading} +", printed, re.MULTILINE)[0])
    first_column = "".join("".join(line[:width] for line in printed.splitlines()).split())
    assert "…" not in printed and all(name in first_column for name in names)


def test_help_and_version(longloop):
    for command in (
        [],
        ["train"],
        ["config"],
        ["eval"],
        ["envs"],
        ["algos"],
        ["models"],
        ["check"],
        ["play"],
        ["export"],
    ):
        assert "Usage" in longloop(*command, "--help")
    assert longloop("--version").strip()


def test_live_display_at_a_terminal(tmp_path):
    """In a real pseudo-terminal the panel is drawn in place, with the phase and the columns."""
    master, slave = pty.openpty()
    command = ["train", str(write_config(tmp_path)), f"folder={tmp_path / 'runs'}", "steps=8", "eval.every=4"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
    process = Longloop(*command, variables=environment, terminal=os.ttyname(slave))
    seen = b""
    while select.select([master], [], [], 0.1)[0] or process.poll() is None:
        seen += os.read(master, 65536) if select.select([master], [], [], 0)[0] else b""
    assert process.finish(60)[0] == 0, seen.decode(errors="replace")
    text = seen.decode(errors="replace")
    assert "\x1b[1A\x1b[2K" in text, "what was drawn is wiped line by line, and drawn again"
    assert "eval success" in text and "8/8" in text and "before training" in text
