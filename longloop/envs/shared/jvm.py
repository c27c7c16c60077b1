"""A simulator on a Java virtual machine, started once per process and used by one attempt after the other.

Starting a JVM takes seconds, so attempts share it. The JVM runs one game; acquiring it ends the previous owner's game.
Other questions, such as how a task is done, go to a second interface of the simulator or to a second machine, so that
no game is disturbed. A machine that died is replaced when the next attempt begins.
"""

import contextlib
import os
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.play import Random, Script, Silent
from longloop.envs.react import act
from longloop.types import Task, UserError

_OPTIONS = (
    "-Xmx512m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
"""A limit on the heap, an exit when it is used up, and the same identity hash for every object: otherwise the order of
a simulator's sets, and thereby its behavior, would change from one start of a task to the next."""


class Machine:
    def __init__(self, name: str, launch: Callable[[], Any]) -> None:
        """`launch` makes the simulator of the environment `name`, which talks to its JVM through py4j."""
        self._name, self._launch = name, launch
        self._simulator: Any = None
        self._holder: object = None

    def take(self, holder: object) -> Any:
        """Return the simulator, for this holder alone."""
        simulator = self.running()
        self._holder = holder
        return simulator

    def running(self) -> Any:
        """Return the simulator, for a caller that does not touch its game."""
        if self._simulator is None or self._simulator._gateway.java_process.poll() is not None:
            self._simulator, self._holder = self._start(), None
        return self._simulator

    def of(self, holder: object) -> Any:
        """Return the simulator, if the holder still has it."""
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


class Simulated(Environment):
    """A game of such a simulator, whose actions are words and whose experts follow the simulator's gold paths."""

    isolation = "venv"
    reward_range = (0.0, 1.0)
    system = ("java",)

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._left = options.steps or -1

    def expert(self, task: Task) -> Player:
        """Return a player of the gold path, which the simulator makes with the task."""
        return Script([act("", line) for line in self.gold(task)])

    def baselines(self, task: Task) -> dict[str, Player]:
        return {"nothing": Silent(), "random": Random(self.valid, task.id)}

    @abstractmethod
    def gold(self, task: Task) -> Sequence[str]:
        """Return the actions of the gold path."""

    @abstractmethod
    def valid(self) -> list[str]:
        """Return the possible actions, sorted."""


@contextlib.contextmanager
def _capped() -> Iterator[None]:
    """Start JVMs with our options. Those in the user's JAVA_TOOL_OPTIONS come later, and take precedence."""
    given = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join((*_OPTIONS, given or ""))
    try:
        yield
    finally:
        if given is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = given
