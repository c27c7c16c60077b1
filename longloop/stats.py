"""What chance alone could have done: intervals over drawn tasks, and tests that shuffle before and after.

Tasks are what is drawn and shuffled, each with all its attempts: attempts at one task are not independent.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

DRAWS = 2000
"""Of the bootstrap."""
SHUFFLES = 4999
"""Of a test; no p is below 1 in 5,000."""
_AT_ONCE = 4_000_000
"""Numbers that are shuffled at a time."""

Tasks = Mapping[str, Counter[str]]
"""Task id -> the sums over its attempts."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Rate:
    """One sum over another."""

    counted: str
    out_of: str
    title: str = ""
    code: bool = False
    """Whether it is about code, and says nothing of agents that write none."""

    @property
    def share(self) -> bool:
        """Whether it is a part of a whole; otherwise it is a number per attempt."""
        return self.out_of != "attempts" or self.counted == "success"

    def of(self, sums: Counter[str]) -> float | None:
        """None when there is nothing to divide by."""
        return sums[self.counted] / sums[self.out_of] if sums[self.out_of] else None


SUCCESS = Rate("success", "attempts", "success")
REWARD = Rate("reward", "attempts", "reward / attempt")


@dataclass(frozen=True)
class Change:
    """A rate at both ends."""

    first: float | None
    last: float | None
    difference: float | None
    interval: Interval | None
    """95%, of the difference; None where it would say nothing (see `spread`)."""


def change(rate: Rate, first: Tasks, last: Tasks | None, paired: bool) -> Change:
    before = rate.of(total(first))
    after = rate.of(total(last)) if last is not None else None
    if last is None or before is None or after is None:
        return Change(before, after, None, None)
    return Change(before, after, after - before, spread(rate, last, first, paired))


def total(tasks: Tasks) -> Counter[str]:
    sums: Counter[str] = Counter()
    for some in tasks.values():
        sums.update(some)
    return sums


def spread(rate: Rate, last: Tasks, first: Tasks | None = None, paired: bool = False) -> Interval | None:
    """The 95% interval of a rate, or of its difference to `first`: percentiles over tasks drawn with replacement.

    Paired sides are drawn together, task by task; others each by itself. None where percentiles would feign certainty:
    a side has a single task, all draws are equal (never seen, or always), or over 5% of them had nothing to divide by.
    """
    sides = [last] if first is None else [last, first]
    if paired:
        names = sorted(set().union(*sides))
        sides = [{name: side.get(name, Counter()) for name in names} for side in sides]
    if min(map(len, sides)) < 2:
        return None
    drawn = [_drawn(rate, list(side.values()), 0 if paired else place) for place, side in enumerate(sides)]
    values = drawn[0] if first is None else drawn[0] - drawn[1]
    values = values[~np.isnan(values)]
    if len(values) < 0.95 * DRAWS:
        return None
    low, high = map(float, np.percentile(values, [2.5, 97.5]))
    return (low, high) if high - low > 1e-9 else None


@dataclass(frozen=True)
class PairedChange:
    """The mean over tasks that were measured twice, and what became of it."""

    difference: float
    interval: Interval | None
    """95%, of the difference; None where it would say nothing (see `spread`)."""
    p: float
    """Two-sided: how likely a change of this size would be if before and after could be swapped at any task."""

    @property
    def verdict(self) -> str:
        """At the 5% level. Fewer than six tasks never reach it."""
        if self.p > 0.05:
            return "no clear change"
        return "better" if self.difference > 0 else "worse"


def paired_change(first: Mapping[str, float], last: Mapping[str, float]) -> PairedChange | None:
    """From task id -> value before to the same after; None when they have no task in common."""
    names = sorted(first.keys() & last.keys())
    if not names:
        return None
    before, after = (np.array([[side[name]] for name in names]) for side in (first, last))
    gains = (after - before)[:, 0].tolist()
    drawn = {name: Counter({"gain": gain, "tasks": 1}) for name, gain in zip(names, gains, strict=True)}
    p = 2 * min(float(rises(*sides, paired=True)[0]) for sides in ((before, after), (after, before)))
    return PairedChange(fmean(gains), spread(Rate("gain", "tasks"), drawn), min(1.0, p))


def rises(first: np.ndarray, last: np.ndarray, paired: bool) -> np.ndarray:
    """For each column of two tables with a row for each task: how likely a rise of its mean as large as this one would
    be if it made no difference which side a row stands on. Paired rows change sides with their partner."""
    rows = last - first if paired else np.concatenate([last, first])
    count, side = len(rows), len(last)
    observed = last.mean(0) - first.mean(0)
    rng = np.random.default_rng(0)
    reached = np.zeros(rows.shape[1])
    left = SHUFFLES
    while left:
        some = min(left, max(1, _AT_ONCE // count))
        if paired:
            found = (2.0 * rng.integers(0, 2, (some, count)) - 1) @ rows / count
        else:
            chosen = rng.permuted(np.tile(np.arange(count) < side, (some, 1)), axis=1) @ rows
            found = chosen / side - (rows.sum(0) - chosen) / (count - side)
        reached += (found >= observed - 1e-9).sum(0)
        left -= some
    return (1 + reached) / (1 + SHUFFLES)


def holm(chances: Sequence[float]) -> list[float]:
    """The same p, corrected for how many were looked at (Holm)."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    found = [0.0] * len(chances)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, chances[place] * (len(chances) - rank)))
        found[place] = highest
    return found


def _drawn(rate: Rate, tasks: Sequence[Counter[str]], seed: int) -> np.ndarray:
    """The rate in each draw of as many tasks as there are; NaN where there is nothing to divide by."""
    pairs = np.array([[sums[rate.counted], sums[rate.out_of]] for sums in tasks])
    times = np.random.default_rng(seed).multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), size=DRAWS)
    counted, out_of = (times @ pairs).T
    return np.divide(counted, out_of, out=np.full(DRAWS, np.nan), where=out_of > 0)
