"""ArCHer's critic: what a turn's action is worth, and what the state before it is, learned off policy.

Four heads, two of each: V is read where the first token of an action is drawn, Q one place behind its last token.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from longloop.algos.parts.credit import Credit
from longloop.algos.parts.part import Earned, Paid
from longloop.algos.parts.rewards import Rewards
from longloop.algos.parts.rollouts import state_before, stored_groups
from longloop.protocols import Learner
from longloop.types import Group, Ids, Now, Sample, SampleSource, StopReason, Trajectory

Rewarded = tuple[Trajectory, list[float]]
"""An attempt, and what each of its turns was paid, the outcome with the last."""


class TurnCritic(Credit):
    """A_u = min(Q_1, Q_2)(s_u, a_u) - min(V_1, V_2)(s_u), from heads that each step trains anew by squared error,
    `steps` times. Without steps there is no critic: A_u is what was paid from turn u on.

    The targets are archer's. The actions that V learns from are this step's and those of `FreshActions`.
    """

    gamma: float = 0.95
    replay: int = 4
    slow: float = 0.1
    lr: float = 3e-3
    steps: int = 200
    rewards: Rewards = field(default_factory=Rewards)
    """What stored turns are paid."""
    min_scored = 1
    heads = ("q_1", "q_2", "v_1", "v_2")

    def credit(self, groups: Sequence[Group], paid: Sequence[Paid], learner: Learner, now: Now) -> Earned:
        known: dict[int, list[float]] = {}
        if self.steps:
            own = _in_order(zip(groups, paid, strict=True))
            fresh = [t for group in groups for t in group.trajectories if t.stop is StopReason.PRACTISED]
            fresh.sort(key=lambda t: (t.task.id, state_before(t, len(t.turns) - 1), t.turns[-1].action_key))
            stored = stored_groups(self.replay, now)
            earlier = _in_order(zip(stored, self.rewards.pay(stored, learner, now), strict=True))
            self.train(own, earlier, fresh, learner)
            known = self.advantages([t for t, _ in own], learner)
        return [
            ([known.get(id(t), []) for t in group.scored] if self.steps else one.to_go(self.gamma))
            if group.scored
            else None
            for group, one in zip(groups, paid, strict=True)
        ]

    def train(
        self, own: Sequence[Rewarded], earlier: Sequence[Rewarded], fresh: Sequence[Trajectory], learner: Learner
    ) -> None:
        """Train the heads on turns of this step and of earlier ones, and on fresh actions (the last turn of each)."""
        paid = [*own, *earlier]
        if not paid:
            return
        at = places([(t, 0) for t, _ in paid] + [(t, len(t.turns) - 1) for t in fresh])
        reward_P = torch.tensor([reward for _, rewards in paid for reward in rewards])
        on_P = torch.tensor([float(u < len(rewards)) for _, rewards in paid for u in range(1, len(rewards) + 1)])
        turns, actual = len(reward_P), sum(len(rewards) for _, rewards in own)
        state_U, action_U = torch.tensor(at.state_U), torch.tensor(at.action_U)
        now_U = torch.cat([torch.arange(actual), torch.arange(turns, len(state_U))])

        def loss(said: Mapping[str, Tensor], slow: Mapping[str, Tensor]) -> Tensor:
            errors = []
            for j in (1, 2):
                to_come_P = slow[f"v_{j}"][state_U.roll(-1)[:turns]]
                target_P = reward_P.to(to_come_P) + self.gamma * on_P.to(to_come_P) * to_come_P
                errors.append(said[f"q_{j}"][action_U[:turns]] - target_P)
                errors.append(said[f"v_{j}"][state_U[now_U]] - slow[f"q_{j}"][action_U[now_U]])
            return torch.stack([error.square().mean() for error in errors]).sum()

        learner.fit_heads(at.samples, loss, self.lr, self.steps, self.slow)

    def advantages(self, attempts: Sequence[Trajectory], learner: Learner) -> dict[int, list[float]]:
        """Of each turn of these attempts, as the heads are now."""
        at = places([(t, 0) for t in attempts])
        read = learner.read(at.samples, *self.heads)
        q_1, q_2, v_1, v_2 = (
            np.concatenate([np.zeros(0), *(s.columns[name][s.mask] for s in read)]) for name in self.heads
        )
        each = iter((np.minimum(q_1, q_2)[at.action_U] - np.minimum(v_1, v_2)[at.state_U]).tolist())
        return {id(t): list(islice(each, len(t.turns))) for t in attempts}


def _in_order(groups: Iterable[tuple[Group, Paid]]) -> list[Rewarded]:
    """The scored attempts, in an order that does not depend on that of the groups."""
    found = [(t, r) for group, paid in groups for t, r in zip(group.scored, paid.with_outcomes(), strict=True) if r]
    return sorted(found, key=lambda one: (one[0].task.id, one[0].attempt, state_before(one[0], len(one[0].turns))))


@dataclass(frozen=True)
class Places:
    """Where the values of U turns are read: samples, and among all positions that are on in their masks those of each
    turn's state and action."""

    samples: list[Sample]
    state_U: Ids
    action_U: Ids


def places(attempts: Sequence[tuple[Trajectory, int]]) -> Places:
    """The places of the attempts' turns, from a turn of each on.

    A head says what it thinks of the ids before a position. So a state is read at its action's first token, and an
    action at what follows it; behind the end stands a token that is never read.
    """
    samples: list[Sample] = []
    state_U, action_U = [np.zeros(0, int)], [np.zeros(0, int)]
    read = 0
    for n, (trajectory, turn) in enumerate(attempts):
        for number, stretch in enumerate(trajectory.stretches()):
            tokens = np.flatnonzero(stretch.mask & (stretch.turns >= turn))
            if not len(tokens):
                continue
            _, begin, size = np.unique(stretch.turns[tokens], return_index=True, return_counts=True)
            state, action = tokens[begin], tokens[begin + size - 1] + 1
            mask = np.zeros(len(stretch.ids) + 1, bool)
            mask[state] = mask[action] = True
            rank = read + np.cumsum(mask) - 1
            state_U.append(rank[state])
            action_U.append(rank[action])
            read += int(mask.sum())
            nothing, zero = np.zeros(len(mask)), np.zeros(len(mask), int)
            ids = np.append(stretch.ids, 0)
            source = SampleSource(n, 0)
            samples.append(Sample(ids, mask, nothing, zero, nothing, nothing, source, number, own=False))
    return Places(samples, np.concatenate(state_U), np.concatenate(action_U))
