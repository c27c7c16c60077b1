"""ARES (arXiv 2510.08457): hesitate less at easy tasks, more at hard ones.

    R_i + e_i,   A_i = (R_i - mean) / (std + 1e-6)
    n_i = the tokens from which on the mean entropy of 4 tokens exceeds a threshold, a running mean that is remembered
    target = mean n at tasks of the same difficulty in the step;  d = n - target;  margin = a share of the target
    easy, success:    e = -penalty(d - margin)             medium, success: e = -penalty(|d| - margin)
    hard, success:    e = bonus(d + margin), or -penalty(-d - margin) / 2 if d < -margin
    failure:          e = bonus(d - margin)

penalty is Huber's, bonus a sigmoid, both 0 below 0 and at most alpha, at hard tasks 1.2 alpha. Easy are tasks from 2/3
success on, medium from 1/3.

Differs from the paper: against its code, the sigmoid begins at 0 (the code's pays every failure half the cap); alpha is
constant (the code adapts it to a rounding error); all tokens are counted, not those of a list of words; one KL
coefficient, a guess, instead of one for each difficulty.
"""

from longloop.algos.composed import FromGrpo, Parts
from longloop.algos.parts.rewards import Effort


class Ares(FromGrpo):
    alpha: float = 0.5
    """The most that hesitation changes a reward by; at hard tasks 1.2 times as much."""
    kl: float = 0.01

    def compose(self) -> Parts:
        return self.grpo(rewards=Effort(self.alpha))
