"""Rates over the steps of a run, as lines to be drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

from longloop.analysis.outcomes import share
from longloop.analysis.run import Analysis
from longloop.analysis.tally import Tally
from longloop.stats import SUCCESS, Interval, Rate, bootstrap_interval, total


@dataclass(frozen=True)
class Curve:
    """A line of a picture."""

    name: str
    points: Sequence[tuple[int, float]]
    band: Sequence[tuple[int, float, float]] = ()
    measured: bool = False
    """In evaluations; otherwise in training."""


@dataclass(frozen=True)
class Picture:
    title: str
    share: bool
    curves: Sequence[Curve]


def pictures(found: Analysis, rates: Sequence[Rate]) -> tuple[Picture, ...]:
    """Rates over the steps, in training and in evaluations with their intervals."""
    drawn = []
    for rate in rates:
        curves = []
        for name, steps, measured in (("training", found.training, False), ("held out, 95%", found.evaluations, True)):
            values = {step: rate.of(total(tally.tasks)) for step, tally in steps.items()}
            points = [(step, value) for step, value in values.items() if value is not None]
            band = [
                (step, *ends)
                for step, tally in (steps.items() if measured else ())
                if (ends := _interval(rate, tally)) is not None
            ]
            if points:
                curves.append(Curve(name, points, band, measured))
        drawn.append(Picture(rate.title, rate.share, curves))
    return tuple(drawn)


def _interval(rate: Rate, tally: Tally) -> Interval | None:
    found = share(tally) if rate is SUCCESS else None
    return found.interval if found else bootstrap_interval(rate, tally.tasks)
