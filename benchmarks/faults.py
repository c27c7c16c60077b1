"""What faults in workers cost: a collection with some of each kind, beside the same one without any.

    .venv/bin/python benchmarks/faults.py

The environment (tests/support/obedient.py) does what it is told, and some attempts tell it to kill its worker with
SIGKILL, never to return, to answer after the deadline, to use up its memory, to write garbage on its pipe, or to lie
about being done. Both collections are made in turn, several times. "waiting" is what the deadlines alone cost: every
step that hangs or is late holds a worker until then, whatever is done about it.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import fmean, median
from typing import Any

import common

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from longloop.algos.loop import Loop
from longloop.types import Group, Message, Now, Start
from tests.support.obedient import FAULTS, Obedient, children, made, paid, plain, plan, pool, script
from tests.support.worlds import rollouts

K = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.05, help="of the episodes, for each kind of fault")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--deadline", type=float, default=3.0, help="seconds that a step may take")
    parser.add_argument("--memory", type=int, default=200, help="MB that a worker may use")
    parser.add_argument("--thinking", type=float, default=0.1, help="seconds that the agent thinks about each action")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    tasks = Obedient.tasks("train")
    bad = plan(len(tasks) * K, options.share, K)
    print(f"{common.machine()}\n")
    begin, call = zip(*(asyncio.run(trip()) for _ in range(5)), strict=True)
    print(f"Starting a worker: {common.median_range([1e3 * x for x in begin])} ms.")
    print(f"A step in one takes longer than inline by {common.median_range([1e3 * x for x in call])} ms.\n")
    print(f"{len(tasks) * K} episodes, {options.workers} workers, {len(bad)} faults, {options.deadline:g} s a step\n")
    clean, faulty = [], []
    for _ in range(options.repeats):
        clean.append(collected({}, options))
        faulty.append(collected(bad, options))
    print("| fault | episodes | ended as | paid |\n|---|---:|---|---:|")
    for fault in FAULTS:
        some = [g[place].trajectories[n] for g, *_ in faulty for (place, n), word in bad.items() if word == fault]
        stops = ", ".join(f"{stop} {count}" for stop, count in Counter(str(t.stop) for t in some).items())
        print(f"| {fault} | {len(some)} | {stops} | {sum(t.reward for t in some):g} |")
    equal = [
        one == other
        for (reference, *_), (groups, *_) in zip(clean, faulty, strict=True)
        for p, (whole, group) in enumerate(zip(plain(reference), plain(groups), strict=True))
        for n, (one, other) in enumerate(zip(whole.trajectories, group.trajectories, strict=True))
        if (p, n) not in bad
    ]
    print(f"\nOther episodes equal to those without faults: {sum(equal)} of {len(equal)}.")
    worst = max(difference(groups, bad) for groups, *_ in faulty)
    print(f"Largest difference of an advantage from the one computed by hand: {worst:.1e}.")
    print(f"Zombies: {max(zombies for *_, zombies in clean + faulty)}. Workers at the end: at most {options.workers}.")
    lost = options.deadline * sum(word in ("hang", "late") for word in bad.values()) / options.workers
    ratios = [b[1] / a[1] for a, b in zip(clean, faulty, strict=True)]
    print(f"\nSeconds without faults: {common.median_range([took for _, took, _ in clean])}.")
    print(f"Seconds with them: {common.median_range([took for _, took, _ in faulty])}; {lost:.1f} of it is waiting.")
    without = median((b[1] - lost) / a[1] for a, b in zip(clean, faulty, strict=True))
    print(f"Slower by {common.median_range(ratios)} in all, and {without:.2f} apart from the waiting.")


async def trip(steps: int = 500) -> tuple[float, float]:
    """Seconds to have a worker, and of each step over those of the same step inline."""
    where, said = pool(size=1), Message("assistant", "add 1")

    async def timed(env: Any) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            await env.step(said)
        return time.perf_counter() - began

    began = time.perf_counter()
    env = made(where)()
    await env.ready()
    begin = time.perf_counter() - began
    isolated, inline = await timed(env), await timed(Obedient(Obedient.Options()))
    where.close()
    return begin, (isolated - inline) / steps


def collected(faults: dict[tuple[int, int], str], options: Any) -> tuple[list[Group], float, int]:
    """The groups, the seconds, and the zombies a second later."""
    where = pool(size=options.workers, memory=options.memory, options={"late": 2 * options.deadline})
    what = rollouts(made(where), say=script(faults), step_seconds=options.deadline, straggler_cutoff=1.0)
    engine: Any = what.context.engine
    sample = engine.sample

    async def slowly(ids: Any, params: Any, *, session: str) -> Any:
        await asyncio.sleep(options.thinking)
        return await sample(ids, params, session=session)

    engine.sample = slowly
    began = time.perf_counter()
    groups = asyncio.run(what.play([Start(task) for task in Obedient.tasks("train")], K, 0))
    took = time.perf_counter() - began
    time.sleep(1)
    zombies = list(children().values()).count("Z")
    assert len(where.pids) <= options.workers
    where.close()
    return groups, took, zombies


def difference(groups: list[Group], bad: dict[tuple[int, int], str]) -> float:
    """Between the advantages that LOOP gives, and reward minus the mean of the others' that were not at fault."""
    found = []
    for sample in Loop(drop_below=0.0).credit(groups, None, Now(1, 1)):  # type: ignore[arg-type]
        index, attempt = sample.source
        others = [paid(index, n) for n in range(K) if (index, n) not in bad and n != attempt]
        by_hand = paid(index, attempt) - fmean(others)
        found.append(abs(max(sample.advantages, key=abs) - by_hand))
    assert len(found) == len(groups) * K - len(bad)
    return max(found)


if __name__ == "__main__":
    main()
