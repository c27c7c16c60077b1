"""Base class for imitation methods: maximize the likelihood of the selected attempts, token by token.

    for each step:
        attempts at n tasks, an expert's or the policy's own              collect
        the attempts to imitate                                           select
        minimize the mean over their action tokens of -log p(x_t | ..)    loss

There is no baseline and no ratio: an attempt is imitated or it is not.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from longloop.algos.base import Algorithm
from longloop.algos.reduce import to_samples
from longloop.protocols import Learner
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored, Trajectory


class Imitation(Algorithm):
    least_reward: float = 1.0
    """Attempts with a smaller reward are not imitated."""

    nothing = "no attempt was paid algo.least_reward or more, so there was nothing to imitate"
    average = "tokens"
    on_policy = False

    def select(self, group: Group) -> Sequence[Trajectory]:
        """The attempts of a group to imitate."""
        return [t for t in group.scored if t.reward >= self.least_reward]

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        return [
            sample
            for index, group in enumerate(groups)
            for trajectory in self.select(group)
            for sample in to_samples(trajectory, index, 1.0, 1.0, own=self.on_policy)
        ]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        return -(batch.weight_N * scored.logp_N).sum(), {}


class Scheduled(Imitation):
    k: int = 1
    minibatch: int = 64
    warmup: float = 0.03
    """Fraction of the run over which the learning rate rises to `lr`; then it falls to zero as a half cosine."""

    def lr_scale(self, now: Now, within: float = 0.5) -> float:
        done = (now.step - 1 + within) / now.steps
        if done < self.warmup:
            return done / self.warmup
        return (1 + math.cos(math.pi * (done - self.warmup) / (1 - self.warmup))) / 2
