"""DAPO (arXiv 2503.14476): GRPO's advantage with a wider upper clip, a mean over tokens, and refilled batches.

    collect until n groups have rewards that differ (at most `tries` rounds)       collect
    A_k = (R_k - mean) / (std + 1e-6)
    maximize the mean over all action tokens of the mini-batch of
        min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A)

Groups whose rewards are all equal have nothing to say and take no part in the mean. No KL term. The paper's penalty for
overlong answers is a reward, so it belongs to the environment.

Differs from the paper: a round asks only for the groups that are still missing. The authors' code (verl) samples 3 n
tasks a round and throws away what is over n, for which an agent's attempts are too expensive; both train on the first n
groups that differ, in the order of the tasks. After `tries` rounds (verl: 10, then an error) the step goes on with the
groups there are. Mini-batches are counted in attempts.
"""

from collections.abc import Sequence

from longloop.algos.composed import FromDapo, Parts
from longloop.protocols import Learner, Rollouts, Tasks
from longloop.types import Group, Now, Sample


class Dapo(FromDapo):
    epochs: int = 1
    tries: int = 10
    """Rounds of sampling after which a step makes do with the groups it has."""

    def compose(self) -> Parts:
        return self.dapo(choose=())

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        """Groups until n of them have rewards that differ. Those that do not are kept, for the record."""
        groups: list[Group] = []
        for _ in range(self.tries):
            missing = n - sum(map(_informative, groups))
            if not missing:
                break
            groups += await super().collect(rollouts, tasks, missing, now)
        return groups

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        samples = super().credit(groups, learner, now)
        return [sample for sample in samples if _informative(groups[sample.source.group])]


def _informative(group: Group) -> bool:
    return len({trajectory.reward for trajectory in group.scored}) > 1
