"""check, play, demos, models new and export, as a user types them."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from errands import audit
from longloop.cli import environments
from tests.support.helpers import write_config

WORLDS = """
from longloop.envs.base import Environment
from longloop.envs.play import Script
from longloop.types import Message, Outcome, Step, Task


class Generous(Environment):
    @classmethod
    def tasks(cls, split, options):
        return [Task("one", split)] if split == "train" else []

    def start(self, task):
        return [Message("user", "do something")]

    def step(self, action):
        return Step(done=True)

    def finish(self):
        return Outcome(1.0, True)


class Moody(Generous):
    calls = 0

    def step(self, action):
        Moody.calls += 1
        return Step([Message("user", f"call {Moody.calls}")], done=True)


class Secretive(Environment):
    expert_splits = ("train",)

    @classmethod
    def tasks(cls, split, options):
        return [Task("one", split)] if split != "dev" else []

    def start(self, task):
        self.said = ""
        return [Message("user", "say yes")]

    def step(self, action):
        self.said = action.content
        return Step(done=True)

    def finish(self):
        return Outcome(float(self.said == "yes"), self.said == "yes")

    def expert(self, task):
        if task.split == "test":
            raise FileNotFoundError("the solution")
        return Script(["yes"])
"""


@pytest.fixture
def longloop(command):
    """How a command ended, and all that it printed."""

    def run(*arguments: object) -> tuple[int, str]:
        code, out, err = command(*arguments)
        return code, out + err

    return run


def test_check_passes_a_sound_environment(longloop):
    code, printed = longloop("check", "guess", "highest=3", "tries=2")
    assert code == 0 and "all is well" in printed
    assert "expert" in printed and "nothing" in printed and "1.000 (all)" in printed


def test_check_finds_what_is_wrong(longloop, tmp_path, monkeypatch):
    """An environment that pays for nothing, and one that answers differently each time."""
    (tmp_path / "generous.py").write_text(WORLDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, printed = longloop("check", "generous:Generous")
    assert code == 1 and "one: nothing succeeds" in printed
    code, printed = longloop("check", "generous:Moody")
    assert code == 1 and "second time" in printed


def test_check_errands_in_two_worlds(longloop, monkeypatch):
    """Some tasks of every split, and some scenarios and drills in a further world; tests/errands has them all."""
    kinds = dict(list(audit.by_name().items())[::40])
    monkeypatch.setattr(audit, "by_name", lambda: kinds)
    code, printed = longloop("check", "errands", "--seeds", "1", "--tasks", "2", "--seconds", "600")
    assert code == 0, printed
    assert "delete everything" in printed
    assert (
        f"{len(kinds)} scenarios in 1 further worlds each: {len(kinds)} of {len(kinds)} tasks played by the"
        in " ".join(printed.split())
    )


def test_no_split_is_cut_in_a_narrow_terminal(longloop, monkeypatch):
    monkeypatch.setattr(environments, "console", Console(highlight=False, width=60))
    code, printed = longloop("check", "errands", "--seeds", "0", "--tasks", "1")
    assert code == 0 and "…" not in printed
    first_column = "".join(re.findall("^[a-z_]+", printed, re.MULTILINE))
    assert all(split in first_column for split in ("unseen_worlds", "test_challenge"))


def test_an_audit_ends_as_playing_does(longloop, monkeypatch):
    """At --seconds, when all scenarios were seen in one world before any is in a second."""
    kinds, seen, now = dict(list(audit.by_name().items())[:3]), [], [0.0]

    async def one(make, kind, seeds):
        seen.append((kind.name(), *seeds))
        now[0] += 1.0
        return audit.Audit(tasks=1)

    monkeypatch.setattr(audit, "by_name", lambda: kinds)
    monkeypatch.setattr(audit, "audit", one)
    monkeypatch.setattr(environments, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    code, printed = longloop("check", "errands", "--tasks", "1", "--seconds", "4.5")
    assert code == 0 and seen == [*((name, 0) for name in kinds), *((name, 1) for name in list(kinds)[:2])]
    assert "The audit was ended by --seconds." in printed and "5 of 60 tasks played" in " ".join(printed.split())


def test_play_a_task_by_hand(longloop, monkeypatch):
    typed = iter(["/expert", "print(apis.owner.show_time())", "", "apis.owner.complete_task(answer='x')", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    code, printed = longloop(
        "play", "errands", "--split", "unseen_worlds", "--task", "unseen_worlds/phone-number-of-someone/0"
    )
    assert code == 0
    assert "I read the documentation" in printed, "what the expert would do"
    assert "weekday" in printed, "what came back"
    assert "reward 0.000" in printed and "FAILED  the answer is" in printed


def test_play_refuses_an_unknown_task(longloop):
    code, printed = longloop("play", "errands", "--task", "nonsense")
    assert code == 2 and "no task 'nonsense'" in printed


def test_demos_are_a_run_that_can_be_imitated(longloop, tmp_path):
    config = str(write_config(tmp_path))
    code, printed = longloop("demos", config, f"folder={tmp_path}", "name=demos")
    assert code == 0 and "3 successful demonstrations" in printed
    lines = [json.loads(line) for line in (tmp_path / "demos/trajectories/index.jsonl").read_text().splitlines()]
    assert len(lines) == 3 and all(line["success"] for line in lines)
    imitate = ("algo.name=sft", "algo.k=1", f"demos={tmp_path / 'demos'}", "steps=2", f"folder={tmp_path}")
    code, printed = longloop("train", config, *imitate)
    assert code == 0 and "after step 2" in printed
    assert (tmp_path / "test" / "curve.png").stat().st_size > 1000
    code, printed = longloop("train", config, "algo.name=sft", "algo.k=1", f"demos={tmp_path / 'nowhere'}")
    assert code == 2 and "no run folder with trajectories" in printed


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_a_split_may_be_without_its_expert(longloop, tmp_path, monkeypatch, isolation):
    (tmp_path / "secretive.py").write_text(WORLDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, printed = longloop("check", "secretive:Secretive", f"isolation={isolation}")
    assert code == 0 and "all is well" in printed, printed
    rows = [line.split() for line in printed.splitlines()]
    assert ["train", "1", "1.000", "(all)", "0.000"] in rows and ["test", "1", "-", "0.000"] in rows
    code, printed = longloop("demos", "secretive:Secretive", "split=test", f"env.isolation={isolation}")
    assert code == 2 and "Secretive has no expert for the split 'test'" in printed


def test_imitation_needs_an_expert(longloop, tmp_path):
    text = Path(write_config(tmp_path)).read_text()
    text = text.replace('name = "guess"\nhighest = 3\ntries = 2', 'name = "crossroads"')
    config = str(write_config(tmp_path, text))
    code, printed = longloop("train", config, "algo.name=sft", "algo.k=1", f"folder={tmp_path}")
    assert code == 2 and "has no expert" in printed


def test_a_new_model_is_trained_and_exported(longloop, tmp_path):
    """From nothing to a folder that transformers reads: tokenizer, training, export in half precision."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    start = tmp_path / "start"
    small = ("--vocabulary", "300", "--hidden", "32", "--layers", "2", "--heads", "2")
    code, printed = longloop("models", "new", str(start), "--env", "guess", *small)
    assert code == 0 and "weights" in printed
    code, printed = longloop("models", "new", str(start), "--env", "guess")
    assert code == 2 and "exists already" in printed
    config = str(write_config(tmp_path))
    longloop("train", config, f"model.path={start}", "algo.name=sft", "algo.k=1", "steps=2", f"folder={tmp_path}")
    code, printed = longloop("export", str(tmp_path / "test"), "--out", str(tmp_path / "out"), "--dtype", "float16")
    assert code == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert str(model.dtype) == "torch.float16"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("guess 1-3", "higher", "Anything at all: naïve 漢字 \t\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    code, printed = longloop("export", str(tmp_path / "test"), "--out", str(tmp_path / "other"), "--dtype", "int3")
    assert code == 2 and "--dtype int3" in printed


def test_a_new_model_for_the_attempts_of_a_run(longloop, tmp_path):
    from transformers import AutoTokenizer

    longloop("demos", "guess", "env.highest=3", f"folder={tmp_path}")
    small = ("--vocabulary", "300", "--hidden", "32", "--layers", "1", "--heads", "2")
    code, printed = longloop("models", "new", str(tmp_path / "m"), "--from", str(tmp_path / "demos"), "--words", *small)
    assert code == 0, printed
    reader = AutoTokenizer.from_pretrained(tmp_path / "m")
    assert [reader.decode(token) for token in reader.encode("guess 1-3")] == ["guess", " 1", "-", "3"]
    for neither_or_both in ((), ("--env", "guess", "--from", str(tmp_path / "demos"))):
        code, printed = longloop("models", "new", str(tmp_path / "none"), *neither_or_both)
        assert code == 2 and "--env" in printed and "--from" in printed


def test_a_word_is_one_token_wherever_it_stands():
    from longloop.model.from_scratch import train_tokenizer

    texts = ["You arrive at the drawer 12.", "I go to drawer 12.\ngo to drawer 12"] * 9
    spans, words = (train_tokenizer(texts, 400, words) for words in (False, True))
    pieces = [
        [[reader.decode(token) for token in reader.encode(text)] for text in texts[:2]] for reader in (spans, words)
    ]
    assert pieces[1] == [
        ["You", " arrive", " at", " the", " drawer", " 1", "2", "."],
        ["I", " go", " to", " drawer", " 1", "2", ".", "\n", "go", " to", " drawer", " 1", "2"],
    ]
    assert sum(map(len, pieces[0])) < sum(map(len, pieces[1])) and " drawer" not in pieces[0][1]


def test_the_quick_start_in_small(longloop, tmp_path):
    """The committed config with the shipped model, one step: the table, the curve and two attempts side by side."""
    few = ("steps=1", "tasks_per_step=2", "algo.k=4", "eval.every=1", "eval.tasks=6", "model.threads=1")
    code, printed = longloop("train", "quickstart", f"folder={tmp_path}", "name=small", *few)
    assert code == 0, printed
    assert "loop on errands with novice" in printed
    assert "before training" in printed and "after step 1" in printed and "scenarios" in printed
    assert (tmp_path / "small" / "curve.png").exists()


def test_the_novice_is_small_and_knows_the_language():
    """One to five million weights in a few megabytes, and its first move is to read the documentation."""

    from longloop import api, config
    from longloop.model import shipped
    from longloop.model.policy import load

    policy = load(config.ModelConfig(path="novice", threads=1), seed=0)
    assert 1e6 <= sum(p.numel() for p in policy.module.parameters()) <= 5e6
    assert sum(path.stat().st_size for path in shipped("novice").iterdir()) < 5e6
    few = ["eval.tasks=8", "eval.attempts=1", "model.threads=1", "rollout.max_turns=1", "eval.temperature=0.0"]
    settings = config.load(Path("quickstart"), few)
    ((_, groups),) = api.measure(settings, None, [settings.eval.split]).values()
    said = [group.trajectories[0].turns[0].action.content for group in groups]
    assert all("apis.docs.show(api=" in text for text in said), said


def test_play_with_tools(longloop, monkeypatch):
    """A person is shown the tools, and calls them as experts do."""
    call = ["```json", '{"name": "owner__show_time", "arguments": {}}', "```", ""]
    typed = iter([*call, "/expert", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    code, printed = longloop("play", "errands_tools", "--task", "train/phone-number-of-someone/0")
    assert code == 0 and "A call is a block of JSON" in printed
    assert '"name": "owner__complete_task"' in printed, "a tool"
    assert "[tool]" in printed and "weekday" in printed, "what came back"
