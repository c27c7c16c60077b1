"""What all parts have: what they need besides the groups, and what they know before an update."""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from longloop.algos.settings import Settings
from longloop.types import Group, Now, OfLogits, Sample


@dataclass(frozen=True)
class Paid:
    """What the scored attempts of a group were paid: after each turn, and at the end as their outcomes."""

    turns: list[list[float]]
    outcomes: list[float]

    def with_outcomes(self) -> list[list[float]]:
        """After each turn of each attempt, the outcome added to the last."""
        both = zip(self.turns, self.outcomes, strict=True)
        return [[*rewards[:-1], rewards[-1] + outcome] if rewards else [] for rewards, outcome in both]

    def to_go(self, gamma: float) -> list[list[float]]:
        """The discounted sum of what an attempt is paid from each turn on, its outcome included."""
        return [to_go(rewards, gamma) for rewards in self.with_outcomes()]


def to_go(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_u = sum over v >= u of gamma^(v - u) reward_v."""
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


Advantages = list[list[float]]
"""Of each turn of each scored attempt of a group."""
Earned = list[Advantages | None]
"""Of each group; None for one that nothing is learned from."""


class Part(Settings, ABC):
    """Its fields are its settings."""

    reads: ClassVar[tuple[str, ...]] = ()
    """Columns of `Learner.read` that the step's samples must have."""
    looks: ClassVar[tuple[str, ...]] = ()
    """Columns that a mini-batch's samples are read with before its update, for `facts`."""
    heads: ClassVar[tuple[str, ...]] = ()
    """Heads that it needs."""
    hooks: ClassVar[frozenset[str]] = frozenset()
    """What the environment must give: `state` (keys), `replay`, `turn rewards`, `answers`, `expert`."""
    in_time: ClassVar[bool] = False
    """Whether it goes by the order in time of an attempt's turns. One with several conversations has them otherwise."""
    alone_in: ClassVar[str] = ""
    """What it does that no other part of a method may do as well, as the end of "both ..."."""

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        """Numbers of each token that are computed from its distribution, by name."""
        return {}

    @property
    def whole_units(self) -> bool:
        """Whether its loss needs all tokens of a trajectory at once."""
        return False

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        """The step's samples, after `choose`, with columns that its loss needs and that only the whole step tells."""
        return list(samples)

    def facts(self, samples: Sequence[Sample], now: Now) -> dict[str, float]:
        """Numbers about a mini-batch as a whole, for its loss. The samples have the columns that `looks` names."""
        return {}


def memory_of(part: Part, now: Now) -> dict[str, Any]:
    """What a part remembers from step to step. JSON values only: they are saved with every checkpoint."""
    return now.memory.setdefault(type(part).__name__, {})


def snake(name: str) -> str:
    """LeaveOneOut -> leave_one_out."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
