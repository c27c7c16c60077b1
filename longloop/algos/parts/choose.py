"""Choose: which attempts and tokens count, and how much. It changes `Sample.weights`, or leaves samples out."""

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from longloop.algos.parts.part import Part
from longloop.algos.parts.shape import by_attempt
from longloop.algos.parts.tokens import Tokens, mean
from longloop.algos.reduce import Unit
from longloop.types import Floats, Group, Mask, Now, OfLogits, Sample, SampleSource


class Choose(Part):
    @abstractmethod
    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        """The samples to train on, with their weights."""


class DropSmall(Choose):
    """Leave out attempts whose advantages are all smaller than this in size, from a mean's number of tokens too."""

    below: float = 0.01

    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        largest: dict[SampleSource, float] = defaultdict(float)
        for sample in samples:
            largest[sample.source] = max(largest[sample.source], abs(sample.advantages).max(initial=0.0))
        return [sample for sample in samples if largest[sample.source] >= self.below]


class Weighed(Choose):
    """Multiplies the weights of tokens."""

    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        tokens = Tokens(samples, groups)
        factors = tokens.columns(self.factors(tokens, now))
        return [replace(s, weights=s.weights * factor) for s, factor in zip(samples, factors, strict=True)]

    @abstractmethod
    def factors(self, tokens: Tokens, now: Now) -> Floats | Mask:
        """What the weight of each token is multiplied by, [N]."""


def growing(first: float, now: Now) -> float:
    """From `first` at the first step on a line to 1 at the last."""
    done = (now.step - 1) / max(1, now.steps - 1)
    return (1 - done) * first + done


class Extremes(Choose):
    """The share of the step's attempts whose advantages vary most, the best and the worst. It grows to 1 in the end."""

    share: float = 0.25

    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        advantage = by_attempt(samples, lambda s: s.advantages)
        if not advantage:
            return []
        ranked = sorted(advantage, key=lambda s: (-advantage[s], groups[s.group].task.id, s.attempt))
        size = max(1, round(growing(self.share, now) * len(ranked)))
        best = extremes([advantage[source] for source in ranked], size)
        kept = {*ranked[:best], *ranked[len(ranked) - (size - best) :]}
        return [sample for sample in samples if sample.source in kept]


def extremes(ranked: Sequence[float], size: int) -> int:
    """How many of the largest to take, and the rest from the smallest, so that `size` numbers vary most."""
    values = np.array(ranked)
    first, second = (np.concatenate([[0.0], np.cumsum(x)]) for x in (values, values**2))
    top = np.arange(size + 1)
    rest = len(values) - (size - top)
    total, squares = (x[top] + x[-1] - x[rest] for x in (first, second))
    return int(np.argmax(squares - total**2 / size))


class TopTokens(Weighed):
    """D3S's: of all tokens the share with the largest |A| H, which grows to 1; of each attempt at least one. The
    weights of what is left are scaled, so that they add up to what they were."""

    share: float = 0.2
    reads = ("entropy",)

    def factors(self, tokens: Tokens, now: Now) -> Floats | Mask:
        value_N = tokens.flat(lambda s: np.abs(s.advantages) * s.columns["entropy"])
        order_N = np.argsort(-value_N, kind="stable")
        kept_N = np.zeros(len(tokens), dtype=bool)
        kept_N[order_N[: round(growing(self.share, now) * len(tokens))]] = True
        _, first = np.unique(tokens.units("trajectory")[order_N], return_index=True)
        kept_N[order_N[first]] = True
        weight_N = tokens.flat(lambda s: s.weights)
        scale = math.fsum(weight_N) / (math.fsum(weight_N[kept_N]) or 1.0)
        return kept_N * scale


