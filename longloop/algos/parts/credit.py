"""Credit: the advantage of each turn, from what was paid.

`LeaveOneOut`, `Standardized` and `Centered` compare whole attempts: every turn of an attempt has the same advantage.
"""

import math
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import chain
from math import fsum
from statistics import fmean, pvariance, stdev, variance
from typing import ClassVar, Literal

import numpy as np

from longloop.algos.parts.part import Advantages, Earned, Paid, Part, memory_of, to_go
from longloop.algos.parts.rollouts import chance
from longloop.algos.reduce import leave_one_out, standardize
from longloop.protocols import Learner
from longloop.types import Group, Now, Sample, Trajectory, UserError


class Credit(Part):
    min_scored: ClassVar[int] = 2
    """Scored attempts at a task below which it gives no credit."""

    @abstractmethod
    def credit(self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now) -> Earned:
        """The advantages of each group."""

    def complete(self, samples: Sequence[Sample], groups: Sequence[Group], paid: Sequence[Paid]) -> list[Sample]:
        """The samples with advantages that depend on what was read of them (`reads`), for methods with a critic."""
        return list(samples)


class OfGroups(Credit):
    """Looks at each group alone."""

    def credit(self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now) -> Earned:
        both = zip(groups, paid, strict=True)
        return [self.of_group(group, one) if len(group.scored) >= self.min_scored else None for group, one in both]

    @abstractmethod
    def of_group(self, group: Group, paid: Paid) -> Advantages:
        """The advantages of one group."""


class OfAttempts(OfGroups):
    """One advantage for each attempt, spread over its turns."""

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        return over_turns(group, self.advantages(paid.outcomes))

    @abstractmethod
    def advantages(self, rewards: Sequence[float]) -> list[float]: ...


class LeaveOneOut(OfAttempts):
    """A_k = R_k - mean of the other attempts' rewards."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return leave_one_out(rewards)


class Standardized(OfAttempts):
    """A_k = (R_k - mean) / (std + 1e-6), std unbiased."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards)


class Centered(OfAttempts):
    """A_k = R_k - mean."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        mean = fmean(rewards)
        return [reward - mean for reward in rewards]


class Anchors(OfGroups):
    """GiGPO's: an attempt against its group, plus w times a turn against those begun in its state; see gigpo.py."""

    in_time = True
    w: float = 1.0
    gamma: float = 0.95
    history: int = 0
    alpha: float = 1.0
    hooks = frozenset({"state"})

    def credit(self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now) -> Earned:
        keys = (Counter(key for t in group.scored for key in state_keys(t)) for group in groups)
        met = [times for count in keys for times in count.values()]
        memory_of(self, now)["met_again"] = sum(times for times in met if times > 1) / max(1, sum(met))
        return super().credit(groups, paid, learner, now)

    def facts(self, samples: Sequence[Sample], now: Now) -> dict[str, float]:
        """The share of the step's turns whose state was met more than once: at a few percent, only attempts count."""
        return {f"states_{name}": float(share) for name, share in memory_of(self, now).items()}

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        mean = fmean(paid.outcomes)
        returns = paid.to_go(self.gamma)
        terms = [[0.0] * len(returns_T) for returns_T in returns]
        weights = [[0.0] * len(returns_T) for returns_T in returns]
        for length in range(1, self.history + 2):
            keys = [state_keys(t, length) for t in group.scored]
            met: dict[Hashable, list[float]] = defaultdict(list)
            for key, value in zip(chain(*keys), chain(*returns), strict=True):
                met[key].append(value)
            for i, keys_T in enumerate(keys):
                for u, key in enumerate(keys_T):
                    if len(met[key]) > 1:
                        terms[i][u] += length**self.alpha * (returns[i][u] - fmean(met[key]))
                        weights[i][u] += length**self.alpha
        return [
            [outcome - mean + self.w * term / (weight or 1.0) for term, weight in zip(terms_T, weights_T, strict=True)]
            for outcome, terms_T, weights_T in zip(paid.outcomes, terms, weights, strict=True)
        ]


