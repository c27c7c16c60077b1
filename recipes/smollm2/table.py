"""The table of recipes/smollm2/run.sh: means over its seeds, with 95% intervals by Student's t."""

import json
import math
from pathlib import Path
from statistics import fmean, stdev

RESULTS = Path("runs/smollm2-results")
SPLITS = ["dev", "test_normal", "test_challenge"]
T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""The 97.5% point of Student's t for so many seeds."""


def cell(values: list[float]) -> str:
    mean = 100 * fmean(values)
    if len(values) < 2:
        return f"{mean:.1f}"
    reach = 100 * T[len(values)] * stdev(values) / math.sqrt(len(values))
    return f"{mean:.1f} ± {reach:.1f}"


def main() -> None:
    found = {
        side: [json.loads(file.read_text()) for file in sorted(RESULTS.glob(f"{side}-*.json"))]
        for side in ("base", "sft", "loop")
    }
    print("| | seeds |" + "".join(f" {split} TGC | SGC |" for split in SPLITS))
    print("|---|---|" + "---|---|" * len(SPLITS))
    for side, runs in found.items():
        if runs:
            columns = [(split, what) for split in SPLITS for what in ("success", "scenarios")]
            cells = [cell([run[split][what] for run in runs]) for split, what in columns]
            print(f"| {side} | {len(runs)} | " + " | ".join(cells) + " |")
    pairs = list(zip(found["sft"], found["loop"], strict=False))
    gains = [[after[split]["success"] - before[split]["success"] for before, after in pairs] for split in SPLITS]
    if all(gains):
        print("| LOOP over SFT | | " + " | ".join(f"{cell(gain)} | " for gain in gains) + "|")


if __name__ == "__main__":
    main()
