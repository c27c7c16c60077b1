"""Kill it at any moment: a run that was killed and resumed is, to the bit, the run that never was.

Real processes and real SIGKILLs. The whole run folder is compared: weights, optimiser, metrics and trajectories, all
but the times.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import GUESS

ROOT = Path(__file__).parents[2]
STEPS = 6


def longloop(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "longloop.cli.main", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    output, _ = process.communicate(timeout=120)
    return process.returncode, output


def new_run(folder: Path, *overrides: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(GUESS)
    fixed = [f"folder={folder}", "name=run", f"steps={STEPS}", "algo.minibatch=4", "eval.every=2", "eval.attempts=2"]
    return ["train", str(folder / "config.toml"), *fixed, *overrides]


def contents(run: Path) -> dict[str, object]:
    """Everything in a run folder that does not depend on the clock."""

    def timeless(line: str) -> dict:
        value = json.loads(line)
        value.pop("time", None)
        value.pop("memory", None)
        for turn in value.get("turns", []) if isinstance(value.get("turns"), list) else []:
            turn.pop("seconds")
        return value

    metrics = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        metrics[json.loads(line)["step"]] = timeless(line)
    found: dict[str, object] = {"metrics": metrics}
    for path in sorted([*run.glob("checkpoints/*/**/*.safetensors"), *run.glob("*/*.safetensors")]):
        found[str(path.relative_to(run))] = path.read_bytes()
    for path in sorted([*run.glob("trajectories/0*.jsonl"), *run.glob("evaluations/0*.jsonl")]):
        found[str(path.relative_to(run))] = [timeless(line) for line in path.read_text().splitlines()]
    return found


def assert_same(one: Path, other: Path) -> None:
    a, b = contents(one), contents(other)
    assert a.keys() == b.keys()
    assert len(a["metrics"]) == STEPS + 1 and len(a) > 2 * STEPS
    assert [name for name in a if a[name] != b[name]] == []


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unharmed")
    code, output = finish(longloop(*new_run(folder)))
    assert code == 0, output
    return folder / "run"


@pytest.mark.parametrize(
    "sabotage",
    [
        ["env.name=tests.saboteurs:KillingGuess", "env.marker={marker}", "env.at=50", "doctor=false"],
        ["algo.name=tests.saboteurs:KillingLoop", "algo.marker={marker}", "algo.at=8"],
    ],
    ids=["in collection", "in update"],
)
def test_killed_in_the_middle_of_a_step(sabotage, unharmed, tmp_path):
    marker = tmp_path / "killed"
    settings = [setting.format(marker=marker) for setting in sabotage]
    code, _ = finish(longloop(*new_run(tmp_path, *settings)))
    assert code == -signal.SIGKILL and marker.exists()
    interrupted = contents(tmp_path / "run")["metrics"]
    assert 1 <= max(interrupted) < STEPS, "the kill must fall in the middle of the run"
    code, output = finish(longloop("train", "--resume", str(tmp_path / "run")))
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
        process = longloop(*(["train", "--resume", str(run)] if run.exists() else command))
        deadline = time.monotonic() + 60
        done = len(list(run.glob("trajectories/*.jsonl")))
        while process.poll() is None and len(list(run.glob("trajectories/*.jsonl"))) <= done + 1:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.random() * 0.2)
        if process.poll() is None:
            process.kill()
            kills += 1
        process.communicate()
    assert kills >= 2
    code, output = finish(longloop("train", "--resume", str(tmp_path / "run")))
    assert code == 0, output
    assert_same(tmp_path / "run", unharmed)


def test_a_polite_stop_says_how_to_go_on(tmp_path):
    """The process is told to end within the engine's own task, where an exception would be nobody's. It ignores Ctrl-C,
    as whatever a shell starts in the background does."""
    works = """
import itertools, os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from longloop.cli.main import main
from longloop.engines.native import NativeEngine
begin, passes = NativeEngine._begin, itertools.count()
def told_to_end(engine):
    if next(passes) == 5:
        os.kill(os.getpid(), signal.SIGTERM)
    return begin(engine)
NativeEngine._begin = told_to_end
main()
"""
    command = [sys.executable, "-c", works, *new_run(tmp_path, "eval.every=0", "doctor=false")]
    stopped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert stopped.returncode == 130
    assert "--resume" in stopped.stderr and "Traceback" not in stopped.stderr and "never" not in stopped.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"


def test_disk_full_loses_no_finished_step(unharmed, tmp_path):
    """A real full disk (a small tmpfs); with room again, the run goes on as if nothing had been."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3500k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        command = new_run(tmp_path, f"folder={disk}")
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 600_000)
        code, output = finish(longloop(*command))
        assert code == 2, output
        assert "No space left" in output and "finished steps are safe" in output and "Traceback" not in output
        finished = [int(path.name) for path in disk.glob("run/checkpoints/*") if path.name.isdigit()]
        assert finished and max(finished) < STEPS
        steps = contents(disk / "run")["metrics"]
        assert set(range(max(finished) + 1)) <= set(steps)
        subprocess.run(["mount", "-o", "remount,size=50m", str(disk)], check=True)
        code, output = finish(longloop("train", "--resume", str(disk / "run")))
        assert code == 0, output
        assert_same(disk / "run", unharmed)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_resume_may_only_extend(unharmed, tmp_path):
    code, output = finish(longloop("train", "--resume", str(unharmed), "algo.clip=0.3"))
    assert code == 2 and "Only steps=N can be changed" in output
    assert os.path.isdir(unharmed)
