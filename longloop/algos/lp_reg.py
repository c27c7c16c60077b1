"""Lp-Reg (arXiv 2510.03222): rare tokens that make sense are kept from being punished to extinction.

    A = (R - mean) / (std + 1e-6)
    q = the sampling policy without tokens less than `floor` times as likely as the likeliest
    minimize the mean over all action tokens of  -min(r_t A, clip(r_t, 0, high) A)
        + coefficient (exp(d_t) - d_t - 1),  d_t = log q_t - log p_t,
          where A < 0, log p_t is among the lowest `share` of the step's negative tokens, q_t > 0 and p_t < q_t

A failed attempt punishes all its tokens, and an unlikely one may never come back. Noise is not in q.

Differs from the paper: "the lowest 1%" is of the step (the authors': of a micro-batch, and nothing where that is one
token). Strictly on-policy, as theirs.
"""

from longloop.algos.composed import Clipped, OneStep, Parts, Standardized
from longloop.algos.parts.hold import HoldRare


class LpReg(OneStep):
    share: float = 0.01
    """Of the step's tokens with a negative advantage, the share that counts as rare: the least likely ones."""
    floor: float = 0.02
    """Tokens less than this many times as likely as the likeliest are noise, and not kept."""
    coefficient: float = 1.0
    """The weight of the term that keeps rare tokens."""
    high: float = 10.0
    """The upper bound of the ratio; there is no lower one."""

    def compose(self) -> Parts:
        hold = (HoldRare(self.share, self.floor, self.coefficient),)
        return Parts(credit=Standardized(), objective=Clipped("tokens", low=0.0, high=self.high), hold=hold)
