"""Workers, processes with an environment's class in them, are lent to one attempt at a time: those of this machine
(pool.py), or of others (cluster/hosts.py).

A worker is lent to the asyncio task that asks for it. It comes back when no environment is open in it any more, or when
the task fails or is cancelled. A task never waits for a second worker while it has one, so any number of workers is
enough. A call without a proper answer (a deadline, a cancellation, a dead worker, nonsense) costs the worker: it is
killed with all its processes, and the next attempt gets another.
"""

import asyncio
import json
import sys
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from longloop.envs.base import Environment
from longloop.envs.contract import ContractError, NoExpert, NoTasks
from longloop.isolation.worker import packed
from longloop.types import Task, UserError

T = TypeVar("T")

_STARTING = 180.0
"""Seconds for a new worker to import the environment and make one; a used one has a tenth of it."""
_SPOKEN = {kind.__name__: kind for kind in (UserError, NoTasks, NoExpert, ContractError)}
"""Errors that keep their class on the way here; of any other, only the name is kept."""


class WorkerLost(Exception):
    """The worker is gone. The text says why."""


class Worker(ABC):
    """One process with an environment's class in it. It serves many attempts, one after the other."""

    def __init__(self) -> None:
        self.load: Mapping[str, Any] = {}
        """Arguments of the first call."""
        self.open = 0
        """The number of environments in it: that of an attempt, and its copies."""
        self.episodes = 0
        self.borrower: asyncio.Task[Any] | None = None
        self.lost = ""
        """Why it is gone; empty while it lives."""
        self._requests = 0

    async def call(self, name: str, read: Callable[[Any], T], **arguments: Any) -> T:
        """Return its answer, read by `read`. What the environment raised is raised here; any other failure kills the
        worker."""
        if self.lost:
            raise WorkerLost(self.lost)
        self._requests += 1
        request = packed({"id": self._requests, "call": name, **arguments})
        try:
            answer = json.loads(await self.exchange(request))
            if answer["id"] != self._requests:
                raise ValueError(f"it answers request {answer['id']!r} but was asked {self._requests}")
            if "error" not in answer:
                return read(answer["value"])
            kind, text = str(answer["error"]), str(answer["text"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.kill(f"the worker's answer to {name}() makes no sense: {type(error).__name__}: {error}")
            raise WorkerLost(self.lost) from None
        except BaseException:
            self.kill(f"the worker was killed, because {name}() was given up")
            raise
        raise _SPOKEN[kind](text) if kind in _SPOKEN else type(kind, (Exception,), {})(text)

    @abstractmethod
    async def exchange(self, frame: bytes) -> bytes:
        """Send a frame; return what the frame of its answer holds. Raises ValueError if that is none, and WorkerLost
        if the worker has died."""

    @abstractmethod
    def begin(self) -> None:
        """Another attempt begins: what was used and printed before does not count."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes of memory that it uses with all its processes."""

    @abstractmethod
    def kill(self, why: str) -> None:
        """Kill it and every process it started. `why` is empty if it died by itself."""


class Gate:
    """Lets at most `size` in at a time, in the order in which they came. The size may change; `look` if it grew."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def turn(self) -> asyncio.Future[None]:
        """Queue up. The future is done when one may enter, and has entered."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.look()
        return turn

    def give_up(self, turn: asyncio.Future[None]) -> None:
        """Leave, or leave the queue."""
        if turn in self._waiting:
            self._waiting.remove(turn)
        else:
            self.leave()

    def leave(self) -> None:
        self._inside -= 1
        self.look()

    def look(self) -> None:
        """Let in whom there is room for."""
        while self._waiting and self._inside < self.size:
            self._inside += 1
            turn = self._waiting.popleft()
            if not turn.done():  # not cancelled; whoever was will give up
                turn.set_result(None)


class Lender(ABC):
    """Lends workers for one environment, at most `size` at a time. A worker is replaced after `episodes` attempts, or
    if it uses half of `memory` MB at the end of one."""

    close: Callable[[], object]
    """Ends all workers."""

    def __init__(self, environment: type[Environment], memory: int, episodes: int) -> None:
        self._name = f"{environment.__module__}:{environment.__qualname__}"
        self._memory, self._episodes = memory, episodes
        self._idle: list[Worker] = []
        self._lent: dict[asyncio.Task[Any], Worker | None] = {}
        """By the task that borrows it; None while the worker is being prepared."""
        self._gates: weakref.WeakKeyDictionary[Any, Gate] = weakref.WeakKeyDictionary()
        """One for each event loop, since a lender outlives them."""
        self._tasks: dict[str, list[Task]] = {}
        self.tell: Callable[[str], None] = lambda text: print(text, file=sys.stderr)
        """Called with a sentence: the number of workers has changed, or they are not watched."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of workers that may be lent at once, as it is now."""

    @abstractmethod
    def spawned(self) -> Worker:
        """Return a new worker, which has to be told to load the environment."""

    async def wait(self, turn: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
        """Wait until it is a task's turn to get a worker."""
        await turn

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of a split, which a worker lists once."""
        if split not in self._tasks:
            with ThreadPoolExecutor(1) as thread:  # an event loop may already run in this one
                self._tasks[split] = thread.submit(asyncio.run, self._ask_for_tasks(split)).result()
        return self._tasks[split]

    async def new(self) -> tuple[Worker, int]:
        """Make an environment in the worker that the running task has, or in the next that is free. Return the worker,
        and the environment's number in it."""
        task = asyncio.current_task()
        assert task is not None
        for old in [old for old in self._lent if old.get_loop().is_closed()]:
            self._take_back(old)  # what was left open there will never be finished
        worker = self._lent.get(task)
        if worker is not None and worker.lost:
            self._take_back(task)
        if task not in self._lent:
            await self._enter(task)
            self._lent[task] = worker = None
            task.add_done_callback(self._ended)
        try:
            if worker is None:
                worker, number = await self._ask("new", int)
                worker.borrower, worker.episodes = task, worker.episodes + 1
                self._lent[task] = worker
            else:
                number = await worker.call("new", int)
        except BaseException:
            if worker is None or worker.lost:
                self._take_back(task)
            raise
        worker.open += 1
        return worker, number

    def closed(self, worker: Worker) -> None:
        """Count one environment less in a worker; without any it can be lent to another task."""
        worker.open -= 1
        task = worker.borrower
        if not worker.open and task is not None and self._lent.get(task) is worker:
            self._take_back(task)

    def _gate(self, task: asyncio.Task[Any]) -> Gate:
        gate = self._gates.setdefault(task.get_loop(), Gate(0))
        gate.size = self.size
        return gate

    async def _enter(self, task: asyncio.Task[Any]) -> None:
        gate = self._gate(task)
        turn = gate.turn()
        try:
            await self.wait(turn, task)
        except BaseException:
            gate.give_up(turn)
            raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._take_back(task)

    def _take_back(self, task: asyncio.Task[Any]) -> None:
        if task in self._lent:
            worker = self._lent.pop(task)
            task.remove_done_callback(self._ended)
            if worker is not None:
                self._keep(worker)
            self._gate(task).leave()

    def _keep(self, worker: Worker) -> None:
        """Keep a worker for the next attempt, unless it is worn out or was left in the middle of one."""
        worn = worker.episodes >= self._episodes or worker.size() > self._memory << 19
        if worn or worker.open or len(self._idle) >= self.size:
            worker.kill("it is not needed any more")
        if not worker.lost:
            self._idle.append(worker)

    async def _ask(self, name: str, read: Callable[[Any], T], **arguments: Any) -> tuple[Worker, T]:
        """Call a free worker; return it and its answer. A used worker that does not answer is replaced, so that what
        one attempt did to it does not cost the next."""
        while True:
            used = bool(self._idle)
            worker = self._idle.pop() if used else self.spawned()
            worker.begin()
            try:
                async with asyncio.timeout(_STARTING / 10 if used else _STARTING):
                    if not used:
                        await worker.call("load", lambda _: None, **worker.load)
                    return worker, await worker.call(name, read, **arguments)
            except WorkerLost:
                if not used:
                    raise
            except TimeoutError:
                if not used:
                    raise WorkerLost(f"the worker did not start within {_STARTING:g} s") from None
            except Exception:
                worker.kill("its environment could not be made")
                raise

    async def _ask_for_tasks(self, split: str) -> list[Task]:
        this = asyncio.current_task()
        assert this is not None
        await self._enter(this)  # and leave with the event loop, which ends after this
        try:
            worker, tasks = await self._ask("tasks", lambda found: [Task(**task) for task in found], split=split)
        except WorkerLost as error:
            raise UserError(f"{self._name} does not run in a worker: {error}.") from error
        self._keep(worker)
        return tasks
