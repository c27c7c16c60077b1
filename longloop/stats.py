"""Every interval and test of the package, over scipy.stats.

The unit is the task, with all its attempts: attempts at one task are not independent, so tasks are what is counted as
trials, drawn with replacement, and swapped between before and after. All intervals are 95%.

scipy is imported when a function needs it: to import scipy.stats takes most of a second.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np

RESAMPLES = 2000
"""Of a bootstrap."""
PERMUTATIONS = 4999
"""Of a permutation test that is too large to enumerate; no p is below 1 in 5,000."""
MIN_SEEDS = 3
"""With two seeds Student's t is 12.7 standard errors: an interval that says nothing."""
_NUMBERS_AT_ONCE = 4_000_000
"""Numbers that a permutation test holds in memory."""

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
    """A rate before and after."""

    first: float | None
    last: float | None
    difference: float | None
    interval: Interval | None
    """Of the difference; None where `bootstrap_interval` gives none."""
    tasks: int | None = None
    """The tasks that it is over, where a paired change leaves out some that only one side has; otherwise None."""


@dataclass(frozen=True)
class PairedChange:
    """How the mean over tasks changed between two measurements of the same tasks."""

    difference: float
    interval: Interval | None
    """Of the difference; None where `bootstrap_interval` gives none."""
    p: float
    """Two-sided: how likely a change of this size would be if before and after could be swapped at any task."""

    @property
    def verdict(self) -> str:
        """At the 5% level. Fewer than six tasks never reach it."""
        if self.p > 0.05:
            return "no clear change"
        return "better" if self.difference > 0 else "worse"


