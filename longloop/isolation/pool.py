"""The trainer's side of worker processes: a pool lends them to one attempt at a time, watches, kills and replaces them.

A worker is lent to the asyncio task that asks for it. It comes back when no environment is open in it any more, or when
the task fails or is cancelled. A task never waits for a second worker while it has one, so any number of workers is
enough. A call without a proper answer (a deadline, a cancellation, a dead worker, nonsense) costs the worker: it is
killed with all its processes, and the next attempt gets another.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from longloop.envs.base import Environment
from longloop.envs.contract import ContractError, NoExpert, NoTasks
from longloop.isolation import confinement, scratch
from longloop.isolation.worker import LONGEST, packed
from longloop.types import Task, UserError

T = TypeVar("T")

_PACKAGE = Path(__file__).parents[1] / "__init__.py"
_BEGIN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("longloop", sys.argv[1], submodule_search_locations=[sys.argv[2]])
sys.modules["longloop"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["longloop"])
from longloop.isolation.worker import serve
serve(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
"""
"""The program of a worker. It imports this longloop, and nothing else that is installed beside it."""
VARIABLES = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "XDG_CACHE_HOME"),
    *("JAVA_HOME", "LD_LIBRARY_PATH", "LONGLOOP_DATA"),
)
"""Environment variables that a worker gets, beside those that the environment's class names."""
_STARTING = 180.0
"""Seconds for a new worker to import the environment and make one; a used one has a tenth of it."""
_SPOKEN = {kind.__name__: kind for kind in (UserError, NoTasks, NoExpert, ContractError)}
"""Errors that keep their class on the way here; of any other, only the name is kept."""
_LOOKS = 0.25
"""Seconds between two looks at what workers use; ten times what a look takes, if that is more."""
_LOG = 1 << 26
"""Bytes of output after which a worker's log is emptied."""


class WorkerLost(Exception):
    """The worker is gone. The text says why."""


