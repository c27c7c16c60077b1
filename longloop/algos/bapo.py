"""BAPO (arXiv 2510.18927): the clip range of each mini-batch is moved until positive tokens have their share.

    A = (R - mean) / (std + 1e-6)
    before each update, with r of the policy as it is:
        share = sum of r A over {A > 0, r <= high} / (that + sum of r |A| over {A < 0, low <= r <= dual})
        raise low from low_start to low_end, then high from high_start to high_end, until share >= target
    maximize the mean over all action tokens of  min(r_t A, clip(r_t, low, high) A), and nothing for A < 0, r > dual

Failures come in more tokens than successes and push the entropy down; the range silences the most unlikely of the one
and admits more of the other. At a step's first update r = 1 and the range has no effect.

Differs from the paper: the share counts what still has a gradient; the authors' code counts clipped values, by which
raising `low` makes the share smaller. They publish three sets of numbers; these are their README's. The steps are their
yaml's.
"""

from longloop.algos.composed import Composed, Parts, Standardized
from longloop.algos.parts.objective import Balanced


class Bapo(Composed):
    target: float = 0.5
    """The share of positive tokens to reach; 0 leaves the range at its start."""
    low_start: float = 0.6
    """The clip range's lower end before it is raised."""
    low_end: float = 0.9
    """The most that the lower end is raised to."""
    high_start: float = 1.2
    """The clip range's upper end before it is raised."""
    high_end: float = 3.0
    """The most that the upper end is raised to."""
    range_step: float = 0.05
    """How far a bound moves at a time."""
    dual: float = 3.0
    """The ratio beyond which negative tokens no longer push."""

    def compose(self) -> Parts:
        lows, highs = (self.low_start, self.low_end), (self.high_start, self.high_end)
        objective = Balanced("tokens", self.target, lows, highs, self.range_step, self.dual)
        return Parts(credit=Standardized(), objective=objective)
