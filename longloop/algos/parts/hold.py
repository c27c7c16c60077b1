"""Hold: terms added to the loss, which keep the policy near something or its entropy where it should be."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from longloop.algos.parts.choose import at_least_one, covariances
from longloop.algos.parts.part import Part, memory_of
from longloop.algos.parts.tokens import Tokens, mean
from longloop.types import Batch, Group, Metrics, Now, OfLogits, Sample, Scored


class Hold(Part):
    @abstractmethod
    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        """A SUM over the micro-batch to be added to the objective's."""


class Kl(Hold):
    """coefficient * (exp(d) - d - 1) at every token, d = log p_ref - log p: a penalty for leaving the reference."""

    coefficient: float = 0.04
    reads = ("reference",)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        difference_N = (batch.columns["reference"] - scored.logp_N).clamp(-10, 10)
        penalty_N = torch.exp(difference_N) - difference_N - 1
        metrics: Metrics = {"reference_kl": (penalty_N.detach().sum(), penalty_N.numel())}
        return (batch.weight_N * self.coefficient * penalty_N).sum(), metrics


class ReverseKl(Hold):
    """coefficient * d^2 / 2 at every token, d = log p - log p_ref. For tokens that the policy drew, the mean of its
    gradient is that of KL(p || p_ref) at each state; the mean of `Kl`'s is that of KL(p_ref || p)."""

    coefficient: float = 0.05
    reads = ("reference",)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        difference_N = scored.logp_N - batch.columns["reference"]
        metrics: Metrics = {"reference_kl": (difference_N.detach().sum(), difference_N.numel())}
        return (batch.weight_N * self.coefficient * difference_N.square() / 2).sum(), metrics


class HoldCovarying(Hold):
    """KL-Cov's: coefficient * |log r| at this share of the step's tokens, those with the largest covariance."""

    share: float = 0.002
    coefficient: float = 1.0

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        tokens = Tokens(samples, groups)
        largest = np.argsort(-covariances(tokens), kind="stable")[: at_least_one(self.share, len(tokens))]
        held_N = np.zeros(len(tokens))
        held_N[largest] = 1.0
        return tokens.marked(held=held_N)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        moved_N = batch.columns["held"] * (scored.logp_N - batch.old_N).abs()
        return (batch.weight_N * self.coefficient * moved_N).sum(), {"held": (moved_N.detach().sum(), len(moved_N))}


class HoldRare(Hold):
    """Lp-Reg's: coefficient * (exp(d) - d - 1) at unlikely tokens with A < 0, d = log q - log p; see lp_reg.py."""

    share: float = 0.01
    floor: float = 0.02
    coefficient: float = 1.0
    reads = ("logprobs", "log_floor", "log_kept_mass")

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        def log_floor(logp_nV: Tensor, hidden_nD: Tensor) -> Tensor:
            return logp_nV.amax(-1) + math.log(self.floor)

        def log_kept_mass(logp_nV: Tensor, hidden_nD: Tensor) -> Tensor:
            gone_nV = logp_nV < log_floor(logp_nV, hidden_nD)[:, None]
            return logp_nV.masked_fill(gone_nV, -torch.inf).logsumexp(-1)

        return {"log_floor": log_floor, "log_kept_mass": log_kept_mass}

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        tokens = Tokens(samples, groups)
        logp_N, floor_N, mass_N = map(tokens.read, self.reads)
        negative_N = tokens.flat(lambda s: s.advantages) < 0
        count = math.ceil(self.share * negative_N.sum())
        rare_N = negative_N & (logp_N <= np.sort(logp_N[negative_N])[count - 1]) if count else np.zeros(len(tokens))
        return tokens.marked(rare=rare_N * (logp_N >= floor_N), target=logp_N - mass_N)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        difference_N = (batch.columns["target"] - scored.logp_N).clamp(0, 10)
        penalty_N = batch.columns["rare"] * (torch.exp(difference_N) - difference_N - 1)
        metrics: Metrics = {"rare": (batch.columns["rare"].sum(), len(penalty_N))}
        return (batch.weight_N * self.coefficient * penalty_N).sum(), metrics


