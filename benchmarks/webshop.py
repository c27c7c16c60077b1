"""How fast WebShop is on one core, from start() to finish(), and what the shop takes in memory.

    .venv/bin/python benchmarks/webshop.py FOLDER [--tasks 500] [--repeats 5]

FOLDER has WebShop's data (docs/environments/webshop.md). Everyone who needs no model plays the test split's tasks; what
they decide counts too. Rates by the clock suffer from what else the machine does; those by CPU time hardly do.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence

import common

from longloop.envs.play import play
from longloop.envs.webshop.env import WebShop
from longloop.types import Task

TARGET = 500
"""Steps per second."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(f"{common.machine()}; one core\n")
    before, began = common.resident_bytes(), time.process_time()
    tasks = WebShop.tasks("test", WebShop.Options(options.folder))[: options.tasks]
    seconds, grown = time.process_time() - began, (common.resident_bytes() - before) / 1e6
    print(f"The shop and its index: {seconds:.1f} s of CPU time, {grown:.0f} MB, once per process.\n")
    print(f"| {len(tasks)} tasks | steps a task | steps per second | by CPU time | target |\n|---|---:|---:|---:|---:|")
    for name in ("expert", "random clicks", "buy first result"):
        runs = [visits(options.folder, tasks, name) for _ in range(options.repeats)]
        wall = common.median_range([steps / seconds for steps, seconds, _ in runs])
        cpu = common.median_range([steps / seconds for steps, _, seconds in runs])
        print(f"| {name} | {runs[0][0] / len(tasks):.1f} | {wall} | {cpu} | >= {TARGET} |")


def visits(folder: str, tasks: Sequence[Task], name: str) -> tuple[int, float, float]:
    """The steps of one visit for each task, and the seconds they took, by the clock and of CPU time."""
    steps, wall, cpu = 0, time.perf_counter(), time.process_time()
    for task in tasks:
        env = WebShop(WebShop.Options(folder))
        player = env.expert(task) if name == "expert" else env.baselines(task)[name]
        steps += asyncio.run(play(env, task, player)).turns
    return steps, time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
