"""The run folder: what is read is what was written, and nothing finished is lost."""

import errno
import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from longloop.algos.reduce import to_samples
from longloop.store import files
from longloop.store.files import append_lines, read_lines, whole_folder, write_whole
from longloop.store.metrics import Evaluation, Metrics
from longloop.store.run import Run, checkpoints, machine_facts, read_facts
from longloop.store.run_reader import RunReader
from longloop.store.trajectories import Trajectories
from longloop.types import Group, Message, StopReason, Task, Trajectory, Turn, UserError
from tests.support import recorded
from tests.support.helpers import load_config


def a_turn(context: list[int], action: list[int], **more) -> Turn:
    logprobs = tuple(-0.125 * (i + 1) for i in range(len(action)))
    return Turn(
        (Message("user", "ü\n<b>"),), tuple(context), Message("assistant", "x"), tuple(action), logprobs, **more
    )


def a_group() -> Group:
    task = Task("t1", "train", {"n": [1, 2]}, scenario="s")
    whole = Trajectory(
        task,
        0,
        (
            a_turn([1, 2], [3], reward=0.5, info={"k": 1}),
            a_turn([4, 5, 6], [7, 8], restarts_context=True, finish="length"),
        ),
        reward=0.75,
        success=True,
        stop=StopReason.MAX_TURNS,
        info={"tests": {"a": True}},
    )
    empty = Trajectory(task, 1, (), 0.0, False, StopReason.ENV_ERROR, error="boom")
    return Group(task, (whole, empty))


def test_trajectories_come_back_the_same(tmp_path):
    store = Trajectories(tmp_path)
    store.write(3, [a_group(), a_group()])
    assert store.read(3) == [a_group(), a_group()]
    assert store.steps() == [3]


def test_index_gives_random_access_and_the_last_line_counts(tmp_path):
    store = Trajectories(tmp_path)
    store.write(1, [a_group()])
    store.write(1, [a_group()])
    entries = store.entries(1)
    assert [(entry.key, entry.stop) for entry in entries] == [((0, 0), "max_turns"), ((0, 1), "env_error")]
    with (tmp_path / "000001.jsonl").open("rb") as file:
        file.seek(entries[1].offset)
        assert json.loads(file.read(entries[1].length))["error"] == "boom"
    assert store.get(entries[1]).error == "boom"


