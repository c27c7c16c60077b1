"""An analysis as headings, sentences, tables and curves, for the terminal, for Markdown and for the viewer alike.

Everything in it is plain text, some of it a model's or an environment's: code that shows it has to escape it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from longloop.analysis.failures import Cases, Kinds
from longloop.analysis.outcomes import Share, share
from longloop.analysis.pictures import Picture, pictures
from longloop.analysis.run import Analysis, Part
from longloop.analysis.tally import merged
from longloop.analysis.unearned import span, windows
from longloop.stats import REWARD, SUCCESS, Change, Interval, Rate, total
from longloop.store.metrics import when
from longloop.types import StopReason

BEHAVIORS = "Behaviors"
_SCORED = [str(reason) for reason in StopReason if reason.scored]
_LONGEST = 40
"""Rows of a table; the JSON has them all."""
_KINDS = 10
"""Kinds of failure that are shown."""
_CODE = (
    "Failed APIs given up: of the APIs that a turn called which failed, those that no later turn called with success. "
    "Turns said before: the same code or action as earlier in the attempt."
)


@dataclass(frozen=True)
class AttemptIds:
    """Attempts, as `longloop show` takes them."""

    ids: tuple[str, ...]


Cell = str | AttemptIds


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Section:
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    name: str = ""
    """The name of its pictures' file."""
    brief: int = 0
    """Rows of its tables that a terminal shows; 0 leaves out the section."""


@dataclass(frozen=True)
class Report:
    headline: str
    sections: tuple[Section, ...]


def report(found: Analysis) -> Report:
    sections = (_outcomes(found), _behaviors(found), _stops(found), *_by(found), _failures(found), _unearned(found))
    return Report(headline(found), sections)


def headline(found: Analysis) -> str:
    """The outcome in a sentence or two."""
    what = "held-out success" if found.evaluated else "success in training"
    ends = ", ".join(f"{shown(part.success)} {heading(part, found.evaluated)}" for part in found.parts)
    changed = difference(SUCCESS, found.changes["success"]) + over(found.changes["success"])
    said = [f"{what.capitalize()}: {ends}: {changed}." if changed else f"{what.capitalize()}: {ends}."]
    if not found.evaluated and found.evaluations:
        step, tally = max(found.evaluations.items())
        said.append(f"Held-out success: {shown(share(tally))} {when(step)}.")
    if found.first.tally.expert:
        said.append("These are the attempts of an expert, not of the agent.")
    return " ".join(said)


def heading(part: Part, evaluated: bool) -> str:
    if evaluated:
        return when(part.steps[0])
    return f"in {span(part.steps)}"


def shown(found: Share | None) -> str:
    return f"{found.success:.1%} [{found.interval[0]:.1%}, {found.interval[1]:.1%}]" if found else "-"


def rate_at(rate: Rate, part: Part) -> str:
    sums = total(part.tally.tasks)
    value = rate.of(sums)
    if value is None:
        return "- of 0"
    return f"{value:.1%} of {sums[rate.out_of]:,}" if rate.share and rate.counted != "success" else _number(value, rate)


def difference(rate: Rate, change: Change) -> str:
    if change.difference is None:
        return ""
    certain = f" [{_interval(change.interval, rate)}]" if change.interval else ""
    return _number(change.difference, rate, "+") + certain


def over(change: Change) -> str:
    """Which tasks a change is over, where some were not scored both times."""
    left_out = change.tasks is not None and change.difference is not None
    return f" over the {change.tasks:,} tasks that were scored both times" if left_out else ""


def _outcomes(found: Analysis) -> Section:
    rates = (SUCCESS, REWARD) if found.partial else (SUCCESS,)
    size = "Intervals are 95%: Wilson's for a share, with the tasks as trials; for a change, over tasks drawn anew, "
    size += "each with its partner of the other end." if found.evaluated else "each side by itself."
    text = [size]
    if any(step < found.since for step in found.evaluations):
        text.append(
            f"What evaluations measure was changed at step {found.since}: earlier ones are drawn, and not compared."
        )
    return Section("Success", tuple(text), pictures=pictures(found, rates), name="outcomes")


def _behaviors(found: Analysis) -> Section:
    rates = found.behaviors
    parts = found.parts
    head = ("", *(heading(part, found.evaluated) for part in parts), *(("change [95%]",) if found.last else ()))
    rows = []
    for rate in rates:
        changed = (difference(rate, found.changes[rate.counted]),) if found.last else ()
        rows.append((rate.title, *(rate_at(rate, part) for part in parts), *changed))
    sizes = (f"{part.success.attempts:,}, {part.success.tasks:,} tasks" for part in parts)
    both = found.changes["success"].tasks
    paired = "tasks paired" if both is None else f"{both:,} tasks paired"
    drawn = (paired if found.evaluated else "tasks not paired",) if found.last else ()
    rows.append(("attempts", *sizes, *drawn))
    tables = [Table(head, tuple(rows)), *_over_training(found, rates)]
    text = (
        (_CODE,) if found.coded else ("No turn has Python in it: look-ups, code cells and failed APIs are left out.",)
    )
    return Section(BEHAVIORS, text, tuple(tables), pictures(found, rates), "behaviors", brief=len(rows))


def _over_training(found: Analysis, rates: Sequence[Rate]) -> list[Table]:
    """A row for each window of training."""
    pieces = windows(found.training)
    if len(pieces) < 2:
        return []
    shown = (SUCCESS, *((REWARD,) if found.partial else ()), *rates)
    rows = []
    for steps in pieces:
        sums = total(merged([found.training[step] for step in steps]).tasks)
        rows.append((span(steps), *(_number(rate.of(sums), rate) for rate in shown), f"{sums['attempts']:,}"))
    return [Table(("training", *(rate.title for rate in shown), "attempts"), tuple(rows))]


