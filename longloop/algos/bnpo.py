"""BNPO (arXiv 2506.02864): advantages are divided by a Beta density that is fitted to the tasks' success rates.

    p = the mean reward of a task;   m, v = mean and variance of p over the step's tasks;   c = m (1 - m) / v - 1
    a = max(1, 1 + c m / 3),   b = max(1, 1 + c (1 - m) / 3)
    A_k = (R_k - p) / Beta(p; a, b)
    maximize the mean over attempts of the mean over action tokens of  min(r_t A, clip(r_t, 1 - clip, 1 + clip) A)

The policy's success rates decide, step by step, between no normalization (a = b = 1, where they are spread out) and
division by the standard deviation (a = b = 3/2). It is for rewards that are 0 or 1, or shares of passed tests; others
are mapped to [0, 1] from `reward_low` to `reward_high`.

Differs from the paper: the factor 1 / Beta is at most `most`, where the authors' code has 1e6; equal rates at all tasks
count as a = b = 1, where it divides by zero. The decomposition of several rewards is left out.
"""

from longloop.algos.composed import Composed, Parts, clipped
from longloop.algos.parts.credit import BetaNormalized


class Bnpo(Composed):
    share: float = 1 / 3
    """How much of the fitted density counts; at 0 advantages are R - p."""
    most: float = 5.0
    """The largest factor that an advantage is multiplied by."""
    reward_low: float = 0.0
    """The reward that is mapped to 0."""
    reward_high: float = 1.0
    """The reward that is mapped to 1."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        credit = BetaNormalized(self.share, self.most, self.reward_low, self.reward_high)
        return Parts(credit=credit, objective=clipped(self.clip))
