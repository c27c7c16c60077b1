"""GSPO (arXiv 2507.18071): one ratio per attempt, the geometric mean of its token ratios.

    A_k = (R_k - mean) / (std + 1e-6)
    s_k = exp(mean over action tokens of log r_t)
    maximize mean over attempts of min(s_k A, clip(s_k, 1 - clip_low, 1 + clip_high) A)

The clip range is tiny because a mean over many tokens moves little. For an agent, the tokens are its action tokens over
all turns; LOOP's trajectory ratio is s_k to the power of their number. One pass over a step's attempts in four
mini-batches, as in the paper: 60 is a quarter of LOOP's 40 tasks x 6 attempts.

Differs from the paper: K and lr are LOOP's, which the paper does not give.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import clip_metrics, mean_by, probability_ratio, standardize, sum_by
from longloop.types import Batch, Metrics, Scored


@dataclass(frozen=True, kw_only=True)
class Gspo(Grouped):
    minibatch: int = 60
    clip_low: float = 3e-4
    clip_high: float = 4e-4

    whole_units: ClassVar[bool] = True

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        low, high = 1 - self.clip_low, 1 + self.clip_high
        ratio_U = probability_ratio(mean_by(scored.logp_N - batch.old_N, batch, "trajectory"))
        adv_U = mean_by(batch.adv_N, batch, "trajectory")
        weight_U = sum_by(batch.weight_N, batch, "trajectory")
        objective_U = torch.minimum(ratio_U * adv_U, ratio_U.clamp(low, high) * adv_U)
        return -(weight_U * objective_U).sum(), clip_metrics(ratio_U, adv_U, low, high)
