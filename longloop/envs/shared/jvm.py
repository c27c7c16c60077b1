"""A simulator on a Java virtual machine: started once for the whole process, and taken by one attempt after the other.

Starting a JVM takes seconds, so the next attempt gets the one that is there. It holds one game at a time: who takes it
ends the game of whoever had it. What is asked besides, such as how a task is done, is asked of a second interface of
the simulator, or of a second machine, so that no game is disturbed. A machine that died is replaced when the next
attempt begins.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from longloop.types import UserError

_OPTIONS = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
"""A cap on the heap, an end when it is used up, and the same identity hash for every object: otherwise the order of a
simulator's sets, and with it what it shows and does, would change from one start of a task to the next."""


class Machine:
    def __init__(self, name: str, launch: Callable[[], Any]) -> None:
        """`launch` makes the simulator of the environment `name`, which talks to its JVM through py4j."""
        self._name, self._launch = name, launch
        self._simulator: Any = None
        self._holder: object = None

    def take(self, holder: object) -> Any:
        """The simulator, for this holder alone."""
        simulator = self.running()
        self._holder = holder
        return simulator

    def running(self) -> Any:
        """The simulator, for whoever does not touch its game."""
        if self._simulator is None or self._simulator._gateway.java_process.poll() is not None:
            self._simulator, self._holder = self._start(), None
        return self._simulator

    def of(self, holder: object) -> Any:
        """The simulator, if it is still the holder's."""
        if self._holder is not holder:
            raise RuntimeError(f"{self._name} plays one attempt at a time in a process, and this one's game is gone")
        return self._simulator

    def _start(self) -> Any:
        if shutil.which("java") is None:
            raise UserError(
                f"{self._name} needs Java 8 or newer, and there is no `java` on the PATH. Install it, for instance "
                "with `apt install default-jre-headless`."
            )
        try:
            with _capped():
                return self._launch()
        except ModuleNotFoundError as error:
            raise UserError(
                f"{self._name} needs the package {error.name!r}, which is not installed here. Run `longloop envs "
                f"install {self._name}`."
            ) from error


@contextlib.contextmanager
def _capped() -> Iterator[None]:
    """A JVM started in here runs with our options; those in the user's JAVA_TOOL_OPTIONS come later, and win."""
    given = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join((*_OPTIONS, given or ""))
    try:
        yield
    finally:
        if given is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = given