class Worker:
    """One process with an environment's class in it. It serves many attempts, one after the other."""

    def __init__(
        self, python: str, variables: Mapping[str, str], folder: Path, writes: Sequence[str] = (), disk: int = 2000
    ) -> None:
        """It may write to its own temporary `folder`, `disk` MB of it, and below the folders `writes`."""
        self.folder = folder
        self.open = 0
        """The number of environments in it: that of an attempt, and its copies."""
        self.episodes = 0
        self.borrower: asyncio.Task[Any] | None = None
        self.use = Use()
        self.cpu_before = 0.0
        """Its CPU seconds when it was lent."""
        self.big = False
        """Whether it used too much memory or disk at the last look. Only the second look in a row counts: a process
        that has just been forked briefly has all the memory and open files of its parent."""
        self.lost = ""
        """Why it is gone; empty while it lives."""
        self._condemned = ""
        self._requests = 0
        self._log = tempfile.TemporaryFile("a+b", buffering=0)  # noqa: SIM115  (it lives as long as the worker)
        self._pipe, theirs = socket.socketpair()
        self._pipe.setblocking(False)
        java = f"-Djava.io.tmpdir={folder} {variables.get('JAVA_TOOL_OPTIONS', '')}"  # Java does not look at TMPDIR
        with theirs:
            descriptor = theirs.fileno()
            limits = str(disk << 20), str(folder), *writes
            self._process = subprocess.Popen(
                [python, "-c", _BEGIN, str(_PACKAGE), str(_PACKAGE.parent), str(descriptor), *limits],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**variables, "TMPDIR": str(folder), "JAVA_TOOL_OPTIONS": java},
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        self.pid = self._process.pid

    async def call(self, name: str, read: Callable[[Any], T], **arguments: Any) -> T:
        """Return its answer, read by `read`. What the environment raised is raised here; any other failure kills the
        worker."""
        if self.lost:
            raise WorkerLost(self.lost)
        self._requests += 1
        request = packed({"id": self._requests, "call": name, **arguments})
        try:
            await asyncio.get_running_loop().sock_sendall(self._pipe, request)
            size = int.from_bytes(await self._read(4))
            if size > LONGEST:
                raise ValueError("it wrote something that is no frame")
            answer = json.loads(await self._read(size))
            if answer["id"] != self._requests:
                raise ValueError(f"it answers request {answer['id']!r} but was asked {self._requests}")
            if "error" not in answer:
                return read(answer["value"])
            kind, text = str(answer["error"]), str(answer["text"])
        except (OSError, EOFError):
            self.kill("")
            raise WorkerLost(self.lost) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.kill(f"the worker's answer to {name}() makes no sense: {type(error).__name__}: {error}")
            raise WorkerLost(self.lost) from None
        except BaseException:
            self.kill(f"the worker was killed, because {name}() was given up")
            raise
        raise _SPOKEN[kind](text) if kind in _SPOKEN else type(kind, (Exception,), {})(text)

    def kill(self, why: str) -> None:
        """Kill it and every process it started. `why` is empty if it died by itself."""
        if self.lost:
            return
        self._kill_all()  # before its pid can be reused
        self.lost = self._condemned or why or self._death()
        self._pipe.close()

    def condemn(self, why: str) -> None:
        """Kill it from the watching thread; whoever uses it learns why."""
        if not self.lost and not self._condemned:
            self._condemned = why
            self._kill_all()

    def size(self) -> int:
        """Return its bytes of memory: those of all its processes at the last look, or its own now, if that is more."""
        try:
            now = psutil.Process(self.pid).memory_info().rss
        except psutil.Error:
            now = 0  # it has ended
        return max(now, self.use.bytes)

    def gone(self, seconds: float = 0.0) -> bool:
        """Whether it was lost and has ended. Reaps the process."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return bool(self.lost) and self._process.wait(seconds) is not None
        return False

    def dead(self) -> bool:
        """Whether it has ended, for whatever reason. Does not reap it, so its pid is not reused before `kill`."""
        with contextlib.suppress(ChildProcessError):  # another thread is reaping it
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def forget_log(self, above: int = 0) -> None:
        """Empty the log if it has more bytes than `above`."""
        if os.fstat(self._log.fileno()).st_size > above:
            self._log.truncate(0)

    async def _read(self, size: int) -> bytes:
        loop, found = asyncio.get_running_loop(), bytearray()
        while len(found) < size:
            part = await loop.sock_recv(self._pipe, min(size - len(found), 1 << 20))
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def _kill_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _death(self) -> str:
        """Say how it ended, and the last line that it printed."""
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return "the worker closed its pipe"
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        tail = os.pread(self._log.fileno(), 2000, max(0, os.fstat(self._log.fileno()).st_size - 2000))
        lines = tail.decode(errors="replace").strip().splitlines()
        return f"the worker {ended}" + (f"; its last words: {lines[-1][-300:]}" if lines else "")


@dataclass(frozen=True)
class Use:
    """What all processes of a worker use together."""

    bytes: int = 0
    cpu: float = 0.0
    """Seconds since they began."""
    processes: tuple[int, ...] = ()


def use_by_group(groups: Collection[int]) -> dict[int, Use]:
    """Return what each of these process groups uses. A group keeps its members even when their parents have ended."""
    found = dict.fromkeys(groups, Use())
    for pid in psutil.pids():
        try:
            group = os.getpgid(pid)
            if group not in found:
                continue
            process = psutil.Process(pid)
            with process.oneshot():
                resident, spent = process.memory_info().rss, sum(process.cpu_times()[:4])  # its ended children included
        except (ProcessLookupError, psutil.Error):
            continue  # it ended meanwhile
        before = found[group]
        found[group] = Use(before.bytes + resident, before.cpu + spent, (*before.processes, pid))
    return found


class Pool:
    """Workers for one environment: at most `size` lent at a time.

    A worker that uses more than `memory` MB, more than `disk` MB for files, or more than `cpu` seconds in one attempt
    is killed at once. After `episodes` attempts, or with half of the memory in use at the end of one, it is replaced.
    It is confined (confinement.py) and has a temporary folder of its own, which is removed when it ends.
    """

    def __init__(
        self,
        environment: type[Environment],
        options: Any,
        *,
        python: str,
        path: Sequence[str],
        size: int,
        memory: int,
        disk: int,
        cpu: float,
        episodes: int,
    ) -> None:
        self._memory, self._disk, self._cpu, self._episodes, self._size = memory, disk, cpu, episodes, size
        self._load = {
            "environment": f"{environment.__module__}:{environment.__qualname__}",
            "options": asdict(options),
            "path": list(path),
            "data_limit": 2 * memory << 20,
        }
        wanted = {*VARIABLES, *environment.variables}
        kept = {key: value for key, value in os.environ.items() if key in wanted}
        self._python, self._variables = python, kept | {"PYTHONHASHSEED": "0"}  # one order of sets in all workers
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._lent: dict[asyncio.Task[Any], Worker | None] = {}
        """By the task that borrows it; None while the worker is being prepared."""
        self._gates: weakref.WeakKeyDictionary[Any, asyncio.Semaphore] = weakref.WeakKeyDictionary()
        """One for each event loop, since a pool outlives them."""
        self._watching: threading.Thread | None = None
        self._tasks: dict[str, list[Task]] = {}
        self._writes = [_made(folder, environment) for folder in environment.writes]
        self._folder, lock = scratch.make()
        self._spawnings = 0
        self.close = weakref.finalize(self, _kill_each, self._workers, self._folder, lock)
        """Ends all workers. Also called when the pool is garbage-collected, and when the program ends."""

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that live."""
        return [worker.pid for worker in list(self._workers) if not worker.lost]

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
        if task not in self._lent:
            await self._gate(task).acquire()
            self._lent[task] = None
            task.add_done_callback(self._ended)
        worker = self._lent[task]
        try:
            if worker is None or worker.lost:
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

    def _gate(self, task: asyncio.Task[Any]) -> asyncio.Semaphore:
        return self._gates.setdefault(task.get_loop(), asyncio.Semaphore(self._size))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._take_back(task)

    def _take_back(self, task: asyncio.Task[Any]) -> None:
        if task in self._lent:
            worker = self._lent.pop(task)
            task.remove_done_callback(self._ended)
            self._gate(task).release()
            if worker is not None:
                self._keep(worker)

    def _keep(self, worker: Worker) -> None:
        """Keep a worker for the next attempt, unless it is worn out or was left in the middle of one."""
        worn = worker.episodes >= self._episodes or worker.size() > self._memory << 19
        if worn or worker.open or len(self._idle) >= self._size:
            worker.kill("it is not needed any more")
        if not worker.lost:
            self._idle.append(worker)

    async def _ask(self, name: str, read: Callable[[Any], T], **arguments: Any) -> tuple[Worker, T]:
        """Call a free worker; return it and its answer. A used worker that does not answer is replaced, so that what
        one attempt did to it does not cost the next."""
        while True:
            used = bool(self._idle)
            worker = self._idle.pop() if used else self._spawned()
            worker.cpu_before = worker.use.cpu
            worker.forget_log()
            try:
                async with asyncio.timeout(_STARTING / 10 if used else _STARTING):
                    if not used:
                        await worker.call("load", lambda _: None, **self._load)
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
        try:
            worker, tasks = await self._ask("tasks", lambda found: [Task(**task) for task in found], split=split)
        except WorkerLost as error:
            raise UserError(f"{self._load['environment']} does not run in a worker: {error}.") from error
        self._keep(worker)
        return tasks

    def _spawned(self) -> Worker:
        confinement.shield()
        self._spawnings += 1
        folder = self._folder / str(self._spawnings)
        folder.mkdir()
        worker = Worker(self._python, self._variables, folder, self._writes, self._disk)
        self._workers.add(worker)
        if self._watching is None:
            self._watching = threading.Thread(target=_watch, args=(weakref.ref(self),), daemon=True)
            self._watching.start()
        return worker

    def look(self) -> None:
        """Kill the workers that use too much, and remove those that are lost."""
        workers = list(self._workers)
        use = use_by_group({worker.pid for worker in workers}) if workers else {}
        for worker in workers:
            if worker.dead():
                with contextlib.suppress(ValueError):  # a borrower learns of it by its next call
                    self._idle.remove(worker)
                    worker.kill("")
            if worker.gone():
                self._workers.discard(worker)
                scratch.remove(worker.folder)
                continue
            worker.forget_log(above=_LOG)
            worker.use = use[worker.pid]
            used, cpu = worker.use.bytes >> 20, worker.use.cpu - worker.cpu_before
            stored = self._stored(worker)
            if used > self._memory and worker.big:
                worker.condemn(f"the worker used {used} MB and env.worker_memory is {self._memory}")
            elif stored and worker.big:
                worker.condemn(stored)
            elif cpu > self._cpu:
                worker.condemn(f"the attempt used {cpu:.0f} s of CPU and env.worker_cpu is {self._cpu:g}")
            worker.big = used > self._memory or bool(stored)

    def _stored(self, worker: Worker) -> str:
        """Say what is wrong with the files of a worker; empty if nothing is."""
        try:
            if scratch.used(worker.folder, worker.use.processes, self._disk << 20) > self._disk << 20:
                return f"the worker's temporary files take more than {self._disk} MB, which is env.worker_disk"
        except OSError as error:
            return f"the worker's temporary folder cannot be looked into: {error}"
        return ""


def _watch(pool: "weakref.ref[Pool]") -> None:
    """Look at the pool's workers from time to time, for as long as there is a pool."""
    while (here := pool()) is not None:
        began = time.perf_counter()
        here.look()
        del here
        time.sleep(max(_LOOKS, 10 * (time.perf_counter() - began)))


def _kill_each(workers: set[Worker], folder: Path, lock: int) -> None:
    last = list(workers)
    for worker in last:
        worker.kill("the pool was closed")
    for worker in last:
        worker.gone(5)
    scratch.remove(folder)
    os.close(lock)


def _made(folder: str, environment: type[Environment]) -> str:
    """Make a folder that an environment's class names in `writes`, since only one that exists can be allowed."""
    path = Path(folder).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{environment.__name__}.writes names {folder}, which is no folder and cannot be made: {error.strerror}."
        ) from error
    return str(path)