def test_advantages_stand_beside_the_tokens(tmp_path):
    from safetensors.numpy import load_file

    group = a_group()
    Trajectories(tmp_path).write(1, [group], to_samples(group.trajectories[0], 0, 0.5, "token"))
    columns = load_file(tmp_path / "000001.safetensors")
    assert columns["ids"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert columns["mask"].tolist() == [0, 0, 1, 0, 0, 0, 1, 1]
    assert columns["advantages"].tolist() == [0, 0, 0.5, 0, 0, 0, 0.5, 0.5]


def test_what_the_learner_said_stands_beside_the_tokens(tmp_path):
    """A turn that rewrote history begins a stretch of its own; what the learner was not asked about has nothing."""
    from safetensors.numpy import load_file

    group = a_group()
    rows = []
    for sample in to_samples(group.trajectories[0], 1, 0.5, "token"):
        rows.append((sample, -0.5 * sample.ids * sample.mask))
    store = Trajectories(tmp_path)
    store.write(1, [group, group])
    without = load_file(tmp_path / "000001.safetensors")
    store.write(2, [group, group], learned=rows)
    columns = load_file(tmp_path / "000002.safetensors")
    learner = columns.pop("learner").tolist()
    assert {name: column.tolist() for name, column in columns.items()} == {n: c.tolist() for n, c in without.items()}
    own = len(learner) // 2
    assert all(math.isnan(value) for value in learner[:own])  # the first group's
    said = {at: value for at, value in enumerate(learner[own:]) if not math.isnan(value)}
    assert said == {at: -0.5 * columns["ids"][own + at] for at in (2, 6, 7)}


def test_a_turn_that_chose_nothing_keeps_the_tokens_of_the_others_in_their_place(tmp_path):
    """Such a turn alone between two that rewrite history is no stretch, but its tokens are stored like any other's."""
    from safetensors.numpy import load_file

    turns = (
        a_turn([1, 2], [3]),
        a_turn([4], [], restarts_context=True),
        a_turn([5, 6], [7], restarts_context=True),
    )
    whole = Trajectory(Task("t", "train"), 0, turns, 1.0, True, StopReason.FINISHED)
    store = Trajectories(tmp_path)
    groups = [Group(whole.task, (whole,)), a_group()]
    samples = to_samples(whole, 0, 0.5, "token")
    store.write(1, groups, samples, [(sample, np.full(len(sample.ids), -1.0)) for sample in samples[1:]])
    assert store.read(1) == groups
    columns = load_file(tmp_path / "000001.safetensors")
    assert columns["ids"].tolist()[:7] == [1, 2, 3, 4, 5, 6, 7]
    assert columns["advantages"].tolist()[:7] == [0, 0, 0.5, 0, 0, 0, 0.5] and not columns["advantages"][7:].any()
    assert columns["learner"][6] == -1 and np.isnan(columns["learner"]).sum() == len(columns["learner"]) - 1


def test_damaged_columns_are_not_read_as_something_else(tmp_path):
    store = Trajectories(tmp_path)
    store.write(1, [a_group()])
    store.write(2, [Group(Task("t", "train"), ())])
    (tmp_path / "000002.safetensors").replace(tmp_path / "000001.safetensors")
    with pytest.raises(ValueError, match="not all there"):
        store.read(1)


def test_a_cut_last_line_is_ignored_and_then_replaced(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.write({"step": 1, "loss": float("nan")})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert metrics.read() == [{"step": 1, "loss": None}]
    metrics.write({"step": 2})
    metrics.write({"step": 2, "again": True})
    assert metrics.read() == [{"step": 1, "loss": None}, {"step": 2, "again": True}]


def test_cut_inside_a_very_long_line(tmp_path):
    path = tmp_path / "x.jsonl"
    append_lines(path, [{"a": 1}])
    with path.open("a") as file:
        file.write("y" * 200_000)
    append_lines(path, [{"a": 2}])
    assert list(read_lines(path)) == [{"a": 1}, {"a": 2}]


def test_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    append_lines(path, [{"a": 1}])
    before = path.read_bytes()

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match=r"No space left.*finished steps of a run are safe; make room.*--resume"):
        append_lines(path, [{"a": 2}])
    with pytest.raises(UserError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", ["folder", "file", "link", "nothing"])
def test_a_folder_is_whole_or_not_there(tmp_path, left):
    """Nothing that a killed writer left is in it, and where a link leads nothing is written."""
    folder, partial, other = (tmp_path / name for name in ("new", "new.partial", "other"))
    other.mkdir()
    if left == "folder":
        (partial / "sub").mkdir(parents=True)
    elif left == "file":
        partial.write_text("x")
    elif left == "link":
        partial.symlink_to(other)
    with pytest.raises(ZeroDivisionError), whole_folder(folder) as written:
        written.mkdir()
        (written / "half").write_text("x")
        raise ZeroDivisionError
    assert not folder.exists()
    with whole_folder(folder) as written:
        written.mkdir()
        (written / "all").write_text("x")
    assert [path.name for path in folder.rglob("*")] == ["all"] and not partial.exists() and not [*other.iterdir()]


def test_a_checkpoint_is_whole_or_not_there(tmp_path):
    run = Run.create(load_config(tmp_path), {})

    def good(folder: Path) -> None:
        (folder / "x").write_text("1")

    def bad(folder: Path) -> None:
        (folder / "x").write_text("half")
        raise RuntimeError("killed here")

    for step in (1, 2, 3):
        run.save(step, 2, good, {"taken": step})
    assert sorted(checkpoints(run.folder)) == [2, 3]
    with pytest.raises(RuntimeError):
        run.save(4, 2, bad, {})
    assert run.next_step == 4
    seen = []
    assert run.restore(2, seen.append) == {"taken": 3}
    assert seen == [run.folder / "checkpoints" / "000003"]


def test_the_checkpoint_that_was_evaluated_best_stays(tmp_path):
    """By success, then reward, then the later; the evaluation before training and steps without one do not count."""
    run = Run.create(load_config(tmp_path), {})
    scores = {0: (0.9, 0.9), 1: (0.5, 0.5), 2: (0.7, 0.6), 3: (0.7, 0.7), 4: (0.7, 0.7), 6: (0.6, 0.9)}
    kept = {}
    for step in range(8):
        line = {"step": step}
        if step in scores:
            success, reward = scores[step]
            found = Evaluation(3, 2, 0, success, (0.2, 0.8), reward, (0.2, 0.8), {"1": success}, None, 0.0, 0.0)
            line["eval"] = found.to_json()
        run.metrics.write(line)
        if step:
            run.save(step, 1, lambda folder: (folder / "x").write_text("1"), {"taken": step})
            kept[step] = sorted(checkpoints(run.folder))
    assert kept == {1: [1], 2: [2], 3: [3], 4: [4], 5: [4, 5], 6: [4, 6], 7: [4, 7]}
    assert RunReader(run.folder).best == 4 and run.restore(1, lambda _folder: None) == {"taken": 7}


def test_the_best_of_what_was_measured_before_stays(tmp_path):
    """Where a run is resumed with another measure, until it is known what is best by that, and then besides."""
    run = Run.create(load_config(tmp_path), {})

    def save(step: int, success: float) -> None:
        run.metrics.write({"step": step, "eval": recorded.evaluation(success)})
        run.save(step, 1, lambda folder: (folder / "x").write_text("1"), {"taken": step})

    for step, success in ((1, 0.5), (2, 0.9), (3, 0.5)):
        save(step, success)
    run.__exit__(None, None)
    with Run.reopen(run.folder, {"rollout.max_turns": [2, 9]}) as run:
        assert run.restore(1, lambda _folder: None) == {"taken": 3} and RunReader(run.folder).best is None
        assert sorted(checkpoints(run.folder)) == [2, 3]
        for step, success in ((4, 0.2), (5, 0.1)):
            save(step, success)
        assert RunReader(run.folder).best == 4 and sorted(checkpoints(run.folder)) == [2, 4, 5]


@pytest.mark.parametrize(
    ("key", "compare"),
    [("eval.split", [5]), ("rollout.context", [5]), ("rollout.stop", [5]), ("rollout.concurrency", [0, 3, 5])],
)
def test_evaluations_under_other_limits_do_not_compare(tmp_path, key, compare):
    folder = recorded.small(tmp_path / "run")
    with Run.reopen(folder) as run:
        run.save(3, 2, lambda _: None, {})
    with Run.reopen(folder, {key: [1, 2]}) as run:
        run.metrics.write({"step": 5, "eval": recorded.evaluation(0.5)})
    assert list(RunReader(folder).comparable_evaluations) == compare


def test_what_a_killed_save_left_is_cleared_when_the_run_is_resumed(tmp_path, monkeypatch):
    """Killed between a checkpoint's last rename and the deletion of the oldest, or in the middle of that deletion."""
    run = Run.create(load_config(tmp_path), {})
    for step in (1, 2):
        run.save(step, 2, lambda folder: (folder / "x").write_text("1"), {"taken": step})

    def killed(_path, ignore_errors=False):
        if not ignore_errors:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("longloop.store.run.shutil.rmtree", killed)
        run.save(3, 2, lambda folder: (folder / "x").write_text("1"), {"taken": 3})
    assert sorted(checkpoints(run.folder)) == [2, 3], "half a checkpoint does not count as one"
    names = {path.name for path in (run.folder / "checkpoints").iterdir()}
    assert names == {"000001.partial", "000002", "000003"}
    assert run.restore(2, lambda _folder: None) == {"taken": 3}
    assert {path.name for path in (run.folder / "checkpoints").iterdir()} == {"000002", "000003"}
    assert run.restore(1, lambda _folder: None) == {"taken": 3}
    assert checkpoints(run.folder) == [3]


def test_a_run_has_one_writer_and_notes_how_it_ended(tmp_path):
    config = load_config(tmp_path)
    with Run.create(config, {"command": "x"}) as run:
        assert read_facts(run.folder)["status"] == "running"
        with pytest.raises(UserError, match="in use by another process"):
            Run.reopen(run.folder)
    assert read_facts(run.folder)["status"] == "finished"
    with pytest.raises(UserError, match=r"exists already.*--resume"):
        Run.create(config, {})
    spaced = config.model_copy(update={"folder": str(tmp_path / "my runs")})
    with Run.create(spaced, {}), pytest.raises(UserError, match=r"--resume '.*/my runs/test'`, or make another"):
        Run.create(spaced, {})
    with pytest.raises(ZeroDivisionError), Run.reopen(run.folder):
        raise ZeroDivisionError
    assert read_facts(run.folder)["status"] == "failed"
    with pytest.raises(KeyboardInterrupt), Run.reopen(run.folder):
        raise KeyboardInterrupt
    assert read_facts(run.folder)["status"] == "interrupted"


def test_a_run_folder_is_whole_or_not_there(tmp_path, monkeypatch):
    """Killed, or without room, before run.json is there: the same name can be used again."""
    config = load_config(tmp_path)

    def killed(path, data):
        if path.name == "run.json":
            raise KeyboardInterrupt
        write_whole(path, data)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("longloop.store.run.write_whole", killed)
        Run.create(config, {})
    assert not (tmp_path / "runs" / "test").exists()
    with Run.create(config, {}) as run:
        assert read_facts(run.folder)["status"] == "running"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["test"]


def test_the_commit_is_longloops_own(tmp_path, monkeypatch):
    """An installed package may lie in a repository of the user's."""
    package = tmp_path / "project" / ".venv" / "longloop"
    (package / "store").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(tmp_path / "project")]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr("longloop.store.run.__file__", str(package / "store" / "run.py"))
    monkeypatch.setattr("sys.argv", ["longloop", "train", "name=two words"])
    facts = machine_facts()
    assert facts["commit"] == "" and facts["command"] == "longloop train 'name=two words'"
    subprocess.run([*git, "add", "-f", "."], check=True)
    assert machine_facts()["commit"], "where it is tracked, the commit says something"


def test_not_a_run_and_a_newer_run(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        Run.reopen(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(UserError, match="format 99"):
        Run.reopen(tmp_path)
