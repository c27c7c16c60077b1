"""The one reader of a run folder: what a run holds, runs of longloop 0.1, and that each step is written once."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import longloop
from longloop.store import trajectories as module
from longloop.store.demonstrations import best_trajectories, good_trajectories
from longloop.store.metrics import Evaluation
from longloop.store.run import Run
from longloop.store.run_reader import RunReader, load_run
from longloop.store.tags import set_tag
from longloop.types import Group, Message, StopReason, Task, Trajectory, Turn, UserError
from longloop.viewer.library import Library
from longloop.viewer.pages import Pages
from tests.support import recorded
from tests.support.helpers import train


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recorded.small(tmp_path / "run")


def test_a_run_is_read(folder: Path) -> None:
    set_tag(folder, "mine", True)
    run = load_run(str(folder))
    assert (run.name, run.status, run.tags, run.changes) == ("run", "finished", ["mine"], [])
    assert run.config.env == {"name": "errands"} and run.settings["model"]["path"] == "novice"
    assert [line["step"] for line in run.metrics] == [0, 1, 2, 3]
    assert run.column("update.loss") == {1: 0.1, 2: 0.05, 3: 0.1 / 3}
    assert run.column("eval.success") == {0: 0.25, 3: 0.5} and run.column("nothing.like.it") == {}
    assert list(run.evaluations) == [0, 3] and run.evaluations[3] == Evaluation.from_json(recorded.evaluation(0.5))
    assert run.evaluations[3].success_interval == (0.2, 0.8)
    assert run.trajectories(2) == recorded.groups(3, 4, 0.5, 2)
    assert run.evaluation_trajectories(0) == recorded.groups(3, 2, 0.3, "eval")
    assert run.checkpoints == {} and "finished, 4 steps measured" in repr(run)
    with pytest.raises(UserError, match="has no trajectories of step 7"):
        run.trajectories(7)


def test_checkpoints_and_changes(folder: Path) -> None:
    with Run.reopen(folder) as run:
        for step in (2, 3):
            run.save(step, 2, lambda _: None, {})
    with Run.reopen(folder, {"steps": [3, 9], "eval.attempts": [2, 4]}) as run:
        run.metrics.write({"step": 9, "eval": recorded.evaluation(0.75)})
    read = load_run(folder)
    assert list(read.checkpoints) == [2, 3] and (read.checkpoints[3] / "state.json").is_file()
    (change,) = read.changes
    assert (change.step, change.changed) == (4, {"steps": (3, 9), "eval.attempts": (2, 4)})
    assert read.config.steps == 9 and read.config.eval.attempts == 4
    assert list(read.evaluations) == [0, 3, 9] and list(read.comparable_evaluations) == [9]


def test_a_run_is_read_while_it_grows(tmp_path: Path) -> None:
    with Run.create(recorded.settings(tmp_path / "run"), {}) as run:
        read = load_run(run.folder)
        assert (read.status, read.metrics, read.stored["step"].steps()) == ("running", [], [])
        recorded.step(run, 1)
        assert [line["step"] for line in read.metrics] == [1] and len(read.stored["step"].entries(1)) == 12
        recorded.step(run, 2)
        assert [line["step"] for line in read.metrics] == [1, 2] and len(read.stored["step"].entries(2)) == 12


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere is not a run folder\. Name one"):
        load_run(tmp_path / "nowhere")
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match=r"format 99.*Upgrade"):
        load_run(tmp_path)
    assert RunReader(tmp_path / "nowhere").metrics == [] and RunReader(tmp_path / "nowhere").settings == {}


def test_reading_loads_no_torch_and_writes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    code = (
        f"import sys; from longloop.store.run_reader import load_run; run = load_run({str(folder)!r})\n"
        "run.config, run.evaluations, run.trajectories(1), run.status, run.checkpoints\n"
        "print([m for m in ('torch', 'transformers', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_long_run_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load_run(recorded.big(tmp_path / "big", steps=40, count=2, k=2))
    opened: Counter[str] = Counter()
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.update([self.name]) or real(self, *a, **k))
    stored = run.stored["step"]
    entry = stored.find(20, 1, 1)
    assert entry is not None and stored.get(entry).task.id == entry.task
    assert opened == {"index.jsonl": 1, "000020.jsonl": 1}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run as longloop 0.1 wrote it, by hand: turns are `fresh`, and settings have their old names."""
    folder = tmp_path / "old"
    (folder / "trajectories").mkdir(parents=True)
    (folder / "run.json").write_text('{"format": 1, "status": "finished", "started": "2026-05-01T10:00:00+0000"}')
    (folder / "config.toml").write_text(
        'name = "old"\nsteps = 1\n[env]\nname = "guess"\n[model]\npath = "novice"\n[rollout]\nenough = 0.9\n'
    )
    evaluation = {
        **{"tasks": 2, "attempts": 1, "unscored": 0, "success": 0.5, "success_interval": [0.09, 0.91], "reward": 0.5},
        **{"reward_interval": [0.0, 1.0], "pass_at": {"1": 0.5}, "scenarios": None},
        **{"floor_reward": 0.0, "floor_success": 0.0},
    }
    lines = [{"step": 0, "eval": evaluation}, {"step": 1, "success": 1.0, "reward": 1.0, "update": {"loss": 0.5}}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    turns = [
        {"context": [{"role": "user", "content": "Guess."}], "action": "3", "context_tokens": 2, "action_tokens": 1},
        {"context": [{"role": "user", "content": "Lower."}], "action": "1", "context_tokens": 3, "action_tokens": 2},
    ]
    rest = {"reward": 0.0, "finish": "stop", "seconds": {"sample": 0.1}, "info": {}}
    turns = [turn | {"fresh": number > 0} | rest for number, turn in enumerate(turns)]
    line = {"group": 0, "task": {"id": "t1", "split": "train", "data": {"n": 1}, "scenario": ""}, "attempt": 0}
    line |= {"reward": 1.0, "success": True, "stop": "finished", "error": "", "info": {}, "first_token": 0}
    text = json.dumps(line | {"turns": turns}) + "\n"
    (folder / "trajectories/000001.jsonl").write_text(text)
    entry = {"step": 1, "group": 0, "attempt": 0, "task": "t1", "reward": 1.0, "success": True, "stop": "finished"}
    entry |= {"turns": 2, "action_tokens": 3, "offset": 0, "length": len(text)}
    (folder / "trajectories/index.jsonl").write_text(json.dumps(entry) + "\n")
    columns = {
        "ids": np.array([1, 2, 3, 4, 5, 6, 7, 8], np.int32),
        "mask": np.array([0, 0, 1, 0, 0, 0, 1, 1], np.uint8),
        "logprobs": np.array([0, 0, -0.5, 0, 0, 0, -0.25, -0.125], np.float32),
        "advantages": np.array([0, 0, 1, 0, 0, 0, 1, 1], np.float32),
    }
    save_file(columns, folder / "trajectories/000001.safetensors")
    return folder


def test_a_run_of_longloop_0_1_opens(old: Path) -> None:
    run = load_run(old)
    first = Turn(
        (Message("user", "Guess."),), (1, 2), Message("assistant", "3"), (3,), (-0.5,), seconds={"sample": 0.1}
    )
    second = Turn(
        (Message("user", "Lower."),),
        (4, 5, 6),
        Message("assistant", "1"),
        (7, 8),
        (-0.25, -0.125),
        restarts_context=True,
        seconds={"sample": 0.1},
    )
    whole = Trajectory(Task("t1", "train", {"n": 1}), 0, (first, second), 1.0, True, StopReason.FINISHED)
    assert run.trajectories(1) == [Group(whole.task, (whole,))]
    assert [len(stretch.ids) for stretch in run.trajectories(1)[0].trajectories[0].stretches()] == [3, 5]
    assert best_trajectories(old) == good_trajectories(old, 1.0) == run.trajectories(1)
    with pytest.warns(FutureWarning, match=r"rollout\.enough"):
        assert run.config.rollout.straggler_cutoff == 0.9
    assert run.evaluations[0].success == 0.5 and run.column("update.loss") == {1: 0.5}
    assert run.stored["step"].advantages(1) == {(0, 0): 1.0}
    pages = Pages(Library([old]))
    for path in ("/", "/run/old", "/run/old/analysis", "/run/old/step/1", "/run/old/step/1/0"):
        assert pages.html(path)
    assert "history rewritten" in pages.html("/run/old/step/1/0/0")


def test_each_step_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with what only the update knows: the learner's column is there from the start."""
    written: Counter[str] = Counter()
    real = module.write_whole
    monkeypatch.setattr(module, "write_whole", lambda path, data: written.update([path.name]) or real(path, data))
    train(tmp_path, "steps=3", "algo.k=16", "algo.minibatch=0", "eval.every=0")
    steps = [f"00000{step}.{kind}" for step in (1, 2, 3) for kind in ("jsonl", "safetensors")]
    evaluation = ["000003.jsonl", "000003.safetensors"]
    assert written == Counter(steps + evaluation)
    index = [json.loads(line) for line in (tmp_path / "runs/test/trajectories/index.jsonl").read_text().splitlines()]
    assert len(index) == len({(line["step"], line["group"], line["attempt"]) for line in index}) == 3 * 3 * 16
    run = load_run(tmp_path / "runs/test")
    trained = [step for step, tokens in run.column("trained_tokens").items() if tokens]
    assert trained and all("learner" in run.stored["step"].columns(step, "learner") for step in trained)


def test_a_step_that_did_not_end_can_be_looked_at_and_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted in the update of step 2: what was collected is there, and no metrics; resumed, all is there once."""
    from longloop.learners.local import LocalLearner

    real = LocalLearner.update

    def interrupted(self: LocalLearner, minibatch, loss):
        if minibatch.step == 2:
            raise KeyboardInterrupt
        return real(self, minibatch, loss)

    def actions(run: RunReader) -> list[list[list[int]]]:
        attempts = [attempt for group in run.trajectories(2) for attempt in group.trajectories]
        return [[turn.action_ids.tolist() for turn in attempt.turns] for attempt in attempts]

    monkeypatch.setattr(LocalLearner, "update", interrupted)
    settings = ("steps=3", "algo.k=16", "eval.every=0", "save.every=1")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, *settings)
    run = load_run(tmp_path / "runs/test")
    assert run.stored["step"].steps() == [1, 2] and [line["step"] for line in run.metrics] == [1]
    played = actions(run)
    assert len(played) == 3 * 16

    monkeypatch.undo()
    longloop.train(resume=tmp_path / "runs/test")
    run = load_run(tmp_path / "runs/test")
    assert [line["step"] for line in run.metrics] == [1, 2, 3] and actions(run) == played
    assert all(len(run.stored["step"].entries(step)) == 3 * 16 for step in (1, 2, 3))
