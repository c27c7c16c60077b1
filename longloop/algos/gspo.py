"""GSPO (arXiv 2507.18071): one ratio per attempt, the geometric mean of its token ratios.

    A_k = (R_k - mean) / (std + 1e-6)
    s_k = exp(mean over action tokens of log r_t)
    maximize mean over attempts of min(s_k A, clip(s_k, 1 - clip_low, 1 + clip_high) A)

The clip range is tiny because a mean over many tokens moves little. For an agent, the tokens are its action tokens over
all turns; LOOP's trajectory ratio is s_k to the power of their number. One pass over a step's attempts in four
mini-batches, as in the paper: 60 is a quarter of LOOP's 40 tasks x 6 attempts.

Differs from the paper: K and lr are LOOP's, which the paper does not give.
"""

from longloop.algos.composed import Composed, Parts, Standardized, clipped


class Gspo(Composed):
    epochs: int = 1
    minibatch: int = 60
    clip_low: float = 3e-4
    """The clip range begins at 1 - clip_low."""
    clip_high: float = 4e-4
    """The clip range ends at 1 + clip_high."""

    def compose(self) -> Parts:
        objective = clipped(self.clip_low, self.clip_high, ratio="trajectory", geometric=True)
        return Parts(credit=Standardized(), choose=(), objective=objective)
