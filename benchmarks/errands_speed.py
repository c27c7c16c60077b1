"""How fast Errands is, and how much memory it takes, through the whole environment interface on one core.

    .venv/bin/python benchmarks/errands_speed.py [--tasks 60] [--attempts 8] [--live 64] [--episodes 5000]
    .venv/bin/python benchmarks/errands_speed.py --against ../old

Steps per second are those of the expert's actions, said again over many tasks, from start() to finish(): with every
task new (its goal must be made and judged for the first time; scenarios share worlds, so a world is made once for many
of them, or, for comparison, for every task), and with many attempts at each task, as in training. Attempts at a task
say the same, and Errands parses equal code once; with "no code twice" each piece has a comment of its own. The time in
the sandbox's worker processes counts too, for they run on the same core. Steps per CPU second are what other programs
on the machine disturb least: they count the seconds that this process and its workers used. The memory of a live
episode is what the host process grows by, plus what the worker processes have for themselves alone.

`--against` another checkout: both do the same work on the same core in turns, a few tasks at a time, so that what else
the machine does meets both alike. Times are then CPU seconds, theirs divided by ours.
"""

import argparse
import itertools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import common

from errands.apps import make_world
from errands.catalog import _setting, _world
from errands.env import Errands
from longloop.types import Message, Task

