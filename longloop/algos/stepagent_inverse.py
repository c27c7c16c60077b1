"""StepAgent-Inverse (arXiv 2411.03817): learn to tell the expert's actions from one's own, then act like it.

    for each of some 7 iterations:
        the expert's attempts at n tasks, each cut after every action             algos/stepagent.py
        at every state of the expert's, `practice` own actions; no environment
        for each half of the demonstrations:                                      halves
            fit a discriminator on the other half:
                D(state, action) = P(it was the expert's)                         tell_apart
            r = log D - log (1 - D), within -+ most: 0 where it cannot tell       rewards
        A = r - mean of the others' at the same state                             credit
        maximize the mean over actions of the mean over tokens of                 loss
            min(r_t A, clip(r_t) A),   r_t = p(x_t) / p_old(x_t)

D is a small head on the mean of the policy's own hidden states over the action's tokens, which each iteration trains
anew; the policy learns nothing from D's loss. D never judges an action that it was fitted on: it would know that
action's label by heart and pay every own action the same.

With `final` > 0, K own attempts at the tasks are made as well, and paid the mean over their turns of the reward of each
action, plus `final` times what the environment paid; their baseline is that of their group.

Differs from the paper: its signs contradict each other (its D is high for the agent's actions, and the agent is to
maximize log D), it pays log D instead of the logit, and judges the actions that D was fitted on. Own actions are
sampled, not decoded greedily. docs/decisions/0008-stepagent.md says how these and what it leaves open were resolved.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
from torch import Tensor

from longloop.algos.base import Algorithm
from longloop.algos.parts.objective import clipped
from longloop.algos.preference import actions
from longloop.algos.reduce import last_action, leave_one_out, to_samples
from longloop.algos.stepagent import inspected, states
from longloop.protocols import Learner, Rollouts, Tasks
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored, Start, Trajectory, UserError

Ids = tuple[int, ...]
Rivals = list[tuple[float, list[Sample]]]
"""What is compared with each other: for each, what it is paid besides its actions' rewards, and its samples."""


