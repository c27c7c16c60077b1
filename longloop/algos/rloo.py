"""RLOO (arXiv 2402.14740): REINFORCE with each attempt's baseline taken from the other attempts at the same task.

    A_k = R_k - mean of the other attempts' rewards
    maximize mean over attempts of A_k * sum over action tokens of log p(x_t | ..)

One on-policy step per iteration: LOOP with one epoch, one mini-batch and a ratio per trajectory. The gradient is
unbiased. (LOOP's released code takes the mean over tokens here; the sum is RLOO's own, and the unbiased one.)

Differs from the paper: as LOOP compares it, no KL penalty is taken off the reward, and attempts with |A| < 0.01 are
left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import leave_one_out
from longloop.types import Batch, Metrics, Scored


@dataclass(frozen=True, kw_only=True)
class Rloo(Grouped):
    drop_below: float = 0.01
    """Leave out attempts whose |advantage| is smaller: they only cost time."""
    weights: ClassVar[float] = 1.0

    def keep(self, advantage: float) -> bool:
        return abs(advantage) >= self.drop_below

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return leave_one_out(rewards)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        return -(batch.weight_N * batch.adv_N * scored.logp_N).sum(), {}
