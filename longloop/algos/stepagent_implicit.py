"""StepAgent-Implicit (arXiv 2411.03817): the expert's action against the policy's own, state by state.

    for each of some 3 iterations:
        the expert's attempts at n tasks, each cut after every action            algos/stepagent.py
        at every state of the expert's, `practice` own actions; no environment
        pairs: the expert's action, and each own one that is another             pairs
        minimize -log sigmoid(beta (log p/p_ref of the expert's action           algos/preference.py
                                    - log p/p_ref of the own one))

Differs from the paper: its eq. 6 divides by the expert's policy, which nobody knows; as in its text, the reference is
the policy at the start of the iteration. It decodes greedily, which gives one action at a state however often it is
asked; here it is sampled, and equal actions are left out. beta is not given there.
"""

from collections.abc import Iterator

from longloop.algos.preference import Preference
from longloop.algos.reduce import last_action
from longloop.algos.stepagent import inspected, states
from longloop.protocols import Rollouts, Tasks
from longloop.types import Group, Now, Sample, Trajectory


class StepAgentImplicit(Preference):
    minibatch: int = 16
    lr: float = 5e-7
    practice: int = 3
    """Own actions at each state of the expert's."""
    least_reward: float = 1.0
    """Demonstrations that scored less are left out."""

    attempts_per_task = 1

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        first = tasks.taken
        return await inspected(rollouts, tasks.take(n), self.practice, self.least_reward, seed=first)

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        for expert, own in states(group):
            different = {t.turns[-1].action_key: t for t in own}
            yield from ((expert, one) for one in different.values())

    def to_samples(self, trajectory: Trajectory, group_index: int) -> list[Sample]:
        return [last_action(trajectory, group_index, own=self.on_policy)]
