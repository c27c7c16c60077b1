"""A rank that is not the first, in a process of its own: it builds the same parts as the first and does as it is told.

It decides nothing, and writes nothing to disk. Its methods are called by the crew (crew.py), through Ray.
"""

import asyncio
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from longloop.cluster.exchange import Exchange
from longloop.config import RolloutConfig
from longloop.engines.orders import Follower, telling
from longloop.learners.local import LocalLearner
from longloop.learners.shares import Microbatch
from longloop.rollout.episode import Record, RolloutContext
from longloop.rollout.replica import LocalReplica
from longloop.types import Group, Ids, SamplingParams, Start, Task, Trajectory, Turn


@dataclass(frozen=True)
class RankParts:
    """What every rank has."""

    learner: LocalLearner
    context: RolloutContext
    close: Callable[[], object]
    """Ends the environments' workers."""


def add_up(exchange: Exchange, learner: LocalLearner) -> None:
    """Add up gradients, on all ranks at once."""
    owners = learner.owners
    exchange.add_up([parameter for name, parameter in learner.parameters.items() if name not in owners])
    if owners:
        learner.norm_P = exchange.add_up_at([learner.parameters[name] for name in owners], list(owners.values()))


def spread(exchange: Exchange, learner: LocalLearner) -> None:
    """Give everyone the weights that one rank has optimized, on all ranks at once."""
    for weight, owner in learner.sliced_tensors():
        exchange.copy([weight], owner)


def learned(
    learner: LocalLearner, work: str, shares: Sequence[Sequence[Microbatch]], passes: int, *arguments: Any
) -> tuple[list[Any], float]:
    """What one of a learner's methods makes of shares, and the seconds it took. With a model in shards all ranks make
    as many `passes` as the one that has most micro-batches."""
    began = time.perf_counter()
    found = getattr(learner, work)(shares, *arguments)
    took = time.perf_counter() - began
    if learner.policy.shards is not None:
        learner.fill(passes - sum(map(len, shares)), backward=work == "gradients")
    return found, took


def sample_together(engine: Any, exchange: Exchange) -> Follower | None:
    """Let the engines of ranks that hold shards of one copy make the same passes: the first one's leads."""
    assert exchange.shards is not None
    if exchange.shards.index:
        return Follower(engine.obey, exchange.orders, exchange.leave_word)
    engine.tell = telling(exchange.orders)
    return None


class Rank:
    def __init__(self, number: int) -> None:
        self.number = number
        self._replica = LocalReplica()
        self._cutoff = math.inf
        self._playing: dict[asyncio.Task[Any], Record] = {}
        self._exchange: Exchange | None = None
        self._follower: Follower | None = None

    def sign(self) -> None:
        """Show that the process lives. It runs beside everything else."""

    def build(self, make: Callable[[int, Exchange | None], RankParts], threads: int) -> tuple[str, int]:
        """Build the parts; return the host and the process id."""
        torch.set_num_threads(threads)  # Ray allows one: with another number than the first rank's, sums would differ
        self._parts = make(self.number, self._exchange)
        if self._exchange is not None and self._exchange.shards is not None:
            self._follower = sample_together(self._parts.context.engine, self._exchange)
        return socket.gethostname(), os.getpid()

    def join(self, host: str, port: int, count: int, shard: int, device: str, timeout: float) -> None:
        """Connect to the other ranks."""
        store = dist.TCPStore(host, port, is_master=False)
        self._exchange = Exchange(store, self.number, count, torch.device(device), timeout, shard)

    # --- Attempts.

    async def attempt(
        self, limits: RolloutConfig, sampling: SamplingParams, start: Start, number: int, session: str
    ) -> Trajectory:
        record = Record(lambda: self._cutoff)
        attempt = self._replica.attempt(self._context(limits, sampling), start, number, session, record)
        task = asyncio.create_task(attempt)
        self._playing[task] = record
        try:
            return await task
        finally:
            del self._playing[task]

    async def action(
        self, limits: RolloutConfig, sampling: SamplingParams, instead_of: Turn, ids: Ids, session: str
    ) -> Turn:
        return await self._replica.action(self._context(limits, sampling), instead_of, ids, session)

    async def tree(
        self,
        limits: RolloutConfig,
        sampling: SamplingParams,
        task: Task,
        session: str,
        attempts: int,
        explore: float,
        puct: bool,
    ) -> Group:
        return await self._replica.tree(self._context(limits, sampling), task, session, attempts, explore, puct)

    def abandon_beyond(self, cutoff: float) -> None:
        self._cutoff = cutoff
        for task, record in list(self._playing.items()):
            record.look(task)

    def release(self) -> None:
        self._cutoff = math.inf
        self._parts.context.engine.release()

    def _context(self, limits: RolloutConfig, sampling: SamplingParams) -> RolloutContext:
        return replace(self._parts.context, limits=limits, sampling=sampling)

    # --- Learning.

    def learn(
        self, work: str, shares: Sequence[Sequence[Microbatch]], passes: int, *arguments: Any
    ) -> tuple[list[Any], float]:
        """What one of the learner's methods makes of this rank's shares, and the seconds it took."""
        return learned(self._parts.learner, work, shares, passes, *arguments)

    @property
    def _between(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    def add_up(self) -> None:
        add_up(self._between, self._parts.learner)

    def step(self, lr_scale: float | None) -> None:
        if lr_scale is not None:
            self._parts.learner.clip()
        self._parts.learner.step(lr_scale)

    def spread(self) -> None:
        spread(self._between, self._parts.learner)

    def follow(self, moved: Sequence[str] | None) -> None:
        """Take over the first rank's heads (None), or its weights and the moments of the parameters that have moved."""
        learner = self._parts.learner
        self._between.copy(learner.head_tensors() if moved is None else learner.trained_tensors(moved))
        if moved is not None and learner.owners:
            learner.restart()
        learner.republish()

    def take(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Take over tensors of the optimizer, of these names and shapes, from the first rank."""
        for name, shape in shapes.items():
            self._parts.learner.hold(name, self._between.receive(shape, 0))

    def held(self) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the optimizer's tensors that this rank holds and the first does not."""
        return {name: tuple(value.shape) for name, value in self._held()}

    def give(self) -> None:
        """Send them to the first rank."""
        for _, value in self._held():
            self._between.send(value, 0)

    def _held(self) -> list[tuple[str, Tensor]]:
        learner = self._parts.learner
        return [(k, v) for k, v in learner.optimizer_tensors().items() if k.partition("/")[2] in learner.owners]

    def close(self) -> None:
        if self._follower is not None:
            self._follower.ended = True
        self._parts.close()
