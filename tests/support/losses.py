"""What neutral settings are compared with: of methods that choose tokens, or have their own objective or hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.parts.credit import Standardized
from longloop.algos.parts.objective import Clipped, Objective
from longloop.algos.reduce import Unit, mean_by, standardize, sum_by
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored


@dataclass(frozen=True, kw_only=True)
class WrittenOut(Grouped):
    """GRPO without a penalty, and its relatives, as their papers have them: without parts."""

    low: float = 0.8
    high: float = 1.2
    std: bool = True
    """Whether advantages are divided by the standard deviation."""
    divisor: float = 0.0
    """What an attempt's sum over tokens is divided by; 0 for their number."""
    whole: bool = False
    """Whether an attempt has one ratio, the geometric mean of its tokens'."""

    @property
    def weights(self) -> Unit | float:
        return 1 / self.divisor if self.divisor else "token"

    @property
    def whole_units(self) -> bool:
        return self.whole

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        mean = fmean(rewards)
        return standardize(rewards) if self.std else [reward - mean for reward in rewards]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        log_ratio, adv, weight = scored.logp_N - batch.old_N, batch.adv_N, batch.weight_N
        if self.whole:
            log_ratio, adv = (mean_by(x_N, batch, "trajectory") for x_N in (log_ratio, adv))
            weight = sum_by(weight, batch, "trajectory")
        ratio = log_ratio.exp()
        return -(weight * torch.minimum(ratio * adv, ratio.clamp(self.low, self.high) * adv)).sum(), {}


@dataclass(frozen=True, kw_only=True)
class WrittenOutOverTokens(WrittenOut):
    """As a mean over tokens: DAPO."""

    average: ClassVar[Literal["trajectories", "tokens"]] = "tokens"
    weights: ClassVar[float] = 1.0


ONE: dict[str, Any] = {"epochs": 1, "minibatch": 0}
"""One update with all of the step's samples."""


def grpo_tokens(low: float, high: float, **more: Any) -> dict[str, Any]:
    """GRPO's advantages, a clip range and a mean over all tokens."""
    return {"credit": Standardized(), "objective": Clipped(average="tokens", low=low, high=high, **more)}


@dataclass(frozen=True)
class Imitated(Objective):
    """The likelihood of each attempt, by its reward and by what its group lacks: NFT without failures."""

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        marked = []
        for sample in samples:
            rewards = {t.attempt: t.reward for t in groups[sample.source.group].scored}
            mean, reward = fmean(rewards.values()), rewards[sample.source.attempt]
            marked.append(sample.with_columns(mean=np.full(len(sample.ids), mean), own=sample.mask * reward))
        return marked

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        lack_N = batch.weight_N * (1 - batch.columns["mean"])
        return -(lack_N * (batch.columns["own"] * scored.logp_N)).sum(), {}