TARGETS = {"steps": 1500, "world": 8, "memory": 1.5}
"""At least so many steps per second; at most so many milliseconds for a world, and MB for a live episode."""
Actions = list[Message]
_UNLIKE = itertools.count()
_PART = 2
"""Tasks, and worlds, in one turn of a comparison."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--attempts", type=int, default=8, help="at each task, for the second rate")
    parser.add_argument("--live", type=int, default=64, help="episodes that are open at once")
    parser.add_argument("--episodes", type=int, default=5000, help="for the long run")
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout to compare with, in turns")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.only == "memory":
        tasks = some_tasks(options.live, seed=2)
        print(*live_memory(tasks))
        return
    if options.only == "turns":
        take_turns(some_tasks(options.tasks, seed=1), options.attempts)
        return
    print(f"{common.machine()}; one core\n")
    if options.against:
        print_comparison(options.against, ["--tasks", str(options.tasks), "--attempts", str(options.attempts)])
        return
    tasks = some_tasks(options.tasks, seed=1)
    actions = {task.id: recorded(task) for task in tasks}
    turns = fmean(len(said) for said in actions.values())
    made = [milliseconds(lambda seed=seed: make_world(f"bench/{seed}").close()) for seed in range(options.worlds)]
    print(f"{len(tasks)} tasks, {turns:.1f} turns each\n\n| what | measured | target |\n|---|---:|---:|")
    alone = [new_rate(tasks, actions, worlds=True) for _ in range(3)]
    new = [new_rate(tasks, actions, worlds=False) for _ in range(3)]
    steps = options.attempts * turns * len(tasks)
    used = cpu_seconds(children())
    again = [rate(alike(task, actions[task.id], options.attempts)) for task in tasks]
    per_cpu = steps / (cpu_seconds(children()) - used)
    used = cpu_seconds(children())
    unlike = [rate(different(task, actions[task.id], options.attempts)) for task in tasks]
    unlike_per_cpu = steps / (cpu_seconds(children()) - used)
    at_least, at_most = f">= {TARGETS['steps']}", f"< {TARGETS['world']}"
    print(f"| steps per second, each task new and in a world of its own | {common.median_range(alone)} | |")
    print(f"| steps per second, each task new | {common.median_range(new)} | |")
    print(f"| steps per second, {options.attempts} attempts at a task | {common.median_range(again)} | {at_least} |")
    print(f"| the same per CPU second | {per_cpu:,.0f} | {at_least} |")
    print(
        f"| steps per second, {options.attempts} attempts at a task, no code twice | {common.median_range(unlike)} | |"
    )
    print(f"| the same per CPU second | {unlike_per_cpu:,.0f} | |")
    print(f"| making a world, CPU ms | {fmean(made):.1f}, worst {max(made):.1f} | {at_most} |")
    alone = common.run_alone(__file__, "--only", "memory", "--live", str(options.live))
    host, workers = map(int, alone.split()[-2:])
    each = (host + workers) / options.live / 1e6
    print(
        f"| memory per live episode ({options.live} at once), MB | {each:.2f} ({host / options.live / 1e6:.1f} host, "
        f"{workers / options.live / 1e6:.1f} worker) | < {TARGETS['memory']} |"
    )
    print_long_run(tasks, actions, options.episodes)


def some_tasks(count: int, seed: int) -> list[Task]:
    everything = itertools.chain(
        *(Errands.tasks(split, Errands.Options(per_scenario=3, seed=seed)) for split in ("train", "test_normal"))
    )
    return list(itertools.islice(everything, count))


def recorded(task: Task) -> Actions:
    """What the expert says."""
    env = Errands(Errands.Options())
    arrived, said, expert = env.start(task), [], env.expert(task)
    while text := expert.act(arrived):
        said.append(Message("assistant", text))
        step = env.step(said[-1])
        arrived = step.messages
        if step.done:
            break
    assert env.finish().success, task.id
    return said


def attempt(task: Task, said: Actions) -> None:
    env = Errands(Errands.Options())
    env.start(task)
    for action in said:
        env.step(action)
    assert env.finish().success


def alike(task: Task, said: Actions, attempts: int) -> list[tuple[Task, Actions]]:
    """Attempts that say the same."""
    return [(task, said)] * attempts


def different(task: Task, said: Actions, attempts: int) -> list[tuple[Task, Actions]]:
    """Attempts that do the same with code of which no piece is equal to another, of any task."""
    return [
        (
            task,
            [
                replace(one, content=one.content.replace("\n```python\n", f"\n```python\n# {next(_UNLIKE)}\n"))
                for one in said
            ],
        )
        for _ in range(attempts)
    ]


def rate(attempts: list[tuple[Task, Actions]]) -> float:
    """Steps per second over some attempts."""
    began = time.perf_counter()
    for task, said in attempts:
        attempt(task, said)
    return sum(len(said) for _, said in attempts) / (time.perf_counter() - began)


def forget(worlds: bool) -> None:
    """Make every task new again, and, if asked, the worlds that tasks of different scenarios share."""
    _setting.cache_clear()
    if worlds:
        _world.cache_clear()


def new_rate(tasks: list[Task], actions: dict[str, Actions], worlds: bool) -> float:
    """Steps per second over one attempt at each task, none of which was met before."""
    steps, seconds = 0, 0.0
    forget(worlds=True)
    for task in tasks:
        forget(worlds)
        began = time.perf_counter()
        attempt(task, actions[task.id])
        seconds += time.perf_counter() - began
        steps += len(actions[task.id])
    return steps / seconds


def milliseconds(what: object) -> float:
    """CPU time of this process."""
    began = time.process_time()
    what()  # type: ignore[operator]
    return 1e3 * (time.process_time() - began)


def cpu_seconds(workers: list[Path]) -> float:
    """CPU time that this process and its workers have used, those included that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    clocks = [~int(folder.name) << 3 | 2 for folder in workers if folder.exists()]
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(time.clock_gettime, clocks))


