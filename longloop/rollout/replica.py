"""Where attempts are played. A replica is an engine with environments; a run has one, or one on each rank.

An attempt is the same wherever it is played: its random numbers follow from its session's name.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from longloop.rollout.episode import Record, RolloutContext
from longloop.rollout.search import grow
from longloop.rollout.starts import act, run_from
from longloop.types import Group, Ids, Start, Task, Trajectory, Turn


class Replica(Protocol):
    """Plays what it is given. Of a context, a replica elsewhere takes the limits and the sampling, and has the rest."""

    busy: float
    """Seconds in which it has had something to play."""

    async def attempt(
        self, context: RolloutContext, start: Start, number: int, session: str, record: Record
    ) -> Trajectory:
        """An attempt from a start (starts.run_from). The record says at once if it was abandoned."""
        ...

    async def action(self, context: RolloutContext, instead_of: Turn, ids: Ids, session: str) -> Turn:
        """A single action (starts.act)."""
        ...

    async def tree(
        self, context: RolloutContext, task: Task, session: str, attempts: int, explore: float, puct: bool
    ) -> Group:
        """A search tree (search.grow)."""
        ...

    def abandon_beyond(self, cutoff: float) -> None:
        """Abandon attempts with more sampled tokens than this, until `release`."""
        ...

    def release(self) -> None:
        """Nothing is being played: give working memory back."""
        ...


class LocalReplica:
    """The engine and the environments of this process, which every context has."""

    busy = 0.0

    async def attempt(
        self, context: RolloutContext, start: Start, number: int, session: str, record: Record
    ) -> Trajectory:
        return await run_from(context, start, number, session, record)

    async def action(self, context: RolloutContext, instead_of: Turn, ids: Ids, session: str) -> Turn:
        return await act(context, instead_of, ids, session)

    async def tree(
        self, context: RolloutContext, task: Task, session: str, attempts: int, explore: float, puct: bool
    ) -> Group:
        return await grow(context, task, session, attempts, explore, puct)

    def abandon_beyond(self, cutoff: float) -> None: ...

    def release(self) -> None: ...


class Rooms:
    """Who plays what: at most `size` attempts at a time on each replica. A group goes to the replica with the fewest
    attempts when its first one begins; the others follow it, because they share their opening."""

    def __init__(self, replicas: Sequence[Replica], size: int) -> None:
        self._replicas = replicas
        self._everywhere = asyncio.Semaphore(size * len(replicas))
        self._each = [asyncio.Semaphore(size) for _ in replicas]
        self._load = [0] * len(replicas)
        self._since = [0.0] * len(replicas)
        """When each began to have something to play."""
        self._chosen: dict[int, int] = {}

    @asynccontextmanager
    async def room(self, group: int) -> AsyncIterator[Replica]:
        """Wait for room, and yield where it is."""
        async with self._everywhere:
            number = self._chosen.setdefault(group, self._load.index(min(self._load)))
            if not self._load[number]:
                self._since[number] = time.perf_counter()
            self._load[number] += 1
            try:
                async with self._each[number]:
                    yield self._replicas[number]
            finally:
                self._load[number] -= 1
                if not self._load[number]:
                    self._replicas[number].busy += time.perf_counter() - self._since[number]
