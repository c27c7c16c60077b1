"""A method as a composition of parts. Without any changed, it is LOOP, bit for bit.

    tasks      which tasks                                      the next of the stream
    rollouts   groups of attempts at them                       K attempts each
    rewards    what each turn and attempt is paid               the verifier's reward
    credit     the advantage of each turn                       leave-one-out
    shape      advantages -> advantages                         nothing
    choose     weights of tokens, attempts left out             |A| < 0.01
    objective  the loss of a token                              LOOP's clip, token ratios
    hold       terms added to the loss                          nothing

A method is a page with a subclass whose fields are its settings and whose `compose` says what differs from LOOP, or
from GRPO (`FromGrpo`). K, learning rate, epochs and mini-batches that a page does not set are theirs, also where a
paper has others. What a method needs (columns, numbers from the logits, the reference, heads) follows from its parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
from torch import Tensor

from longloop.algos.base import Algorithm
from longloop.algos.parts.choose import Choose, DropSmall
from longloop.algos.parts.credit import Credit, LeaveOneOut, Standardized
from longloop.algos.parts.hold import Hold, Kl
from longloop.algos.parts.objective import Clipped, Objective, clipped
from longloop.algos.parts.part import Part, snake
from longloop.algos.parts.rewards import Rewards
from longloop.algos.parts.rollouts import Ask, Attempts
from longloop.algos.parts.shape import Shape
from longloop.algos.parts.tasks import InOrder
from longloop.algos.reduce import refuse_conversations, to_samples
from longloop.protocols import Learner, Rollouts, Tasks
from longloop.types import Batch, Group, Metrics, Minibatch, Needs, Now, OfLogits, Sample, Scored, UserError


@dataclass(frozen=True, kw_only=True)
class Parts:
    tasks: InOrder = field(default_factory=InOrder)
    rollouts: Attempts = field(default_factory=Attempts)
    rewards: Rewards = field(default_factory=Rewards)
    credit: Credit = field(default_factory=LeaveOneOut)
    shape: tuple[Shape, ...] = ()
    choose: tuple[Choose, ...] = (DropSmall(),)
    objective: Objective = field(default_factory=Clipped)
    hold: tuple[Hold, ...] = ()

    @property
    def every(self) -> tuple[Part, ...]:
        alone = self.tasks, self.rollouts, self.rewards, self.credit, self.objective
        return (*alone, *self.shape, *self.choose, *self.hold)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the step's samples need, each once."""
        return tuple(dict.fromkeys(name for part in self.every for name in part.reads))

    @property
    def of_logits(self) -> dict[str, OfLogits]:
        return {name: number for part in self.every for name, number in part.of_logits.items()}