def wilson_interval(share: float, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a share; it stays sensible at 0 and 1.

    `share * trials` need not be a whole number: a task with four attempts may count as a quarter of a success.
    (scipy.stats.binomtest takes whole numbers only, and agrees on them.)
    """
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = share + z * z / (2 * trials)
    reach = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def disjoint(one: Interval, other: Interval) -> bool:
    """Whether two intervals have no point in common: a cautious test of two independent measurements."""
    return one[0] > other[1] or one[1] < other[0]


def mean_interval(values: Sequence[float]) -> Interval:
    """The bootstrap interval of a mean: percentiles over values drawn with replacement.

    Of a single value it is that value twice, and of none (0, 0).
    """
    if len(values) < 2:
        return (values[0], values[0]) if values else (0.0, 0.0)
    given = np.asarray(values, dtype=float)
    low, high = np.percentile(_bootstrap([len(given)], lambda drawn, axis: given[drawn].mean(axis)), [2.5, 97.5])
    return float(low), float(high)


def seed_interval(values: Sequence[float], bounds: Interval = (0.0, 1.0)) -> tuple[float, Interval | None]:
    """The mean of one value for each seed, and its interval by Student's t, cut at the bounds that values have.

    None where an interval would say nothing: fewer than MIN_SEEDS, or all seeds alike.
    """
    mean = fmean(values)
    if len(values) < MIN_SEEDS or max(values) == min(values):
        return mean, None
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean, (max(bounds[0], mean - reach), min(bounds[1], mean + reach))


def total(tasks: Tasks) -> Counter[str]:
    sums: Counter[str] = Counter()
    for some in tasks.values():
        sums.update(some)
    return sums


def change(rate: Rate, first: Tasks, last: Tasks | None, paired: bool) -> Change:
    """How a rate changed from `first` to `last`. With `paired`, both are the same tasks measured twice, and those that
    only one side has are left out."""
    tasks = None
    if paired and last is not None:
        both = first.keys() & last.keys()
        tasks = len(both) if len(both) < max(len(first), len(last)) else None
        first, last = ({task: side[task] for task in side if task in both} for side in (first, last))
    before = rate.of(total(first))
    after = rate.of(total(last)) if last is not None else None
    if last is None or before is None or after is None:
        return Change(before, after, None, None, tasks)
    return Change(before, after, after - before, bootstrap_interval(rate, last, first, paired), tasks)


def bootstrap_interval(rate: Rate, last: Tasks, first: Tasks | None = None, paired: bool = False) -> Interval | None:
    """The interval of a rate, or of its difference to `first`: percentiles over tasks drawn with replacement.

    Paired sides are drawn together, task by task, of the tasks that both have; others each by itself. None where
    percentiles would feign certainty: a side has a single task, all draws are equal (never seen, or always), or over 5%
    of them had nothing to divide by.
    """
    sides = [last] if first is None else [last, first]
    if paired and first is not None:
        names = sorted(last.keys() & first.keys())
        sides = [{name: side[name] for name in names} for side in sides]
    if min(map(len, sides)) < 2:
        return None
    counted, out_of = (
        [np.array([sums[name] for sums in side.values()], dtype=float) for side in sides]
        for name in (rate.counted, rate.out_of)
    )

    def statistic(*drawn: np.ndarray, axis: int) -> np.ndarray:
        rates = [
            _ratio(counted[side][index].sum(axis), out_of[side][index].sum(axis))
            for side, index in enumerate(drawn * len(sides) if paired else drawn)
        ]
        return rates[0] - rates[1] if len(rates) > 1 else rates[0]

    values = _bootstrap([len(side) for side in (sides[:1] if paired else sides)], statistic)
    values = values[~np.isnan(values)]
    if len(values) < 0.95 * RESAMPLES:
        return None
    low, high = map(float, np.percentile(values, [2.5, 97.5]))
    return (low, high) if high - low > 1e-9 else None


def paired_change(first: Mapping[str, float], last: Mapping[str, float]) -> PairedChange | None:
    """From task id -> value before to the same after; None when they have no task in common.

    The test flips the sign of each task's gain: all sign patterns of up to 12 tasks, otherwise a sample of them.
    """
    names = sorted(first.keys() & last.keys())
    if not names:
        return None
    gains = np.array([last[name] - first[name] for name in names])
    drawn = {name: Counter({"gain": gain, "tasks": 1}) for name, gain in zip(names, gains.tolist(), strict=True)}
    return PairedChange(float(gains.mean()), bootstrap_interval(Rate("gain", "tasks"), drawn), _sign_flip_p(gains))


def rise_p(first: np.ndarray, last: np.ndarray, paired: bool) -> np.ndarray:
    """One-sided permutation test for each column of two tables that have a row per task: how likely a rise of its mean
    as large as this one would be if it made no difference which side a row stands on.

    Paired rows change sides with their partner. scipy.stats.permutation_test agrees and takes 3 to 10 times as long,
    which counts where a run is searched with hundreds of comparisons (docs/decisions/0013-statistics.md).
    """
    rows = last - first if paired else np.concatenate([last, first])
    count, side = len(rows), len(last)
    observed = last.mean(0) - first.mean(0)
    rng = np.random.default_rng(0)
    reached = np.zeros(rows.shape[1])
    left = PERMUTATIONS
    while left:
        some = min(left, max(1, _NUMBERS_AT_ONCE // count))
        if paired:
            found = (2.0 * rng.integers(0, 2, (some, count)) - 1) @ rows / count
        else:
            chosen = rng.permuted(np.tile(np.arange(count) < side, (some, 1)), axis=1) @ rows
            found = chosen / side - (rows.sum(0) - chosen) / (count - side)
        reached += (found >= observed - 1e-9).sum(0)
        left -= some
    return (1 + reached) / (1 + PERMUTATIONS)


def holm(p_values: Sequence[float]) -> list[float]:
    """The same p, corrected for how many tests were made (Holm 1979; scipy has no such function)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = highest
    return corrected


def _sign_flip_p(gains: np.ndarray) -> float:
    if len(gains) < 2:
        return 1.0  # one sign is as likely as the other
    from scipy.stats import permutation_test

    found = permutation_test(
        (gains,),
        lambda flipped, axis: flipped.mean(axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        batch=max(1, _NUMBERS_AT_ONCE // len(gains)),
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def _bootstrap(sizes: Sequence[int], statistic: Callable[..., np.ndarray]) -> np.ndarray:
    """The statistic of every draw. It is given the indices that were drawn with replacement from each sample."""
    from scipy.stats import DegenerateDataWarning, bootstrap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)  # callers look for NaN themselves
        result = bootstrap(
            [np.arange(size) for size in sizes],
            statistic,
            vectorized=True,
            method="percentile",
            n_resamples=RESAMPLES,
            batch=max(1, _NUMBERS_AT_ONCE // max(sizes)),
            rng=np.random.default_rng(0),
        )
    return result.bootstrap_distribution


def _ratio(counted: np.ndarray, out_of: np.ndarray) -> np.ndarray:
    """NaN where there is nothing to divide by."""
    return np.divide(counted, out_of, out=np.full(np.shape(out_of), np.nan), where=np.asarray(out_of) > 0)
