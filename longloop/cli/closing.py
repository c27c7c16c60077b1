"""What a person sees when a run is over: before and after, the learning curve, and one task done both ways."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from longloop.store.metrics import cells
from longloop.store.run import Run
from longloop.types import Message, Trajectory

_LINES = 14
"""Of a message, before it is cut."""


def show(run: Run, console: Console) -> None:
    """The end of a training run, and where everything is."""
    lines = run.metrics.read()
    measured = [line for line in lines if "eval" in line]
    if len(measured) > 1:
        pair = _telling_pair(run, measured[0]["step"], measured[-1]["step"])
        if pair is not None:
            console.print(_side_by_side(*pair))
    first_and_last = [measured[0], measured[-1]] if len(measured) > 1 else measured
    headings = ["before training" if line["step"] == 0 else f"after step {line['step']}" for line in first_and_last]
    console.print()
    console.print(table([line["eval"] for line in first_and_last], headings))
    picture = run.folder / "curve.png"
    draw(lines, picture)
    console.print(f"\nThe learning curve is in {picture}, everything else beside it.", soft_wrap=True)
    console.print(f"Measure again with `longloop eval {run.folder}`.", soft_wrap=True)


def table(evaluations: Sequence[dict[str, Any]], headings: Sequence[str] = ()) -> Table:
    """Evaluations side by side."""
    grid = Table(box=None, show_header=bool(headings), pad_edge=False)
    grid.add_column("")
    for heading in headings or [""] * len(evaluations):
        grid.add_column(heading)
    columns = [cells(evaluation) for evaluation in evaluations]
    for name in columns[0]:
        grid.add_row(name, *(cells[name] for cells in columns))
    return grid


def draw(lines: Sequence[dict[str, Any]], picture: Path) -> None:
    """Success over steps, in training and in evaluation with its interval, as a picture."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    trained = [line for line in lines if "success" in line]
    axes.plot([x["step"] for x in trained], [x["success"] for x in trained], color="0.7", label="training tasks")
    measured = [line for line in lines if "eval" in line]
    steps, shares = [x["step"] for x in measured], [x["eval"]["success"] for x in measured]
    low, high = zip(*(x["eval"]["success_interval"] for x in measured), strict=True)
    axes.fill_between(steps, low, high, color="C0", alpha=0.2, linewidth=0)
    axes.plot(steps, shares, "o-", color="C0", label="evaluation, 95% interval")
    axes.axhline(measured[-1]["eval"]["floor_success"], color="0.5", linestyle=":", label="doing nothing")
    axes.set(xlabel="step", ylabel="success", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def _telling_pair(run: Run, before: int, after: int) -> tuple[Trajectory, Trajectory] | None:
    """Attempts at one task, a failure before and a success after; the shortest that there is."""
    failed = {t.task.id: t for g in run.evaluations.read(before) for t in g.scored if not t.success and t.turns}
    pairs = [
        (failed[t.task.id], t)
        for group in run.evaluations.read(after)
        for t in group.scored
        if t.success and t.task.id in failed
    ]
    return min(pairs, key=lambda pair: pair[0].action_tokens + pair[1].action_tokens, default=None)


def _side_by_side(before: Trajectory, after: Trajectory) -> Table:
    grid = Table(
        title=f"One task, before and after: {before.task.id}", title_justify="left", expand=True, pad_edge=False
    )
    for name, one in (("before", before), ("after", after)):
        grid.add_column(
            f"{name}: reward {one.reward:.2f}, {'done' if one.success else 'not done'}", ratio=1, overflow="fold"
        )
    grid.add_row(_conversation(before), _conversation(after))
    return grid


def _conversation(trajectory: Trajectory) -> Text:
    text = Text()
    for number, turn in enumerate(trajectory.turns):
        arrived = [m for m in turn.context if m.role != "system"]
        for message in arrived:
            text.append(_cut(message) + "\n", style="default" if number == 0 else "dim")
        text.append(_cut(turn.action) + "\n\n", style="cyan")
    return text


def _cut(message: Message) -> str:
    lines = message.content.strip().splitlines()
    return "\n".join(
        lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"... ({len(lines) - _LINES + 1} lines)"]
    )
