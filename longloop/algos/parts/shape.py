"""Shape: advantages into advantages. A shape changes `Sample.advantages` and nothing else.

Entropies are those of the policy that sampled, read once for the step. `TurnEntropy`, `EntropyUp` and `EntropyDown`
each scale by entropy, not all in the same direction: a method may have one of them.
"""

import re
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, fsum, log, sqrt
from statistics import fmean
from typing import Literal

import numpy as np

from longloop.algos.parts.part import Part, memory_of
from longloop.algos.parts.rewards import outcome_key
from longloop.algos.parts.tokens import Tokens, mean
from longloop.types import Floats, Group, Now, OfLogits, Sample, SampleSource, Trajectory

_NONE = 1e-9
"""An advantage that is smaller in size is none."""
_BY_ENTROPY = "scale advantages by entropy"


class Shape(Part):
    @property
    def centers(self) -> bool:
        """Whether it makes the step's advantages add up to 0, which a shape after it would undo."""
        return False

    @abstractmethod
    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        """The step's samples with other advantages."""


class TurnEntropy(Shape):
    """EMPG's: A g(H) + zeta f(H of the next turn), then centered, for attempts with an advantage."""

    scale: float = 1.0
    future: float = 1.0
    zeta: float = 0.1
    center: bool = True
    in_time = True
    reads = ("entropy",)
    alone_in = _BY_ENTROPY

    @property
    def centers(self) -> bool:
        return self.center

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        useful = {s.source for s in samples if abs(s.advantages[s.mask]).max() > _NONE}
        parts = [s for s in samples if s.source in useful]
        entropy = by_turn(parts, lambda s: s.columns["entropy"])
        if not entropy:
            return list(samples)
        low, high = min(entropy.values()), max(entropy.values())
        level = {turn: (h - low) / (high - low + 1e-8) for turn, h in entropy.items()}
        mean = fmean(exp(-self.scale * h) for h in level.values())
        gain = {turn: exp(-self.scale * h) / mean for turn, h in level.items()}
        bonus = {(source, turn - 1): self.zeta * exp(-self.future * h) for (source, turn), h in level.items()}
        old = by_turn(parts, lambda s: s.advantages)
        middle = fmean(old[turn] * gain[turn] + bonus.get(turn, 0.0) for turn in old) if self.center else 0.0

        def shaped(sample: Sample) -> Sample:
            gain_N, bonus_N = over_tokens(sample, gain), over_tokens(sample, bonus)
            return replace(sample, advantages=(sample.advantages * gain_N + bonus_N - middle) * sample.mask)

        return [shaped(s) if s.source in useful else s for s in samples]


class SemanticEntropy(Shape):
    """SEED-GRPO's: A (1 - alpha SE / log K), at least 0. An attempt without an outcome key is a cluster of its own."""

    alpha: float = 0.5
    estimate: Literal["shannon", "clusters"] = "shannon"
    """-sum_c p_c log p_c, or the paper's mean over clusters of -log p_c, which may exceed log K."""

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        factors = [max(0.0, 1 - self.alpha * self.disagreement(group)) for group in groups]
        return [replace(s, advantages=s.advantages * factors[s.source.group]) for s in samples]

    def disagreement(self, group: Group) -> float:
        """SE / log K of a group: 0 when all attempts agree; by Shannon's estimate 1 when no two do."""
        if len(group.scored) < 2:
            return 0.0
        sizes = Counter(outcome_key(t) or t.attempt for t in group.scored)
        shares = [size / sizes.total() for size in sizes.values()]
        weights = shares if self.estimate == "shannon" else [1 / len(shares)] * len(shares)
        return fsum(-weight * log(p) for weight, p in zip(weights, shares, strict=True)) / log(sizes.total())


class Nudge(Shape):
    """ASPO's: A + clip(delta (x - mean x) / mean turns, -+ bound |A|) for successes with a behavior; see aspo.py."""

    in_time = True
    delta: float = -2.0
    bound: float = 0.7
    behavior: str = ""

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        push: dict[SampleSource, float] = defaultdict(float)
        for index, group in enumerate(groups):
            shown = {t.attempt: (x, len(t.turns)) for t in group.scored if t.success and (x := self.first(t)) >= 0}
            if shown:
                mean, length = fmean(x for x, _ in shown.values()), fmean(turns for _, turns in shown.values())
                for attempt, (x, _) in shown.items():
                    push[SampleSource(index, attempt)] = self.delta * (x - mean) / length

        def shaped(sample: Sample) -> Sample:
            limit = self.bound * abs(sample.advantages)
            return replace(sample, advantages=sample.advantages + np.clip(push[sample.source], -limit, limit))

        return [shaped(sample) for sample in samples]

    def first(self, trajectory: Trajectory) -> int:
        """The first turn whose action shows the behavior; -1 when none does."""
        shows = re.compile(self.behavior).search
        return next((turn for turn, said in enumerate(trajectory.action_texts) if shows(said)), -1)