class Returns(OfGroups):
    """GTPO's: A_iu = (G_iu - mean) / (std + 1e-6), mean and std of the returns to go of all turns of the group."""

    in_time = True
    gamma: float = 0.9
    pool: Literal["turns", "trajectories"] = "turns"
    """Whether each turn counts the same in mean and std, or each trajectory."""

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        returns = paid.to_go(self.gamma)
        if self.pool == "turns":
            each = list(chain(*returns))
            mean, deviation = fmean(each), stdev(each)
        else:
            means = [fmean(returns_T) for returns_T in returns]
            within = fsum(map(pvariance, returns)) / (len(returns) - 1)
            mean, deviation = fmean(means), math.hypot(stdev(means), math.sqrt(within))
        return [[(value - mean) / (deviation + 1e-6) for value in returns_T] for returns_T in returns]


class NormalizedRewards(OfGroups):
    """IGPO's: A_iu = sum over v >= u of gamma^(v-u) r_iv, r standardized within the group; see igpo.py."""

    in_time = True
    gamma: float = 1.0
    normalize: Literal["joint", "split"] = "joint"

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        rewards = paid.with_outcomes()
        if self.normalize == "joint":
            scale = _standard([reward for rewards_T in rewards for reward in rewards_T])
            scaled = [[scale(reward) for reward in rewards_T] for rewards_T in rewards]
        else:
            last = _standard([rewards_T[-1] for rewards_T in rewards if rewards_T])
            before = _standard([reward for rewards_T in rewards for reward in rewards_T[:-1]])
            scaled = [[*map(before, rewards_T[:-1]), *map(last, rewards_T[-1:])] for rewards_T in rewards]
        return [to_go(rewards_T, self.gamma) for rewards_T in scaled]


def _standard(values: Sequence[float]) -> Callable[[float], float]:
    """x -> (x - mean) / (std + 1e-6) of these values; 0 for fewer than two."""
    if len(values) < 2:
        return lambda x: 0.0
    mean, deviation = fmean(values), stdev(values)
    return lambda x: (x - mean) / (deviation + 1e-6)


class BetaNormalized(Credit):
    """BNPO's: A_k = (R_k - p) / Beta(p; a, b), p the mean reward of the task; see bnpo.py."""

    share: float = 1 / 3
    most: float = 5.0
    """The largest factor 1 / Beta."""
    low: float = 0.0
    high: float = 1.0
    """The rewards that are mapped to 0 and 1."""

    def credit(self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now) -> Earned:
        rates = [self._rate(one.outcomes) for one in paid if len(one.outcomes) >= self.min_scored]
        density = beta(*self._fitted(rates))

        def of_group(group: Group, rewards: Sequence[float]) -> Advantages:
            mean, pdf = fmean(rewards), density(self._rate(rewards))
            factor = min(self.most, 1 / pdf if pdf > 0 else self.most) / (self.high - self.low)
            return over_turns(group, [(reward - mean) * factor for reward in rewards])

        both = zip(groups, paid, strict=True)
        return [of_group(group, one.outcomes) if len(group.scored) >= self.min_scored else None for group, one in both]

    def _rate(self, rewards: Sequence[float]) -> float:
        return min(1.0, max(0.0, (fmean(rewards) - self.low) / (self.high - self.low)))

    def _fitted(self, rates: Sequence[float]) -> tuple[float, float]:
        if len(rates) < 2 or (spread := variance(rates)) == 0:
            return 1.0, 1.0
        mean = fmean(rates)
        c = mean * (1 - mean) / spread - 1
        return max(1.0, 1 + self.share * c * mean), max(1.0, 1 + self.share * c * (1 - mean))


LEVELS = tuple(round(0.05 * n, 2) for n in range(1, 20))
"""The quantiles of scores that are followed from step to step."""


