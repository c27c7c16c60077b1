"""Hold: terms added to the loss, which keep the policy near something or its entropy where it should be."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from longloop.algos.parts.part import Part
from longloop.types import Batch, Metrics, Scored


@dataclass(frozen=True)
class Hold(Part):
    @abstractmethod
    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        """A SUM over the micro-batch to be added to the objective's."""


@dataclass(frozen=True)
class Kl(Hold):
    """coefficient * (exp(d) - d - 1) at every token, d = log p_ref - log p: a penalty for leaving the reference."""

    coefficient: float = 0.04

    reads: ClassVar[tuple[str, ...]] = ("reference",)

    @property
    def reference(self) -> bool:
        return True

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        difference_N = (batch.columns["reference"] - scored.logp_N).clamp(-10, 10)
        penalty_N = torch.exp(difference_N) - difference_N - 1
        metrics: Metrics = {"reference_kl": (penalty_N.detach().sum(), penalty_N.numel())}
        return (batch.weight_N * self.coefficient * penalty_N).sum(), metrics
