"""AEPO, agentic (arXiv 2510.14545): attempts fork at turns, and tokens count more, where the policy was unsure.

    m = 1 + floor(K sigmoid((H_0 - mean of H_u, u > 0) / 2)) attempts from the beginning, H of a task's first attempt;
        the others leave them before turn u if  (x + branch_w (H_u - H_0)) max(0, 1 - penalty l) >= threshold
    A_it = A_i (1 + w z_it),   A_i = (R_i - mean) / (std + 1e-6)
    z_it = (H_it - mean H) / std H,   over all action tokens of the step
    maximize the mean over attempts of the mean over action tokens of
        min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A),
        where tokens with z_it > 0 that the upper bound cuts off keep the bound's gradient

x is uniform, l the forks in a row at the task, H the entropy that a token was drawn with. Turns that attempts share
count with each of them. With `first` >= K, keep = "none", w = 0 this is GRPO without a KL term, with DAPO's clip and
LOOP's epochs and mini-batches. The environment must answer equal actions equally.

Differs from the paper: the authors' code keeps the gradient of all tokens (`keep = "all"`), the paper that of unsure
ones; it takes mean and deviation over a micro-batch of current entropies, here they are the step's, from the policy
that sampled. The attempt that says m is one of the K. Entropies of turns are estimated as in ARPO, in nats (theirs are
divided by log V). The penalty is the code's; the paper's was not seen. Attempts without advantage are kept, for their
entropy.
"""

from typing import Literal

from longloop.algos.composed import Composed, Parts, Standardized
from longloop.algos.parts import objective, rollouts, shape


class Aepo(Composed):
    k: int = 16
    first: int = 0
    """Attempts from the beginning; 0 for m. From K on, no attempt forks."""
    branch_w: float = 0.2
    """How much being unsure counts beside chance."""
    threshold: float = 0.5
    """From which on an attempt is left."""
    penalty: float = 0.05
    """What each fork in a row takes from the chance of the next."""
    w: float = 0.2
    """How much a token gains whose entropy is one standard deviation above the mean."""
    keep: Literal["none", "uncertain", "all"] = "uncertain"
    """Which tokens keep a gradient beyond the upper bound."""
    clip_low: float = 0.2
    """The clip range begins at 1 - clip_low."""
    clip_high: float = 0.28
    """The clip range ends at 1 + clip_high."""

    def compose(self) -> Parts:
        return Parts(
            rollouts=rollouts.UnsureForks(self.first, self.branch_w, self.threshold, self.penalty),
            credit=Standardized(),
            shape=(shape.EntropyUp(self.w),),
            choose=(),
            objective=objective.KeepGradient(low=1 - self.clip_low, high=1 + self.clip_high, tokens=self.keep),
        )
