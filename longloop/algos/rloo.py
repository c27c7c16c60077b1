"""RLOO (arXiv 2402.14740): REINFORCE with each attempt's baseline taken from the other attempts at the same task.

    A_k = R_k - mean of the other attempts' rewards
    maximize mean over attempts of A_k * sum over action tokens of log p(x_t | ..)

One on-policy step per iteration: LOOP with one epoch, one mini-batch and a ratio per trajectory. The gradient is
unbiased. (LOOP's released code takes the mean over tokens here; the sum is RLOO's own, and the unbiased one.)

Differs from the paper: as LOOP compares it, no KL penalty is taken off the reward, and attempts with |A| < 0.01 are
left out.
"""

from longloop.algos.composed import DropSmall, OneStep, Parts
from longloop.algos.parts.objective import Summed


class Rloo(OneStep):
    drop_below: float = 0.01
    """Leave out attempts whose |advantage| is smaller: they only cost time."""

    def compose(self) -> Parts:
        return Parts(choose=(DropSmall(self.drop_below),), objective=Summed())
