"""`longloop ...` and other Python programs in processes of their own, which can be killed. To import torch takes
seconds: one process does so, and each program is a fork of that one. What ranks need (gloo.py) it has imported as well.

A program has the environment variables it is given, but for what torch and transformers read when they are imported,
such as OMP_NUM_THREADS. The commands are imported by the program itself: their console reads the terminal's size.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["longloop.api", "longloop.learners.local", "matplotlib.figure", "scipy.stats", "peft", "tests.support.shards"]
)


class Program:
    """A Python file that has begun to run, as `python FILE ARGUMENTS` would run it."""

    def __init__(self, file: Path, *arguments: str, folder: Path, variables: Mapping[str, str] = os.environ) -> None:
        self._output, self._errors = tempfile.NamedTemporaryFile(), tempfile.NamedTemporaryFile()  # noqa: SIM115
        standard = (self._output.name, self._errors.name)
        self._process = _begun(standard, folder, variables, _run_file, file, arguments)

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

    @property
    def errors(self) -> str:
        """What it has printed to stderr."""
        return Path(self._errors.name).read_text()


class Longloop(Program):
    """A command that has begun. What it prints to stderr is with what it prints to stdout."""

    def __init__(
        self,
        *arguments: str,
        first: Callable[[], None] | None = None,
        variables: Mapping[str, str] = os.environ,
        terminal: str = "",
    ) -> None:
        """`first` is called in the process before the command. With the name of a `terminal`, it prints there."""
        self._output = self._errors = tempfile.NamedTemporaryFile()  # noqa: SIM115
        standard = (terminal or self._output.name,) * 2
        self._process = _begun(standard, ROOT, variables, _run_command, arguments, first)


def _begun(
    standard: tuple[str, str], folder: Path, variables: Mapping[str, str], run: Callable[..., None], *arguments: object
) -> BaseProcess:
    process = FORKS.Process(target=_fork, args=(standard, folder, dict(variables), run, arguments))
    process.start()
    return process


def _fork(
    standard: tuple[str, str],
    folder: Path,
    variables: dict[str, str],
    run: Callable[..., None],
    arguments: tuple[object, ...],
) -> None:
    for number, name in enumerate(standard, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY), number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    run(*arguments)


def _run_file(file: Path, arguments: tuple[str, ...]) -> None:
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.parent))
    runpy.run_path(str(file), run_name="__main__")


def _run_command(arguments: tuple[str, ...], first: Callable[[], None] | None) -> None:
    from longloop.cli.main import main

    sys.argv = ["longloop", *arguments]
    if first:
        first()
    main()
