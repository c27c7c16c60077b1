"""What longloop.analysis finds in a run, for its pages: some work at a time, and each step once."""

import time
from collections.abc import Sequence
from pathlib import Path

from longloop.analysis.pictures import Picture
from longloop.analysis.report import Places, Report, report
from longloop.analysis.rules import Rules, declared, rules
from longloop.analysis.run import analysis
from longloop.analysis.tally import Tally, tally
from longloop.types import UserError
from longloop.viewer.charts import Chart, Line
from longloop.viewer.page import address
from longloop.viewer.run_reader import KINDS, Record


class Counted:
    """The steps of a run that have been counted so far."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._rules = _rules(record.folder)
        self._tallies: dict[tuple[str, int], tuple[object, Tally]] = {}
        self._made: tuple[object, Report | None] = (None, None)

    def count(self, patience: float) -> tuple[int, int]:
        """Go on counting for so many seconds; how many steps are done, and of how many."""
        deadline = time.monotonic() + patience
        wanted = [(kind, step) for kind in reversed(KINDS) for step in self._record.attempts[kind].steps()]
        done = 0
        for kind, step in _spread(wanted):
            attempts = self._record.attempts[kind]
            stamp = (attempts.folder / f"{step:06d}.jsonl").stat().st_mtime_ns
            known = self._tallies.get((kind, step))
            if known is not None and known[0] == stamp:
                done += 1
            elif time.monotonic() < deadline:
                self._tallies[kind, step] = stamp, tally(attempts.lines(step), kind, step, self._rules)
                done += 1
        return done, len(wanted)

    def report(self) -> Report | None:
        """Of what was counted so far; None when that is nothing."""
        stamps = {place: stamp for place, (stamp, _) in self._tallies.items()}
        if self._made[0] != stamps:
            steps = {kind: {s: t for (k, s), (_, t) in self._tallies.items() if k == kind} for kind in KINDS}
            try:
                made = report(analysis(steps["step"], steps["eval"], self._rules, self._record.name))
            except UserError:
                made = None
            self._made = stamps, made
        return self._made[1]


def charts(pictures: Sequence[Picture]) -> list[Chart]:
    found = []
    for picture in pictures:
        lines = [Line(c.name, c.points, int(c.measured), c.band, dots=c.measured) for c in picture.curves]
        found.append(Chart(picture.title, lines, picture.share))
    return [chart for chart in found if not chart.empty]


def attempts(record: Record, cell: Places) -> list[tuple[str, str]]:
    """Attempts as `longloop show` takes them, each with its address."""
    places = [(place, place if place.startswith("eval/") else f"step/{place}") for place in cell.places]
    return [(shown, address("run", record.name, *where.split("/"))) for shown, where in places]


def _rules(folder: Path) -> Rules:
    """What is wrong in a run's own rules costs those rules, not the page."""
    try:
        return rules(declared(folder))
    except UserError:
        return rules()


def _spread(steps: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Both ends first, then the middles: a curve has its shape long before it has all its points."""
    order = sorted(range(len(steps)), key=lambda place: _fineness(place, len(steps)))
    return [steps[place] for place in order]


def _fineness(place: int, count: int) -> int:
    if place in (0, count - 1):
        return 0
    return next(level for level in range(1, 64) if place % max(1, count >> level) == 0)
