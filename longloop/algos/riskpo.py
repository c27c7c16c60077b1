"""RiskPO (arXiv 2510.00911): advantages that look at the lower tail of scores, so that hard tasks count more.

    bundles of `bundle` tasks; paper j of a bundle = attempt j at each of its tasks;   S = the sum of its rewards
    rv = (clamp(S, q_low, q_high) - q_high) / (high - low),   cv = -max(0, q_low - S) / low
    A = (weight cv + rv) / (weight + 1) / std of the bundle's S / std of the task's rewards,   centered over the step
    q_a += rate (a - share of this step's S below q_a)                           for a = 0.05, 0.10 .. 0.95
    maximize the mean over attempts of the mean over action tokens of  min(r_t A, clip(r_t, 1 - clip, 1 + clip) A)

A mean forgives a task that always fails for one that always succeeds; here scores below the lower quantile count most.
`rate` is in units of S: where scores rise faster, those above the upper quantile teach nothing until it has caught up.
The defaults are the paper's, for steps of hundreds of tasks. With six a step the guessing game was not learned by them,
but by bundle = 3, rate = 0.3 and k = 16.

Differs from the paper: A is centered, for without that it is never above 0 and learning only pushes down. Quantiles are
followed as the paper says; the released code forgets them and takes those of each bundle's five papers. A step's tasks
are bundled by chance, in bundles as equal as can be; scores of smaller ones are scaled up. A std below 1e-3 is taken as
1. Whether the paper divides by the std of S or of its own A is not certain; here it is that of S. Their learning rate
is 1e-6.
"""

from longloop.algos.composed import Composed, Parts, clipped
from longloop.algos.parts.credit import Risk


class RiskPO(Composed):
    k: int = 5
    bundle: int = 5
    """Tasks whose rewards are added up."""
    low: float = 0.2
    """The level of the lower quantile, a multiple of 0.05."""
    high: float = 0.9
    """The level of the upper one."""
    weight: float = 1.5
    """How much more scores below the lower quantile count."""
    rate: float = 0.1
    """How fast the quantiles follow the scores."""
    normalize: bool = True
    """Divide by standard deviations."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        credit = Risk(self.bundle, self.low, self.high, self.weight, self.rate, self.normalize)
        return Parts(credit=credit, objective=clipped(self.clip))
