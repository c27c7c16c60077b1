"""Clip-Cov (arXiv 2505.22617): a few of the tokens that cost the most entropy get no gradient.

    A = (R - mean) / (std + 1e-6);   c_t = (A_t - mean A)(log p_t - mean log p), means over the step's tokens
    of the tokens with low < c_t < high drop share * N by chance, at least one
    maximize the mean over all action tokens, dropped ones as 0, of  min(r_t A, clip(r_t, 1 -+ clip) A)

Entropy falls where advantage and log-prob covary: likely tokens that were paid well, unlikely ones that were not.

Differs from the paper: the covariance and the choice are those of the whole step, with the sampling policy's log-probs
(the authors' are those of a micro-batch, and drop at least one token of each). Groups without a difference are not
replaced by others.
"""

from longloop.algos.composed import Composed, DropSmall, Parts, Standardized, clipped
from longloop.algos.parts.choose import DropCovarying


class ClipCov(Composed):
    share: float = 2e-4
    """Of all tokens of the step, how many are dropped; 0 for none."""
    low: float = 1.0
    """Tokens with a smaller covariance are not dropped."""
    high: float = 5.0
    """Tokens with a larger covariance are not dropped."""
    clip: float = 1.0
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        choose = DropSmall(), DropCovarying(self.share, self.low, self.high)
        return Parts(credit=Standardized(), choose=choose, objective=clipped(self.clip, average="tokens"))
