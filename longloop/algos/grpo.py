"""GRPO (arXiv 2402.03300): advantages standardized within the group, token ratios, a KL penalty to the reference.

    A_k = (R_k - mean) / (std + 1e-6)
    maximize mean over attempts of the mean over action tokens of
        min(r_t A, clip(r_t, 1 - eps, 1 + eps) A) - kl * (exp(d_t) - d_t - 1),   d_t = log p_ref - log p

Strictly on-policy by default (one step per iteration), as in both the original and LOOP's comparison. `kl = 0` is the
"GRPO no KL" of that comparison and needs no reference. With LoRA the reference is the model with its adapters off;
without, it is a second copy of the weights, and the run says so.

Differs from the paper: K and the learning rate are those of LOOP's comparison (64 and 1e-6 in the original). The
reference stays the model before training; the original's iterative variant renews it in each outer iteration.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import clip_metrics, probability_ratio, standardize
from longloop.protocols import Learner
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored


@dataclass(frozen=True, kw_only=True)
class Grpo(Grouped):
    clip: float = 0.2
    kl: float = 0.04

    @property
    def needs_reference(self) -> bool:
        return self.kl != 0

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        samples = super().credit(groups, learner, now)
        return learner.read(samples, "reference") if self.kl else samples

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return standardize(rewards)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        low, high = 1 - self.clip, 1 + self.clip
        ratio_N = probability_ratio(scored.logp_N - batch.old_N)
        objective_N = torch.minimum(ratio_N * batch.adv_N, ratio_N.clamp(low, high) * batch.adv_N)
        metrics = clip_metrics(ratio_N, batch.adv_N, low, high)
        if self.kl:
            difference_N = (batch.columns["reference"] - scored.logp_N).clamp(-10, 10)
            penalty_N = torch.exp(difference_N) - difference_N - 1
            objective_N = objective_N - self.kl * penalty_N
            metrics["reference_kl"] = (penalty_N.detach().sum(), penalty_N.numel())
        return -(batch.weight_N * objective_N).sum(), metrics
