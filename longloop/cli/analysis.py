"""What `longloop analyze` shows: the behaviours of each run at both ends, and a picture of them over the steps."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from longloop import analyze as counting
from longloop.analyze import BEHAVIOURS, Analysis, Behaviour, Change, Part, Tasks, spread, totals
from longloop.types import UserError

console = Console(highlight=False, markup=False)


def analyze(folders: Sequence[Path], as_json: bool) -> None:
    runs = [(folder, counting.analyze(folder)) for folder in folders]
    if as_json:
        print(json.dumps([to_json(folder, analysis) for folder, analysis in runs]))
        return
    if len(runs) == 1:
        console.print(str(folders[0]), soft_wrap=True)
    console.print(table(runs))
    console.print()
    for folder, analysis in runs:
        if not analysis.coded:
            said = f"No turn of {folder} has Python in it: look-ups, code cells and failed APIs are 0 there."
            console.print(said, soft_wrap=True)
        picture = folder / "behaviours.png"
        draw(analysis, picture)
        console.print(f"Every step is in {picture}.", soft_wrap=True)


def table(runs: Sequence[tuple[Path, Analysis]]) -> Table:
    """A row for each behaviour, a block of columns for each run (with its name, when there are several)."""
    grid = Table(box=None, pad_edge=False)
    columns = [["", *(behaviour.title for behaviour in BEHAVIOURS), "attempts"]]
    for folder, analysis in runs:
        columns += _block(f"{folder}\n" if len(runs) > 1 else "", analysis)
    for heading, *_ in columns:
        grid.add_column(heading)
    for row in list(zip(*columns, strict=True))[1:]:
        grid.add_row(*row)
    return grid


def to_json(folder: Path, analysis: Analysis) -> dict[str, Any]:
    """All that was counted and found."""

    def part(part: Part | None) -> dict[str, Any] | None:
        return {"steps": part.steps, "tasks": len(part.tasks), "counts": part.sums} if part else None

    def course(steps: dict[int, Tasks]) -> list[dict[str, Any]]:
        return [
            {"step": step, "counts": sums} | {behaviour.counted: behaviour.rate(sums) for behaviour in BEHAVIOURS}
            for step, sums in totals(steps).items()
        ]

    return {
        "run": str(folder),
        "code": analysis.coded,
        "compared": "evaluations" if analysis.evaluated else "training",
        "first": part(analysis.first),
        "last": part(analysis.last),
        "changes": {name: vars(change) for name, change in analysis.changes.items()},
        "training": course(analysis.training),
        "evaluations": course(analysis.evaluations),
    }


def draw(analysis: Analysis, picture: Path) -> None:
    """Each behaviour over the steps, in training and in evaluation with its interval, as a picture."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9.6, 5), layout="constrained")
    *panels, legend = figure.subplots(2, 3).flatten()
    for behaviour, axes in zip(BEHAVIOURS, panels, strict=True):
        training, evaluations = _course(behaviour, analysis.training), _course(behaviour, analysis.evaluations)
        if training:
            axes.plot(training.keys(), training.values(), ".-", color="0.7", label="training tasks")
        if evaluations:
            spreads = [spread(behaviour, tasks) or (math.nan, math.nan) for tasks in analysis.evaluations.values()]
            axes.fill_between(evaluations.keys(), *zip(*spreads, strict=True), color="C0", alpha=0.2, linewidth=0)
            axes.plot(evaluations.keys(), evaluations.values(), "o-", color="C0", label="evaluation, 95% interval")
        seen = any(rate > 0 for rate in (*training.values(), *evaluations.values()))
        axes.set(xlabel="step", ylim=(0, None if seen else 1))
        axes.set_title(behaviour.title, fontsize="medium")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    legend.axis("off")
    legend.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="center")
    try:
        figure.savefig(picture, dpi=150)
    except OSError as error:
        why = error.strerror or error
        raise UserError(
            f"Cannot write {picture}: {why}. Make room for it, or use --json, which draws nothing."
        ) from error


def _block(name: str, analysis: Analysis) -> list[list[str]]:
    """A run's columns, each with its heading and its cells."""

    def column(part: Part, above: str) -> list[str]:
        size = f"{part.sums['attempts']:,}, {len(part.tasks):,} tasks"
        return [above + _heading(part, analysis.evaluated), *(_rate(b, part) for b in BEHAVIOURS), size]

    if analysis.last is None:
        return [column(analysis.first, name)]
    below = "\n" if name else ""
    changes = [_difference(behaviour, analysis.changes[behaviour.counted]) for behaviour in BEHAVIOURS]
    drawn = "tasks paired" if analysis.evaluated else "tasks not paired"
    return [column(analysis.first, name), column(analysis.last, below), [f"{below}change [95%]", *changes, drawn]]


def _heading(part: Part, evaluated: bool) -> str:
    first, last = part.steps[0], part.steps[-1]
    if evaluated:
        return "before" if first == 0 else f"after step {first}"
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _rate(behaviour: Behaviour, part: Part) -> str:
    rate, out_of = behaviour.rate(part.sums), part.sums[behaviour.out_of]
    if rate is None:
        return "- of 0"
    return f"{rate:.1%} of {out_of:,}" if behaviour.share else f"{rate:.2f}"


def _difference(behaviour: Behaviour, change: Change) -> str:
    if change.difference is None:
        return ""
    scale, form, unit = (100, "+.1f", " points") if behaviour.share else (1, "+.2f", "")
    interval = ", ".join(f"{scale * end:{form}}" for end in change.interval or ())
    return f"{scale * change.difference:{form}}{unit}" + (f" [{interval}]" if interval else "")


def _course(behaviour: Behaviour, steps: dict[int, Tasks]) -> dict[int, float]:
    """The rate of each step; NaN, which is not drawn, where there is nothing to divide by."""
    rates = {step: behaviour.rate(sums) for step, sums in totals(steps).items()}
    return {step: math.nan if rate is None else rate for step, rate in rates.items()}
