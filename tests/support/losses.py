"""What neutral settings are compared with: of methods that choose tokens, or have their own objective or hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from torch import Tensor

from longloop.algos.parts.credit import Standardized
from longloop.algos.parts.objective import Clipped, Objective
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored

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
