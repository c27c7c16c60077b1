"""CISPO (arXiv 2506.13585): the clipped ratio is a weight on REINFORCE, so every token keeps its gradient.

    A = (R - mean) / (std + 1e-6)
    maximize the mean over all action tokens of  sg[clamp(r_t, 1 - clip_low, 1 + clip_high)] A log p_t

sg stops the gradient. PPO's clip drops tokens whose ratio has left the range; here they count with the bound as weight.
There is no lower bound (`clip_low = 1`), as in the paper.

Differs from the paper: it tunes clip_high and does not say to what (verl's configs have 0.2); 4 bounds only what has
moved far.
"""

from longloop.algos.composed import Composed, Parts, Standardized
from longloop.algos.parts.objective import Weighted


class Cispo(Composed):
    clip_low: float = 1.0
    """A token's weight is at least 1 - clip_low."""
    clip_high: float = 4.0
    """A token's weight is at most 1 + clip_high."""

    def compose(self) -> Parts:
        return Parts(credit=Standardized(), objective=Weighted("tokens", 1 - self.clip_low, 1 + self.clip_high))
