"""An environment's class with its options: makes environments, one for each attempt, and knows the tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from longloop.envs.base import Environment
from longloop.envs.contract import tasks_of
from longloop.isolation.guard import Watched
from longloop.isolation.pool import Pool
from longloop.isolation.proxy import remote
from longloop.isolation.watchdog import Span
from longloop.types import Task, UserError

_CONSTRUCTOR = 30.0
"""Seconds after which a line on stderr names a constructor that keeps everything else waiting."""


@dataclass
class Environments:
    """The environment's class with its options. With a pool, environments are made and tasks listed in its workers."""

    environment: type[Environment]
    options: Any
    """An instance of the class's `Options`."""
    pool: Pool | None = None

    def make(self) -> Environment:
        if self.pool is not None:
            return remote(self.environment)(self.pool)
        with Span("the constructor", self.environment, _CONSTRUCTOR, interrupt=False):
            return self.environment(options=self.options)

    def guarded(self, seconds: float) -> Callable[[], Watched]:
        """Return what makes environments for players without a model, with a deadline of `seconds` for each call."""
        return lambda: Watched(self.make, seconds)

    def close(self) -> None:
        """End the workers, if there are any."""
        if self.pool is not None:
            self.pool.close()

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of a split, or of several that are separated by commas."""
        tasks = [task for name in split.split(",") for task in self._tasks(name.strip())]
        if len({task.id for task in tasks}) < len(tasks):
            raise UserError(
                f"split = {split!r}: two of these splits of {self.environment.__name__} have a task with the same id. "
                "Name only one of them."
            )
        return tasks

    def _tasks(self, split: str) -> list[Task]:
        return tasks_of(self.environment, split, self.options) if self.pool is None else self.pool.tasks(split)
