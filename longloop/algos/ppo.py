"""PPO with a value head and GAE, as LOOP's appendix C describes its comparison.

    V = a small MLP on the policy's last hidden state; its loss does not reach the policy; used clipped to [0, 1]
    delta_t = r_t + gamma V_{t+1} - V_t,   A_t = sum_l (gamma lam)^l delta_{t+l}      over action tokens only
    maximize mean over attempts of the mean over action tokens of
        min(r_t A_t, clip(r_t, 1/(1 + clip), 1 + clip) A_t) - value_weight * (V_t - return_t)^2 / 2

gamma = lam = 1 makes A_t = R - V_t, the only setting the paper found stable. The first `warmup` steps train the head
alone; value_weight falls linearly over `value_steps` steps. The value after the last token of an action is the value at
the first token of the next one. The only reward is the attempt's, at its end.

Differs from the paper: the clip range is that of LOOP's code, where PPO's own paper has 1 -+ 0.2. The head's layers are
3/5 and 2/5 as wide as the model, which is what 5120-3072-2048-1 is for LOOP's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import clip_metrics, probability_ratio
from longloop.protocols import Learner
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored


@dataclass(frozen=True, kw_only=True)
class Ppo(Grouped):
    epochs: int = 2
    minibatch: int = 32
    clip: float = 0.1
    gamma: float = 1.0
    lam: float = 1.0
    warmup: int = 10
    value_weight: float = 0.1
    value_weight_end: float = 0.001
    value_steps: int = 200

    min_scored: ClassVar[int] = 1
    heads: ClassVar[tuple[str, ...]] = ("value",)

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        samples = learner.read(super().credit(groups, learner, now), "value")
        credited: list[Sample] = []
        for _, same in groupby(samples, key=lambda sample: sample.source):
            stretches = list(same)
            value = np.concatenate([s.columns["value"][s.mask] for s in stretches]).clip(0.0, 1.0)
            # `advantages` put the bare reward on every token
            reward = stretches[0].advantages[stretches[0].mask][0]
            advantage = np.array(gae(reward, value.tolist(), self.gamma, self.lam))
            cuts = np.cumsum([s.action_tokens for s in stretches])[:-1]
            for sample, a, v in zip(stretches, np.split(advantage, cuts), np.split(value, cuts), strict=True):
                advantages, returns = np.zeros((2, len(sample.ids)))
                advantages[sample.mask], returns[sample.mask] = a, a + v
                credited.append(replace(sample, advantages=advantages, columns={"return": returns}))
        return credited

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return list(rewards)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        error_N = (scored.heads["value"] - batch.columns["return"]) ** 2
        metrics: Metrics = {"value_error": (error_N.detach().sum(), error_N.numel())}
        done = min(1.0, (batch.step - 1) / self.value_steps)
        value_weight = self.value_weight + done * (self.value_weight_end - self.value_weight)
        loss = (batch.weight_N * value_weight * error_N / 2).sum()
        if batch.step <= self.warmup:
            return loss, metrics
        low, high = 1 / (1 + self.clip), 1 + self.clip
        ratio_N = probability_ratio(scored.logp_N - batch.old_N)
        objective_N = torch.minimum(ratio_N * batch.adv_N, ratio_N.clamp(low, high) * batch.adv_N)
        return loss - (batch.weight_N * objective_N).sum(), metrics | clip_metrics(ratio_N, batch.adv_N, low, high)


def gae(reward: float, values: Sequence[float], gamma: float, lam: float) -> list[float]:
    """Advantages of a sequence of action tokens whose only reward is paid after the last."""
    advantages = [0.0] * len(values)
    carried, following = 0.0, 0.0
    for t in reversed(range(len(values))):
        paid = reward if t == len(values) - 1 else 0.0
        delta = paid + gamma * following - values[t]
        carried = delta + gamma * lam * carried
        advantages[t], following = carried, values[t]
    return advantages
