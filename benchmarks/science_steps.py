"""How fast ScienceWorld steps: the expert says its actions again, in one task of each of the 30 kinds.

    ~/.cache/longloop/envs/scienceworld/bin/python benchmarks/science_steps.py [--rounds 3]

Run it with the Python of ScienceWorld's virtualenv. Rates are by the clock and by the JVM's processor time (all its
threads, compiler and garbage collection included), which is steadier on a busy machine; the first round warms the JVM
up. Starting a task is not counted, nor is making the gold paths, which takes minutes.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # that virtualenv has no longloop

from longloop.envs.scienceworld import _MACHINE, ScienceWorld
from longloop.types import Message, Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    tasks = list(
        {task.data["kind"]: task for task in reversed(ScienceWorld.tasks("train", ScienceWorld.Options()))}.values()
    )
    lines = {task.id: said(task) for task in tasks}
    for number in range(rounds):
        steps, clock, processor, rates = 0, 0.0, 0.0, []
        for task in tasks:
            env = ScienceWorld(ScienceWorld.Options())
            env.start(task)
            began, used = time.perf_counter(), jvm_seconds()
            taken = 0
            for action in lines[task.id]:
                taken += 1
                if env.step(action).done:
                    break
            took = time.perf_counter() - began
            rates.append(taken / took)
            steps, clock, processor = steps + taken, clock + took, processor + jvm_seconds() - used
        print(
            f"round {number + 1}: {len(tasks)} kinds, {steps} steps, {steps / clock:.0f} a second by the clock (the "
            f"median kind {median(rates):.0f}, {sum(rate >= 40 for rate in rates)} kinds 40 or more), "
            f"{steps / processor:.0f} by the JVM's processor time",
            flush=True,
        )


def said(task: Task) -> list[Message]:
    expert, lines = ScienceWorld(ScienceWorld.Options()).expert(task), []
    while line := expert.act(()):
        lines.append(Message("assistant", line))
    return lines


def jvm_seconds() -> float:
    process = _MACHINE._simulator._gateway.java_process.pid
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
