"""Objective: the loss of a token, from its log-prob, the behavior log-prob, its advantage and its weight.

`loss` returns a SUM over the micro-batch, which the learner divides once by the mini-batch's norm. Statistics over a
mini-batch come from `facts`; none may be taken over a micro-batch.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from longloop.algos.parts.part import Part
from longloop.algos.parts.tokens import Tokens, mean
from longloop.algos.reduce import Unit, clip_metrics, mean_by, probability_ratio, sum_by
from longloop.types import Batch, Floats, Group, Metrics, Now, Sample, Scored, UserError

Average = Literal["trajectories", "tokens"]


class Objective(Part):
    average: Average = "trajectories"
    """Whether it is a mean over trajectories, each the mean over its tokens, or over all tokens."""
    divisor: float = field(default=0.0, kw_only=True)
    """In a mean over trajectories: what each one's sum over tokens is divided by; 0 for their number."""

    @property
    def weights(self) -> Unit | float:
        """What a token counts before `choose`; see reduce.to_samples."""
        if self.divisor:
            return 1 / self.divisor
        return "token" if self.average == "trajectories" else 1.0

    @abstractmethod
    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]: ...


class Clipped(Objective):
    """PPO's: minimize -min(r A, clamp(r, low, high) A). LOOP's bounds by default."""

    low: float = 1 / 1.1
    high: float = 1.1
    ratio: Unit = "token"
    """What has one ratio."""
    geometric: bool = field(default=False, kw_only=True)
    """Whether a ratio is the geometric mean of its tokens' ratios, as in GSPO, or their product."""
    dual: float = field(default=math.inf, kw_only=True)
    """The ratio beyond which a negative advantage no longer pushes."""

    @property
    def weights(self) -> Unit | float:
        return self.ratio if self.average == "trajectories" and not self.divisor else super().weights

    @property
    def whole_units(self) -> bool:
        return self.ratio == "trajectory"

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        over = mean_by if self.geometric else sum_by
        ratio_U = probability_ratio(over(scored.logp_N - batch.old_N, batch, self.ratio))
        adv_U = mean_by(batch.adv_N, batch, self.ratio)
        weight_U = sum_by(batch.weight_N, batch, self.ratio)
        limit_U = torch.where(adv_U > 0, self.high * adv_U, self.low * adv_U)
        objective_U = torch.minimum(ratio_U.clamp(max=self.dual) * adv_U, limit_U)
        return -(weight_U * objective_U).sum(), clip_metrics(ratio_U, adv_U, self.low, self.high)


def clipped(low: float, high: float | None = None, **more: Any) -> Clipped:
    """`Clipped` from 1 - low to 1 + high, or 1 + low where no other is given."""
    return Clipped(low=1 - low, high=1 + (low if high is None else high), **more)


class Reinforce(Objective):
    """minimize -A log p: no ratio, no clip. For samples of the policy as it is, the gradient of `Clipped`."""

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        return -(batch.weight_N * batch.adv_N * scored.logp_N).sum(), {}


class Summed(Reinforce):
    """minimize -A log p, summed over an attempt's tokens: the score function of the attempt."""

    weights = 1.0


class Weighted(Objective):
    """CISPO's: minimize -sg[clamp(r, low, high)] A log p. A token outside the bounds keeps its gradient."""

    low: float = 0.0
    high: float = 5.0

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio_N = probability_ratio(scored.logp_N.detach() - batch.old_N)
        factor_N = batch.weight_N * ratio_N.clamp(self.low, self.high) * batch.adv_N
        outside_N = (ratio_N < self.low) | (ratio_N > self.high)
        return -(factor_N * scored.logp_N).sum(), {"bounded": (outside_N.sum(), outside_N.numel())}


class KeepGradient(Clipped):
    """AEPO's: a token that the upper bound cuts off keeps its gradient, -high A grad log p. Token ratios only."""

    tokens: Literal["none", "uncertain", "all"] = "uncertain"
    """Which ones: those whose entropy is above the mean of the step's tokens, or all."""
    reads = ("entropy",)

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        tokens = Tokens(samples, groups)
        entropy_N = tokens.read("entropy")
        return tokens.marked(uncertain=entropy_N > mean(entropy_N))

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        total, metrics = super().loss(scored, batch)
        if self.tokens == "none":
            return total, metrics
        ratio_N = probability_ratio(scored.logp_N.detach() - batch.old_N)
        kept_N = (batch.adv_N > 0) & (ratio_N > self.high)
        if self.tokens == "uncertain":
            kept_N = kept_N & (batch.columns["uncertain"] > 0)
        slope_N = kept_N * batch.weight_N * self.high * batch.adv_N
        return total - (slope_N * (scored.logp_N - scored.logp_N.detach())).sum(), metrics


