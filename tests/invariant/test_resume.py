"""Kill it at any moment: a run that was killed and resumed is, to the bit, the run that never was.

Real processes and real SIGKILLs. The whole run folder is compared: weights, optimizer, metrics and trajectories, all
but the times.
"""

import functools
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longloop.engines.engine import NativeEngine
from tests.support.helpers import GUESS, train
from tests.support.processes import Longloop
from tests.support.runs import contents, differences

STEPS = 6


def new_run(folder: Path, *overrides: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(GUESS)
    fixed = [f"folder={folder}", "name=run", f"steps={STEPS}", "algo.minibatch=4", "eval.every=2", "eval.attempts=2"]
    return ["train", str(folder / "config.toml"), *fixed, *overrides]


def assert_same(one: Path, other: Path) -> None:
    assert len(contents(one)["metrics"]) == STEPS + 1 and len(contents(one)) > 2 * STEPS
    assert differences(one, other) == []


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unharmed")
    code, output = Longloop(*new_run(folder)).finish()
    assert code == 0, output
    return folder / "run"


@pytest.mark.parametrize(
    "sabotage",
    [
        ["env.name=tests.support.saboteurs:KillingGuess", "env.marker={marker}", "env.at=50", "doctor=false"],
        ["algo.name=tests.support.saboteurs:KillingLoop", "algo.marker={marker}", "algo.at=8"],
    ],
    ids=["in collection", "in update"],
)
def test_killed_in_the_middle_of_a_step(sabotage, unharmed, tmp_path):
    marker = tmp_path / "killed"
    settings = [setting.format(marker=marker) for setting in sabotage]
    code, _ = Longloop(*new_run(tmp_path, *settings)).finish()
    assert code == -signal.SIGKILL and marker.exists()
    interrupted = contents(tmp_path / "run")["metrics"]
    assert 1 <= max(interrupted) < STEPS, "the kill must fall in the middle of the run"
    code, output = Longloop("train", "--resume", str(tmp_path / "run")).finish()
    assert code == 0, output
    assert_same(tmp_path / "run", unharmed)


def test_killed_at_random_moments(unharmed, tmp_path):
    """Wherever the kills fall (loading, collecting, writing, saving), the end is the same."""
    command = new_run(tmp_path)
    chance = random.Random(1)
    kills = 0
    for _ in range(4):
        run = tmp_path / "run"
        if run.exists() and not (run / "run.json").exists():
            shutil.rmtree(run)  # killed before there was a run to resume
        process = Longloop(*(["train", "--resume", str(run)] if run.exists() else command))
        deadline = time.monotonic() + 60
        done = len(list(run.glob("trajectories/*.jsonl")))
        while process.poll() is None and len(list(run.glob("trajectories/*.jsonl"))) <= done + 1:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.random() * 0.2)
        if process.poll() is None:
            process.kill()
            kills += 1
        process.finish()
    assert kills >= 2
    code, output = Longloop("train", "--resume", str(tmp_path / "run")).finish()
    assert code == 0, output
    assert_same(tmp_path / "run", unharmed)


