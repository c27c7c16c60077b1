"""LOOP's behaviours over the steps, counted by longloop.analyze: some work at a time, and each step once."""

import time
from collections import Counter
from dataclasses import dataclass

from longloop.analyze import BEHAVIOURS, count
from longloop.view.attempts import Attempts
from longloop.view.charts import Chart, Line, finite
from longloop.view.record import KINDS, Record


@dataclass(frozen=True)
class Row:
    """A behaviour at the first and at the last step that was counted."""

    title: str
    share: bool
    first: float | None
    last: float | None


class Behaviours:
    def __init__(self, record: Record) -> None:
        self._record = record
        self._sums: dict[tuple[str, int], tuple[object, Counter[str]]] = {}

    def count(self, patience: float) -> tuple[int, int]:
        """Go on counting for so many seconds; how many steps are done, and of how many."""
        deadline = time.monotonic() + patience
        wanted = [(kind, step) for kind in reversed(KINDS) for step in self._record.attempts[kind].steps()]
        done = 0
        for kind, step in _spread(wanted):
            stamp = (self._record.attempts[kind].folder / f"{step:06d}.jsonl").stat().st_mtime_ns
            known = self._sums.get((kind, step))
            if known is not None and known[0] == stamp:
                done += 1
            elif time.monotonic() < deadline:
                self._sums[kind, step] = stamp, _sums(self._record.attempts[kind], step)
                done += 1
        return done, len(wanted)

    def charts(self) -> list[Chart]:
        charts = []
        for behaviour in BEHAVIOURS:
            lines = []
            for colour, (kind, name) in enumerate((("step", "training"), ("eval", "held out"))):
                points = finite([(step, behaviour.rate(sums)) for step, sums in self._course(kind)])
                lines.append(Line(name, points, colour, dots=kind == "eval"))
            charts.append(Chart(behaviour.title, [line for line in lines if line.points], behaviour.share))
        return charts

    def rows(self) -> tuple[str, list[Row]]:
        """What is compared, and the behaviours at both ends: evaluations when there are two, otherwise training."""
        kind, name = ("eval", "evaluation") if len(self._course("eval")) > 1 else ("step", "training step")
        course = self._course(kind)
        if not course:
            return "", []
        (first, before), (last, after) = course[0], course[-1]
        rows = [Row(b.title, b.share, b.rate(before), b.rate(after)) for b in BEHAVIOURS]
        return f"{name} {first} and {last}", rows

    def _course(self, kind: str) -> list[tuple[int, Counter[str]]]:
        found = sorted((step, sums) for (of, step), (_, sums) in self._sums.items() if of == kind)
        return [(step, sums) for step, sums in found if sums["attempts"]]


def _sums(attempts: Attempts, step: int) -> Counter[str]:
    scored = {entry.place for entry in attempts.entries(step) if entry.scored}
    total: Counter[str] = Counter()
    for line in attempts.lines(step):
        if (line.get("group", 0), line.get("attempt", 0)) in scored and "turns" in line:
            total.update(count({"stop": "finished"} | line))
    return total


def _spread(steps: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Both ends first, then the middles: a curve has its shape long before it has all its points."""
    order = sorted(range(len(steps)), key=lambda place: _fineness(place, len(steps)))
    return [steps[place] for place in order]


def _fineness(place: int, count: int) -> int:
    if place in (0, count - 1):
        return 0
    return next(level for level in range(1, 64) if place % max(1, count >> level) == 0)
