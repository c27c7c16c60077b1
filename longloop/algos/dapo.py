"""DAPO (arXiv 2503.14476): GRPO's advantage with a wider upper clip, a mean over tokens, and refilled batches.

    collect until n groups have rewards that differ (at most `tries` rounds)
    A_k = (R_k - mean) / (std + 1e-6)
    maximise the mean over all action tokens of the mini-batch of
        min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A)

Groups whose rewards are all equal have nothing to say and take no part in the mean. No KL term. The paper's penalty
for overlong answers is a reward, so it belongs to the environment and is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import Unit, clip_metrics, standardise
from longloop.interfaces import Learner, Rollouts, Tasks
from longloop.types import Batch, Group, Metrics, Sample, Scored


@dataclass(frozen=True, kw_only=True)
class Dapo(Grouped):
    minibatch: int = 32
    clip_low: float = 0.2
    clip_high: float = 0.28
    tries: int = 3

    average: ClassVar[Literal["trajectories", "tokens"]] = "tokens"

    @property
    def weights(self) -> Unit | float:
        return 1.0

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int) -> list[Group]:
        groups: list[Group] = []
        for _ in range(self.tries):
            groups += await super().collect(rollouts, tasks, n)
            if sum(map(_informative, groups)) >= n:
                break
        return groups

    def credit(self, groups: Sequence[Group], learner: Learner) -> list[Sample]:
        samples = super().credit(groups, learner)
        return [sample for sample in samples if _informative(groups[sample.trajectory[0]])]

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return standardise(rewards)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        low, high = 1 - self.clip_low, 1 + self.clip_high
        ratio_N = torch.exp(scored.logp_N - batch.old_N)
        objective_N = torch.minimum(ratio_N * batch.adv_N, ratio_N.clamp(low, high) * batch.adv_N)
        return -(batch.weight_N * objective_N).sum(), clip_metrics(ratio_N, batch.adv_N, low, high)


def _informative(group: Group) -> bool:
    return len({trajectory.reward for trajectory in group.scored}) > 1
