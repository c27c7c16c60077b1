"""ARPO (arXiv 2507.19849): half of a task's attempts branch off the others, at turns where the policy was unsure.

    `first` attempts from the beginning; each is left before turn u if  x + w (H_u - H_0) >= threshold,  x uniform
    until there are K; places that stay free are filled from the beginning
    A_k = (R_k - mean) / (std + 1e-6) over all K
    maximize the mean over attempts of the mean over action tokens of min(r_t A, clip(r_t, 1 - clip, 1 + clip) A)

More attempts where an answer of the environment made the policy unsure, for the price of K. Turns that attempts share
count with each of them. With `first` >= K this is GRPO without KL. The environment must answer equal actions equally.

Differs from the paper: H is the mean of -log p over the tokens drawn, since an engine returns no entropies, compared
with the attempt's own first turn; theirs is a sum over 20 tokens of entropies of the ten likeliest, divided by log V,
against that of another task after the first batch. Attempts are left once they are over, not meanwhile. Attempts of one
tree are not independent, which biases the baseline.
"""

from longloop.algos.composed import Composed, Parts, Standardized, clipped
from longloop.algos.parts.rollouts import UnsureForks


class Arpo(Composed):
    k: int = 16
    first: int = 8
    """Attempts from the beginning."""
    w: float = 0.2
    """How much being unsure counts beside chance."""
    threshold: float = 0.5
    """From which on an attempt is left."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        forks = UnsureForks(self.first, self.w, self.threshold)
        return Parts(rollouts=forks, credit=Standardized(), choose=(), objective=clipped(self.clip))
