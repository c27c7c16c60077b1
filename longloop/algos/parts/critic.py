"""Critics: advantages from the values that a head gives to states, and the loss that trains the head.

A value belongs to the state that a token is drawn from. `unit` says which states have one: those before every action
token (PPO), or those before every turn, where the value is read at the turn's first token (Turn-PPO). `TurnCritic`,
ArCHer's, learns off policy what a turn's action is worth, and what the state before it is.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longloop.algos.parts.credit import Credit, OfGroups, over_turns
from longloop.algos.parts.hold import Hold
from longloop.algos.parts.objective import Clipped, Objective
from longloop.algos.parts.part import Advantages, Earned, Paid
from longloop.algos.parts.rewards import Rewards
from longloop.algos.parts.rollouts import state_before, stored_groups
from longloop.algos.parts.tokens import Tokens
from longloop.algos.reduce import Unit
from longloop.protocols import Learner
from longloop.types import Batch, Floats, Group, Ids, Metrics, Now, Sample, SampleSource, Scored, StopReason, Trajectory

CUT = (StopReason.MAX_TURNS, StopReason.CONTEXT_FULL)
"""How attempts end that did not come to their end."""
Rewarded = tuple[Trajectory, list[float]]
"""An attempt, and what each of its turns was paid, the outcome with the last."""


class FromValues(OfGroups):
    """Advantages from a head's values. Adds the columns `target` and `value_weight` for `ValueLoss`."""

    unit: Literal["token", "turn"] = "turn"
    min_scored = 1

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        return over_turns(group, [0.0] * len(group.scored))

    def complete(self, samples: Sequence[Sample], groups: Sequence[Group], paid: Sequence[Paid]) -> list[Sample]:
        attempts = {
            (index, trajectory.attempt): (trajectory.stop in CUT, turns, outcome)
            for index, (group, one) in enumerate(zip(groups, paid, strict=True))
            for trajectory, turns, outcome in zip(group.scored, one.turns, one.outcomes, strict=True)
        }
        completed: list[Sample] = []
        for source, same in groupby(samples, key=lambda sample: sample.source):
            completed += self._completed(Tokens(list(same), groups), *attempts[source])
        return completed

    def _completed(self, tokens: Tokens, cut: bool, turns: list[float], outcome: float) -> list[Sample]:
        """One attempt's samples. N are its action tokens, U its units."""
        turn_N = np.concatenate([s.turns[s.mask] for s in tokens.samples])
        first_N = np.diff(turn_N, prepend=-1) != 0
        begin_U = np.flatnonzero(first_N) if self.unit == "turn" else np.arange(len(tokens))
        paid_N = np.zeros(len(tokens))
        paid_N[np.diff(turn_N, append=-1) != 0] = np.array(turns)[turn_N[first_N]]
        heads = {name: tokens.read(name)[begin_U] for name in self.heads}
        advantage_U, target_U, trained = self.units(heads, np.add.reduceat(paid_N, begin_U), outcome, cut)

        weight_U = tokens.flat(lambda s: s.weights) if self.unit == "token" else np.full(len(begin_U), 1 / len(begin_U))
        target_N, value_weight_N = np.zeros((2, len(tokens)))
        target_N[begin_U], value_weight_N[begin_U] = target_U, weight_U * trained
        advantages = tokens.columns(np.repeat(advantage_U, np.diff(begin_U, append=len(tokens))))
        marked = tokens.marked(target=target_N, value_weight=value_weight_N)
        return [replace(sample, advantages=column) for sample, column in zip(marked, advantages, strict=True)]

    @abstractmethod
    def units(self, heads: dict[str, Floats], paid_U: Floats, outcome: float, cut: bool) -> tuple[Floats, Floats, bool]:
        """The advantage of each unit, what the heads should have said, and whether they learn from this attempt."""


class Gae(FromValues):
    """delta_u = reward_u + gamma V_{u+1} - V_u,  A_u = sum over l of (gamma lam)^l delta_{u+l};  V after the end is 0.

    The outcome is paid with the last unit, and the target of V_u is A_u + V_u. With `cut`, an attempt that did not come
    to its end is not paid its outcome: the state after its last counts as worth the same, and the head learns from the
    other attempts only, whose discounted rewards are the targets.
    """

    gamma: float = 1.0
    lam: float = 1.0
    low: float = 0.0
    high: float = 1.0
    """The range that values are clipped to."""
    cut: bool = False
    heads = ("value",)
    reads = ("value",)

    @property
    def in_time(self) -> bool:  # type: ignore[override]
        return self.gamma < 1 or self.lam < 1 or self.cut

    def units(self, heads: dict[str, Floats], paid_U: Floats, outcome: float, cut: bool) -> tuple[Floats, Floats, bool]:
        value_U = heads["value"].clip(self.low, self.high)
        unfinished = self.cut and cut
        if not unfinished:
            paid_U[-1] += outcome
        advantage_U = gae(paid_U, value_U, self.gamma, self.lam, unfinished)
        target_U = gae(paid_U, np.zeros(len(paid_U)), self.gamma, 1.0) if self.cut else advantage_U + value_U
        return advantage_U, target_U, not unfinished


