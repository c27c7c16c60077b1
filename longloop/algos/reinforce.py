"""REINFORCE (Williams 1992): one on-policy gradient step of the score function.

    A_i = R_i - mean reward of all the other attempts of the step
    maximize mean over attempts of A_i * sum over action tokens of log p(x_t | ..)

The baseline leaves its own attempt out, so the gradient is unbiased. It is taken over the whole step, not over the
task: K = 1 works, and a hard task's attempts all count as bad. RLOO is this with the baseline per task.

Differs from the paper: nothing; which baseline to subtract is left open there.
"""

from collections.abc import Sequence

from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import leave_one_out, to_samples
from longloop.protocols import Learner
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored


class Reinforce(Grouped):
    min_scored = 1
    weights = 1.0

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        attempts = [(index, t) for index, group in enumerate(groups) for t in group.scored]
        if len(attempts) < 2:
            return []
        advantages = self.advantages([trajectory.reward for _, trajectory in attempts])
        return [
            sample
            for (index, trajectory), advantage in zip(attempts, advantages, strict=True)
            for sample in to_samples(trajectory, index, advantage, self.weights)
        ]

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return leave_one_out(rewards)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        return -(batch.weight_N * batch.adv_N * scored.logp_N).sum(), {}
