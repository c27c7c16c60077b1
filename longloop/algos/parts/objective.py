"""Objective: the loss of a token, from its log-prob, the behavior log-prob, its advantage and its weight.

`loss` returns a SUM over the micro-batch, which the learner divides once by the mini-batch's norm. Statistics over a
mini-batch come from `facts`; none may be taken over a micro-batch.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from longloop.algos.parts.part import Part
from longloop.algos.reduce import Unit, clip_metrics, mean_by, probability_ratio, sum_by
from longloop.types import Batch, Metrics, Scored

Average = Literal["trajectories", "tokens"]


@dataclass(frozen=True)
class Objective(Part):
    average: Average = "trajectories"
    """Whether it is a mean over trajectories, each the mean over its tokens, or over all tokens."""

    @property
    def weights(self) -> Unit | float:
        """What a token counts before `choose`; see reduce.to_samples."""
        return "token" if self.average == "trajectories" else 1.0

    @abstractmethod
    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]: ...


@dataclass(frozen=True)
class Clipped(Objective):
    """PPO's: minimize -min(r A, clamp(r, low, high) A). LOOP's bounds by default."""

    low: float = 1 / 1.1
    high: float = 1.1
    ratio: Unit = "token"
    """What has one ratio."""

    @property
    def weights(self) -> Unit | float:
        return self.ratio if self.average == "trajectories" else 1.0

    @property
    def whole_units(self) -> bool:
        return self.ratio == "trajectory"

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio_U = probability_ratio(sum_by(scored.logp_N - batch.old_N, batch, self.ratio))
        adv_U = mean_by(batch.adv_N, batch, self.ratio)
        weight_U = sum_by(batch.weight_N, batch, self.ratio)
        limit_U = torch.where(adv_U > 0, self.high * adv_U, self.low * adv_U)
        objective_U = torch.minimum(ratio_U * adv_U, limit_U)
        return -(weight_U * objective_U).sum(), clip_metrics(ratio_U, adv_U, self.low, self.high)


@dataclass(frozen=True)
class Reinforce(Objective):
    """minimize -A log p: no ratio, no clip. For samples of the policy as it is, the gradient of `Clipped`."""

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        return -(batch.weight_N * batch.adv_N * scored.logp_N).sum(), {}


@dataclass(frozen=True)
class Weighted(Objective):
    """CISPO's: minimize -sg[clamp(r, low, high)] A log p. A token outside the bounds keeps its gradient."""

    low: float = 0.0
    high: float = 5.0

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio_N = probability_ratio(scored.logp_N.detach() - batch.old_N)
        factor_N = batch.weight_N * ratio_N.clamp(self.low, self.high) * batch.adv_N
        outside_N = (ratio_N < self.low) | (ratio_N > self.high)
        return -(factor_N * scored.logp_N).sum(), {"bounded": (outside_N.sum(), outside_N.numel())}
