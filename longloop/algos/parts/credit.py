"""Credit: the advantage of each turn, from what was paid.

`LeaveOneOut`, `Standardized` and `Centered` compare whole attempts: every turn of an attempt has the same advantage.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from longloop.algos.parts.part import Advantages, Paid, Part
from longloop.algos.reduce import leave_one_out, standardize
from longloop.protocols import Learner
from longloop.types import Group, Now, Trajectory


@dataclass(frozen=True)
class Credit(Part):
    min_scored: ClassVar[int] = 2
    """Scored attempts at a task below which it gives no credit."""

    def credit(
        self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now
    ) -> list[Advantages | None]:
        """The advantages of each group; None for a group that nothing is learned from."""
        return [
            self.of_group(group, one) if len(group.scored) >= self.min_scored else None
            for group, one in zip(groups, paid, strict=True)
        ]

    @abstractmethod
    def of_group(self, group: Group, paid: Paid) -> Advantages:
        """The advantages of one group, for methods that look at each group alone."""


@dataclass(frozen=True)
class OfAttempts(Credit):
    """One advantage for each attempt, spread over its turns."""

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        return over_turns(group, self.advantages(paid.outcomes))

    @abstractmethod
    def advantages(self, rewards: Sequence[float]) -> list[float]: ...


@dataclass(frozen=True)
class LeaveOneOut(OfAttempts):
    """A_k = R_k - mean of the other attempts' rewards."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return leave_one_out(rewards)


@dataclass(frozen=True)
class Standardized(OfAttempts):
    """A_k = (R_k - mean) / (std + 1e-6), std unbiased."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards)


@dataclass(frozen=True)
class Centered(OfAttempts):
    """A_k = R_k - mean."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        mean = fmean(rewards)
        return [reward - mean for reward in rewards]


@dataclass(frozen=True)
class Anchors(Credit):
    """GiGPO's: an attempt against its group, plus w times a turn against the turns that began in the same state."""

    w: float = 1.0
    gamma: float = 0.95
    history: int = 0
    """Observations before the state that must agree as well."""

    hooks: ClassVar[frozenset[str]] = frozenset({"state"})

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        mean = fmean(paid.outcomes)
        returns = [
            to_go([*rewards[:-1], rewards[-1] + outcome], self.gamma) if rewards else []
            for rewards, outcome in zip(paid.turns, paid.outcomes, strict=True)
        ]
        keys = [state_keys(t, self.history) for t in group.scored]
        met: dict[Hashable, list[float]] = defaultdict(list)
        for keys_T, returns_T in zip(keys, returns, strict=True):
            for key, value in zip(keys_T, returns_T, strict=True):
                met[key].append(value)
        return [
            [outcome - mean + self.w * (value - fmean(met[key])) for key, value in zip(keys_T, returns_T, strict=True)]
            for outcome, keys_T, returns_T in zip(paid.outcomes, keys, returns, strict=True)
        ]


def state_keys(trajectory: Trajectory, history: int = 0) -> list[Hashable]:
    """What tells the state before each turn from others of the same task, as the environment says in `info["state"]`.

    All attempts at a task begin in the same state. A turn without a key is in a state of its own.
    """
    states: list[Hashable] = ["begin"]
    for number, turn in enumerate(trajectory.turns[:-1]):
        states.append(turn.info.get("state", (trajectory.attempt, number)))
    return [tuple(states[max(0, u - history) : u + 1]) for u in range(len(trajectory.turns))]


def over_turns(group: Group, advantages: Sequence[float]) -> Advantages:
    """An attempt's advantage for each of its turns."""
    return [[a] * len(t.turns) for t, a in zip(group.scored, advantages, strict=True)]


def to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_u = sum over v >= u of gamma^(v - u) reward_v."""
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]
