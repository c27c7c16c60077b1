"""`longloop analyze`: a summary in the terminal, and in the run folder a report in Markdown with pictures."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from longloop.analysis.behaviors import behaviors
from longloop.analysis.failures import Kinds
from longloop.analysis.markdown import markdown
from longloop.analysis.outcomes import Share
from longloop.analysis.pictures import Picture
from longloop.analysis.report import BEHAVIORS, AttemptIds, Cell, Report, Section, Table, headline, report
from longloop.analysis.run import Analysis, Part, Steps
from longloop.analysis.run import analyze as counted
from longloop.printable import visible
from longloop.stats import REWARD, SUCCESS, total
from longloop.store.run_reader import load_run, mixed_versions
from longloop.types import UserError
from longloop.viewer.text import excerpt

console = Console(highlight=False, markup=False)

_LONGEST = 110
"""Characters of a cell in the terminal."""


def analyze(folders: Sequence[Path], as_json: bool, patterns: Path | None) -> None:
    runs = [(folder, counted(folder, patterns)) for folder in folders]
    if as_json:
        print(json.dumps([{"run": str(folder)} | to_json(found) for folder, found in runs]))
        return
    reports = [(folder, report(found)) for folder, found in runs]
    if len(runs) > 1:
        console.print(_beside(reports))
        if said := mixed_versions([load_run(folder) for folder, _ in runs]):
            console.print(f"\n{said}", soft_wrap=True)
    for number, (folder, shown) in enumerate(reports):
        console.print("\n" * (len(runs) > 1 or number > 0) + f"{folder}: {visible(shown.headline)}", soft_wrap=True)
        for section in shown.sections:
            if section.brief and (len(runs) == 1 or section.title != BEHAVIORS):
                _print(section)
        console.print(f"\nAll of it is in {write(folder, shown)}.", soft_wrap=True)


def write(folder: Path, shown: Report) -> Path:
    """Write the report and its pictures into the run folder."""
    pictures = {section.name: f"{section.name}.png" for section in shown.sections if section.pictures}
    path = folder / "analysis.md"
    try:
        for section in shown.sections:
            if section.pictures:
                path = folder / pictures[section.name]
                draw(section.pictures, path)
        path = folder / "analysis.md"
        text = markdown(folder.name, _facts(folder), shown, pictures)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        why = error.strerror or error
        raise UserError(
            f"Cannot write {path}: {why}. Make room for it, or use --json, which writes nothing."
        ) from error
    return path


def draw(pictures: Sequence[Picture], path: Path) -> None:
    """Draw each over the steps, in training and in evaluation with its interval."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    across = min(3, len(pictures))
    down = math.ceil(len(pictures) / across)
    figure = Figure(figsize=(3.4 * across + 0.2, 2.5 * down + 0.4), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    for picture, axes in zip(pictures, panels, strict=False):
        for curve in picture.curves:
            steps, values = zip(*curve.points, strict=True)
            if curve.band:
                at, low, high = zip(*curve.band, strict=True)
                axes.fill_between(at, low, high, color="C0", alpha=0.2, linewidth=0)
            style, color = ("o-", "C0") if curve.measured else (".-", "0.7")
            axes.plot(steps, values, style, color=color, label=curve.name)
        seen = any(value > 0 for curve in picture.curves for _, value in curve.points)
        axes.set(xlabel="step", ylim=(0, None if seen else 1))
        axes.set_title(picture.title.replace("$", r"\$"), fontsize="medium")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
        if picture.share:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axes in panels[len(pictures) :]:
        axes.axis("off")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=130)


def _print(section: Section) -> None:
    console.print(f"\n{section.title}", style="bold")
    for text in section.text:
        console.print(visible(text), style="dim", soft_wrap=True)
    for table in section.tables[:1] if section.name else section.tables:
        console.print(_grid(table, section.brief))


def _beside(reports: Sequence[tuple[Path, Report]]) -> Grid:
    """The behaviors of several runs: a row for each that any of them has, a block of columns for each run."""
    tables = [next(s.tables[0] for s in shown.sections if s.title == BEHAVIORS) for _, shown in reports]
    titles = dict.fromkeys(row[0] for table in tables for row in table.rows)
    head: list[str] = [""]
    rows = {title: [title] for title in titles}
    for (folder, _), table in zip(reports, tables, strict=True):
        head += [f"{folder if column == 0 else ''}\n{words}" for column, words in enumerate(table.head[1:])]
        found = {row[0]: row[1:] for row in table.rows}
        for title in titles:
            rows[title] += found.get(title, ("",) * (len(table.head) - 1))
    return _grid(Table(tuple(head), tuple(map(tuple, rows.values()))), len(rows))


def _grid(table: Table, most: int) -> Grid:
    grid = Grid(box=None, pad_edge=False, header_style="dim")
    for column, heading in enumerate(table.head):
        grid.add_column(visible(heading), max_width=60 if column == 0 else None, overflow="fold")
    for row in table.rows[:most]:
        grid.add_row(*(excerpt(visible(_text(cell)), _LONGEST) for cell in row))
    return grid


def _text(cell: Cell) -> str:
    return "  ".join(cell.ids) if isinstance(cell, AttemptIds) else cell


def _facts(folder: Path) -> str:
    """What the run was, in a line."""
    run = load_run(folder)
    settings = run.settings

    def said(table: str, key: str) -> str:
        inside = settings.get(table)
        return str(inside.get(key, "?")) if isinstance(inside, dict) else "?"

    made = f"{said('algo', 'name')} on {said('env', 'name')} with {said('model', 'path')}"
    made += f", seed {settings.get('seed', '?')}"
    return f"{made}; {run.status}, started {run.facts.get('started', '?')}. Written by longloop analyze."


def to_json(found: Analysis) -> dict[str, Any]:
    """All counts and findings, for `--json`."""
    rates = (SUCCESS, REWARD, *behaviors(found.rules))

    def part(part: Part | None) -> dict[str, Any] | None:
        if part is None:
            return None
        tally = part.tally
        return {
            "steps": part.steps,
            "tasks": len(tally.tasks),
            "counts": _counts(total(tally.tasks)),
            "success": vars(part.success),
            "stops": tally.stops,
            "failures": {"tests": _cases(tally.tests), "errors": _cases(tally.errors)},
        }

    def steps(steps: Steps) -> list[dict[str, Any]]:
        return [
            {"step": step, "counts": _counts(sums), "stops": tally.stops}
            | {rate.counted: rate.of(sums) for rate in rates}
            for step, tally in steps.items()
            for sums in [total(tally.tasks)]
        ]

    return {
        "headline": headline(found),
        "code": found.coded,
        "compared": "evaluations" if found.evaluated else "training",
        "first": part(found.first),
        "last": part(found.last),
        "changes": {name: vars(change) for name, change in found.changes.items()},
        "by": {
            name: [{"value": x.value, "first": _vars(x.first), "last": _vars(x.last)} for x in lines]
            for name, lines in found.by.items()
        },
        "reward_without_success": [asdict(rise) for rise in found.rises],
        "tests_without_success": [asdict(test) for test in found.tests],
        "training": steps(found.training),
        "evaluations": steps(found.evaluations),
    }  # fmt: skip


def _counts(sums: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sums.items() if "/" not in name}


def _cases(kinds: Kinds) -> list[dict[str, Any]]:
    order = sorted(kinds.items(), key=lambda item: (-item[1].count, item[0]))
    return [{"alike": list(filter(None, key)), "count": c.count, "attempts": c.attempts} for key, c in order]


def _vars(found: Share | None) -> dict[str, Any] | None:
    return vars(found) if found else None
