"""Rewards: what each turn and each attempt is paid. They may replace what the environment paid, never overwrite it."""

from collections.abc import Sequence
from dataclasses import dataclass

from longloop.algos.parts.part import Paid, Part
from longloop.protocols import Learner
from longloop.types import Group, Now


@dataclass(frozen=True)
class Rewards(Part):
    """The verifier's reward for the attempt, and what the environment paid for each turn."""

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        return [self.of_group(group) for group in groups]

    def of_group(self, group: Group) -> Paid:
        turns = [[turn.reward for turn in t.turns] for t in group.scored]
        return Paid(turns, [t.reward for t in group.scored])
