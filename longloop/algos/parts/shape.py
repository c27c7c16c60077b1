"""Shape: advantages into advantages. A shape changes `Sample.advantages` and nothing else."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from longloop.algos.parts.part import Part
from longloop.types import Group, Now, Sample


@dataclass(frozen=True)
class Shape(Part):
    @abstractmethod
    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        """The step's samples with other advantages."""