class StepAgentInverse(Algorithm):
    k: int = 6
    """Attempts per task, where `final` asks for any."""
    minibatch: int = 16
    """Actions and own attempts per gradient step, and what their sum is divided by; 0 for all of the step's at once."""
    lr: float = 5e-7
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""
    practice: int = 3
    """Own actions at each state of the expert's."""
    least_reward: float = 1.0
    """Demonstrations that scored less are left out."""
    head_lr: float = 1e-3
    """The discriminator's learning rate."""
    head_steps: int = 200
    """The gradient steps it is trained for, each on all actions of one half of the iteration's demonstrations."""
    smoothing: float = 0.1
    """Half of it is taken from a label and given to the other side: the discriminator is never sure."""
    most: float = 5.0
    """The largest reward, and with a minus the smallest."""
    final: float = 0.0
    """What the environment's reward counts; 0 for no attempts in the environment."""

    nothing = "at every state all own actions were the same, or there was but one state, so there was nothing to learn"
    heads = ("discriminator",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final > 0 and self.k < 2:
            raise UserError(f"algo.k = {self.k}: comparing own attempts, as algo.final asks, needs algo.k >= 2.")
        if self.practice < 2:
            raise UserError(
                f"algo.practice = {self.practice}: comparing own actions at a state needs algo.practice >= 2."
            )

    @property
    def attempts_per_task(self) -> int:
        return 1 + (self.k if self.final > 0 else 0)

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        first = tasks.taken
        groups = await inspected(rollouts, tasks.take(n), self.practice, self.least_reward, seed=first)
        if self.final <= 0:
            return groups
        own = await rollouts.play([Start(group.task) for group in groups], self.k, seed=first)
        return [group.merged_with(other) for group, other in zip(groups, own, strict=True)]

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        """Own actions compared with the others at their state, own attempts with the others in their group."""
        rivals = [*self.at_states(groups), *self.attempts(groups)]
        samples = [sample for one in rivals for _, parts in one for sample in parts]
        rewards = dict(zip(map(id, samples), self.rewards(groups, samples, learner), strict=False))
        credited: list[Sample] = []
        for one in rivals if rewards else []:
            paid = [fmean(r for sample in parts for r in rewards[id(sample)]) + bonus for bonus, parts in one]
            for (_, parts), advantage, reward in zip(one, leave_one_out(paid), paid, strict=True):
                credited += [
                    replace(s, advantages=advantage * s.mask, columns={"logged": reward * s.mask}) for s in parts
                ]
        return credited

    def denominator(self, groups: Sequence[Group], samples: Sequence[Sample]) -> int:
        """All practised actions and own attempts, also the actions of states at which all are the same."""
        return sum(len(group.policy_trajectories) + sum(len(own) for _, own in states(group)) for group in groups)

    def at_states(self, groups: Sequence[Group]) -> list[Rivals]:
        """The own actions at each state; where all are the same, there is nothing to compare."""
        return [
            [(0.0, [last_action(t, index, 1 / len(t.turns[-1].action_ids))]) for t in own]
            for index, group in enumerate(groups)
            for _, own in states(group)
            if len({t.turns[-1].action_key for t in own}) > 1
        ]

    def attempts(self, groups: Sequence[Group]) -> list[Rivals]:
        """The own attempts at each task, with `final` times what the environment paid."""
        return [
            [(self.final * t.reward, to_samples(t, index, 0.0, "token")) for t in group.policy_trajectories]
            for index, group in enumerate(groups)
            if self.final > 0 and len(group.policy_trajectories) > 1
        ]

    def rewards(self, groups: Sequence[Group], samples: Sequence[Sample], learner: Learner) -> list[list[float]]:
        """What each action of each sample is paid: the logit of a discriminator fitted on the other half.

        Empty when there is a single state, for then no other half exists.
        """
        half = halves(groups)
        at = [(index, expert, own) for index, group in enumerate(groups) for expert, own in states(group)]
        sides = [half(index, _state(expert)) for index, expert, _ in at]
        if set(sides) != {0, 1}:
            return []
        wanted = [[half(sample.source.group, state) for state in _states(sample)] for sample in samples]
        paid = [[0.0] * len(actions) for actions in wanted]
        for side in (0, 1):
            chosen = [n for n, actions in enumerate(wanted) if side in actions]
            if not chosen:
                continue
            self.tell_apart([state for state, other in zip(at, sides, strict=True) if other != side], learner)
            for n, logits in zip(chosen, learner.judge("discriminator", [samples[n] for n in chosen]), strict=True):
                for action, logit in enumerate(logits):
                    if wanted[n][action] == side:
                        paid[n][action] = min(max(logit, -self.most), self.most)
        return paid

    def tell_apart(self, at: Sequence[tuple[int, Trajectory, Sequence[Trajectory]]], learner: Learner) -> None:
        """Fit the discriminator at these states. At each, the expert's action weighs as much as all own ones do."""
        high, low = 1 - self.smoothing / 2, self.smoothing / 2
        shown = [
            (last_action(trajectory, index), target, weight)
            for index, expert, own in at
            for trajectory, target, weight in ((expert, high, 1.0), *((t, low, 1 / len(own)) for t in own))
        ]
        samples, targets, weights = zip(*shown, strict=True)
        learner.fit("discriminator", samples, targets, weights, self.head_lr, self.head_steps)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        total, metrics = clipped(self.clip).loss(scored, batch)
        paid_N = batch.columns["logged"]
        return total, metrics | {"paid": (paid_N.sum(), paid_N.numel())}


def halves(groups: Sequence[Group]) -> Callable[[int, Ids], int]:
    """Return what tells the half, 0 or 1, of an action from its group's index in the step and the state it is taken at.

    All states of a demonstration lie in one half. The halves are of equal size and follow from what was said, not from
    the order of the groups. A single demonstration's states are divided instead; one it never met lies in half 0.
    """
    shown = [index for index, group in enumerate(groups) if any(states(group))]
    if len(shown) > 1:
        shown.sort(key=lambda index: (_digest(groups[index].task.id), [actions(t) for t in groups[index].trajectories]))
        by_index = {index: rank % 2 for rank, index in enumerate(shown)}
        return lambda index, _: by_index.get(index, 0)
    met = {_state(expert) for group in groups for expert, _ in states(group)}
    by_state = {state: rank % 2 for rank, state in enumerate(sorted(met, key=_digest))}
    return lambda _, state: by_state.get(state, 0)


def _digest(key: object) -> bytes:
    return hashlib.sha256(repr(key).encode()).digest()


def _state(trajectory: Trajectory) -> Ids:
    """What was read before the last action."""
    return _states(last_action(trajectory, 0))[0]


def _states(sample: Sample) -> list[Ids]:
    """What was read before each of a sample's actions."""
    at = np.flatnonzero(sample.mask)
    _, first = np.unique(sample.turns[at], return_index=True)
    return [tuple(sample.ids[: at[n]].tolist()) for n in first]
