"""K attempts at each task, a bounded number at a time, without waiting for the last straggler."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from longloop.rollout.demos import demonstrate, retold
from longloop.rollout.episode import STRAGGLER, Setting, ended, run_episode
from longloop.rollout.faults import Faults
from longloop.rollout.practice import practise
from longloop.rollout.tree import grow
from longloop.types import Group, StopReason, Task, Trajectory

Running = dict[tuple[int, int], asyncio.Task[Trajectory]]
"""Attempts under way, by the task's place and the attempt's number."""


class GroupRollouts:
    """Runs groups of episodes. `name` sets their random numbers apart from those of other rollouts; `stored` are
    attempts to imitate, task by task."""

    def __init__(self, setting: Setting, name: str, *, abandon: bool = True, stored: Sequence[Group] = ()) -> None:
        self.setting = setting
        self.progress: Callable[[int, int], None] = lambda done, total: None
        self.tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
        """Told of tasks that are set aside."""
        self._faults = Faults(setting.limits.faults, lambda text: self.tell(text))
        self._name = name
        self._abandon = abandon
        self._stored = {group.task.id: group for group in stored}
        self._shown: dict[str, tuple[Trajectory, ...]] = {}

    def idle(self) -> "GroupRollouts":
        """The same tasks for an agent that does nothing: the floor of every result."""
        limits = self.setting.limits.model_copy(update={"max_turns": 0})
        return GroupRollouts(replace(self.setting, limits=limits), f"{self._name}/idle", abandon=False)

    def apart(self, name: str, setting: Setting) -> "GroupRollouts":
        """The same attempts to imitate in another setting. What is done there is not remembered here."""
        return GroupRollouts(setting, name, abandon=False, stored=list(self._stored.values()))

    async def groups(self, tasks: Sequence[Task], k: int, seed: int, temperatures: Sequence[float] = ()) -> list[Group]:
        """The K attempts at each task. `seed` must differ from call to call: the place in the stream of tasks does.

        Attempt i is sampled at `temperatures[i]`, beginning again when there are fewer; without any, all at the run's.
        """
        settings = [replace(self.setting, temperature=t) for t in temperatures] or [self.setting]
        gate = asyncio.Semaphore(self.setting.limits.concurrency)
        abandoned = asyncio.Event()

        async def attempt(place: int, number: int) -> Trajectory:
            try:
                async with gate:
                    if aside := self._faults.instead(tasks[place], number):
                        return self._faults.note(aside)
                    session = f"{self._name}/{seed + place}/{number}"
                    setting = settings[number % len(settings)]
                    one = await run_episode(setting, tasks[place], number, session, abandoned)
                    return self._faults.note(one)
            except asyncio.CancelledError:
                if not abandoned.is_set():
                    raise
                return Trajectory(tasks[place], number, (), 0.0, False, StopReason.CANCELLED, STRAGGLER)

        # Attempt by attempt, not task by task: every task has its first attempt before any has its second.
        keys = [(place, number) for number in range(k) for place in range(len(tasks))]
        running = {key: asyncio.create_task(attempt(*key)) for key in keys}
        try:
            await self._wait(running, len(tasks), k, abandoned)
        finally:
            abandoned.set()  # whatever ended this, live environments are to be finished
            await ended(running.values())
            self.setting.engine.release()
        return [
            Group(task, tuple(running[place, number].result() for number in range(k)))
            for place, task in enumerate(tasks)
        ]

    async def trees(self, tasks: Sequence[Task], attempts: int, explore: float, seed: int) -> list[Group]:
        """Attempts that branch off one another, for all tasks side by side."""
        gate = asyncio.Semaphore(self.setting.limits.concurrency)

        async def one(place: int) -> Group:
            async with gate:
                if aside := self._faults.instead(tasks[place], 0):
                    return Group(tasks[place], (self._faults.note(aside),))
                group = await grow(self.setting, tasks[place], f"{self._name}/{seed + place}", attempts, explore)
                return Group(group.task, tuple(map(self._faults.note, group.trajectories)))

        growing = [asyncio.create_task(one(place)) for place in range(len(tasks))]
        try:
            return list(await asyncio.gather(*growing))
        finally:
            await ended(growing)
            self.setting.engine.release()

    async def demonstrations(self, tasks: Sequence[Task]) -> list[Group]:
        """The stored attempts at each task, or the expert's. Kept: an expert does not change as the policy does."""
        for task in tasks:
            if task.id in self._stored:
                stored = self._stored.pop(task.id).trajectories
                self._shown[task.id] = tuple(retold(self.setting.chat, trajectory) for trajectory in stored)
        new = {task.id: task for task in tasks if task.id not in self._shown}
        gate = asyncio.Semaphore(self.setting.limits.concurrency)

        async def show(task: Task) -> None:
            async with gate:
                self._shown[task.id] = (self._faults.note(await demonstrate(self.setting, task)),)
                self.progress(sum(task.id in self._shown for task in tasks), len(tasks))

        showing = [asyncio.create_task(show(task)) for task in new.values()]
        try:
            await asyncio.gather(*showing)
        finally:
            await ended(showing)
        self.progress(len(tasks), len(tasks))
        return [Group(task, self._shown[task.id]) for task in tasks]

    async def practise(self, experts: Sequence[Trajectory], times: int, seed: int) -> list[Group]:
        """Each demonstration with so many own actions at every one of its states."""
        return await practise(self.setting, experts, times, self._name, seed, self.progress)

    def retold(self, trajectory: Trajectory) -> Trajectory:
        """An attempt of which an algorithm changed the messages; whose it was stays the same."""
        return replace(retold(self.setting.chat, trajectory), expert=trajectory.expert)

    async def _wait(self, running: Running, tasks: int, k: int, abandoned: asyncio.Event) -> None:
        """Until all are done, or enough are: then the rest are abandoned, and say so."""
        pending = set(running.values())
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what no episode may survive
            self.progress(len(running) - len(pending), len(running))
            if self._abandon and pending and self._enough(running, tasks, k):
                abandoned.set()
                for task in pending:
                    task.cancel()
                await asyncio.wait(pending)
                return

    def _enough(self, running: Running, tasks: int, k: int) -> bool:
        limits = self.setting.limits
        done = {key for key, task in running.items() if task.done()}
        if len(done) < limits.enough * len(running):
            return False
        scored = {key for key in done if running[key].result().stop.scored}
        return all(
            sum((place, number) in scored for number in range(k)) >= min(limits.least, k)
            or all((place, number) in done for number in range(k))
            for place in range(tasks)
        )
