"""Whole LOOP steps of the quick start: two ranks on two cores against one rank on one core; and what ranks cost.

    .venv/bin/python benchmarks/ranks.py --steps 4 --repeats 3

Needs Ray (`pip install 'longloop[cluster]'`), `taskset`, and two idle cores. The sides run in turn, in processes of
their own, and train adapters on the same attempts, which is checked to the bit. The first step of a run is not counted.
Two cores of a shared machine need not be twice as much as one: so the third side is two runs of one rank at once, which
have nothing to do with each other, and its ratio is what two ranks could reach at best. The last lines are the CPU time
that the first rank spends on an attempt for the others' sake.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
from common import ROOT, machine, median_range

sys.path.insert(0, str(ROOT))

from longloop.store.trajectories import Trajectories
from longloop.types import Group, Message, StopReason, Task, Trajectory, Turn, column
from tests.support.runs import differences

SETTINGS = [
    *("model.lora_rank=16", "model.device=cpu", "model.threads=1", "doctor=false", "learner.memory_check=false"),
    *("eval.every=0", "eval.tasks=1", "eval.attempts=1", "learner.micro_tokens=2048"),
]
PHASES = ("collect", "credit", "update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=8, help="per step, each attempted eight times")
    options = parser.parse_args()
    print(machine())
    settings = [*SETTINGS, f"steps={options.steps}", f"tasks_per_step={options.tasks}"]
    sides: dict[str, list[dict[str, float]]] = {"one rank on one core": [], "two on two": [], "one, and another": []}
    one, two, apart = sides.values()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as threads:
        for repeat in range(options.repeats):
            folders = [Path(name) / f"{side}-{repeat}" for side in ("1", "2", "apart-0", "apart-1")]
            one.append(trained(folders[0], "0", settings))
            two.append(trained(folders[1], "0,1", settings))
            apart += threads.map(trained, folders[2:], ("0", "1"), [settings] * 2)
            for folder in folders[1:]:
                unequal = differences(folders[0], folder)
                assert not unequal, f"the runs differ in {unequal}"
        for side, took in sides.items():
            parts = ", ".join(f"{phase} {median_range([one[phase] for one in took])}" for phase in PHASES)
            print(f"{side}: {median_range([sum(one.values()) for one in took])} s a step ({parts})")
        seconds, both, others = ([sum(run.values()) for run in took] for took in sides.values())
        at_once = [sum(pair) / 2 for pair in zip(others[::2], others[1::2], strict=True)]
        print(f"two ranks are faster by {median_range([a / b for a, b in zip(seconds, both, strict=True)])}")
        print(f"at best they were by {median_range([2 * a / b for a, b in zip(seconds, at_once, strict=True)])}")
        for what, milliseconds in leader(Path(name) / "written").items():
            print(f"{what} an attempt of 4,000 tokens: {milliseconds:.2f} ms")


def trained(folder: Path, cores: str, settings: list[str]) -> dict[str, float]:
    """Train with a rank on each of these cores; the median seconds of each phase."""
    run = [f"folder={folder.parent}", f"name={folder.name}", f"ranks.count={len(cores.split(','))}"]
    subprocess.run(
        ["taskset", "-c", cores, sys.executable, "-m", "longloop.cli.main", "train", "quickstart", *settings, *run],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"},
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line["time"] for line in lines if line["step"] > 1]
    return {phase: median(step[phase] for step in steps) for phase in PHASES}


def leader(folder: Path) -> dict[str, float]:
    """Milliseconds of CPU to pack, unpack and write an attempt."""
    task = Task("task", "train", {})

    def turn(number: int) -> Turn:
        return Turn(
            context=(Message("user", f"{number} " + "word " * 240),),
            context_ids=column(np.arange(320), "int64"),
            action=Message("assistant", f"{number} " + "word " * 60),
            action_ids=column(np.arange(80), "int64"),
            action_logprobs=column(np.linspace(-3, 0, 80), "float32"),
            restarts_context=False,
        )

    def attempt(number: int) -> Trajectory:
        return Trajectory(task, number, tuple(map(turn, range(10))), 1.0, True, StopReason.FINISHED)

    attempts = tuple(map(attempt, range(100)))
    packed = [pickle.dumps(one, 5) for one in attempts]

    def spent(work: Callable[[], object]) -> float:
        began = time.process_time()
        work()
        return (time.process_time() - began) / len(attempts) * 1e3

    return {
        "packing": spent(lambda: [pickle.dumps(one, 5) for one in attempts]),
        "unpacking": spent(lambda: [pickle.loads(one) for one in packed]),
        "writing (one rank does, too)": spent(lambda: Trajectories(folder).write(1, [Group(task, attempts)])),
    }


if __name__ == "__main__":
    main()
