"""K attempts from each start, a bounded number at a time, without waiting for the last straggler."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from longloop.protocols import How
from longloop.rollout.demonstrations import demonstrate, retokenize
from longloop.rollout.episode import Record, RolloutContext, ended
from longloop.rollout.failure_budget import Faults
from longloop.rollout.replica import LocalReplica, Replica, Rooms, until_played
from longloop.rollout.starts import ids_at
from longloop.rollout.stragglers import Stragglers
from longloop.types import Group, Start, StopReason, Task, Trajectory


class GroupRollouts:
    """Runs groups of episodes. `name` keeps their random numbers apart from those of other rollouts; `stored` are
    demonstrations, task by task; pass `faults` where several rollouts count failures together."""

    def __init__(
        self,
        context: RolloutContext,
        name: str,
        *,
        abandon: bool = True,
        stored: Sequence[Group] = (),
        faults: Faults | None = None,
    ) -> None:
        self.context = context
        self.progress: Callable[[int, int], None] = lambda done, total: None
        self.tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
        """Called with a sentence when a task is set aside."""
        self.replicas: Sequence[Replica] = [LocalReplica()]
        """Where attempts are played; a run on several ranks puts more here."""
        self.faults = faults or Faults(context.limits.max_failure_share, lambda text: self.tell(text))
        self._name = name
        self._abandon = abandon
        self._stored = {group.task.id: group for group in stored}
        self._shown: dict[str, tuple[Trajectory, ...]] = {}
        self._counted: set[str] = set()
        """Tasks whose demonstrations have counted as attempts, also before the run was resumed."""

    def idle(self) -> "GroupRollouts":
        """Rollouts of an agent that does nothing: the floor of every result."""
        limits = self.context.limits.model_copy(update={"max_turns": 0})
        return GroupRollouts(replace(self.context, limits=limits), f"{self._name}/idle", abandon=False)

    def fork_for_probe(self, name: str, context: RolloutContext) -> "GroupRollouts":
        """Rollouts in another context with the same stored demonstrations. They share no state with these."""
        return GroupRollouts(context, name, abandon=False, stored=list(self._stored.values()))

    async def play(self, starts: Sequence[Start], k: int, seed: int, **how: Unpack[How]) -> list[Group]:
        """A group of K attempts from each start; `Rollouts.play` says what the arguments mean."""
        limits, sampling = self.context.limits, self.context.sampling
        if max_turns := how.get("max_turns"):
            limits = limits.model_copy(update={"max_turns": min(max_turns, limits.max_turns)})
        temperatures = how.get("temperatures") or (sampling.temperature,)
        contexts = [
            replace(self.context, sampling=replace(sampling, temperature=t), limits=limits) for t in temperatures
        ]
        if how.get("single_action"):
            return await self._act_once(contexts, starts, k, f"{self._name}/{seed}")
        rooms = Rooms(self.replicas, limits.concurrency)
        # Attempt by attempt, not start by start: each start has its first attempt before any has its second.
        keys = [(index, number) for number in range(k) for index in range(len(starts))]
        stragglers = Stragglers(len(starts), k, limits.straggler_cutoff if self._abandon else 1.0, limits.min_scored)
        records = {key: Record(lambda: stragglers.cutoff) for key in keys}

        async def attempt(index: int, number: int) -> Trajectory:
            start = starts[index]
            async with rooms.room(index) as replica:
                if aside := self.faults.instead(start.task, number):
                    return self.faults.seen(aside)
                session = f"{self._name}/{seed + index}/{number}"
                context = contexts[number % len(contexts)]
                one = await replica.attempt(context, start, number, session, records[index, number])
                return self.faults.seen(one)

        running = {key: asyncio.create_task(attempt(*key)) for key in keys}
        try:
            pending = set(keys)
            while pending:
                await asyncio.wait([running[key] for key in pending], return_when=asyncio.FIRST_COMPLETED)
                for key in [key for key in pending if running[key].done()]:
                    pending.remove(key)
                    one = running[key].result()  # raises what no episode may survive
                    if not records[key].abandoned:
                        stragglers.end(key[0], one)
                for key in pending:
                    records[key].look(running[key])
                for replica in self.replicas:
                    replica.abandon_beyond(stragglers.cutoff)
                self.progress(len(keys) - len(pending), len(keys))
        finally:
            for record in records.values():
                record.abandoned = True  # whatever ended this, live environments are to be finished
            await ended(running.values())
            self._release()
        groups = [
            Group(start.task, tuple(stragglers.judge(running[index, number].result()) for number in range(k)))
            for index, start in enumerate(starts)
        ]
        self.faults.settle(groups)
        return groups

    async def _act_once(
        self, contexts: Sequence[RolloutContext], starts: Sequence[Start], k: int, name: str
    ) -> list[Group]:
        """K attempts from each start that end with one action. A state that fills the context gets none."""
        rooms = Rooms(self.replicas, contexts[0].limits.concurrency)
        states = [ids_at(start) for start in starts]
        finished = 0

        async def attempt(index: int, number: int) -> Trajectory:
            nonlocal finished
            start = starts[index]
            assert start.recorded is not None
            async with rooms.room(id(start.recorded)) as replica:
                instead_of, session = start.recorded.turns[start.turn], f"{name}/{index}/{number}"
                own = await replica.action(contexts[number % len(contexts)], instead_of, states[index], session)
            finished += 1
            self.progress(finished, len(running))
            return Trajectory(
                start.task, number, (*start.turns, own), 0.0, False, StopReason.PRACTISED, replayed=len(start.turns)
            )

        # From the end: the longest state of an attempt is read once, and the earlier ones are beginnings of it.
        running = {
            (index, number): asyncio.create_task(attempt(index, number))
            for index in reversed(range(len(starts)))
            if len(states[index]) < contexts[0].limits.context
            for number in range(k)
        }
        try:
            await asyncio.gather(*running.values())
        finally:
            await ended(running.values())
            self._release()
        return [
            Group(start.task, tuple(running[index, n].result() for n in range(k) if (index, n) in running))
            for index, start in enumerate(starts)
        ]

    def _release(self) -> None:
        self.context.engine.release()
        for replica in self.replicas:
            replica.release()

    async def trees(
        self, tasks: Sequence[Task], attempts: int, explore: float, seed: int, *, puct: bool = False
    ) -> list[Group]:
        """A group of attempts that branch off one another for each task (search.py), all tasks concurrently."""
        rooms = Rooms(self.replicas, self.context.limits.concurrency)

        async def one(index: int) -> Group:
            async with rooms.room(index) as replica:
                if aside := self.faults.instead(tasks[index], 0):
                    return Group(tasks[index], (self.faults.seen(aside),))
                session = f"{self._name}/{seed + index}"
                group = await replica.tree(self.context, tasks[index], session, attempts, explore, puct)
                return Group(group.task, tuple(map(self.faults.seen, group.trajectories)))

        growing = [asyncio.create_task(one(index)) for index in range(len(tasks))]
        try:
            groups = list(await asyncio.gather(*growing))
        finally:
            await ended(growing)
            self._release()
        self.faults.settle(groups)
        return groups

    async def demonstrations(self, tasks: Sequence[Task]) -> list[Group]:
        """The stored demonstrations of each task, or the expert's attempt, which is made once and kept."""
        for task in tasks:
            if task.id in self._stored:
                stored = self._stored.pop(task.id).trajectories
                self._shown[task.id] = tuple(retokenize(self.context.chat, trajectory) for trajectory in stored)
        new = {task.id: task for task in tasks if task.id not in self._shown}
        gate = asyncio.Semaphore(self.context.limits.concurrency)

        async def show(task: Task) -> None:
            async with gate:
                shown = await until_played(lambda: demonstrate(self.context, task))
                self._shown[task.id] = (self.faults.seen(shown),)
                self.progress(sum(task.id in self._shown for task in tasks), len(tasks))

        showing = [asyncio.create_task(show(task)) for task in new.values()]
        try:
            await asyncio.gather(*showing)
        finally:
            await ended(showing)
        self.progress(len(tasks), len(tasks))
        self.faults.settle(Group(task, self._shown[id]) for id, task in new.items() if id not in self._counted)
        self._counted.update(new)
        return [Group(task, self._shown[task.id]) for task in tasks]

    def retokenize(self, trajectory: Trajectory) -> Trajectory:
        """An attempt of which an algorithm changed the messages; whose it was stays the same."""
        return replace(retokenize(self.context.chat, trajectory), expert=trajectory.expert)

    def state(self) -> dict[str, Any]:
        return self.faults.state() | {"demonstrations": sorted(self._counted)}

    def restore(self, state: dict[str, Any]) -> None:
        self.faults.restore(state)
        self._counted = set(state.get("demonstrations", ()))
