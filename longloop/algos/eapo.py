"""EAPO, of IterResearch (arXiv 2511.07327): GSPO for agents whose context is rebuilt at every turn.

    the agent sees the task, its last report, its last action and the result; it says a new report and an action:
        each turn is a sample of its own                                                 envs/rebuilt.py
    rho_iu = gamma^(U_i - u) R_i,   u = 1 .. U_i
    A_iu = (rho_iu - mean) / (std + 1e-6), over all turns of all attempts at the task
    s_iu = exp(mean over the tokens of turn u of log r_t)
    maximize the mean over attempts of the mean over turns of min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)

gamma < 1 pays early turns of long successes less, so that of two successes the shorter counts more; it is no discount
of what follows a turn. Any environment can be played: where none rebuilds its context, turns share one. gamma = 1, pool
= "trajectories", ratio = "trajectory" is GSPO.

Differs from the paper: there is no public code; the formulas are from two notes that agree. Which baseline is
subtracted is not certain (here the mean over the group's turns), nor is gamma. Attempts count once, not once a turn.
Its adaptive downsampling, which fits the number of samples to that of devices, is not needed here. A policy that does
not know the format should be taught it first (`rft`). Clip and mini-batches are GSPO's.
"""

from typing import Literal

from longloop.algos.composed import Parts, clipped
from longloop.algos.gspo import Gspo
from longloop.algos.parts import credit, rewards


class Eapo(Gspo):
    gamma: float = 0.995
    """The discount of a success for each turn that follows."""
    pool: Literal["turns", "trajectories"] = "turns"
    """What counts the same in mean and standard deviation."""
    ratio: Literal["turn", "trajectory"] = "turn"
    """What has one ratio."""

    def compose(self) -> Parts:
        paid, returns = rewards.Discounted(self.gamma, turn_weight=0.0), credit.Returns(0.0, self.pool)
        objective = clipped(self.clip_low, self.clip_high, ratio=self.ratio, geometric=True)
        return Parts(rewards=paid, credit=returns, choose=(), objective=objective)
