"""What `longloop train` prints when a run is over: a typical task before and after, both evaluations with the change
between them and its verdict, and the learning curve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from safetensors import SafetensorError

from longloop.diagnose.hopeless import why
from longloop.printable import visible
from longloop.progress import scored
from longloop.stats import paired_change
from longloop.store.metrics import Evaluation, when
from longloop.store.run import Run
from longloop.store.run_reader import load_run
from longloop.types import Group, Message, Trajectory, UserError

_LINES = 14
"""Lines of a message, beyond which it is cut."""


def show(run: Run, console: Console) -> None:
    """Print the end of a training run, and where everything is."""
    stored = load_run(run.folder)
    lines = stored.metrics
    measured = stored.comparable_evaluations
    steps = sorted({min(measured), max(measured)}) if measured else []
    headings = [when(step) for step in steps]
    evaluations = [measured[step] for step in steps]
    if len(steps) == 1:
        console.print()
        console.print(table(evaluations, headings))
    elif steps:
        try:
            before, after = (_by_task(stored.evaluation_trajectories(step)) for step in steps)
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            console.print()
            console.print(table(evaluations, headings))
            console.print(f"\nHow it changed is not known: {visible(str(error))}", soft_wrap=True, markup=False)
        else:
            _show_change(evaluations, headings, before, after, console)
    if said := verdict(lines):
        console.print(f"\n{said}", soft_wrap=True)
    picture = run.folder / "curve.png"
    draw(lines, measured, picture)
    console.print(f"\nThe learning curve is in {picture}, everything else beside it.", soft_wrap=True)
    console.print(f"Measure again with `longloop eval {quote(str(run.folder))}`.", soft_wrap=True)


def _show_change(
    evaluations: Sequence[Evaluation],
    headings: Sequence[str],
    before: Mapping[str, Group],
    after: Mapping[str, Group],
    console: Console,
) -> None:
    if typical := _typical(before, after):
        console.print(_side_by_side(*typical))
    console.print()
    console.print(table(evaluations, headings, changes(before, after)))
    console.print(
        f"\nThe change is over the tasks that were scored both times ({len(before.keys() & after.keys())}), with a "
        "95% interval by a bootstrap over them. The verdict is a sign-flip test at the 5% level. Both are about "
        "this run, not about other seeds.",
        soft_wrap=True,
    )


def verdict(lines: Sequence[dict[str, Any]]) -> str:
    """What to say of a run in which most steps taught nothing; empty for other runs."""
    steps = [line for line in lines if "trained_tokens" in line]
    taught = [line for line in steps if line["trained_tokens"]]
    if not steps or len(taught) > len(steps) / 2:
        return ""
    if taught:
        return (
            f"In {len(steps) - len(taught)} of {len(steps)} steps there was nothing to learn: at every task all "
            "attempts fared alike. Take tasks that are neither too easy nor too hard, or raise rollout.temperature."
        )
    said = f"Nothing was learned in {len(steps)} step{'s' * (len(steps) != 1)}, and the model is what it was before: "
    if not any(scored(line) for line in steps):
        return f"{said}no attempt had a reward. `longloop check` plays the environment without a model."
    if not any(line["success"] for line in steps):
        return said + why(steps)
    if all(line["success"] == 1 for line in steps):
        return f"{said}it succeeds at every attempt. Take harder tasks."
    return f"{said}at every task all attempts fared alike. Take other tasks, or raise rollout.temperature."


def table(
    evaluations: Sequence[Evaluation], headings: Sequence[str] = (), changed: Mapping[str, str] | None = None
) -> Table:
    """Evaluations side by side, and how some rows changed."""
    grid = Table(box=None, show_header=bool(headings), pad_edge=False)
    grid.add_column("", overflow="fold")
    columns: list[Mapping[str, str]] = [evaluation.cells() for evaluation in evaluations]
    for heading in headings or [""] * len(evaluations):
        grid.add_column(heading, overflow="fold")
    if changed:
        grid.add_column("change", overflow="fold")
        columns.append(changed)
    names = dict.fromkeys(name for column in columns for name in column)
    for name in sorted(names, key="tasks".__eq__):  # which stays the last
        grid.add_row(name, *(escape(column.get(name, "")) for column in columns))
    return grid


def changes(before: Mapping[str, Group], after: Mapping[str, Group]) -> dict[str, str]:
    """How the rows `success` and `reward` of the table changed, over tasks that were scored both times."""
    found = {}
    for row, measure, form, scale in (("success [95%]", _success, "+.1f", 100), ("reward [95%]", _reward, "+.3f", 1)):
        both = ({task: measure(group) for task, group in side.items()} for side in (before, after))
        change = paired_change(*both)
        if change is not None:
            low_high = [f"{scale * end:{form}}" for end in change.interval or ()]
            ends = f" [{', '.join(low_high)}]" if low_high else ""
            unit = " points" if scale == 100 else ""
            said = f"{change.verdict} (p = {change.p:.2g})"
            found[row] = f"{scale * change.difference:{form}}{unit}{ends}: {said}"
    return found


def draw(lines: Sequence[dict[str, Any]], measured: Mapping[int, Evaluation], picture: Path) -> None:
    """Draw success over steps, in training and in evaluation with its interval."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    trained = [line for line in lines if "success" in line]
    axes.plot([x["step"] for x in trained], [x["success"] for x in trained], color="0.7", label="training tasks")
    if measured:
        steps, found = list(measured), list(measured.values())
        low, high = zip(*(one.success_interval for one in found), strict=True)
        axes.fill_between(steps, low, high, color="C0", alpha=0.2, linewidth=0)
        axes.plot(steps, [one.success for one in found], "o-", color="C0", label="evaluation, 95% interval")
        axes.axhline(found[-1].floor_success, color="0.5", linestyle=":", label="doing nothing")
    axes.set(xlabel="step", ylabel="success", ylim=(0, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def _by_task(groups: Sequence[Group]) -> dict[str, Group]:
    """The groups that have scored attempts."""
    return {group.task.id: group for group in groups if group.scored}


def _success(group: Group) -> float:
    return fmean(t.success for t in group.scored)


def _reward(group: Group) -> float:
    return fmean(t.reward for t in group.scored)


def _typical(before: Mapping[str, Group], after: Mapping[str, Group]) -> tuple[Trajectory, Trajectory, str] | None:
    """The task with the median change in reward, its attempts with the median reward, and how they were chosen.

    Of an even number it is the lower middle one; ties go by the task's id, or by the order of the attempts.
    """
    change = {task: _reward(after[task]) - _reward(before[task]) for task in before.keys() & after.keys()}
    if not change:
        return None
    task = sorted(change, key=lambda task: (change[task], task))[(len(change) - 1) // 2]
    ends = [_median_attempt(side[task]) for side in (before, after)]
    several = max(len(side[task].scored) for side in (before, after)) > 1
    chosen = f"Of {len(change)} tasks it has the median change in reward ({change[task]:+.2f})"
    return ends[0], ends[1], chosen + (", and these attempts at it the median reward." if several else ".")


def _median_attempt(group: Group) -> Trajectory:
    return sorted(group.scored, key=lambda t: t.reward)[(len(group.scored) - 1) // 2]


def _side_by_side(before: Trajectory, after: Trajectory, chosen: str) -> Table:
    title = visible(f"A typical task, before and after: {before.task.id}. {chosen}")
    grid = Table(title=escape(title), title_justify="left", expand=True, pad_edge=False)
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
    lines = [visible(line) for line in message.content.strip().splitlines()]
    return "\n".join(
        lines if len(lines) <= _LINES else [*lines[: _LINES - 1], f"... ({len(lines) - _LINES + 1} lines)"]
    )