class EntropyUp(Shape):
    """AEPO's (agentic): A (1 + w z), z the z-score of a token's entropy among the step's."""

    w: float = 0.2
    reads = ("entropy",)
    alone_in = _BY_ENTROPY

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        entropy_N = Tokens(samples, groups).read("entropy")
        middle = mean(entropy_N)
        deviation = sqrt(fsum((entropy_N - middle) ** 2) / max(1, len(entropy_N) - 1)) or 1.0
        return [
            replace(s, advantages=s.advantages * (1 + self.w * (s.columns["entropy"] - middle) / deviation) * s.mask)
            for s in samples
        ]


class EntropyDown(Shape):
    """ETTRL's: A (1 + w (mean H - H_i) / mean H), at least 0, H_i an attempt's mean token entropy."""

    w: float = 1.0
    reads = ("entropy",)
    alone_in = _BY_ENTROPY

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        entropy = by_attempt(samples, lambda s: s.columns["entropy"])
        of_group: dict[int, list[float]] = defaultdict(list)
        for source, h in entropy.items():
            of_group[source.group].append(h)

        def factor(source: SampleSource) -> float:
            mean = fmean(of_group[source.group])
            return max(0.0, 1 + self.w * (mean - entropy[source]) / mean) if mean else 1.0

        return [replace(s, advantages=s.advantages * factor(s.source)) for s in samples]


class Thermostat(Shape):
    """AEPO's (arbitrary entropy): A' = (1 - a) A + a [R > 0] p^T / p; see aepo_entropy.py."""

    target: float = 0.5
    most: float = 0.1
    hot: float = 1.2
    cold: float = 0.8
    reads = ("logprobs", "log_norm_hot", "log_norm_cold")

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        return {
            "log_norm_hot": lambda logp_nV, hidden_nD: (logp_nV / self.hot).logsumexp(-1),
            "log_norm_cold": lambda logp_nV, hidden_nD: (logp_nV / self.cold).logsumexp(-1),
        }

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        memory = memory_of(self, now)
        entropy = memory.get("entropy", 0.0)
        if samples:
            memory["entropy"] = -mean(Tokens(samples, groups).read("logprobs"))
        rewards = {(n, t.attempt): t.reward for n, group in enumerate(groups) for t in group.scored}
        won = sum(reward > 0 for reward in rewards.values()) / max(1, len(rewards))
        x = min(abs(self.target - entropy), self.most) / won if won else 0.0
        share = x / (x + 1)
        temperature, name = (self.hot, "log_norm_hot") if entropy <= self.target else (self.cold, "log_norm_cold")
        shaped = []
        for sample in samples:
            logp = sample.columns["logprobs"]
            ratio = np.exp(logp / temperature - sample.columns[name] - logp) * sample.mask
            pull = ratio if rewards[sample.source] > 0 else 0.0
            shaped.append(replace(sample, advantages=(1 - share) * sample.advantages + share * pull))
        return shaped


def by_attempt(samples: Sequence[Sample], values: Callable[[Sample], Floats]) -> dict[SampleSource, float]:
    """The mean of a column over the trained tokens of each attempt."""
    found: dict[SampleSource, list[float]] = defaultdict(list)
    for sample in samples:
        found[sample.source] += values(sample)[sample.mask].tolist()
    return {source: fmean(each) for source, each in found.items()}


def by_turn(samples: Sequence[Sample], values: Callable[[Sample], Floats]) -> dict[tuple[SampleSource, int], float]:
    """The mean of a column over the trained tokens of each turn. A turn lies in one sample."""
    return {
        (sample.source, turn): fmean(values(sample)[sample.mask & (sample.turns == turn)].tolist())
        for sample in samples
        for turn in np.unique(sample.turns[sample.mask]).tolist()
    }


def over_tokens(sample: Sample, numbers: Mapping[tuple[SampleSource, int], float]) -> Floats:
    """What `numbers` says of each token's turn, 0 where it says nothing."""
    turns, index = np.unique(sample.turns, return_inverse=True)
    return np.array([numbers.get((sample.source, int(turn)), 0.0) for turn in turns])[index]
