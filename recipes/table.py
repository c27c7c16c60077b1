"""What a recipe has found so far (recipes/smollm2/run.sh, recipes/models/run.sh): the table, means over seeds with 95%
intervals by Student's t; how many attempts succeed, by the number of APIs that the errand needs; LOOP's training, ten
steps a line; and, as a picture, its success on dev.

    python recipes/table.py smollm2|qwen [PICTURE.png]
"""

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from errands.catalog import by_name
from longloop.stats import seed_interval
from longloop.store.run_reader import load_run

SPLITS = ["unseen_worlds", "dev", "validation", "test_normal", "test_challenge"]


def cell(values: list[float], lowest: float = 0.0) -> str:
    mean, interval = seed_interval(values, (lowest, 1.0))
    return f"{100 * mean:.1f}" + (f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else "")


def tens(steps: list[Any], size: int = 10) -> list[list[Any]]:
    return [steps[first : first + size] for first in range(0, len(steps), size)]


def table(results: Path) -> None:
    found = {
        side: {file.stem[-1]: json.loads(file.read_text()) for file in sorted(results.glob(f"{side}-*.json"))}
        for side in ("base", "sft", "loop", "careful")
    }
    versions = {run[split].get("env_version", "") for runs in found.values() for run in runs.values() for split in run}
    if len(versions) > 1:
        sys.exit(f"{results} has results of different versions of Errands ({', '.join(map(repr, sorted(versions)))}).")
    print("| | seeds |" + "".join(f" {split} TGC | SGC |" for split in SPLITS))
    print("|---|---|" + "---|---|" * len(SPLITS))
    for side, runs in found.items():
        if runs:
            columns = [(split, what) for split in SPLITS for what in ("success", "scenarios")]
            cells = [cell([run[split][what] for run in runs.values()]) for split, what in columns]
            print(f"| {side} | {', '.join(runs)} | " + " | ".join(cells) + " |")
    starts = {n: found["sft"].get(n) or found["sft"].get("0") for n in found["loop"]}  # its own, or one for all
    pairs = [(start, found["loop"][n]) for n, start in starts.items() if start]
    gains = [[after[split]["success"] - before[split]["success"] for before, after in pairs] for split in SPLITS]
    if pairs:
        print("| LOOP over SFT | | " + " | ".join(f"{cell(gain, lowest=-1.0)} | " for gain in gains) + "|")


def sizes(attempts: Path) -> None:
    """The same attempts, of all seeds together, apart by whether two APIs are enough for the errand."""
    for side in ("sft", "loop"):
        for split in SPLITS:
            stored = [load_run(folder).stored["eval"] for folder in sorted(attempts.glob(f"{side}-*/{split}"))]
            tried = [entry for some in stored for step in some.steps() for entry in some.entries(step)]
            small = [len(by_name()[entry.task.split("/")[1]].apis) <= 2 for entry in tried]
            for size, wanted in (("one or two APIs", True), ("three and more", False)):
                those = [entry.success for entry, few in zip(tried, small, strict=True) if few == wanted]
                if those:
                    print(f"{side}, {split}, {size}: {sum(those)} of {len(those)}")


def training(name: str, steps: list[dict[str, Any]]) -> None:
    print(f"\n{name}: {sum(sum(step['time'].values()) for step in steps) / 3600:.3f} hours")
    for some in tens(steps):
        means = {key: fmean(step[key] for step in some) for key in ("success", "equal_groups", "turns")}
        means |= {
            key: fmean(step["update"].get(key, 0.0) for step in some)
            for key in ("kl", "entropy", "clipped", "grad_norm")
        }
        means |= {phase: fmean(step["time"][phase] for step in some) for phase in ("collect", "update")}
        print(f"  steps {some[0]['step']} to {some[-1]['step']}:", ", ".join(f"{k} {v:.3g}" for k, v in means.items()))


def picture(runs: list[list[dict[str, Any]]], path: str) -> None:
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
    for lines in runs:
        axes.plot(
            *zip(*((x["step"], x["eval"]["success"]) for x in lines if "eval" in x), strict=True), "o-", alpha=0.3
        )
        trained = [x for x in lines if "success" in x]
        smooth = [(some[-1]["step"], fmean(x["success"] for x in some)) for some in tens(trained, 5)]
        axes.plot(*zip(*smooth, strict=True), ":", alpha=0.3)
    shared = sorted(set.intersection(*({x["step"] for x in lines if "eval" in x} for lines in runs)))
    at = [
        [x["eval"]["success"] for lines in runs for x in lines if x["step"] == step and "eval" in x] for step in shared
    ]
    intervals = [(mean, ends or (mean, mean)) for mean, ends in map(seed_interval, at)]
    reaches = [[mean - low for mean, (low, _) in intervals], [high - mean for mean, (_, high) in intervals]]
    label = f"dev, mean of {len(runs)} seeds, 95%"
    axes.errorbar(shared, [mean for mean, _ in intervals], reaches, color="black", capsize=3, label=label)
    axes.plot([], [], ":", color="grey", label="training tasks, five steps at a time")
    axes.set(xlabel="LOOP step", ylabel="success", ylim=(0, 1))
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    name, pictures = sys.argv[1], sys.argv[2:]
    table(Path(f"runs/{name}-results"))
    print()
    sizes(Path(f"runs/{name}-attempts"))
    folders = [path.parent for path in sorted(Path("runs").glob(f"{name}-loop-*/metrics.jsonl"))]
    runs = {folder.name: load_run(folder).metrics for folder in folders}
    for name, lines in runs.items():
        training(name, [line for line in lines if "time" in line])
    if runs and pictures:
        picture(list(runs.values()), pictures[0])


if __name__ == "__main__":
    main()
