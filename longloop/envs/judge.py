"""The verdict on an attempt of an agent: a judge's, or what the agent says of itself."""

import importlib
import importlib.util
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from longloop.types import Message, Outcome, Task, UserError


@dataclass(frozen=True)
class Attempt:
    """What a judge is given."""

    task: Task
    """The whole task, with what the agent was not told (`data["judge"]`, `data["answers"]`)."""
    folder: Path
    """The agent's working folder, as it left it."""
    conversations: tuple[tuple[Message, ...], ...]
    """What agent and policy said, conversation by conversation; the first is the one that it began with."""
    output: str
    """The end of what the agent printed."""
    finished: bool
    """Whether the agent ended by itself. False when its turns or its context were used up."""


def found(where: str, key: str) -> Callable[..., Any]:
    """The function that an option names as `module:function`."""
    module, _, name = where.partition(":")
    try:
        function = getattr(importlib.import_module(module), name) if name else None
    except (ImportError, AttributeError) as error:
        raise UserError(f"env.{key} = {where!r}: {error}.") from error
    if not callable(function):
        raise UserError(f"env.{key} = {where!r} is no function; write it as module:function.")
    return function


async def judged(judge: Callable[..., Any], attempt: Attempt) -> Outcome:
    """A judge's verdict. It may be a plain function or a coroutine."""
    verdict = judge(attempt)
    return outcome_of(await verdict if inspect.isawaitable(verdict) else verdict, "the judge")


def outcome_of(value: Any, whose: str) -> Outcome:
    """A verdict as an outcome: an `Outcome`, a number, or an object with `reward` and, if it likes, `success` and
    `info`. Without `success`, a reward of 1 or more is one."""
    if isinstance(value, Outcome):
        return value
    fields = value if isinstance(value, Mapping) else {"reward": value}
    reward, info = fields.get("reward"), fields.get("info", {})
    if not isinstance(reward, Real) or not math.isfinite(reward) or not isinstance(info, dict):
        raise ValueError(f'{whose} must report a reward, such as {{"reward": 1.0}}, but reported {value!r}'[:300])
    paid = float(reward)
    return Outcome(paid, bool(fields.get("success", paid >= 1)), dict(info))


def reported(file: Path) -> Outcome | None:
    """What an agent wrote about itself to the file $LONGLOOP_OUTCOME; None if it wrote nothing."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return None
    try:
        return outcome_of(json.loads(text), "the agent")
    except json.JSONDecodeError as error:
        raise ValueError(f"the agent's outcome is not JSON: {text[:100]!r}") from error
