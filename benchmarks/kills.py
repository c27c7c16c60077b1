"""Equal runs: the quick start, shortened, killed at random moments and resumed, against runs that nobody disturbed.

    .venv/bin/python benchmarks/kills.py --kills 50 --load 4

`--load` is the number of processes that compute beside them. Run folders are compared to the bit: tokens, log-probs,
weights, optimizer and metrics; all but times and memory. Exits with 1 when any two differ.
"""

import argparse
import functools
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.processes import Longloop
from tests.support.runs import differences

SHORT = [
    *("steps=3", "tasks_per_step=2", "algo.k=8", "algo.minibatch=8", "doctor=false", "model.device=cpu"),
    *("env.per_scenario=4", "eval.every=2", "eval.tasks=3", "eval.attempts=1"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--undisturbed", type=int, default=3)
    parser.add_argument("--load", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.monotonic()
        finished(Longloop(*command(folder / "first")))
        seconds = time.monotonic() - began
        busy = [multiprocessing.Process(target=compute, daemon=True) for _ in range(options.load)]
        for process in busy:
            process.start()
        unequal = 0
        for number in range(1, options.undisturbed):
            other = folder / f"undisturbed-{number}"
            finished(Longloop(*command(other)))
            unequal += told(f"undisturbed {number}", folder / "first", other)
        moments = [chance.random() * seconds for _ in range(options.kills)]
        with ThreadPoolExecutor(options.jobs) as pool:
            unequal += sum(pool.map(functools.partial(killed, folder), range(options.kills), moments))
    print(f"{options.undisturbed} undisturbed runs and {options.kills} killed and resumed ones: {unequal} differ.")
    sys.exit(1 if unequal else 0)


def killed(folder: Path, number: int, after: float) -> bool:
    """Whether a run that is killed after so many seconds, and resumed, differs from the first one."""
    other = folder / f"killed-{number}"
    process = Longloop(*command(other))
    time.sleep(after)
    while process.poll() is not None:  # it was over before: sooner, then
        after /= 2
        shutil.rmtree(other)
        process = Longloop(*command(other))
        time.sleep(after)
    process.kill()
    process.finish()
    run = other / "run"
    begun = (run / "run.json").exists()
    if not begun:
        shutil.rmtree(other, ignore_errors=True)  # killed before there was a run to resume
    finished(Longloop(*(["train", "--resume", str(run)] if begun else command(other))))
    differs = told(f"kill {number + 1}, after {after:.1f} s", folder / "first", other)
    shutil.rmtree(other)
    return differs


def command(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return ["train", "quickstart", f"folder={folder}", "name=run", *SHORT]


def finished(process: Longloop) -> None:
    code, output = process.finish(seconds=1800)
    if code:
        sys.exit(f"A run ended with {code}:\n{output}")


def told(what: str, one: Path, other: Path) -> bool:
    found = differences(one / "run", other / "run")
    print(f"{what}: {'equal' if not found else 'differs in ' + ', '.join(found)}", flush=True)
    return bool(found)


def compute() -> None:
    while True:
        sum(n * n for n in range(10**6))


if __name__ == "__main__":
    main()
