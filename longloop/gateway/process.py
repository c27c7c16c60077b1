"""The process in which an agent or a judge runs, with all that it starts: begun, watched, ended.

In a worker it stays in the worker's process group, so that the worker's limits hold for it and it dies with the worker.
Elsewhere it gets a session of its own.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from longloop.isolation import worker

_KEPT = 4000
"""Bytes of output that are kept."""


class Program:
    """A program that runs. Make it in a running event loop, which reads what it prints."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._output = b""
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """Its exit code, when it has ended."""
        try:
            self._process = subprocess.Popen(
                command,
                env=dict(variables),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=not worker.serving,
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        self._loop.add_reader(self._pipe, self._read)
        threading.Thread(target=self._wait, daemon=True).start()

    @property
    def output(self) -> str:
        """The end of what it printed."""
        self._read()
        return self._output.decode(errors="replace")

    @property
    def last_words(self) -> str:
        """The last line that it printed, to follow a sentence."""
        lines = self.output.strip().splitlines()
        return f"; its last words: {lines[-1][-300:]}" if lines else ""

    async def end(self, patience: float) -> None:
        """Give it some seconds to end by itself, then kill it, and what it started and left behind."""
        await asyncio.wait({self.ended}, timeout=patience)
        self.kill()
        await asyncio.wait({self.ended})

    def kill(self) -> None:
        """Kill it with all that it started."""
        self._read()
        if worker.serving:
            for pid in _group(os.getpgrp()) - {os.getpid()}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._pipe >= 0:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _read(self) -> None:
        if self._pipe < 0:
            return
        with contextlib.suppress(BlockingIOError):
            if found := os.read(self._pipe, 1 << 16):
                self._output = (self._output + found)[-_KEPT:]
            else:
                self._loop.remove_reader(self._pipe)

    def _wait(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._settle, code)

    def _settle(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)


def _group(group: int) -> set[int]:
    """The processes of a process group."""
    found = set()
    for name in os.listdir("/proc"):
        with contextlib.suppress(ValueError, ProcessLookupError):
            if os.getpgid(int(name)) == group:
                found.add(int(name))
    return found