class Composed(Algorithm):
    epochs: int = 2
    minibatch: int = 32

    nothing = "no attempt had an advantage, so there was nothing to learn"

    @cached_property
    def parts(self) -> Parts:
        """What it is made of, put together once."""
        return self.compose()

    def compose(self) -> Parts:
        return Parts()

    def __post_init__(self) -> None:
        super().__post_init__()
        for one, other in combinations(self.parts.every, 2):
            if one.alone_in and one.alone_in == other.alone_in:
                raise UserError(f"The parts {_named(one, other)}, because both {one.alone_in}: keep one of them.")
        for one, other in combinations(self.parts.shape, 2):
            if one.centers:
                raise UserError(f"The parts {_named(one, other)} in this order: name the one that centers last.")

    @property
    def min_scored(self) -> int:  # type: ignore[override]
        return self.parts.credit.min_scored

    @property
    def attempts_per_task(self) -> int:
        return self.parts.rollouts.per_task(self.k)

    @property
    def average(self) -> Literal["trajectories", "tokens"]:  # type: ignore[override]
        return self.parts.objective.average

    @property
    def whole_units(self) -> bool:
        return any(part.whole_units for part in self.parts.every)

    @property
    def needs_reference(self) -> bool:  # type: ignore[override]
        return "reference" in self.parts.reads

    @property
    def heads(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(head for part in self.parts.every for head in part.heads))

    @property
    def hooks(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset().union(*(part.hooks for part in self.parts.every))

    @property
    def needs(self) -> Needs:
        return replace(super().needs, of_logits=self.parts.of_logits)

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        choice, seed = self.parts.tasks, tasks.taken
        taken = choice.take(tasks, n, now)
        return await self.parts.rollouts.collect(Ask(rollouts, taken, self.k, seed, choice.max_turns(now), now))

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        parts = self.parts
        if any(part.in_time for part in parts.every):
            for group in groups:
                refuse_conversations(group.scored)
        paid = parts.rewards.pay(groups, learner, now)
        earned = parts.credit.credit(groups, paid, learner, now)
        samples = [
            sample
            for index, (group, advantages) in enumerate(zip(groups, earned, strict=True))
            if advantages is not None
            for t, advantage_T in zip(group.scored, advantages, strict=True)
            for sample in to_samples(t, index, np.array(advantage_T), parts.objective.weights, own=not t.expert)
        ]
        if parts.reads and samples:
            samples = learner.read(samples, *parts.reads)
        samples = parts.credit.complete(samples, groups, paid)
        for shape in parts.shape:
            samples = shape.shape(samples, groups, now)
        for choose in parts.choose:
            samples = choose.choose(samples, groups, now)
        for part in parts.every:
            samples = part.mark(samples, groups, now)
        parts.tasks.learn(groups, samples, now)
        return samples

    def denominator(self, groups: Sequence[Group], samples: Sequence[Sample]) -> int:
        """All scored attempts, including those that `choose` leaves out."""
        return sum(len(group.scored) for group in groups)

    def look(self, minibatch: Minibatch, learner: Learner, now: Now) -> Minibatch:
        parts = self.parts.every
        columns = tuple(dict.fromkeys(name for part in parts for name in part.looks))
        samples = learner.read(minibatch.samples, *columns) if columns else minibatch.samples
        facts: dict[str, float] = {}
        for part in parts:
            facts |= part.facts(samples, now)
        return replace(minibatch, facts=facts) if facts else minibatch

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        parts = self.parts
        total, metrics = parts.objective.loss(scored, batch)
        for hold in parts.hold:
            term, more = hold.loss(scored, batch)
            total, metrics = total + term, metrics | more
        return total, metrics | {name: (fact, 1) for name, fact in batch.facts.items()}


class OneStep(Composed):
    """One gradient step on all that an iteration collected."""

    epochs: int = 1
    minibatch: int = 0


class FromDapo(Composed):
    """DAPO as parts, without its rounds of sampling."""

    clip_low: float = 0.2
    """The clip range begins at 1 - clip_low."""
    clip_high: float = 0.28
    """The clip range ends at 1 + clip_high."""

    def dapo(self, **others: Any) -> Parts:
        """DAPO's parts, with others in the slots that are named."""
        objective = clipped(self.clip_low, self.clip_high, average="tokens")
        return replace(Parts(credit=Standardized(), objective=objective), **others)


class FromGrpo(OneStep):
    """GRPO as parts, for methods that replace some of them."""

    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""
    kl: float = 0.001
    """The weight of the penalty for leaving the policy before training; at 0 that policy is not needed."""

    def compose(self) -> Parts:
        return self.grpo()

    def grpo(self, **others: Any) -> Parts:
        """GRPO's parts, with others in the slots that are named."""
        hold = (Kl(self.kl),) if self.kl else ()
        parts = Parts(credit=Standardized(), choose=(), objective=clipped(self.clip), hold=hold)
        return replace(parts, **others)


class FromGrpoTwice(FromGrpo):
    """GRPO as parts, with LOOP's epochs and mini-batches."""

    epochs: int = 2
    minibatch: int = 32


def differing(one: Parts, other: Parts) -> Mapping[str, tuple[object, object]]:
    """The slots in which two compositions differ."""
    both = {slot.name: (getattr(one, slot.name), getattr(other, slot.name)) for slot in fields(Parts)}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def _named(one: Part, other: Part) -> str:
    return f"{snake(type(one).__name__)} and {snake(type(other).__name__)} cannot be combined"
