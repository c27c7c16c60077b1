"""Credit by risk: an attempt counts by where the score of its bundle lies in the distribution of scores."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np

from longloop.algos.parts.credit import Credit, over_turns
from longloop.algos.parts.part import Earned, Paid, memory_of
from longloop.algos.parts.rollouts import chance
from longloop.protocols import Learner
from longloop.types import Group, Now

LEVELS = tuple(round(0.05 * n, 2) for n in range(1, 20))
"""The quantiles of scores that are followed from step to step."""


class Risk(Credit):
    """RiskPO's: tasks are bundled; the j-th paper of a bundle is the j-th attempt at each of its tasks, and its
    advantage follows from where its score lies among quantiles that are followed from step to step; see riskpo.py.

    Which tasks are bundled follows from the step and their ids; a task that a step has twice comes into two bundles, if
    there are others.
    """

    bundle: int = 5
    low: float = 0.2
    high: float = 0.9
    """Levels of the quantiles; 0 and 1 stand for a step's smallest and largest score."""
    weight: float = 1.5
    rate: float = 0.1
    normalize: bool = True

    def credit(self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now) -> Earned:
        met: Counter[str] = Counter()
        order: dict[int, tuple[int, float]] = {}
        for n, group in enumerate(groups):
            if len(group.scored) >= self.min_scored:
                order[n] = met[group.task.id], chance("bundle", now.step, group.task.id)
                met[group.task.id] += 1
        scored = sorted(order, key=lambda n: order[n])
        if not scored:
            return [None for _ in groups]
        pieces = np.array_split(np.array(scored), -(-len(scored) // self.bundle))
        bundles = [[_in_order(groups[n], paid[n], n) for n in piece.tolist()] for piece in pieces]
        scores = [self._scores([rewards for _, _, rewards in bundle]) for bundle in bundles]
        low, high = self._quantiles([score for some in scores for score in some], now)

        found: dict[tuple[int, int], float] = {}
        for bundle, some in zip(bundles, scores, strict=True):
            of_papers = [at_risk(s, low, high, self.low, self.high, self.weight) / self._scale(some) for s in some]
            for n, places, rewards in bundle:
                scale = self._scale(rewards)
                found |= {(n, place): a / scale for place, a in zip(places, of_papers, strict=False)}
        mean = fmean(found.values())
        advantages: Earned = [None for _ in groups]
        for n in scored:
            each = [found.get((n, place), mean) - mean for place in range(len(groups[n].scored))]
            advantages[n] = over_turns(groups[n], each)
        return advantages

    def _scores(self, rewards: Sequence[Sequence[float]]) -> list[float]:
        """Of each paper. Those of a smaller bundle are scaled up to the size of the others."""
        return [fmean(paper) * self.bundle for paper in zip(*rewards, strict=False)]

    def _scale(self, values: Sequence[float]) -> float:
        spread = stdev(values) if self.normalize and len(values) > 1 else 0.0
        return spread + 1e-6 if spread >= 1e-3 else 1.0

    def _quantiles(self, scores: Sequence[float], now: Now) -> tuple[float, float]:
        """The two of this step, before its scores move them."""
        memory = memory_of(self, now)
        known: list[float] = memory.get("quantiles") or np.quantile(sorted(scores), LEVELS).tolist()
        ends = {0.0: min(scores), 1.0: max(scores)} | dict(zip(LEVELS, known, strict=True))
        memory["quantiles"] = tracked(known, scores, self.rate)
        return ends[self.low], ends[self.high]


def _in_order(group: Group, paid: Paid, n: int) -> tuple[int, list[int], list[float]]:
    """The attempts of a group by number: its index, the attempts' places in the group, and their rewards."""
    places = sorted(range(len(group.scored)), key=lambda place: group.scored[place].attempt)
    return n, places, [paid.outcomes[place] for place in places]


def at_risk(score: float, q_low: float, q_high: float, low: float, high: float, weight: float) -> float:
    """The advantage of a paper; never more than 0, and 0 from the upper quantile on."""
    between = (min(max(score, q_low), q_high) - q_high) / (high - low)
    tail = -max(0.0, q_low - score) / low if low else 0.0
    return (weight * tail + between) / (weight + 1)


def tracked(
    quantiles: Sequence[float], scores: Sequence[float], rate: float, levels: Sequence[float] = LEVELS
) -> list[float]:
    """The quantiles, moved towards those of new scores."""
    return [
        q + rate * (level - fmean(score < q for score in scores)) for q, level in zip(quantiles, levels, strict=True)
    ]
