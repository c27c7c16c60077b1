"""ARES (arXiv 2510.08457): hesitate less at easy tasks, more at hard ones.

    R_i + e_i,   A_i = (R_i - mean) / (std + 1e-6)
    n_i = the tokens from which on the mean entropy of 4 tokens exceeds a threshold
    target = mean n at tasks of the same difficulty in the step;  d = n - target;  margin = a share of the target
    easy, success:    e = -penalty(d - margin)             medium, success: e = -penalty(|d| - margin)
    hard, success:    e = bonus(d + margin), or -penalty(-d - margin) / 2 if d < -margin
    failure:          e = bonus(d - margin)

penalty is Huber's and bonus a sigmoid, both capped at alpha and 0 for what is not positive. A task is easy from 2/3
success in its group on, medium from 1/3 on. The threshold is a running mean, which is remembered.

Differs from the paper: against its code, the sigmoid begins at 0 (the code's pays every failure half the cap); alpha is
constant (the code adapts it to a rounding error); all tokens are counted, not those of a list of words; one KL
coefficient, whose value is a guess, instead of one for each difficulty. One update a step; K and the learning rate are
LOOP's.
"""

from dataclasses import dataclass

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import Standardized
from longloop.algos.parts.hold import Kl
from longloop.algos.parts.objective import Clipped
from longloop.algos.parts.rewards import Effort


@dataclass(frozen=True, kw_only=True)
class Ares(Composed):
    epochs: int = 1
    minibatch: int = 0
    alpha: float = 0.5
    """The most that hesitation changes a reward by."""
    clip: float = 0.2
    kl: float = 0.01

    @property
    def parts(self) -> Parts:
        return Parts(
            rewards=Effort(self.alpha),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=1 - self.clip, high=1 + self.clip),
            hold=(Kl(self.kl),) if self.kl else (),
        )