class TrustRegion(Clipped):
    """Drop what has a token that the policy has moved too far on: max of its divergences > `delta`."""

    delta: float = 0.05
    unit: Unit = "turn"
    """What is dropped for one such token."""
    divergence: Literal["k2", "k3"] = "k3"
    """Of x = log p - log p_sampling: x^2 / 2, or e^x - 1 - x."""

    @property
    def whole_units(self) -> bool:
        return "trajectory" in (self.unit, self.ratio)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        x_N = (scored.logp_N.detach() - batch.old_N).clamp(-20, 20)
        far_N = (x_N.square() / 2 if self.divergence == "k2" else x_N.expm1() - x_N) > self.delta
        if self.unit != "token":
            unit_N = batch.turn_N if self.unit == "turn" else batch.unit_N
            far_N = sum_by(far_N.float(), batch, self.unit)[unit_N] > 0
        total, metrics = super().loss(scored, replace(batch, weight_N=batch.weight_N * ~far_N))
        return total, metrics | {"masked": (far_N.sum(), far_N.numel())}


class Balanced(Objective):
    """BAPO's: bounds that move until tokens with A > 0 are a target share of what pushes; see bapo.py."""

    target: float = 0.5
    lows: tuple[float, float] = (0.6, 0.9)
    highs: tuple[float, float] = (1.2, 3.0)
    step: float = 0.05
    dual: float = 3.0
    looks = ("logprobs",)

    def facts(self, samples: Sequence[Sample], now: Now) -> dict[str, float]:
        moved_N = np.concatenate([(s.columns["logprobs"] - s.logprobs)[s.mask] for s in samples])
        push_N = np.concatenate([(s.weights * s.advantages)[s.mask] for s in samples])
        low, high = self.search(np.exp(moved_N.clip(-20, 20)), push_N)
        return {"clip_low": low, "clip_high": high}

    def search(self, ratio_N: Floats, push_N: Floats) -> tuple[float, float]:
        """The first bounds on the way at which the positive tokens have their share, or the last."""
        lows, highs = (_way(*bounds, self.step) for bounds in (self.lows, self.highs))
        push_N = push_N * (ratio_N <= self.dual)
        way = [(low, highs[0]) for low in lows] + [(lows[-1], high) for high in highs[1:]]
        for low, high in way:
            positive = math.fsum((ratio_N * push_N)[(push_N > 0) & (ratio_N <= high)])
            negative = -math.fsum((ratio_N * push_N)[(push_N < 0) & (ratio_N >= low)])
            if positive >= self.target * (positive + negative):
                break
        return low, high

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        low, high = batch.facts.get("clip_low", self.lows[0]), batch.facts.get("clip_high", self.highs[0])
        total, metrics = Clipped(self.average, low, high, dual=self.dual).loss(scored, batch)
        return total, metrics | {"clip_low": (low, 1), "clip_high": (high, 1)}


def _way(start: float, end: float, step: float) -> list[float]:
    """From start to end in steps, the last one shorter if need be."""
    return [*(start + n * step for n in range(math.ceil((end - start) / step - 1e-9))), end]


class Implicit(Objective):
    """NFT's: it imitates successes, and of failures the rest of the policy, (p_old - m p) / (1 - m); see nft.py."""

    negatives: float = 1.0
    """How much failures count."""

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        rewards = [[t.reward for t in group.scored] for group in groups]
        if any(not 0 <= reward <= 1 for group in rewards for reward in group):
            raise UserError("NFT takes a reward as the share of success: this environment's must lie between 0 and 1.")
        own = {(n, t.attempt): float(t.reward) for n, group in enumerate(groups) for t in group.scored}
        means = [mean(np.array(group)) for group in rewards]
        return [s.with_columns(reward=own[s.source], mean_reward=means[s.source.group]) for s in samples]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        success_N = batch.columns["reward"]
        rate_N = batch.columns["mean_reward"].clamp(0.02, 0.98)
        log_ratio_N = scored.logp_N - batch.old_N
        rest_N = (1 - rate_N * probability_ratio(log_ratio_N)) / (1 - rate_N)
        # Straight through: the value is bounded by 1 from below, the slope is that of the rest itself.
        bounded_N = rest_N.clamp(min=1).detach() + (rest_N - rest_N.detach())
        loss_N = success_N * -log_ratio_N + self.negatives * (1 - success_N) * -bounded_N.log()
        return (batch.weight_N * (1 - rate_N) * loss_N).sum(), {}


class Unclipped(Objective):
    """minimize -A r for tokens that the policy drew, and -A p / (p + gamma) for those that it was shown. The slope of
    the second by log p is largest at p = gamma: what is nearly impossible to say is not forced."""

    gamma: float = 0.1
    divisor: float = 1024.0

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        ratio_N = probability_ratio(scored.logp_N - batch.old_N)
        p_N = scored.logp_N.exp()
        gain_N = torch.where(batch.own_N > 0, ratio_N, p_N / (p_N + self.gamma))
        return -(batch.weight_N * (gain_N * batch.adv_N)).sum(), {}
