"""Reward that rises without success: a sign that the agent found something that is paid and is not the task.

A comparison of some attempts with earlier ones is reported when all three hold:

- mean reward rose: p below 5%, after correction for the number of comparisons;
- it rose by more than success did: the same of reward minus success;
- success did not rise: p of its own not below 5%, without correction.

The p are one-sided, from permuting tasks between the sides (`stats.rise_p`). Compared are each later evaluation with
the first, each window of training with the first, and the tasks of one scenario (difficulty, app, ...) between the
first and last evaluation and between the first and last third of training, where both sides have six tasks or more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from longloop.analysis.outcomes import members
from longloop.analysis.tally import Tally, merged
from longloop.stats import REWARD, SUCCESS, Change, Rate, Tasks, change, holm, rise_p

LEVEL = 0.05
MAX_WINDOWS = 8
"""Of training."""
_MIN_TASKS = 6
"""On a side: with fewer, chance can do anything."""
_MAX_EVALUATIONS = 12
"""That are compared with the first."""


@dataclass(frozen=True)
class Rise:
    """Attempts that were paid more than earlier ones and succeeded no more."""

    where: str
    reward: Change
    success: Change
    chance: float
    """p, corrected."""


@dataclass(frozen=True)
class Test:
    """One of the judge's tests that is passed more often in attempts that fail all the same."""

    name: str
    where: str
    passed: Change
    """The share of attempts that pass it and fail."""
    chance: float


@dataclass(frozen=True)
class _Comparison:
    where: str
    first: Tasks
    last: Tasks
    paired: bool = False


def windows(steps: Mapping[int, Tally], count: int = MAX_WINDOWS) -> list[tuple[int, ...]]:
    """All steps in order, cut into at most `count` windows of about the same length."""
    order = list(steps)
    pieces = min(count, len(order))
    ends = [round(piece * len(order) / pieces) for piece in range(pieces + 1)] if pieces else []
    return [tuple(order[start:end]) for start, end in pairwise(ends)]


def find(training: Mapping[int, Tally], evaluations: Mapping[int, Tally]) -> tuple[list[Rise], list[Test]]:
    """Where reward rose without success, surest first, and the tests that were passed for nothing."""
    training = {step: tally for step, tally in training.items() if not tally.expert}
    compared = [*_over_steps(training, evaluations), *_by_property(training, evaluations)]
    compared = [one for one in compared if min(len(one.first), len(one.last)) >= _MIN_TASKS and _partial(one)]
    found = [_chances(one) for one in compared]
    corrected = holm([max(reward, gap) for reward, _, gap in found])
    flagged = [
        Rise(one.where, change(REWARD, one.first, one.last, one.paired),
             change(SUCCESS, one.first, one.last, one.paired), p)
        for one, (_, success, _), p in zip(compared, found, corrected, strict=True)
        if p < LEVEL <= success
    ]  # fmt: skip
    return sorted(flagged, key=lambda rise: rise.chance), _tests(training, evaluations)


def _over_steps(training: Mapping[int, Tally], evaluations: Mapping[int, Tally]) -> Iterator[_Comparison]:
    first, *later = list(evaluations) or [0]
    for step in later[:: -max(1, len(later) // _MAX_EVALUATIONS)][::-1]:
        yield _pair(f"evaluation after step {step}", evaluations[first].tasks, evaluations[step].tasks)
    begin, *rest = windows(training) or [()]
    for steps in rest:
        yield _Comparison(f"training, {span(steps)}", _of(training, begin), _of(training, steps))


def _by_property(training: Mapping[int, Tally], evaluations: Mapping[int, Tally]) -> Iterator[_Comparison]:
    for kind, one, other in _ends(training, evaluations):
        orders = [(side.tasks, {task: at for at, task in enumerate(side.tasks)}) for side in (one, other)]
        for name, groups in members(merged([one, other])).items():
            for value, tasks in groups.items():
                first, last = (
                    {t: side[t] for t in sorted(tasks & at.keys(), key=at.__getitem__)} for side, at in orders
                )
                where = f"{name} {value}, in {kind}"
                yield _pair(where, first, last) if kind == "evaluation" else _Comparison(where, first, last)


def _ends(training: Mapping[int, Tally], evaluations: Mapping[int, Tally]) -> Iterator[tuple[str, Tally, Tally]]:
    if len(evaluations) > 1:
        first, *_, last = evaluations.values()
        yield "evaluation", first, last
    thirds = windows(training, 3)
    if len(thirds) > 1:
        one, other = ([training[step] for step in steps] for steps in (thirds[0], thirds[-1]))
        yield "training", merged(one), merged(other)


def _pair(where: str, first: Tasks, last: Tasks) -> _Comparison:
    both = [task for task in first if task in last]
    return _Comparison(where, {t: first[t] for t in both}, {t: last[t] for t in both}, paired=True)


def _of(training: Mapping[int, Tally], steps: Sequence[int]) -> Tasks:
    return merged([training[step] for step in steps]).tasks


def _partial(one: _Comparison) -> bool:
    """Whether any failed attempt was paid; otherwise reward is success and cannot rise without it."""
    return any(abs(sums["reward"] - sums["success"]) > 1e-9 for side in (one.first, one.last) for sums in side.values())


def _chances(one: _Comparison) -> tuple[float, float, float]:
    """p of the rise in reward, in success, and in reward minus success."""
    first, last = (
        np.array([[s["reward"], s["success"], s["reward"] - s["success"]] for s in side.values()])
        / np.array([[s["attempts"]] for s in side.values()])
        for side in (one.first, one.last)
    )
    reward, success, gap = map(float, rise_p(first, last, one.paired))
    return reward, success, gap


def _tests(training: Mapping[int, Tally], evaluations: Mapping[int, Tally]) -> list[Test]:
    """The judge's tests that are passed more often in failed attempts; each is compared in the tasks that have it."""
    compared: list[tuple[Rate, _Comparison]] = []
    for kind, one, other in _ends(training, evaluations):
        keys = {key for side in (one, other) for sums in side.tasks.values() for key in sums}
        for name in sorted(key.removeprefix("tested/") for key in keys if key.startswith("tested/")):
            rate = Rate(f"unearned/{name}", f"tested/{name}", name)
            first, last = ({t: s for t, s in side.tasks.items() if s[rate.out_of]} for side in (one, other))
            compared.append(
                (rate, _pair(kind, first, last) if kind == "evaluation" else _Comparison(kind, first, last))
            )
    compared = [(rate, one) for rate, one in compared if min(len(one.first), len(one.last)) >= _MIN_TASKS]
    found = []
    for (rate, pair), p in zip(compared, holm([_chance(*both) for both in compared]), strict=True):
        if p < LEVEL:
            found.append(Test(rate.title, pair.where, change(rate, pair.first, pair.last, pair.paired), p))
    return sorted(found, key=lambda test: -(test.passed.difference or 0.0))


def _chance(rate: Rate, one: _Comparison) -> float:
    first, last = (np.array([[rate.of(sums)] for sums in side.values()]) for side in (one.first, one.last))
    return float(rise_p(first, last, one.paired)[0])


def span(steps: Sequence[int]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
