"""ETO: exploration-based trajectory optimization (arXiv 2403.02502). Fail, compare with the expert, learn, try again.

    for each of some 3 iterations:
        the expert's attempt at n tasks, and the policy's own                          collect
        pairs of the two with different rewards; the higher paid one is the better     pairs
        3 epochs of DPO: minimize -log sigmoid(beta (log p/p_ref of the better         algos/preference.py
            - of the worse one)), p_ref the policy at the start of the iteration

From the second iteration on, beta is 0.5 and the learning rate half; the rate rises over the first tenth of an
iteration's updates; an own attempt that is the worse one is cut to ten messages more than the expert's has.

Differs from the paper: an expert's reward is what the environment paid it; the authors' code takes 1 for granted in two
of its environments. All else is that code's.
"""

from collections.abc import Iterator
from dataclasses import replace

from longloop.algos.preference import AgainstExpert
from longloop.types import Now, Trajectory


class Eto(AgainstExpert):
    epochs: int = 3
    warmup: float = 0.1
    later_beta: float = 0.5
    """From the second iteration on."""
    longer: int = 10
    """Messages by which an own attempt that is the worse one may be longer than the expert's; the rest is left out."""

    def lr_scale(self, now: Now, within: float = 0.5) -> float:
        return super().lr_scale(now, within) * (1.0 if now.step == 1 else 0.5)

    def against(self, expert: Trajectory, own: Trajectory) -> Iterator[tuple[Trajectory, Trajectory]]:
        if own.reward < expert.reward:
            yield expert, replace(own, turns=own.turns[: len(expert.turns) + self.longer // 2])
        elif own.reward > expert.reward:
            yield own, expert

    def strength(self, step: int) -> float:
        return self.beta if step == 1 else self.later_beta
