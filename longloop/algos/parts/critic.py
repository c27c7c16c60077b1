"""Critics: advantages from the values that a head gives to states, and the loss that trains the head.

A value belongs to the state that a token is drawn from. `unit` says which states have one: those before every action
token (PPO), or those before every turn, where the value is read at the turn's first token (Turn-PPO).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from longloop.algos.parts.credit import OfGroups, over_turns
from longloop.algos.parts.hold import Hold
from longloop.algos.parts.objective import Clipped, Objective
from longloop.algos.parts.part import Advantages, Paid
from longloop.algos.parts.tokens import Tokens
from longloop.algos.reduce import Unit
from longloop.types import Batch, Floats, Group, Metrics, Now, Sample, Scored, StopReason

CUT = (StopReason.MAX_TURNS, StopReason.CONTEXT_FULL)
"""How attempts end that did not come to their end."""


class FromValues(OfGroups):
    """Advantages from a head's values. Adds the columns `target` and `value_weight` for `ValueLoss`."""

    unit: Literal["token", "turn"] = "turn"
    min_scored = 1

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        return over_turns(group, [0.0] * len(group.scored))

    def complete(
        self, samples: Sequence[Sample], groups: Sequence[Group], paid: Sequence[Paid], now: Now
    ) -> list[Sample]:
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
    The state after the last turn counts as that of the last. The heads' target is 1 where something is still to be
    paid."""

    weight: float = 1.0
    margin: float = 0.05
    heads = ("success_1", "success_2")
    reads = ("success_1", "success_2")

    def units(self, heads: dict[str, Floats], paid_U: Floats, outcome: float, cut: bool) -> tuple[Floats, Floats, bool]:
        value_U = 1 / (1 + np.exp(-np.minimum(heads["success_1"], heads["success_2"]).clip(-50, 50)))
        gained_U = np.diff(value_U, append=value_U[-1])
        to_come_U = np.cumsum(paid_U[::-1])[::-1] + outcome
        imitated_U = self.weight * gained_U + paid_U + outcome - self.margin > 0
        return imitated_U.astype(float), (to_come_U > 0).astype(float), True


class ValueLoss(Hold):
    """Trains heads towards the column `target`, at the states that have a `value_weight`: by half the squared error, or
    where they are logits by cross-entropy. The weight goes from `start` to `end` in `steps` steps."""

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
                total = total + (weight_N * weight * error_N).sum()
            else:
                error_N = (scored.heads[name] - target_N) ** 2
                total = total + (weight_N * weight * error_N / 2).sum()
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