class Corridor(Hold):
    """EPO's: an entropy bonus, less a penalty for entropies outside a corridor around the mean of the steps before."""

    bonus: float = 0.001
    penalty: float = 0.05
    low: float = 0.0
    high: float = 2.0
    """The corridor's ends, as multiples of the mean entropy of all steps before."""
    decay: float = 1.0
    """How fast the penalty falls from twice its size to once."""
    reads = ("entropy",)

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        return {"entropy_with_gradient": lambda logp_nV, hidden_nD: -(logp_nV.exp() * logp_nV).sum(-1)}

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        before: list[float] = memory_of(self, now).setdefault("entropies", [])
        past = fmean(before) if before else 0.0
        penalty = self.penalty * phase(now, self.decay) if before else 0.0
        tokens = Tokens(samples, groups)
        if samples:
            before.append(mean(tokens.read("entropy")))
        turn_N, unit_N = tokens.units("turn"), tokens.units("trajectory")
        _, first_T = np.unique(turn_N, return_index=True)
        turns_U = np.bincount(unit_N[first_T])
        marked = tokens.marked(turn_share=1 / (np.bincount(turn_N)[turn_N] * turns_U[unit_N]))
        return [s.with_columns(past_entropy=past, entropy_penalty=penalty) for s in marked]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        entropy_N, past_N = scored.numbers["entropy_with_gradient"], batch.columns["past_entropy"]
        outside_N = outside(entropy_N, self.low * past_N, self.high * past_N)
        value_N = entropy_N - batch.columns["entropy_penalty"] * outside_N
        return -(self.bonus * batch.columns["turn_share"] * value_N).sum(), {}


def phase(now: Now, decay: float) -> float:
    """1 + exp(-decay k / k_mid), k the steps before this one and k_mid half the run's."""
    return 1 + math.exp(-decay * (now.step - 1) / max(1, now.steps // 2))


def outside(entropy_N: Tensor, low_N: Tensor, high_N: Tensor) -> Tensor:
    """How far each entropy lies outside the corridor."""
    return (low_N - entropy_N).relu() + (entropy_N - high_N).relu()


class Anchor(Hold):
    """SIREN's: coefficient * (H - H0)^2, see siren.py. `facts` holds the H of the mini-batch: the gradient is a sum."""

    coefficient: float = 0.005
    nucleus: float = 0.8
    quantile: float = 0.8
    reads = ("nucleus_entropy",)
    looks = ("nucleus_entropy",)

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        return {"nucleus_entropy": lambda logp_nV, hidden_nD: nucleus_entropy(logp_nV, self.nucleus)}

    def mark(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        tokens = Tokens(samples, groups)
        entropy_N, unit_N = tokens.read("nucleus_entropy"), tokens.units("trajectory")
        peak_N = np.zeros(len(tokens))
        for own in np.split(np.argsort(unit_N, kind="stable"), np.cumsum(np.bincount(unit_N))[:-1]):
            high = own[entropy_N[own] >= np.quantile(entropy_N[own], self.quantile)] if len(own) else own
            peak_N[high] = 1 / max(1, len(high))
        marked = tokens.marked(peak=peak_N)
        if not marked:
            return []
        first = memory_of(self, now).setdefault("first", _at_peaks(marked))
        return [s.with_columns(first_entropy=first) for s in marked]

    def facts(self, samples: Sequence[Sample], now: Now) -> dict[str, float]:
        return {"peak_entropy": _at_peaks(samples)}

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        first_N = batch.columns["first_entropy"]
        gap_N = batch.facts.get("peak_entropy", first_N) - first_N
        entropy_N = batch.columns["peak"] * scored.numbers["nucleus_entropy"]
        metrics: Metrics = {"peak_entropy": (entropy_N.detach().sum(), batch.units)}
        return (2 * self.coefficient * gap_N * entropy_N).sum(), metrics


def _at_peaks(samples: Sequence[Sample]) -> float:
    """The mean over trajectories of the mean nucleus entropy at their peaks."""
    total = math.fsum((s.columns["peak"] * s.columns["nucleus_entropy"])[s.mask].sum() for s in samples)
    return total / len({s.source for s in samples})


def nucleus_entropy(logp_nV: Tensor, mass: float) -> Tensor:
    """The entropy of the fewest likeliest tokens whose probabilities add up to `mass`, made to add up to 1, [n]."""
    sorted_nV = logp_nV.sort(-1, descending=True).values
    with torch.no_grad():
        p_nV = sorted_nV.exp()
        inside_nV = p_nV.cumsum(-1) - p_nV < mass
    log_q_nV = sorted_nV - sorted_nV.masked_fill(~inside_nV, -torch.inf).logsumexp(-1, keepdim=True)
    return -(log_q_nV.exp() * log_q_nV * inside_nV).sum(-1)
