"""What longloop.analysis finds in a run, for its pages: a little work at a time, and each step once."""

import time
from collections.abc import Mapping, Sequence

from longloop.analysis.pictures import Picture
from longloop.analysis.report import AttemptIds, Report, report
from longloop.analysis.rules import Rules, declared, rules
from longloop.analysis.run import analysis
from longloop.analysis.tally import Tally, tally
from longloop.store.files import stamp
from longloop.store.run_reader import FOLDERS, RunReader
from longloop.types import UserError
from longloop.viewer.charts import Chart, Line
from longloop.viewer.page import address


class CountedSteps:
    """The steps of a run that have been counted so far."""

    def __init__(self, run: RunReader) -> None:
        self.run = run
        self._rules = _rules(run)
        self._tallies: dict[tuple[str, int], tuple[object, Tally]] = {}
        self._made: tuple[object, Report | None] = (None, None)
        self._counting = self._reporting = 0.0
        """Seconds: of counting since the last report was made, and those that the report took."""

    def count(self, patience: float) -> tuple[int, int]:
        """Go on counting for that many seconds. Returns how many steps are done, and of how many."""
        began = time.monotonic()
        deadline = began + patience
        wanted = _evenly_spaced({kind: self.run.stored[kind].steps() for kind in reversed(FOLDERS)})
        for gone in set(self._tallies) - set(wanted):
            self._tallies.pop(gone, None)
        done = 0
        for kind, step in wanted:
            stored = self.run.stored[kind]
            now = stamp(stored.path(step))
            known = self._tallies.get((kind, step))
            if known is not None and known[0] == now:
                done += 1
            elif time.monotonic() < deadline:
                self._tallies[kind, step] = now, tally(stored.stored(step), kind, step, self._rules)
                done += 1
        self._counting += time.monotonic() - began
        return done, len(wanted)

    def report(self, done: bool = True) -> Report | None:
        """The report on the steps counted so far; None when there are none. Until all is done it may be an older one:
        no more time goes into reports than into counting."""
        tallies = dict(self._tallies)  # pages are made in several threads, and another may go on counting
        since = self.run.measured_since
        stamps = since, {key: counted for key, (counted, _) in tallies.items()}
        if self._made[0] != stamps and (done or self._counting >= self._reporting):
            began = time.monotonic()
            steps = {kind: {s: t for (k, s), (_, t) in tallies.items() if k == kind} for kind in FOLDERS}
            try:
                made = report(analysis(steps["step"], steps["eval"], self._rules, self.run.name, since))
            except UserError:
                made = None
            self._made = stamps, made
            self._counting, self._reporting = 0.0, time.monotonic() - began
        return self._made[1]


def charts(pictures: Sequence[Picture]) -> list[Chart]:
    found = []
    for picture in pictures:
        lines = [Line(c.name, c.points, int(c.measured), c.band, dots=c.measured) for c in picture.curves]
        found.append(Chart(picture.title, lines, picture.share))
    return [chart for chart in found if not chart.empty]


def attempts(run: RunReader, cell: AttemptIds) -> list[tuple[str, str]]:
    """Attempts as `longloop show` takes them, each with its address."""
    paths = [(one, one if one.startswith("eval/") else f"step/{one}") for one in cell.ids]
    return [(one, address("run", run.name, *path.split("/"))) for one, path in paths]


def _rules(run: RunReader) -> Rules:
    """The run's own rules, or the defaults where they are wrong: that must not cost the page."""
    try:
        return rules(declared(run))
    except UserError:
        return rules()


def _evenly_spaced(kinds: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """Both ends of each kind first, then the middles: a curve has its shape long before it has all its points."""
    found = [
        (_level(index, len(steps)), kind, step) for kind, steps in kinds.items() for index, step in enumerate(steps)
    ]
    return [(kind, step) for _, kind, step in sorted(found, key=lambda one: one[0])]


def _level(index: int, count: int) -> int:
    """In which round of halving a step is reached."""
    if index in (0, count - 1):
        return 0
    return next(level for level in range(1, 64) if index % max(1, count >> level) == 0)