def status_fields(folder: Path) -> list[str]:
    """What /proc/<pid>/stat says after the process's name; nothing if it has ended."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children() -> list[Path]:
    """The folders of all child processes."""
    folders = Path("/proc").glob("[0-9]*")
    return [folder for folder in folders if status_fields(folder)[1:2] == [str(os.getpid())]]


def live_memory(tasks: list[Task]) -> tuple[int, int]:
    """What open episodes take, one of each task, each after two turns: bytes of this process, and of its workers alone.

    The first one is not counted: with it comes what all share.
    """
    live, before = [], (0, 0)
    for task in tasks:
        env = Errands(Errands.Options())
        arrived, expert = env.start(task), env.expert(task)
        for _ in range(2):
            arrived = env.step(Message("assistant", expert.act(arrived))).messages
        live.append(env)
        before = before if before[0] else (common.resident_bytes(), worker_bytes())
    after = common.resident_bytes(), worker_bytes()
    for env in live:
        env.finish()
    return after[0] - before[0], after[1] - before[1]


def worker_bytes() -> int:
    """The private memory of all child processes."""
    total = 0
    for folder in children():
        try:
            lines = (folder / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it ended meanwhile
        total += 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return total


def print_long_run(tasks: list[Task], actions: dict[str, Actions], episodes: int) -> None:
    """The cost of an episode and the memory, in ten parts of a long run."""
    part = max(1, episodes // 10)
    order = itertools.cycle(tasks)
    print(f"\nOver {10 * part} episodes, {part} at a time:\n\n| after | CPU ms per episode | host MB | workers MB |")
    print("|---:|---:|---:|---:|")
    costs, sizes = [], []
    for number in range(1, 11):
        spent = [
            milliseconds(lambda task=task: attempt(task, actions[task.id])) for task in itertools.islice(order, part)
        ]
        costs.append(median(spent))
        sizes.append(common.resident_bytes())
        print(f"| {number * part} | {costs[-1]:.1f} | {sizes[-1] / 1e6:.0f} | {worker_bytes() / 1e6:.0f} |")
    print(
        f"\nLast part against second: {costs[-1] / costs[1]:.2f} of the cost, {sizes[-1] / sizes[1]:.2f} of the memory."
    )


def print_comparison(other: Path, options: list[str]) -> None:
    """CPU seconds of another checkout divided by those of this one, for the same work in turns."""
    sides = [taking_turns(folder, options) for folder in (other, common.ROOT)]
    took: dict[str, list[list[float]]] = {}
    while (what := [their_turn(side) for side in sides])[0]:
        took.setdefault(what[0][0], []).append([float(seconds) for _, seconds in what])
    print(f"CPU seconds, {other.resolve().name} divided by {common.ROOT.name}:\n\n| what | ratio |\n|---|---:|")
    for name, pairs in took.items():
        theirs, ours = map(sum, zip(*pairs, strict=True))
        each = common.median_range([their / our for their, our in pairs])
        print(f"| {name} | {theirs / ours:.2f} (of {len(pairs)} parts: {each}) |")


def taking_turns(checkout: Path, options: list[str]) -> "subprocess.Popen[str]":
    """This program in another process, with the packages of a checkout."""
    return subprocess.Popen(
        [sys.executable, __file__, "--only", "turns", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(checkout.resolve())},
    )


def their_turn(side: "subprocess.Popen[str]") -> list[str]:
    """What a process did in its turn, and the CPU seconds that it took; nothing when all is done."""
    assert side.stdin is not None and side.stdout is not None
    side.stdin.write("\n")
    side.stdin.flush()
    return [part for part in side.stdout.readline().strip().split("\t") if part]


def take_turns(tasks: list[Task], attempts: int) -> None:
    """Do a part of the work whenever a line comes, and print what it was and how long it took."""
    actions = {task.id: recorded(task) for task in tasks}
    for start in range(0, len(tasks), _PART):
        part = tasks[start : start + _PART]
        for name, said_in in (("", alike), (", no code twice", different)):
            plays = [play for task in part for play in said_in(task, actions[task.id], attempts)]
            take_turn(f"{attempts} attempts at a task{name}", lambda plays=plays: rate(plays))
        take_turn("making a world", lambda start=start: [make_world(f"bench/{start + n}") for n in range(_PART)])
    input()
    print()


def take_turn(name: str, work: Callable[[], object]) -> None:
    input()
    workers = children()
    before = cpu_seconds(workers)
    work()
    print(name, cpu_seconds(workers) - before, sep="\t", flush=True)


if __name__ == "__main__":
    main()
