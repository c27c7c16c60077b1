"""Reads the arguments of an API call in another process, which may be lost.

Converting a value can take for ever (tame.py), and nothing stops it: it holds the interpreter's lock. So arguments that
might be such are read by a process of their own, out of a copy of the suspended sandbox. The kernel ends a reader that
needs more than `SECONDS` of CPU time, and the next call starts another.
"""

import atexit
import functools
import pickle
import queue
import resource
import signal
import struct
import subprocess
import sys
from typing import IO, Any

from pydantic_monty import FunctionSnapshot, Monty

from errands.values import Arguments, TooLarge, Unreadable, arguments

Process = subprocess.Popen[bytes]

SECONDS = 0.5
MEMORY = 2**30
_READERS = 2
_TRIES = 3
"""Readers that may be found dead, or die of something else than their limit, before an error is raised."""


class ReaderError(Exception):
    """Readers fail for a reason of their own, which is not the agent's."""


def read(state: bytes) -> Arguments | None:
    """The arguments of the call at which a sandbox was suspended, from its dump; None if that takes too long.

    Raises TooLarge when they are beyond the limits, and Unreadable when they cannot be converted.
    """
    for _ in range(_TRIES):
        process = _readers().get()
        try:
            process = process or _started()
            found = _asked(process, state)
        except (OSError, EOFError):
            ended, process = process, None
            if ended is not None and ended.wait() == -signal.SIGPROF:
                return None
        else:
            if isinstance(found, TooLarge | Unreadable):
                raise found
            return found
        finally:
            _readers().put(process)
    raise ReaderError(f"{_TRIES} processes that read the sandbox's values failed; their errors are on stderr")


def serve() -> None:
    """Answer requests on stdin until it ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with Monty(min_processes=1, max_processes=1) as pool:
        while header := sys.stdin.buffer.read(4):
            state = sys.stdin.buffer.read(struct.unpack(">I", header)[0])
            with pool.checkout() as session:
                asked = session.load_snapshot(state)
                assert isinstance(asked, FunctionSnapshot)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                try:
                    found: Arguments | TooLarge | Unreadable = arguments(asked)
                except TooLarge as error:
                    found = error
                except Exception:  # whatever the agent's values do, such as a key that cannot be hashed
                    found = Unreadable()
                signal.setitimer(signal.ITIMER_PROF, 0)
            _send(sys.stdout.buffer, pickle.dumps(found))


def _asked(process: Process, state: bytes) -> Any:
    assert process.stdin is not None and process.stdout is not None
    _send(process.stdin, state)
    header = process.stdout.read(4)
    if len(header) < 4:
        process.stdout.close()
        raise EOFError
    return pickle.loads(process.stdout.read(struct.unpack(">I", header)[0]))


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(struct.pack(">I", len(content)) + content)
    pipe.flush()


def _started() -> Process:
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@functools.cache
def _readers() -> "queue.LifoQueue[Process | None]":
    """The idle readers; None stands for one that has to be started."""
    readers: queue.LifoQueue[Process | None] = queue.LifoQueue()
    for _ in range(_READERS):
        readers.put(None)
    atexit.register(_end, readers)
    return readers


def _end(readers: "queue.LifoQueue[Process | None]") -> None:
    while not readers.empty():
        process = readers.get()
        if process is not None:
            process.communicate()  # closes stdin, at which it ends
