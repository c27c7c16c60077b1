"""StepAgent-Inverse (arXiv 2411.03817): learn to tell the expert's actions from one's own, then act like it.

    for each of some 7 iterations:
        the expert's attempts at n tasks, each cut after every action             algos/stepagent.py
        at every state of the expert's, `practice` own actions; no environment
        train a discriminator: D(state, action) = P(it was the expert's)          tell_apart
        r = log D - log (1 - D), within -+ most: 0 where it cannot tell           rewards
        A = r - mean of the others' at the same state                             credit
        maximise the mean over actions of the mean over tokens of                 loss
            min(r_t A, clip(r_t) A),   r_t = p(x_t) / p_old(x_t)

D is a small head on the mean of the policy's own hidden states over the action's tokens: there is no second model, and
the policy learns nothing from D's loss. Each iteration trains it anew, for what it reads has changed with the policy.
Acting at an expert's state is a bandit: no environment, no critic, no return over time.

With `final` > 0, K own attempts at the tasks are made as well. Such an attempt is paid the mean over its turns of the
reward of each action, plus `final` times what the environment paid; its baseline is that of its group.

The paper's signs contradict each other (its D is high for the agent's actions, and the agent is to maximise log D);
docs/decisions/0008-stepagent.md says how that and what it leaves open was resolved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from statistics import fmean
from typing import ClassVar

import torch
from torch import Tensor

from longloop.algos.base import Algorithm
from longloop.algos.reduce import clip_metrics, last_action, leave_one_out, spread
from longloop.algos.stepagent import inspected, states
from longloop.interfaces import Learner, Rollouts, Tasks
from longloop.types import Batch, Group, Metrics, Sample, Scored, UserError


@dataclass(frozen=True, kw_only=True)
class StepAgentInverse(Algorithm):
    k: int = 6
    """Attempts per task, where `final` asks for any."""
    minibatch: int = 16
    """Actions, and own attempts, per gradient step."""
    lr: float = 5e-7
    clip: float = 0.2
    practice: int = 3
    """Own actions at each state of the expert's."""
    least_reward: float = 1.0
    """Demonstrations that scored less are left out."""
    head_lr: float = 1e-3
    """The discriminator's learning rate."""
    head_steps: int = 200
    """The gradient steps it is trained for, each on all of the iteration's actions."""
    smoothing: float = 0.1
    """How much of a label is given to the other side, so that the discriminator is never sure."""
    most: float = 5.0
    """The largest reward, and with a minus the smallest."""
    final: float = 0.0
    """What the environment's reward counts; 0 for no attempts in the environment."""

    nothing: ClassVar[str] = "at every state all own actions were the same, so there was nothing to learn"
    value_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.final > 0 and self.k < 2:
            raise UserError(
                f"algo.k = {self.k}: with algo.final the own attempts are compared and algo.k must be >= 2."
            )
        if self.practice < 2:
            raise UserError(
                f"algo.practice = {self.practice}: StepAgent-Inverse compares the own actions at a state with each "
                "other and needs algo.practice >= 2."
            )

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int) -> list[Group]:
        first = tasks.taken
        groups = await inspected(rollouts, tasks.take(n), self.practice, self.least_reward, seed=first)
        if self.final <= 0:
            return groups
        own = await rollouts.groups([group.task for group in groups], self.k, seed=first)
        return [group.beside(other) for group, other in zip(groups, own, strict=True)]

    def credit(self, groups: Sequence[Group], learner: Learner) -> list[Sample]:
        self.tell_apart(groups, learner)
        return [*self.of_actions(groups, learner), *self.of_attempts(groups, learner)]

    def tell_apart(self, groups: Sequence[Group], learner: Learner) -> None:
        """Train the discriminator. At each state both sides count the same, however many own actions there are."""
        high, low = 1 - self.smoothing / 2, self.smoothing / 2
        shown = [
            (last_action(trajectory, place), target, weight)
            for place, group in enumerate(groups)
            for expert, own in states(group)
            for trajectory, target, weight in ((expert, high, 1.0), *((t, low, 1 / len(own)) for t in own))
        ]
        if shown:
            samples, targets, weights = zip(*shown, strict=True)
            learner.fit_head(samples, targets, weights, self.head_lr, self.head_steps)

    def rewards(self, samples: Sequence[Sample], learner: Learner) -> list[list[float]]:
        """What each sample's actions are paid."""
        return [[min(max(logit, -self.most), self.most) for logit in logits] for logits in learner.judge(samples)]

    def of_actions(self, groups: Sequence[Group], learner: Learner) -> Iterator[Sample]:
        """The practised actions, compared with the others at their state; if all are the same, there is nothing to."""
        at_states = [
            [last_action(t, place, 1 / len(t.turns[-1].action_ids)) for t in own]
            for place, group in enumerate(groups)
            for _, own in states(group)
            if len({t.turns[-1].action_ids for t in own}) > 1
        ]
        paid = iter(self.rewards([sample for own in at_states for sample in own], learner))
        for own in at_states:
            rewards = [reward for (reward,) in islice(paid, len(own))]
            yield from map(credited, own, leave_one_out(rewards), rewards)

    def of_attempts(self, groups: Sequence[Group], learner: Learner) -> Iterator[Sample]:
        """The own attempts, compared with the others in their group."""
        for place, group in enumerate(groups):
            if self.final > 0 and len(group.own) > 1:
                attempts = [spread(t, place, 0.0, "token") for t in group.own]
                rewards = [
                    fmean(chain.from_iterable(self.rewards(samples, learner))) + self.final * t.reward
                    for samples, t in zip(attempts, group.own, strict=True)
                ]
                for samples, advantage, reward in zip(attempts, leave_one_out(rewards), rewards, strict=True):
                    yield from (credited(sample, advantage, reward) for sample in samples)

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        assert batch.returns_N is not None
        low, high = 1 - self.clip, 1 + self.clip
        ratio_N = torch.exp(scored.logp_N - batch.old_N)
        objective_N = torch.minimum(ratio_N * batch.adv_N, ratio_N.clamp(low, high) * batch.adv_N)
        metrics: Metrics = {"paid": (batch.returns_N.sum(), batch.returns_N.numel())}
        return -(batch.weight_N * objective_N).sum(), metrics | clip_metrics(ratio_N, batch.adv_N, low, high)


def credited(sample: Sample, advantage: float, reward: float) -> Sample:
    """With its advantage, and what it was paid for the record."""
    advantages, returns = (tuple(value * chosen for chosen in sample.mask) for value in (advantage, reward))
    return replace(sample, advantages=advantages, returns=returns)
