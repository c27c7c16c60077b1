"""`longloop ...` in a process of its own, which can be killed. To import torch takes seconds: one process does so, and
each command is a fork of that one."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from longloop.cli.main import main

ROOT = Path(__file__).parents[2]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["longloop.learners.local", "longloop.cli.commands", "matplotlib.figure", "scipy.stats"])


class Longloop:
    """A command that has begun."""

    def __init__(self, *arguments: str, first: Callable[[], None] | None = None) -> None:
        """`first` is called in the process before the command."""
        self._output = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._process = _FORKS.Process(target=_run, args=(self._output.name, arguments, first))
        self._process.start()

    def poll(self) -> int | None:
        """How it ended: an exit status, or the signal with a minus; None if it has not."""
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def finish(self, seconds: float = 240) -> tuple[int, str]:
        """How it ended, and what it printed."""
        self._process.join(seconds)
        code = self.poll()
        assert code is not None, "it does not end"
        return code, Path(self._output.name).read_text()


def _run(output: str, arguments: Sequence[str], first: Callable[[], None] | None) -> None:
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.chdir(ROOT)
    sys.argv = ["longloop", *arguments]
    if first:
        first()
    main()
