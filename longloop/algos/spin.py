"""SPIN: self-play fine-tuning (arXiv 2401.01335). The expert's attempt is always the better one.

    for each iteration:
        the expert's attempt at n tasks, and the policy's own                       collect
        pairs of both, whatever they were paid; equal ones are left out             pairs
        minimise -log sigmoid(beta (log p/p_ref of the expert's - of the own))      algos/preference.py

p_ref is the policy at the start of the iteration, which is also the opponent: it learns to be told from what it was,
until it is the expert.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from longloop.algos.dpo import Dpo
from longloop.types import Group, Trajectory


@dataclass(frozen=True, kw_only=True)
class Spin(Dpo):
    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        yield from ((group.expert, own) for own in group.own if group.expert is not None)
