"""KL-Cov (arXiv 2505.22617): the tokens that cost the most entropy are held where they are.

    A = (R - mean) / (std + 1e-6);   c_t = (A_t - mean A)(log p_t - mean log p), means over the step's tokens
    minimize the mean over all action tokens of  -r_t A + coefficient |log r_t| [c_t among the share N largest]

The other answer of Clip-Cov's authors to entropy that falls where advantage and log-prob covary. There is no clip. |log
r| has no gradient at r = 1: a step with one mini-batch never feels it.

Differs from the paper: the covariance and the choice are those of the whole step, with the sampling policy's log-probs
(the authors': of a micro-batch). The share, 0.2%, is that of their 7B model (0.02% for 32B). Groups without a
difference are not replaced by others.
"""

import math

from longloop.algos.composed import Clipped, Composed, Parts, Standardized
from longloop.algos.parts.hold import HoldCovarying


class KlCov(Composed):
    share: float = 0.002
    """Of all tokens of the step, how many are held, at least one; 0 for none."""
    coefficient: float = 1.0
    """The weight of |log r| in the loss of the tokens that are held."""

    def compose(self) -> Parts:
        hold = (HoldCovarying(self.share, self.coefficient),)
        return Parts(credit=Standardized(), objective=Clipped("tokens", low=0.0, high=math.inf), hold=hold)