def told_to_end() -> None:
    """The process is told to end within the engine's own task, where an exception would be nobody's. It ignores Ctrl-C,
    as whatever a shell starts in the background does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin, passes = NativeEngine._begin, itertools.count()

    def told(engine: NativeEngine) -> Any:
        if next(passes) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return begin(engine)

    NativeEngine._begin = told


def test_a_polite_stop_says_how_to_go_on(tmp_path):
    code, output = Longloop(*new_run(tmp_path, "eval.every=0", "doctor=false"), first=told_to_end).finish()
    assert code == 130
    assert "--resume" in output and "Traceback" not in output and "never retrieved" not in output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


def test_disk_full_loses_no_finished_step(unharmed, tmp_path):
    """A real full disk (a small tmpfs); with room again, the run goes on as if nothing had been."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3500k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs root, to mount a small file system")
    try:
        command = new_run(tmp_path, f"folder={disk}")
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 600_000)
        code, output = Longloop(*command).finish()
        assert code == 2, output
        assert (
            "No space left" in output
            and "finished steps of a run are safe; make room" in output
            and "Traceback" not in output
        )
        finished = [int(path.name) for path in disk.glob("run/checkpoints/*") if path.name.isdigit()]
        assert finished and max(finished) < STEPS
        steps = contents(disk / "run")["metrics"]
        assert set(range(max(finished) + 1)) <= set(steps)
        subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
        code, output = Longloop("train", "--resume", str(disk / "run")).finish()
        assert code == 0, output
        assert_same(disk / "run", unharmed)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_resume_changes_no_method(unharmed, tmp_path):
    """What may change is tested in tests/cli/test_settings.py."""
    code, output = Longloop("train", "--resume", str(unharmed), "algo.clip=0.3").finish()
    assert code == 2 and "algo.clip was 0.1" in output and "different methods" in output
    assert os.path.isdir(unharmed) and not (unharmed / "changes.jsonl").exists()


ERRANDS = [
    *("steps=2", "tasks_per_step=3", "algo.k=5", "algo.minibatch=10", "env.per_scenario=4", "doctor=false"),
    *("eval.every=2", "eval.tasks=4", "eval.attempts=1", "rollout.straggler_cutoff=0.3", "rollout.min_scored=1"),
]
"""Short, and with stragglers."""


def delayed(seed: int) -> Callable[[], None]:
    """What makes the steps of environments take as long as on a busy machine, each by lot."""
    return functools.partial(_delay, seed)


def _delay(seed: int) -> None:
    from errands.env import Errands

    step, chance = Errands.step, random.Random(seed)

    def slow(env: Errands, action: Any) -> Any:
        time.sleep(chance.random() * 0.05)
        return step(env, action)

    Errands.step = slow


def test_the_quick_start_on_a_busy_machine_and_killed(tmp_path):
    """Who is ready first decides nothing, stragglers included, and neither does a kill: the second run has other delays
    in its first step and, since it is resumed, none in its second."""
    start = ("train", "quickstart", f"folder={tmp_path}", *ERRANDS)
    code, output = Longloop(*start, "name=whole", first=delayed(1)).finish()
    assert code == 0, output
    whole = contents(tmp_path / "whole")
    stops = [line["stop"] for name, lines in whole.items() if name.endswith(".jsonl") for line in lines]
    assert "cancelled" in stops, "there must be stragglers, or their rule is not tried"

    run = tmp_path / "killed"
    process = Longloop(*start, "name=killed", first=delayed(2))
    deadline = time.monotonic() + 100
    while not (run / "checkpoints" / "000001").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    time.sleep(random.Random(4).random())
    process.kill()
    process.finish()
    assert max(contents(run)["metrics"]) == 1, "the kill must fall into the second step"
    code, output = Longloop("train", "--resume", str(run)).finish()
    assert code == 0, output
    assert differences(run, tmp_path / "whole") == []


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("mcts_ipl", ["algo.lr=1e-3"]),
        ("agent_q", ["algo.lr=1e-3", "rollout.context=512"]),
        ("aepo", []),
        ("eapo", ["env.name=tests.support.rebuilt:RebuiltGuess", "rollout.context=256"]),
    ],
)
def test_trees_forks_and_rebuilt_contexts_resume(method, settings, tmp_path):
    """Stopped after two of four steps and resumed, against a run in one piece."""
    common = [f"algo.name={method}", "algo.k=8", "steps=4", "save.every=1", *settings]
    for name in ("whole", "parted"):
        (tmp_path / name).mkdir()
    _, whole, _ = train(tmp_path / "whole", *common)
    _, parted, steps = train(tmp_path / "parted", *common, seen=lambda steps: len(steps) == 2)
    assert len(steps) == 2 and steps[-1]["trained_tokens"] > 0
    code, output = Longloop("train", "--resume", str(parted.folder)).finish()
    assert code == 0, output
    assert max(contents(parted.folder)["metrics"]) == 4 and differences(whole.folder, parted.folder) == []
