"""NFT: negative-aware fine-tuning (arXiv 2505.18116). Successes are imitated; failures teach what the others were.

    m = mean reward of the group, within [0.02, 0.98]; groups that are all paid the same are left out
    success  L+ = -log r_t
    failure  L- = -log max(1, (1 - m r_t) / (1 - m)),  straight-through gradient
    minimize mean over attempts of  1/divisor sum over action tokens of  (1 - m) (R L+ + negatives (1 - R) L-)

The policy is a mixture of what it does when it succeeds and when it fails: raising what remains without the failures
raises the successes. At r = 1 the gradient is Dr.GRPO's: -(1 - m) for a success, m for a failure.

Differs from the paper: rewards between 0 and 1 count as shares of a success. log r is not cut off at 10 (beyond e^20
the ratio follows its tangent); groups without a difference are not replaced.
"""

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts import credit, objective


class Nft(Composed):
    negatives: float = 1.0
    """How much failures count; 0 imitates successes alone."""
    divisor: float = 1000.0
    """What an attempt's sum over tokens is divided by, whatever its length."""

    def compose(self) -> Parts:
        implicit = objective.Implicit(negatives=self.negatives, divisor=self.divisor)
        return Parts(credit=credit.Centered(), objective=implicit)
