"""EMPG (arXiv 2509.09265): a turn's advantage is scaled by how sure the policy was, with a bonus for clarity after it.

    A = (R - mean) / (std + 1e-6)
    h_iu = (H_iu - min) / (max - min),   H_iu the mean entropy of turn u's action tokens, min and max over all turns
    g_iu = exp(-scale h_iu) / mean of the same,    f_iu = exp(-future h_iu)
    A_iu = A_i g_iu + zeta f_i,u+1  minus its mean over all turns

A policy gradient is small where the policy is sure. g undoes this: sure turns that were right are reinforced more,
unsure ones moved less. The bonus, which the last turn does not have, favors turns that lead to clear states.

Differs from the paper: turns of attempts without an advantage take no part, or centering would give them one. The
authors' code does not show which mean is subtracted; here it is that over turns, each counting once.
"""

from longloop.algos.composed import Composed, Parts, Standardized
from longloop.algos.parts.shape import TurnEntropy


class Empg(Composed):
    scale: float = 1.0
    """How much a turn's entropy lowers its share (the paper's k)."""
    future: float = 1.0
    """How much the next turn's entropy lowers the bonus (k')."""
    zeta: float = 0.1
    """The largest bonus."""
    center: bool = True
    """Whether the mean over turns is subtracted."""

    def compose(self) -> Parts:
        shape = TurnEntropy(self.scale, self.future, self.zeta, self.center)
        return Parts(credit=Standardized(), shape=(shape,))
