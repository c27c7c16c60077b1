"""Workers on this machine: processes that a pool starts, watches, kills and replaces."""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from longloop.envs.base import Environment
from longloop.isolation import confinement, scratch
from longloop.isolation.lending import Lender, Worker, WorkerLost
from longloop.isolation.worker import LONGEST
from longloop.types import UserError

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
_LOOKS = 0.25
"""Seconds between two looks at what workers use; ten times what a look takes, if that is more."""
_LOG = 1 << 26
"""Bytes of output after which a worker's log is emptied."""


class LocalWorker(Worker):
    """A worker whose process is a child of this one."""

    def __init__(
        self, python: str, variables: Mapping[str, str], folder: Path, writes: Sequence[str] = (), disk: int = 2000
    ) -> None:
        """It may write to its own temporary `folder`, `disk` MB of it, and below the folders `writes`."""
        super().__init__()
        self.folder = folder
        self.use = Use()
        self.cpu_before = 0.0
        """Its CPU seconds when it was lent."""
        self.big = False
        """Whether it used too much memory or disk at the last look. Only the second look in a row counts: a process
        that has just been forked briefly has all the memory and open files of its parent."""
        self._condemned = ""
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

    async def exchange(self, frame: bytes) -> bytes:
        try:
            await asyncio.get_running_loop().sock_sendall(self._pipe, frame)
            size = int.from_bytes(await self._read(4))
            if size > LONGEST:
                raise ValueError("it wrote something that is no frame")
            return await self._read(size)
        except (OSError, EOFError):
            self.kill("")
            raise WorkerLost(self.lost) from None

    def begin(self) -> None:
        self.cpu_before = self.use.cpu
        self.forget_log()

    def kill(self, why: str) -> None:
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


@functools.lru_cache(4096)
def _process(pid: int) -> psutil.Process:
    """What reads about a process, made once: making it takes longer than reading. It reads about whichever process has
    the number now."""
    return psutil.Process(pid)


def use_by_group(groups: Collection[int]) -> dict[int, Use]:
    """Return what each of these process groups uses. A group keeps its members even when their parents have ended."""
    found = dict.fromkeys(groups, Use())
    for pid in psutil.pids():
        try:
            group = os.getpgid(pid)
            if group not in found:
                continue
            process = _process(pid)
            resident, spent = process.memory_info().rss, sum(process.cpu_times()[:4])  # its ended children included
        except (ProcessLookupError, psutil.Error):
            continue  # it ended meanwhile
        before = found[group]
        found[group] = Use(before.bytes + resident, before.cpu + spent, (*before.processes, pid))
    return found


class Pool(Lender):
    """Workers for one environment on this machine: at most `size` lent at a time.

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
        super().__init__(environment, memory, episodes)
        self.load = {
            "environment": self._name,
            "options": asdict(options),
            "path": list(path),
            "data_limit": 2 * memory << 20,
        }
        """What a worker is told first."""
        self._disk, self._cpu, self._size = disk, cpu, size
        wanted = {*VARIABLES, *environment.variables}
        kept = {key: value for key, value in os.environ.items() if key in wanted}
        self._python, self._variables = python, kept | {"PYTHONHASHSEED": "0"}  # one order of sets in all workers
        self._workers: set[LocalWorker] = set()
        self._watching: threading.Thread | None = None
        self._writes = [_made(folder, environment) for folder in environment.writes]
        self._folder, lock = scratch.make()
        self._spawnings = 0
        self.close = weakref.finalize(self, _kill_each, self._workers, self._folder, lock)
        """Ends all workers. Also called when the pool is garbage-collected, and when the program ends."""

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that live."""
        return [worker.pid for worker in list(self._workers) if not worker.lost]

    @property
    def size(self) -> int:
        return self._size

    def spawned(self) -> LocalWorker:
        confinement.shield()
        self._spawnings += 1
        folder = self._folder / str(self._spawnings)
        folder.mkdir()
        worker = LocalWorker(self._python, self._variables, folder, self._writes, self._disk)
        worker.load = self.load
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

    def _stored(self, worker: LocalWorker) -> str:
        """Say what is wrong with the files of a worker; empty if nothing is."""
        try:
            if scratch.used(worker.folder, worker.use.processes, self._disk << 20) > self._disk << 20:
                return f"the worker's temporary files take more than {self._disk} MB, which is env.worker_disk"
        except OSError as error:
            return f"the worker's temporary folder cannot be looked into: {error}"
        return ""


def _watch(pool: "weakref.ref[Pool]") -> None:
    """Look at the pool's workers from time to time, for as long as there is a pool. A look that fails is not the last:
    when a machine has no more files or processes to give, limits are needed most."""
    failed = False
    while (here := pool()) is not None:
        began = time.perf_counter()
        try:
            here.look()
        except Exception as error:
            if not failed:
                with contextlib.suppress(Exception):  # nobody may hear it: the disk is full, the terminal gone
                    here.tell(f"Workers of the environment are not watched for the moment: {error!r}.")
            failed = True
        else:
            failed = False
        del here
        time.sleep(max(_LOOKS, 10 * (time.perf_counter() - began)))


def _kill_each(workers: set[LocalWorker], folder: Path, lock: int) -> None:
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
