"""SFT: supervised fine-tuning on expert trajectories, also called behavior cloning.

    for each step:
        the expert's attempts at n tasks                               rollout/demonstrations.py
        minimize the mean over action tokens of -log p(x_t | ..)       algos/imitation.py

Only the expert's actions are trained on, not the observations (unless `everything` is set). Learning rate, batch size
and schedule (warm-up over 3% of the run, then a half cosine to zero) are StepAgent's (arXiv 2411.03817).

Differs from the paper: the number of epochs (4 there) follows from `steps` and `tasks_per_step`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from longloop.algos.imitation import Scheduled
from longloop.protocols import Learner, Rollouts, Tasks
from longloop.types import Group, Now, Sample


class SFT(Scheduled):
    lr: float = 1e-5
    everything: bool = False
    """Train on observations as well: pre-training, for a model that does not know the environment's language yet."""

    attempts_per_task = 1

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        return await rollouts.demonstrations(tasks.take(n))

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        samples = super().credit(groups, learner, now)
        return [_all_tokens(sample) for sample in samples] if self.everything else samples


def _all_tokens(sample: Sample) -> Sample:
    """The sample with every token trained on but the first, which nothing precedes."""
    every = np.arange(len(sample.ids)) > 0
    return replace(sample, mask=every, weights=1.0 * every, advantages=1.0 * every)
