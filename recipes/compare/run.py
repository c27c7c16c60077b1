"""Methods under one budget, from one start, with learning rates found by one rule.

    .venv/bin/python recipes/compare/run.py --jobs 16                                  nineteen, from the novice
    .venv/bin/python recipes/compare/run.py --config recipes/models/table1.toml ...    the paper's, from an instruct LLM

The rule, the same for all: three learning rates, a third of that in the config, that one, and three times as much; one
run each, seed 0, with half of the steps; the one with the highest success on `eval.tasks` tasks of `train` is taken, of
equal ones the smallest. `--as-given` takes those of the config. Then seeds 0, 1 and 2 with the whole budget, measured
on the splits. What is done already is not done again, so that it can be stopped at any moment and run once more.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
CONFIG = HERE.parents[1] / "longloop" / "configs" / "compare.toml"
METHODS = {
    "compare": [
        *("loop", "variants:Turn", "variants:Trajectory", "grpo", "rloo", "ppo", "gigpo", "vineppo", "drpo", "empg"),
        *("epo", "cispo", "ei", "rft", "sft", "dpo", "eto", "stepagent_implicit", "stepagent_inverse"),
    ],
    "table1": [
        *("sft", "sft_gt", "rft", "ei", "tree_dpo", "dmpo", "ppo", "rloo", "grpo", "variants:WithoutKl"),
        *("variants:Normalized", "variants:Trajectory", "variants:Turn", "loop"),
    ],
}
SPLITS = {
    "compare": ["unseen_worlds", "validation"],
    "table1": ["unseen_worlds", "dev", "validation", "test_normal", "test_challenge"],
}
FACTORS = (1 / 3, 1.0, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--methods", help="comma-separated; those of the table, if none are named")
    parser.add_argument("--start", default="base", help="the method that the others start from")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--as-given", action="store_true", help="take the config's learning rates, without a search")
    parser.add_argument("--best", action="store_true", help="measure the checkpoints that were evaluated best")
    parser.add_argument("settings", nargs="*", help="more settings, such as steps=2 for a trial")
    options = parser.parse_args()
    table = options.config.stem
    methods = options.methods.split(",") if options.methods else METHODS.get(table)
    if methods is None:
        parser.error(f"name the methods to compare with {options.config}: --methods loop,grpo")
    compare = Comparison(options.config, methods, options.settings, options.jobs, options.start)
    rates = {} if options.as_given else compare.found_rates()
    splits = [word for split in SPLITS.get(table, SPLITS["compare"]) for word in ("--split", split)]
    best = ["--best"] if options.best else []
    compare.run(table, ["base", *methods], rates, "--seeds", str(options.seeds), *splits, *best)


@dataclass(frozen=True)
class Comparison:
    """A config, the methods that are compared with it, and how."""

    config: Path
    methods: list[str]
    settings: list[str]
    jobs: int
    start: str

    def found_rates(self) -> dict[str, float]:
        """The learning rate of each method that the rule finds. The method that the others start from keeps its own."""
        searched = [name for name in self.methods if name != self.start]
        at_once = min(len(FACTORS), self.jobs)
        with ThreadPoolExecutor(at_once) as pool:
            search = partial(replace(self, jobs=self.jobs // at_once).search, self.plan(searched))
            found = list(pool.map(search, FACTORS))
        best = {}
        for name in searched:
            tried = [one[name] for one in found]
            best[name] = max(tried, key=lambda one: (one[1], -one[0]))[0]
            said = ", ".join(f"lr {lr:.2g} {share:.1%}" for lr, share in tried)
            print(f"{name}: {said}; taken: {best[name]:.2g}")
        return best

    def plan(self, methods: list[str]) -> dict[str, tuple[float, int]]:
        """The learning rate and the steps that each method has in the config."""
        sys.path.insert(0, str(HERE))
        from longloop.build import algorithm
        from longloop.compare import Plan

        entries = Plan(self.config, self.settings, methods, 1, self.start).entries
        return {entry.method: (algorithm(entry.config).lr, entry.config.steps) for entry in entries}

    def search(self, planned: dict[str, tuple[float, int]], factor: float) -> dict[str, tuple[float, float]]:
        """Half of the steps with each method's learning rate times `factor`: that rate, and the success on `train`."""
        rates = {name: lr * factor for name, (lr, _) in planned.items()}
        halves = [f"methods.{name}.steps={max(1, steps // 2)}" for name, (_, steps) in planned.items()]
        name, one_seed = f"search-{self.config.stem}-{factor:.2f}", ("--seeds", "1", "--split", "train")
        folder = replace(self, settings=[*self.settings, *halves]).run(name, [*rates], rates, *one_seed)
        return {
            name: (rate, json.loads(file.read_text())["splits"]["train"]["success"])
            for name, rate in rates.items()
            for file in [folder / "results" / f"{name.replace(':', '.')}-0.json"]
        }

    def run(self, name: str, methods: list[str], rates: dict[str, float], *words: str) -> Path:
        """`longloop compare` with these learning rates; the folder of its results."""
        told = [f"methods.{method}.algo.lr={lr:.3g}" for method, lr in rates.items()]
        compared = [*dict.fromkeys([*([] if self.start == "base" else [self.start]), *methods])]
        command = [sys.executable, "-m", "longloop.cli.main", "compare", str(self.config), f"name={name}", *told]
        command += [*self.settings, "--start", self.start, "--jobs", str(self.jobs), "--methods", ",".join(compared)]
        done = subprocess.run([*command, *words], env=os.environ | {"PYTHONPATH": str(HERE)})
        if done.returncode:
            raise SystemExit(done.returncode)  # it has said why
        return Path("runs") / name


if __name__ == "__main__":
    main()
