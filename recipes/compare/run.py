"""Nineteen methods under one budget, from the novice, with learning rates found by one rule.

    .venv/bin/python recipes/compare/run.py --jobs 16

The rule, the same for all: three learning rates, a third of that in longloop/configs/compare.toml, that one, and three
times as much; one run each, seed 0, with half of the steps; the one with the highest success on 51 tasks of `train` is
taken, of equal ones the smallest. Then seeds 0, 1 and 2 with the whole budget, measured on `unseen_worlds` and
`validation`. What is done already is not done again, so that it can be stopped at any moment and run once more.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
CONFIG = HERE.parents[1] / "longloop" / "configs" / "compare.toml"
METHODS = [
    *("loop", "variants:Turn", "variants:Trajectory", "grpo", "rloo", "ppo", "gigpo", "vineppo", "drpo", "empg"),
    *("epo", "cispo", "ei", "rft", "sft", "dpo", "eto", "stepagent_implicit", "stepagent_inverse"),
]
FACTORS = (1 / 3, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("settings", nargs="*", help="more settings, such as steps=2 for a trial")
    options = parser.parse_args()
    planned = plan(options.methods.split(","), options.settings)
    at_once = min(len(FACTORS), options.jobs)
    with ThreadPoolExecutor(at_once) as pool:
        searched = list(pool.map(partial(search, planned, options.settings, options.jobs // at_once), FACTORS))
    tried = {name: [found[name] for found in searched] for name in planned}
    best = {name: max(found, key=lambda one: (one[1], -one[0]))[0] for name, found in tried.items()}
    for name, found in tried.items():
        print(f"{name}: " + ", ".join(f"lr {lr:.2g} {share:.1%}" for lr, share in found) + f"; taken: {best[name]:.2g}")
    splits = ("--split", "unseen_worlds", "--split", "validation")
    compare("compare", best, options.settings, options.jobs, "--seeds", "3", *splits, base=True)


def plan(methods: list[str], settings: list[str]) -> dict[str, tuple[float, int]]:
    """The learning rate and the steps that each method has in the config."""
    sys.path.insert(0, str(HERE))
    from longloop.build import algorithm
    from longloop.compare import Plan

    entries = Plan(CONFIG, settings, methods, 1, "base").entries
    return {entry.method: (algorithm(entry.config).lr, entry.config.steps) for entry in entries}


def search(
    planned: dict[str, tuple[float, int]], settings: list[str], jobs: int, factor: float
) -> dict[str, tuple[float, float]]:
    """Half of the steps with each method's learning rate times `factor`: that rate, and the success on `train`."""
    rates = {name: lr * factor for name, (lr, _) in planned.items()}
    halves = [f"methods.{name}.steps={max(1, steps // 2)}" for name, (_, steps) in planned.items()]
    folder = compare(f"search-{factor:.2f}", rates, [*settings, *halves], jobs, "--seeds", "1")
    found = {name: folder / "results" / f"{name.replace(':', '.')}-0.json" for name in rates}
    return {
        name: (rates[name], json.loads(file.read_text())["splits"]["train"]["success"]) for name, file in found.items()
    }


def compare(
    name: str, rates: dict[str, float], settings: list[str], jobs: int, *words: str, base: bool = False
) -> Path:
    """`longloop compare` with these learning rates; the folder of its results."""
    methods = ",".join([*(["base"] if base else []), *rates])
    told = [f"methods.{method}.algo.lr={lr:.3g}" for method, lr in rates.items()]
    split = () if base else ("--split", "train")
    command = [sys.executable, "-m", "longloop.cli.main", "compare", str(CONFIG), f"name={name}", *told, *settings]
    command += ["--start", "base", "--jobs", str(jobs), "--methods", methods, *split, *words]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(HERE)})
    return Path("runs") / name


if __name__ == "__main__":
    main()
