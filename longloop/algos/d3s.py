"""D3S (arXiv 2509.22115): train on the attempts that differ most, and of these on the tokens that matter.

    A = (R - mean) / (std + 1e-6)
    of all attempts of the step keep the share whose A have the largest variance: the best and the worst
    of their tokens keep the share with the largest |A_t| H_t
    both shares rise on a line from their start to 1 at the last step
    maximize LOOP's clipped objective over what is kept

Attempts near the mean and tokens without a choice dilute the gradient; late in a run it must not over-fit.

Differs from the paper: it gives no number for the shares at the start, except "under 20%" of tokens; these are guesses.
A kept attempt keeps at least one token. The weights of kept tokens are scaled to add up to what all would. The sum
over a mini-batch is divided by its nominal size, also if the last is shorter; with `minibatch = 0`, by the number kept.
"""

from longloop.algos.base import Algorithm
from longloop.algos.composed import Composed, Parts, Standardized
from longloop.algos.parts.choose import Extremes, TopTokens


class D3s(Composed):
    attempts_share: float = 0.25
    """Of attempts, at the first step."""
    tokens_share: float = 0.2
    """Of the tokens of these, at the first step."""

    def compose(self) -> Parts:
        return Parts(credit=Standardized(), choose=(Extremes(self.attempts_share), TopTokens(self.tokens_share)))

    denominator = Algorithm.denominator
