"""Rollouts: the groups of a step, whose attempts they are and where these begin."""

from collections.abc import Sequence
from dataclasses import dataclass

from longloop.algos.parts.part import Part
from longloop.protocols import Rollouts
from longloop.types import Group, Now, Start, Task


@dataclass(frozen=True)
class Attempts(Part):
    """K attempts at each task, from its beginning."""

    async def collect(
        self, rollouts: Rollouts, tasks: Sequence[Task], k: int, seed: int, max_turns: int, now: Now
    ) -> list[Group]:
        return await rollouts.play([Start(task) for task in tasks], k, seed, max_turns=max_turns)

    def per_task(self, k: int) -> int:
        """Attempts that a task takes, side rollouts included: what `compare` counts against its budget."""
        return k
