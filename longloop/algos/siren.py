"""SIREN (arXiv 2509.25133): the entropy at the tokens where the policy chooses is held at what it was at first.

    H_t = entropy of the fewest likeliest tokens with a mass of `nucleus`
    H = mean over attempts of the mean of H_t over their peaks, the tokens at or above the attempt's `quantile`
    minimize  L + coefficient (H - H0)^2,   H0 = H at the first step,   L Dr.GRPO's loss

A bonus on all entropies raises those of a large vocabulary's tail; this one stops at H0 and knows neither the tail nor
the tokens that follow from what was said. H is a mean over the mini-batch, taken before its update; the gradient is 2
coefficient (H - H0) grad H, the same for every cut into micro-batches.

Differs from the paper: the nucleus has the token that reaches the mass (the authors' code leaves it out, so that a
token with p > 0.8 has entropy 0); peaks are chosen with the sampling policy; H0 is saved with checkpoints. Attempts
without advantage are kept, for their entropy.
"""

from longloop.algos.composed import Composed, Parts, clipped
from longloop.algos.parts import credit, hold


class Siren(Composed):
    coefficient: float = 0.005
    """The weight of the squared distance from H0."""
    nucleus: float = 0.8
    """A token's entropy is that of the fewest likeliest tokens with this mass."""
    quantile: float = 0.8
    """The quantile of an attempt's entropies from which on tokens count."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""
    divisor: float = 1024.0
    """What an attempt's sum over tokens is divided by, whatever its length; see Dr.GRPO."""

    def compose(self) -> Parts:
        objective = clipped(self.clip, divisor=self.divisor)
        anchor = hold.Anchor(self.coefficient, self.nucleus, self.quantile)
        return Parts(credit=credit.Centered(), choose=(), objective=objective, hold=(anchor,))
