"""Learning curves of what recipes/compare/run.py has run: success on the tasks of each step against attempts, mean of
the seeds, by family.

    python recipes/compare/curves.py PICTURE.png
"""

import sys
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from longloop.store.run_reader import RunReader

RUNS = Path("runs/compare")
FAMILIES = {
    "LOOP and its ratios": ["loop", "variants.Turn", "variants.Trajectory", "cispo"],
    "Advantages of a group": ["loop", "grpo", "rloo", "empg", "epo"],
    "Credit for turns": ["loop", "ppo", "gigpo", "vineppo", "drpo"],
    "Imitation of its own successes": ["loop", "ei"],
}
SMOOTH = 3
"""Steps that a point is the mean of."""


def curve(method: str) -> tuple[list[int], list[float]]:
    """Attempts so far and success, where the method's seeds all have a step."""
    runs = [[m for m in RunReader(folder).metrics if "success" in m] for folder in sorted(RUNS.glob(f"{method}-?"))]
    steps = list(zip(*runs, strict=True))
    attempts = list(accumulate(round(fmean(m["attempts"] for m in step)) for step in steps))
    success = [fmean(m["success"] for m in step) for step in steps]
    smooth = [fmean(success[max(0, n - SMOOTH + 1) : n + 1]) for n in range(len(success))]
    return attempts, smooth


def main() -> None:
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (title, methods) in zip(
        figure.subplots(2, 2, sharex=True, sharey=True).flat, FAMILIES.items(), strict=True
    ):
        for method in methods:
            label = method.removeprefix("variants.")
            axes.plot(*curve(method), label=label, color="black" if method == "loop" else None)
        axes.set(title=title, ylim=(0, 1), xlabel="attempts", ylabel=f"success, mean of {SMOOTH} steps and 3 seeds")
        axes.legend()
    figure.savefig(sys.argv[1], dpi=110)


if __name__ == "__main__":
    main()
