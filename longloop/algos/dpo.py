"""DPO: direct preference optimisation (arXiv 2305.18290) over whole attempts, the expert's against the policy's own.

    the expert's attempt at n tasks, and K of the policy's own              collect
    pairs: the expert's, and each own one that was paid less                pairs
    minimise -log sigmoid(beta (log p/p_ref of the expert's - of the own))  algos/preference.py

One iteration over all tasks is the offline method; in more, the policy's attempts and the reference are renewed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from longloop.algos.preference import Preference, beside_the_expert
from longloop.interfaces import Rollouts, Tasks
from longloop.types import Group, Trajectory


@dataclass(frozen=True, kw_only=True)
class Dpo(Preference):
    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int) -> list[Group]:
        return await beside_the_expert(rollouts, tasks, n, self.k)

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        expert = group.expert
        yield from ((expert, own) for own in group.own if expert is not None and own.reward < expert.reward)
