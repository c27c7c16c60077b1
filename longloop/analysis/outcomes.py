"""How often attempts succeed, by what is known of their tasks."""

from dataclasses import dataclass

from longloop.analysis.tally import Tally
from longloop.stats import SUCCESS, Interval, total, wilson_interval


@dataclass(frozen=True)
class Share:
    """Success in some tasks."""

    success: float
    attempts: int
    tasks: int
    interval: Interval
    """Wilson's, 95%, with the tasks as trials: attempts at one task are not independent."""


@dataclass(frozen=True)
class Line:
    """Success before and after in tasks that share a property."""

    value: str
    first: Share | None
    last: Share | None


def share(tally: Tally | None, members: set[str] | None = None) -> Share | None:
    """Success in some tasks, or in all. None when they were not tried."""
    every = tally.tasks if tally else {}
    tasks = every if members is None else {name: every[name] for name in members if name in every}
    sums = total(tasks)
    rate = SUCCESS.of(sums)
    return None if rate is None else Share(rate, sums["attempts"], len(tasks), wilson_interval(rate, len(tasks)))


def members(tally: Tally) -> dict[str, dict[str, set[str]]]:
    """Property -> value -> tasks, for properties that have several values and are shared by some tasks."""
    found: dict[str, dict[str, set[str]]] = {}
    for task, properties in tally.properties.items():
        for name, values in properties.items():
            for value in values:
                found.setdefault(name, {}).setdefault(value, set()).add(task)
    kept: dict[str, dict[str, set[str]]] = {}
    for name, groups in found.items():
        ordered = dict(sorted(groups.items(), key=lambda item: _order(item[0])))
        known = [list(other.values()) for other in kept.values()]
        if 1 < len(groups) < len(tally.properties) and list(ordered.values()) not in known:
            kept[name] = ordered
    return kept


def breakdown(whole: Tally, first: Tally, last: Tally | None) -> dict[str, list[Line]]:
    """Property -> its values, with success at both ends. `whole` is both together."""
    return {
        name: [Line(value, share(first, tasks), share(last, tasks)) for value, tasks in groups.items()]
        for name, groups in members(whole).items()
    }


def _order(value: str) -> tuple[int, int, str]:
    """Numbers by size, before words."""
    return (0, int(value), "") if value.isascii() and value.isdigit() else (1, 0, value)