def gae(paid_U: Floats, value_U: Floats, gamma: float, lam: float, cut: bool = False) -> Floats:
    """Generalized advantage estimation over units. After the last the value is 0; if cut there, the last value."""
    advantage_U = np.zeros(len(value_U))
    carried, following = 0.0, value_U[-1] if cut else 0.0
    for u in reversed(range(len(value_U))):
        delta = paid_U[u] + gamma * following - value_U[u]
        carried = delta + gamma * lam * carried
        advantage_U[u], following = carried, value_U[u]
    return advantage_U


class Progress(FromValues):
    """DigiRL's: 1 for a turn to imitate, 0 for the others, by two heads that say how likely success is from a state.
    The state after the last turn counts as that of the last. The heads' target is 1 where more is still to be paid."""

    in_time = True
    weight: float = 1.0
    margin: float = 0.05
    heads = ("success_1", "success_2")
    reads = ("success_1", "success_2")

    def complete(self, samples: Sequence[Sample], groups: Sequence[Group], paid: Sequence[Paid]) -> list[Sample]:
        """All turns weigh alike, and together as much as the tokens: the heads' loss is then a mean over turns."""
        samples = super().complete(samples, groups, paid)
        turns = sum(np.count_nonzero(s.columns["value_weight"]) for s in samples)
        each = math.fsum(w for s in samples for w in s.weights.tolist()) / max(1, turns)
        return [s.with_columns(value_weight=each * (s.columns["value_weight"] > 0)) for s in samples]

    def units(self, heads: dict[str, Floats], paid_U: Floats, outcome: float, cut: bool) -> tuple[Floats, Floats, bool]:
        value_U = 1 / (1 + np.exp(-np.minimum(heads["success_1"], heads["success_2"]).clip(-50, 50)))
        gained_U = np.diff(value_U, append=value_U[-1])
        to_come_U = np.cumsum(paid_U[::-1])[::-1] + outcome
        imitated_U = self.weight * gained_U + paid_U + outcome - self.margin > 0
        return imitated_U.astype(float), (to_come_U > 0).astype(float), True


class ValueLoss(Hold):
    """Trains heads towards the column `target`, where `value_weight` says: by half the squared error, or for logits by
    cross-entropy. The weight goes from `start` to `end` in `steps` steps."""

    of: tuple[str, ...] = ("value",)
    start: float = 0.1
    end: float = 0.001
    steps: int = 200
    unit: Literal["token", "turn"] = "turn"
    logits: bool = False

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        done = min(1.0, (batch.step - 1) / self.steps)
        weight = self.start + done * (self.end - self.start)
        target_N, weight_N = batch.columns["target"], batch.columns["value_weight"]
        count = batch.turns if self.unit == "turn" else target_N.numel()
        total, metrics = torch.zeros_like(weight_N).sum(), Metrics()
        for name in self.of:
            if self.logits:
                error_N = binary_cross_entropy_with_logits(scored.heads[name], target_N, reduction="none")
            else:
                error_N = (scored.heads[name] - target_N) ** 2
            total = total + (weight_N * weight * error_N * (1.0 if self.logits else 0.5)).sum()
            metrics[f"{name}_error"] = ((error_N.detach() * (weight_N > 0)).sum(), count)
        return total, metrics


class AfterWarmup(Objective):
    """Another objective, from the step after `steps` on; before, only holds are learned. `average` must be equal."""

    objective: Objective = field(default_factory=Clipped)
    steps: int = 0

    @property
    def weights(self) -> Unit | float:
        return self.objective.weights

    @property
    def whole_units(self) -> bool:
        return self.objective.whole_units

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        if batch.step <= self.steps:
            return torch.zeros_like(batch.weight_N).sum(), {}
        return self.objective.loss(scored, batch)


class TurnCritic(Credit):
    """A_u = min(Q_1, Q_2)(s_u, a_u) - min(V_1, V_2)(s_u), from heads that each step trains anew by squared error,
    `steps` times; see archer.py. Without steps there is no critic: A_u is what was paid from turn u on.

    V is read where the first token of an action is drawn, Q one place behind its last token.
    """

    in_time = True
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
        q_1, q_2, v_1, v_2 = (np.concatenate([np.zeros(0), *(s.columns[h][s.mask] for s in read)]) for h in self.heads)
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
