"""All trained tokens of a step end to end, for statistics and choices that must not depend on how they came.

They lie in the order of task, attempt and stretch, whatever the order of the samples: ties and sums are then the same.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np

from longloop.algos.reduce import Unit
from longloop.types import Floats, Group, Ids, Mask, Sample


class Tokens:
    def __init__(self, samples: Sequence[Sample], groups: Sequence[Group]) -> None:
        self.given = samples
        self.samples = sorted(samples, key=lambda s: (groups[s.source.group].task.id, s.source.attempt, s.stretch))
        self._groups = groups
        self._sizes = [sample.action_tokens for sample in self.samples]

    def __len__(self) -> int:
        return sum(self._sizes)

    def flat(self, values: Callable[[Sample], Floats]) -> Floats:
        """A column of all samples, [N]."""
        return np.concatenate([np.zeros(0), *(values(sample)[sample.mask] for sample in self.samples)])

    def columns(self, values_N: Floats | Mask) -> list[Floats]:
        """The values as a column of each sample, in the order the samples were given; 0 where the mask is off."""
        found: dict[int, Floats] = {}
        start = 0
        for sample, size in zip(self.samples, self._sizes, strict=True):
            found[id(sample)] = np.zeros(len(sample.ids))
            found[id(sample)][sample.mask] = values_N[start : start + size]
            start += size
        return [found[id(sample)] for sample in self.given]

    def read(self, name: str) -> Floats:
        """What the learner says of the tokens, [N]."""
        return self.flat(lambda sample: sample.columns[name])

    def marked(self, **columns_N: Floats | Mask) -> list[Sample]:
        """The samples with these columns, in the order they were given."""
        rows = zip(*map(self.columns, columns_N.values()), strict=True)
        both = zip(self.given, rows, strict=True)
        return [sample.with_columns(**dict(zip(columns_N, row, strict=True))) for sample, row in both]

    def units(self, unit: Unit) -> Ids:
        """The number of the token, turn or trajectory that each token belongs to, [N]."""
        if unit == "token":
            return np.arange(len(self))
        number: dict[object, int] = {}
        keys: Iterable[object] = (
            (sample.source, turn if unit == "turn" else 0)
            for sample in self.samples
            for turn in sample.turns[sample.mask].tolist()
        )
        return np.array([number.setdefault(key, len(number)) for key in keys], dtype=int)

    def chances(self, which: Ids, step: int) -> list[bytes]:
        """For each of these tokens a number that follows from the step and the token's place alone, evenly spread."""
        owner = np.repeat(np.arange(len(self.samples)), self._sizes)
        position = np.concatenate([np.zeros(0, int), *(np.flatnonzero(sample.mask) for sample in self.samples)])
        names = []
        for token in which.tolist():
            sample = self.samples[owner[token]]
            task = self._groups[sample.source.group].task.id
            names.append(f"{step}/{task}/{sample.source.attempt}/{sample.stretch}/{position[token]}")
        return [blake2b(name.encode(), digest_size=8).digest() for name in names]


def mean(values_N: Floats) -> float:
    """Rounded once, so that the order of the values does not matter."""
    return math.fsum(values_N.tolist()) / max(1, len(values_N))