class Risk(Credit):
    """RiskPO's: an attempt counts by where the score of its bundle lies among those of all steps; see riskpo.py.

    Which tasks are bundled follows from the step and their ids. A task that comes twice is in two bundles, if it can.
    """

    bundle: int = 5
    low: float = 0.2
    high: float = 0.9
    """Levels of the quantiles; 0 and 1 stand for a step's smallest and largest score."""
    weight: float = 1.5
    rate: float = 0.1
    normalize: bool = True

    def __post_init__(self) -> None:
        if not (self.low < self.high and {self.low, self.high} <= {0.0, *LEVELS, 1.0}):
            raise UserError(
                f"algo.low = {self.low} and algo.high = {self.high}: they must be multiples of 0.05 from 0 to 1, the "
                "first smaller than the second."
            )

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
        bundles = [{n: _by_number(groups[n], paid[n]) for n in piece.tolist()} for piece in pieces]
        scores = [self._scores([rewards.values() for rewards in bundle.values()]) for bundle in bundles]
        low, high = self._quantiles([score for some in scores for score in some], now)

        found: dict[tuple[int, int], float] = {}
        for bundle, some in zip(bundles, scores, strict=True):
            of_papers = [at_risk(s, low, high, self.low, self.high, self.weight) / self._scale(some) for s in some]
            for n, rewards in bundle.items():
                scale = self._scale(rewards.values())
                found |= {(n, attempt): a / scale for attempt, a in zip(rewards, of_papers, strict=False)}
        mean = fmean(found.values())
        advantages: Earned = [None for _ in groups]
        for n in scored:
            advantages[n] = over_turns(groups[n], [found.get((n, t.attempt), mean) - mean for t in groups[n].scored])
        return advantages

    def _scores(self, rewards: Sequence[Iterable[float]]) -> list[float]:
        """Of each paper. Those of a smaller bundle are scaled up to the size of the others."""
        return [fmean(paper) * self.bundle for paper in zip(*rewards, strict=False)]

    def _scale(self, values: Collection[float]) -> float:
        spread = stdev(values) if self.normalize and len(values) > 1 else 0.0
        return spread + 1e-6 if spread >= 1e-3 else 1.0

    def _quantiles(self, scores: Sequence[float], now: Now) -> tuple[float, float]:
        """The two of this step, before its scores move them."""
        memory = memory_of(self, now)
        known: list[float] = memory.get("quantiles") or np.quantile(sorted(scores), LEVELS).tolist()
        ends = {0.0: min(scores), 1.0: max(scores)} | dict(zip(LEVELS, known, strict=True))
        memory["quantiles"] = tracked(known, scores, self.rate)
        return ends[self.low], ends[self.high]


def beta(a: float, b: float) -> Callable[[float], float]:
    """The density of a Beta distribution with a, b >= 1."""
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    return lambda x: scale * x ** (a - 1) * (1 - x) ** (b - 1)


def state_keys(trajectory: Trajectory, length: int = 1) -> list[Hashable]:
    """The state before each turn, as the environment says in `info["state"]`, with those before it: `length` in all.

    All attempts at a task begin in the same state. A turn without a key is in a state of its own.
    """
    states: list[Hashable] = ["begin"]
    for number, turn in enumerate(trajectory.turns[:-1]):
        states.append(turn.info.get("state", (trajectory.attempt, number)))
    return [tuple(states[max(0, u + 1 - length) : u + 1]) for u in range(len(trajectory.turns))]


def over_turns(group: Group, advantages: Sequence[float]) -> Advantages:
    """An attempt's advantage for each of its turns."""
    return [[a] * len(t.turns) for t, a in zip(group.scored, advantages, strict=True)]


def _by_number(group: Group, paid: Paid) -> dict[int, float]:
    """What each attempt of a group was paid, in the order of their numbers."""
    return dict(sorted(zip((t.attempt for t in group.scored), paid.outcomes, strict=True)))


def at_risk(score: float, q_low: float, q_high: float, low: float, high: float, weight: float) -> float:
    """The advantage of a paper; never more than 0, and 0 from the upper quantile on."""
    between = (min(max(score, q_low), q_high) - q_high) / (high - low)
    tail = -max(0.0, q_low - score) / low if low else 0.0
    return (weight * tail + between) / (weight + 1)


def tracked(quantiles: Sequence[float], scores: Sequence[float], rate: float) -> list[float]:
    """The quantiles, moved towards those of new scores."""
    return [q + rate * (level - fmean(s < q for s in scores)) for q, level in zip(quantiles, LEVELS, strict=True)]
