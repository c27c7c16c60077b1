"""ETO: exploration-based trajectory optimisation (arXiv 2403.02502). Fail, compare with the expert, learn, try again.

    for each of some 3 iterations:
        the expert's attempt at n tasks, and the policy's own                          collect
        pairs of the two with different rewards; the higher paid one is the better     pairs
        3 epochs of DPO: minimise -log sigmoid(beta (log p/p_ref of the better         algos/preference.py
            - of the worse one)), p_ref the policy at the start of the iteration

From the second iteration on, beta is 0.5 and the learning rate half, as in the authors' code; a worse attempt is cut to
ten messages more than the better one has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from longloop.algos.dpo import Dpo
from longloop.types import Group, Trajectory


@dataclass(frozen=True, kw_only=True)
class Eto(Dpo):
    epochs: int = 3
    later_beta: float = 0.5
    """From the second iteration on."""
    longer: int = 10
    """Messages by which a worse attempt may be longer than the better one; the rest of it is not looked at."""

    def pace(self, step: int, steps: int) -> float:
        return 1.0 if step == 1 else 0.5

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        for own in group.own if group.expert else ():
            assert group.expert is not None
            worse, better = sorted((own, group.expert), key=lambda t: t.reward)
            if better.reward > worse.reward:
                yield better, replace(worse, turns=worse.turns[: len(better.turns) + self.longer // 2])

    def strength(self, step: int) -> float:
        return self.beta if step == 1 else self.later_beta
