"""The contract that every environment must meet, as sentences about the one that does not.

`has_methods` and `tasks_of` look at the class before a run; `expect` is what a rollout holds every answer against.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from longloop.types import Message, Outcome, Step, Task, UserError


class NoTasks(UserError):
    """A split is empty."""


def has_methods(environment: type) -> None:
    """Refuse a class that lacks one of the three methods."""
    for method in ("start", "step", "finish"):
        if not callable(getattr(environment, method, None)):
            raise UserError(
                f"{environment.__name__} has no method {method}(); docs/new-environment.md shows the three it needs."
            )


def tasks_of(environment: type, split: str, options: dict[str, Any]) -> list[Task]:
    """The split's tasks, each a Task with an id of its own."""
    name = environment.__name__
    if not callable(getattr(environment, "tasks", None)):
        raise UserError(f"{name} has no classmethod tasks(split), which must return a list of Task.")
    tasks = environment.tasks(split, **options)  # type: ignore[attr-defined]
    if not isinstance(tasks, Sequence) or not all(isinstance(task, Task) for task in tasks):
        raise UserError(f"{name}.tasks({split!r}) must return a list of Task, but returned {_short(tasks)}.")
    if not tasks:
        raise NoTasks(f"{name} has no tasks in the split {split!r}. Set `split` (or `eval.split`) to one that has.")
    if len({task.id for task in tasks}) < len(tasks):
        raise UserError(f"{name}.tasks({split!r}) has two tasks with the same id; ids must be unique.")
    return list(tasks)


def expect(method: str, answer: Any) -> Any:
    """An environment's answer, with plain numbers and JSON values in it, or a player's; TypeError if it is not what was
    promised."""
    if method == "act":
        if not isinstance(answer, str):
            raise TypeError(f"act() must return a text, but returned {_short(answer)}")
        return answer
    if method == "start":
        if not answer or not _are_messages(answer):
            raise TypeError(f"start() must return a list with at least one Message, but returned {_short(answer)}")
        return answer
    if method == "step":
        if not isinstance(answer, Step):
            raise TypeError(f"step() must return a Step, but returned {_short(answer)}")
        if not _are_messages(answer.messages):
            raise TypeError(f"step() must return a Step whose messages are Messages, but returned {_short(answer)}")
        if not answer.done and not answer.messages:
            raise TypeError("step() returned a Step that is not done but has no message for the agent")
        return replace(answer, reward=_number(method, answer.reward), info=_json(answer.info))
    if not isinstance(answer, Outcome):
        raise TypeError(f"finish() must return an Outcome, but returned {_short(answer)}")
    reward = _number(method, answer.reward)
    return replace(answer, reward=reward, success=bool(answer.success), info=_json(answer.info))


def _number(method: str, reward: Any) -> float:
    if not isinstance(reward, Real) or not math.isfinite(reward):
        raise TypeError(f"{method}() returned the reward {_short(reward)}, which is not a finite number")
    return float(reward)


def _json(info: dict[str, Any]) -> dict[str, Any]:
    """As it will be read from disk; what JSON cannot hold is described."""
    return json.loads(json.dumps(info, default=repr))


def _are_messages(value: Any) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(m, Message) and isinstance(m.role, str) and isinstance(m.content, str) for m in value
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