class Corrected(Weighed):
    """What the sampler drew counts as if the learner had, see tis.py. Ratios are then taken against the learner's
    log-probs: against the sampler's they would hold q already."""

    cap: float = 2.0
    unit: Unit = "token"
    """What has one q: a turn's and a trajectory's is the product over its tokens."""
    beyond: Literal["cap", "drop"] = "cap"
    """What becomes of a larger q: it is cut to the cap, or the unit does not count."""
    reads = ("logprobs",)

    def choose(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        chosen = super().choose(samples, groups, now)
        return [replace(sample, logprobs=sample.columns["logprobs"]) for sample in chosen]

    def factors(self, tokens: Tokens, now: Now) -> Floats | Mask:
        unit_N = tokens.units(self.unit)
        log_q_U = np.bincount(unit_N, tokens.flat(lambda s: s.columns["logprobs"] - s.logprobs))
        q_U = np.exp(log_q_U.clip(-20, 20))
        factor_U = np.minimum(q_U, self.cap) if self.beyond == "cap" else np.where(q_U <= self.cap, q_U, 0.0)
        return factor_U[unit_N]


def covariances(tokens: Tokens) -> Floats:
    """(A - mean A)(log p - mean log p) of each token: those with a large one make the policy certain, [N]."""
    adv_N, logp_N = tokens.flat(lambda s: s.advantages), tokens.flat(lambda s: s.logprobs)
    product_N: Floats = (adv_N - mean(adv_N)) * (logp_N - mean(logp_N))
    return product_N


def at_least_one(share: float, tokens: int) -> int:
    return max(1, int(share * tokens)) if share else 0


class DropCovarying(Weighed):
    """Clip-Cov's: of the tokens whose covariance lies between the bounds, drop by chance a share of all tokens."""

    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0

    def factors(self, tokens: Tokens, now: Now) -> Floats | Mask:
        covariance_N = covariances(tokens)
        between = np.flatnonzero((covariance_N > self.low) & (covariance_N < self.high))
        drawn = sorted(zip(tokens.chances(between, now.step), between.tolist(), strict=True))
        kept_N = np.ones(len(tokens))
        kept_N[[token for _, token in drawn[: at_least_one(self.share, len(tokens))]]] = 0.0
        return kept_N


class DampDrift(Weighed):
    """STEER's: weights from 1 down to `least`, the smaller the more a token's update changes the entropy."""

    least: float = 0.8
    reads = ("entropy",)

    def factors(self, tokens: Tokens, now: Now) -> Floats | Mask:
        logp_N = tokens.flat(lambda s: s.logprobs)
        adv_N, entropy_N = tokens.flat(lambda s: s.advantages), tokens.read("entropy")
        drift_N = np.abs(adv_N * (1 - np.exp(logp_N)) * (logp_N + entropy_N))
        rate = -math.log(self.least) / max(drift_N.max(initial=0.0), 0.02)
        return np.exp(-rate * drift_N).clip(self.least, 1.0)


class Curvature(Weighed):
    """CAPO's: drop the tokens whose own gradient step on the last layer would go too far; see capo.py."""

    lr: float = 5e-5
    policy_shift: float = 1e-4
    objective_shift: float = 0.01
    max_share: float = 0.02
    """The most of all tokens that are dropped, those with the largest shifts."""
    reads = ("logprobs", "sum_p2", "sum_p3", "hidden_norm2")

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        return {
            "sum_p2": lambda logp_nV, hidden_nD: (2 * logp_nV.float()).exp().sum(-1),
            "sum_p3": lambda logp_nV, hidden_nD: (3 * logp_nV.float()).exp().sum(-1),
            "hidden_norm2": lambda logp_nV, hidden_nD: hidden_nD.float().square().sum(-1),
        }

    def factors(self, tokens: Tokens, now: Now) -> Floats | Mask:
        adv_N, p_N = tokens.flat(lambda s: s.advantages), np.exp(tokens.read("logprobs"))
        p2_N, p3_N, norm2_N = map(tokens.read, self.reads[1:])
        policy_N, objective_N = shifts(adv_N, p_N, p2_N, p3_N, norm2_N, self.lr)
        excess_N = np.maximum(policy_N / self.policy_shift, np.abs(objective_N) / self.objective_shift)
        order_N = np.argsort(-excess_N, kind="stable")
        largest_N = np.zeros(len(tokens), dtype=bool)
        largest_N[order_N[: int(self.max_share * len(tokens))]] = True
        return ~(largest_N & (excess_N >= 1))


def shifts(adv: Floats, p: Floats, sum_p2: Floats, sum_p3: Floats, norm2: Floats, lr: float) -> tuple[Floats, Floats]:
    """How far a token's own step moves the policy (half the squared change of its log-prob) and the objective (to the
    second order). With pi the token's distribution and h its hidden state the gradient is A (e_a - pi) h^T."""
    score2 = 1 - 2 * p + sum_p2
    policy = 0.5 * lr**2 * adv**2 * norm2**2 * score2**2
    spread = p - 2 * p**2 + sum_p3 - (p - sum_p2) ** 2
    objective = lr * adv**2 * norm2 * score2 + 0.5 * lr**2 * adv**3 * norm2**2 * (score2**2 - spread)
    return policy, objective
