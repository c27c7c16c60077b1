"""Choose: which attempts and tokens count, and how much. It changes `Sample.weights`, or leaves samples out."""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from longloop.algos.parts.part import Part
from longloop.types import Group, Now, Sample, SampleSource


@dataclass(frozen=True)
class Choose(Part):
    @abstractmethod
    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        """The samples to train on, with their weights."""


@dataclass(frozen=True)
class DropSmall(Choose):
    """Leave out attempts whose advantages are all smaller than this in size: they only cost time."""

    below: float = 0.01

    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        largest: dict[SampleSource, float] = defaultdict(float)
        for sample in samples:
            largest[sample.source] = max(largest[sample.source], abs(sample.advantages).max(initial=0.0))
        return [sample for sample in samples if largest[sample.source] >= self.below]
