"""K attempts at each task, a bounded number at a time, without waiting for the last straggler."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from longloop.rollout.demonstrations import demonstrate, retokenize
from longloop.rollout.episode import Record, RolloutContext, ended, run_episode
from longloop.rollout.expert_states import practise
from longloop.rollout.failure_budget import Faults
from longloop.rollout.search import grow
from longloop.rollout.stragglers import Stragglers
from longloop.types import Group, Task, Trajectory


class GroupRollouts:
    """Runs groups of episodes. `name` sets their random numbers apart from those of other rollouts; `stored` are
    attempts to imitate, task by task; `faults` is given where several rollouts count failures together."""

    def __init__(
        self,
        setting: RolloutContext,
        name: str,
        *,
        abandon: bool = True,
        stored: Sequence[Group] = (),
        faults: Faults | None = None,
    ) -> None:
        self.setting = setting
        self.progress: Callable[[int, int], None] = lambda done, total: None
        self.tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
        """Told of tasks that are set aside."""
        self.faults = faults or Faults(setting.limits.max_failure_share, lambda text: self.tell(text))
        self._name = name
        self._abandon = abandon
        self._stored = {group.task.id: group for group in stored}
        self._shown: dict[str, tuple[Trajectory, ...]] = {}

    def idle(self) -> "GroupRollouts":
        """The same tasks for an agent that does nothing: the floor of every result."""
        limits = self.setting.limits.model_copy(update={"max_turns": 0})
        return GroupRollouts(replace(self.setting, limits=limits), f"{self._name}/idle", abandon=False)

    def apart(self, name: str, setting: RolloutContext) -> "GroupRollouts":
        """The same attempts to imitate in another setting. What is done there is not remembered here."""
        return GroupRollouts(setting, name, abandon=False, stored=list(self._stored.values()))

    async def groups(self, tasks: Sequence[Task], k: int, seed: int, temperatures: Sequence[float] = ()) -> list[Group]:
        """The K attempts at each task. `seed` must differ from call to call: the place in the stream of tasks does.

        Attempt i is sampled at `temperatures[i]`, beginning again when there are fewer; without any, all at the run's.
        """
        settings = [
            replace(self.setting, sampling=replace(self.setting.sampling, temperature=t)) for t in temperatures
        ] or [self.setting]
        limits = self.setting.limits
        gate = asyncio.Semaphore(limits.concurrency)
        # Attempt by attempt, not task by task: every task has its first attempt before any has its second.
        keys = [(place, number) for number in range(k) for place in range(len(tasks))]
        stragglers = Stragglers(len(tasks), k, limits.straggler_cutoff if self._abandon else 1.0, limits.min_scored)
        records = {key: Record(lambda: stragglers.cutoff) for key in keys}

        async def attempt(place: int, number: int) -> Trajectory:
            async with gate:
                if aside := self.faults.instead(tasks[place], number):
                    return self.faults.seen(aside)
                session = f"{self._name}/{seed + place}/{number}"
                setting = settings[number % len(settings)]
                one = await run_episode(setting, tasks[place], number, session, records[place, number])
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
                self.progress(len(keys) - len(pending), len(keys))
        finally:
            for record in records.values():
                record.abandoned = True  # whatever ended this, live environments are to be finished
            await ended(running.values())
            self.setting.engine.release()
        groups = [
            Group(task, tuple(stragglers.judge(running[place, number].result()) for number in range(k)))
            for place, task in enumerate(tasks)
        ]
        self.faults.settle(groups)
        return groups

    async def trees(self, tasks: Sequence[Task], attempts: int, explore: float, seed: int) -> list[Group]:
        """Attempts that branch off one another, for all tasks side by side."""
        gate = asyncio.Semaphore(self.setting.limits.concurrency)

        async def one(place: int) -> Group:
            async with gate:
                if aside := self.faults.instead(tasks[place], 0):
                    return Group(tasks[place], (self.faults.seen(aside),))
                group = await grow(self.setting, tasks[place], f"{self._name}/{seed + place}", attempts, explore)
                return Group(group.task, tuple(map(self.faults.seen, group.trajectories)))

        growing = [asyncio.create_task(one(place)) for place in range(len(tasks))]
        try:
            groups = list(await asyncio.gather(*growing))
        finally:
            await ended(growing)
            self.setting.engine.release()
        self.faults.settle(groups)
        return groups

    async def demonstrations(self, tasks: Sequence[Task]) -> list[Group]:
        """The stored attempts at each task, or the expert's. Kept: an expert does not change as the policy does."""
        for task in tasks:
            if task.id in self._stored:
                stored = self._stored.pop(task.id).trajectories
                self._shown[task.id] = tuple(retokenize(self.setting.chat, trajectory) for trajectory in stored)
        new = {task.id: task for task in tasks if task.id not in self._shown}
        gate = asyncio.Semaphore(self.setting.limits.concurrency)

        async def show(task: Task) -> None:
            async with gate:
                self._shown[task.id] = (self.faults.seen(await demonstrate(self.setting, task)),)
                self.progress(sum(task.id in self._shown for task in tasks), len(tasks))

        showing = [asyncio.create_task(show(task)) for task in new.values()]
        try:
            await asyncio.gather(*showing)
        finally:
            await ended(showing)
        self.progress(len(tasks), len(tasks))
        self.faults.settle(Group(task, self._shown[task.id]) for task in new.values())
        return [Group(task, self._shown[task.id]) for task in tasks]

    async def practise(self, experts: Sequence[Trajectory], times: int, seed: int) -> list[Group]:
        """Each demonstration with so many own actions at every one of its states."""
        return await practise(self.setting, experts, times, self._name, seed, self.progress)

    def retokenize(self, trajectory: Trajectory) -> Trajectory:
        """An attempt of which an algorithm changed the messages; whose it was stays the same."""
        return replace(retokenize(self.setting.chat, trajectory), expert=trajectory.expert)

    def state(self) -> dict[str, Any]:
        return self.faults.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.faults.restore(state)
