"""An environment's class with its options: what makes environments and knows the tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from longloop.envs.contract import tasks_of
from longloop.isolation.guard import Watched
from longloop.isolation.pool import Pool
from longloop.isolation.proxy import remote
from longloop.isolation.watchdog import Span
from longloop.protocols import Environment
from longloop.types import Task, UserError

_CONSTRUCTOR = 30.0
"""Seconds after which stderr is told of a constructor that keeps everything else waiting."""


@dataclass
class Environments:
    """The environment's class with its options, and its tasks. With a pool, both are only used in its workers."""

    environment: type
    options: dict[str, Any]
    pool: Pool | None = None

    def make(self) -> Environment:
        if self.pool is not None:
            in_worker: Any = remote(self.environment)(self.pool)
            return in_worker
        with Span("the constructor", self.environment, _CONSTRUCTOR, interrupt=False):
            return self.environment(**self.options)

    def guarded(self, seconds: float) -> Callable[[], Watched]:
        """Makes environments for players without a model: called as in training, each call with so many seconds."""
        return lambda: Watched(self.make, seconds)

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split, or of several with commas between them, one after the other."""
        tasks = [task for name in split.split(",") for task in self._tasks(name.strip())]
        if len({task.id for task in tasks}) < len(tasks):
            raise UserError(
                f"split = {split!r}: two of these splits of {self.environment.__name__} have a task with the same id. "
                "Name only one of them."
            )
        return tasks

    def _tasks(self, split: str) -> list[Task]:
        return tasks_of(self.environment, split, self.options) if self.pool is None else self.pool.tasks(split)