def _stops(found: Analysis) -> Section:
    parts = found.parts
    reasons = sorted(
        {stop for part in parts for stop in part.tally.stops}, key=lambda stop: (stop not in _SCORED, stop)
    )
    rows = []
    for stop in sorted(reasons, key=lambda stop: (stop not in _SCORED, stop)):
        counts = ((part.tally.stops[stop], part.tally.stops.total()) for part in parts)
        rows.append((stop, *(f"{count:,} ({count / of:.1%})" for count, of in counts)))
    text = "Only finished, max_turns and context_full are scored, and counted in the other tables."
    head = ("stopped", *(heading(part, found.evaluated) for part in parts))
    return Section("Stop reasons", (text,), (Table(head, tuple(rows)),), brief=len(rows))


def _by(found: Analysis) -> list[Section]:
    sections = []
    parts = found.parts
    for name, lines in found.by.items():
        head = (name, "tasks", *(heading(part, found.evaluated) for part in parts))
        rows = []
        for line in lines[:_LONGEST]:
            ends = (line.first, line.last)[: len(parts)]
            tasks = max(end.tasks if end else 0 for end in ends)
            rows.append((line.value, f"{tasks:,}", *(shown(end) for end in ends)))
        text = ["A task that has several counts in each of their rows."] * _several(found, name)
        text += [f"{len(lines) - _LONGEST} more are in the JSON."] * (len(lines) > _LONGEST)
        sections.append(Section(f"Success by {name}", tuple(text), (Table(head, tuple(rows)),)))
    return sections


def _failures(found: Analysis) -> Section:
    part = found.last or found.first
    tally, before = part.tally, found.first.tally if found.last else None
    when = heading(part, found.evaluated)
    if not tally.failures:
        return Section("Failures", (f"No attempt failed {when}.",), brief=_KINDS)
    text = (
        f"{tally.failures:,} of {part.success.attempts:,} attempts failed {when}. Alike are those that differ in "
        "numbers, quotations and ids alone. `longloop show RUN ID` prints an attempt.",
    )
    tables = []
    if tally.tests:
        tables.append(_kinds("tests that failed", tally.tests, before.tests if before else None, tally.failures))
    tables.append(_kinds("last error", tally.errors, before.errors if before else None, tally.failures))
    return Section("Failures", text, tuple(tables), brief=4)


def _kinds(title: str, kinds: Kinds, before: Kinds | None, failures: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    order = sorted(kinds.items(), key=lambda item: (-item[1].count, item[0]))
    for key, cases in order[:_KINDS]:
        words = "; ".join(filter(None, key)) or "(none)"
        earlier = () if before is None else (f"{before.get(key, Cases()).count:,}",)
        rows.append(
            (words, f"{cases.count:,}", f"{cases.count / failures:.1%}", *earlier, AttemptIds(tuple(cases.attempts)))
        )
    if rest := order[_KINDS:]:
        count = sum(cases.count for _, cases in rest)
        empty = () if before is None else ("",)
        rows.append((f"{len(rest):,} other kinds", f"{count:,}", f"{count / failures:.1%}", *empty, ""))
    return Table((title, "attempts", "share", *(() if before is None else ("at first",)), "for instance"), tuple(rows))


def _unearned(found: Analysis) -> Section:
    title = "Reward without success"
    if not found.partial:
        return Section(title, ("Every attempt that failed was paid nothing: reward is success here.",))
    if not found.rises and not found.tests:
        return Section(title, ("Nowhere did reward rise significantly while success did not.",))
    text, tables = [], []
    if found.rises:
        text.append(
            "Reward rose significantly where success did not: the agent may have found something that is paid and is "
            "not the task. Read some of these attempts."
        )
        rows = []
        for rise in found.rises:
            ends = (_ends(REWARD, rise.reward), _ends(SUCCESS, rise.success))
            rows.append((rise.where, *ends, f"{rise.chance:.2g}"))
        tables.append(Table(("where", "reward", "success", "p, corrected"), tuple(rows[:_LONGEST])))
    if found.tests:
        text.append("Tests that are passed more often in attempts that fail all the same:")
        passed = Rate("", "")
        rows = [(t.name, t.where, _ends(passed, t.passed), f"{t.chance:.2g}") for t in found.tests[:_KINDS]]
        tables.append(Table(("test", "in", "passed, and failed", "p, corrected"), tuple(rows)))
    return Section(title, tuple(text), tuple(tables), brief=5)


def _ends(rate: Rate, change: Change) -> str:
    first, last = (_number(value, rate) for value in (change.first, change.last))
    return f"{first} to {last}, {difference(rate, change)}"


def _number(value: float | None, rate: Rate, sign: str = "") -> str:
    if value is None:
        return "-"
    if rate.share:
        return f"{100 * value:{sign}.1f}" + (" points" if sign else "%")
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.2f}"


def _interval(ends: Interval, rate: Rate) -> str:
    scale, form = (100, "+.1f") if rate.share else (1, "+.2f")
    if max(map(abs, ends)) >= 100 and not rate.share:
        form = "+,.0f"
    return ", ".join(f"{scale * end:{form}}" for end in ends)


def _several(found: Analysis, name: str) -> bool:
    return any(len(values.get(name, ())) > 1 for values in found.first.tally.properties.values())
