"""Dr.GRPO (arXiv 2503.20783): GRPO without its two biases.

    A_k = R_k - mean                                        (no division by the standard deviation)
    maximize mean over attempts of (1 / divisor) * sum over action tokens of min(r_t A, clip(r_t, 1 -+ eps) A)

GRPO's 1/|a| favours short successes and long failures; here every token counts the same, whatever its attempt's length.
`divisor` is a constant, for scale only: set it near the longest attempt and leave it. No KL term.

Differs from the paper: its constant is the largest number of tokens that may be sampled; an agent samples turn by turn
and has no such number, so that `divisor` is a setting.
"""

from longloop.algos.composed import OneStep, Parts, clipped
from longloop.algos.parts.credit import Centered


class DrGrpo(OneStep):
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""
    divisor: float = 1024.0
    """What an attempt's sum over tokens is divided by, whatever its length."""

    def compose(self) -> Parts:
        return Parts(credit=Centered(), choose=(), objective=clipped(self.clip, divisor=self.divisor))
