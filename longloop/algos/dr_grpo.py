"""Dr.GRPO (arXiv 2503.20783): GRPO without its two biases.

    A_k = R_k - mean                                        (no division by the standard deviation)
    maximize mean over attempts of (1 / divisor) * sum over action tokens of min(r_t A, clip(r_t, 1 -+ eps) A)

GRPO's 1/|a| favours short successes and long failures; here every token counts the same, whatever its attempt's length.
`divisor` is a constant, for scale only: set it near the longest attempt and leave it. No KL term.

Differs from the paper: its constant is the largest number of tokens that may be sampled; an agent samples turn by turn
and has no such number, so that `divisor` is a setting. K and lr are LOOP's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import Unit, clip_metrics, probability_ratio
from longloop.types import Batch, Metrics, Scored


@dataclass(frozen=True, kw_only=True)
class DrGrpo(Grouped):
    clip: float = 0.2
    divisor: float = 1024.0

    @property
    def weights(self) -> Unit | float:
        return 1 / self.divisor

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        mean = fmean(rewards)
        return [reward - mean for reward in rewards]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        low, high = 1 - self.clip, 1 + self.clip
        ratio_N = probability_ratio(scored.logp_N - batch.old_N)
        objective_N = torch.minimum(ratio_N * batch.adv_N, ratio_N.clamp(low, high) * batch.adv_N)
        return -(batch.weight_N * objective_N).sum(), clip_metrics(ratio_N, batch.adv_N, low, high)
