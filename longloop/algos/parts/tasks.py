"""Tasks: which ones a step takes, and how many turns an attempt may have."""

from collections.abc import Sequence
from dataclasses import dataclass

from longloop.algos.parts.part import Part
from longloop.protocols import Tasks
from longloop.types import Group, Now, Sample, Task


@dataclass(frozen=True)
class InOrder(Part):
    """The next tasks of the shuffled stream."""

    def take(self, tasks: Tasks, n: int, now: Now) -> list[Task]:
        return tasks.take(n)

    def max_turns(self, now: Now) -> int:
        """The most turns of an attempt in this step; 0 for the run's own limit."""
        return 0

    def learn(self, groups: Sequence[Group], samples: Sequence[Sample], now: Now) -> None:
        """Note what a step's tasks gave, for the choice of the next."""
