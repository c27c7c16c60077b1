"""AEPO's thermostat: successes are made likelier as at another temperature, until the entropy is what it should be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from longloop.algos.parts.part import memory_of
from longloop.algos.parts.shape import Shape
from longloop.algos.parts.tokens import Tokens, mean
from longloop.types import Group, Now, OfLogits, Sample


@dataclass(frozen=True)
class Thermostat(Shape):
    """A' = (1 - a) A + a [R > 0] p^T / p,   a = x / (x + 1),   x = min(|target - H|, most) / share of successes

    H is the mean of -log p over the tokens of the step before, 0 at first; T is `hot` where H <= target, else `cold`.
    """

    target: float = 0.5
    most: float = 0.1
    hot: float = 1.2
    cold: float = 0.8
    reads: ClassVar[tuple[str, ...]] = ("logprobs", "log_norm_hot", "log_norm_cold")

    @property
    def of_logits(self) -> Mapping[str, OfLogits]:
        def log_norm(temperature: float) -> OfLogits:
            def number(logp_nV: Tensor, hidden_nD: Tensor) -> Tensor:
                return (logp_nV / temperature).logsumexp(-1)

            return number

        return {"log_norm_hot": log_norm(self.hot), "log_norm_cold": log_norm(self.cold)}

    def shape(self, samples: Sequence[Sample], groups: Sequence[Group], now: Now) -> list[Sample]:
        memory = memory_of(self, now)
        entropy = memory.get("entropy", 0.0)
        if samples:
            memory["entropy"] = -mean(Tokens(samples, groups).flat(lambda s: s.columns["logprobs"]))
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
