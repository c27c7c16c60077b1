"""DPO on search trees: the simplified Agent Q of LOOP's appendix.

    for each iteration:
        a tree of attempts at each of n tasks                                        rollout/search.py
        Q of an action at a turn = mean reward of the distinct attempts that took it pairs
        pairs of actions at one state whose Q differ by more than `gap`
        for 3 epochs, minimize -log sigmoid(beta (log p/p_ref of the better          algos/preference.py
            action - of the worse)), p_ref the policy that grew the tree

Differs from the paper: LOOP's comparison keeps all pairs in a buffer and trains on it offline. Here an iteration trains
on its own pairs and drops them: the policy that took those actions is gone, and a resumed run needs no buffer. One step
over all tasks (`steps = 1`, `tasks_per_step` their number) is the paper's. UCB constant, `gap`, beta, epochs,
mini-batches and learning rate are not given there.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import ClassVar

from longloop.algos.preference import Preference
from longloop.algos.reduce import last_action, refuse_conversations
from longloop.protocols import Rollouts, Tasks
from longloop.types import Group, Now, Sample, Trajectory


class TreeDpo(Preference):
    k: int = 30
    """Different attempts per tree, at most."""
    epochs: int = 3
    gap: float = 0.2
    """Pairs whose Q differ by no more are left out."""
    explore: float = 1.0
    """How much a child that was tried little is preferred."""

    puct: ClassVar[bool] = False
    """Whether the policy's probabilities guide the search, and visits are counted."""

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        first = tasks.taken
        return await rollouts.trees(tasks.take(n), self.k, self.explore, seed=first, puct=self.puct)

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        """Attempts that part at a turn; cut there."""
        for said, actions in taken_actions(group).items():
            for pair in combinations(actions.values(), 2):
                worse, better = sorted(pair, key=lambda one: self.q(one, len(said)))
                if self.q(better, len(said)) - self.q(worse, len(said)) > self.gap:
                    yield up_to(better[0], said), up_to(worse[0], said)

    def q(self, attempts: Sequence[Trajectory], turn: int) -> float:
        """The value of the action that these attempts took at a turn."""
        return fmean(t.reward for t in attempts)

    def to_samples(self, trajectory: Trajectory, group_index: int) -> list[Sample]:
        return [last_action(trajectory, group_index, own=self.on_policy)]


Actions = tuple[tuple[int, ...], ...]
"""The ids of the actions so far, turn by turn, which identify a state."""


def taken_actions(group: Group) -> dict[Actions, dict[tuple[int, ...], list[Trajectory]]]:
    """The actions that were taken at each state, with the attempts that took them."""
    refuse_conversations(group.policy_trajectories)
    taken: dict[Actions, dict[tuple[int, ...], list[Trajectory]]] = defaultdict(dict)
    for trajectory in group.policy_trajectories:
        said: Actions = ()
        for turn in trajectory.turns:
            taken[said].setdefault(turn.action_key, []).append(trajectory)
            said += (turn.action_key,)
    return taken


def up_to(trajectory: Trajectory, said: Actions) -> Trajectory:
    """The attempt with nothing after its action at this state."""
    return replace(trajectory, turns=trajectory.turns[: len(said) + 1])
