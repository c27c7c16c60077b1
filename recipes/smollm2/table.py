"""The table of recipes/smollm2/run.sh: means over its seeds, with 95% intervals by Student's t."""

import json
from pathlib import Path

from longloop.compare import over_seeds

RESULTS = Path("runs/smollm2-results")
SPLITS = ["fresh", "dev", "test_normal", "test_challenge"]


def cell(values: list[float]) -> str:
    mean, reach = over_seeds(values)
    return f"{100 * mean:.1f} ± {100 * reach:.1f}" if len(values) > 1 else f"{100 * mean:.1f}"


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
