"""An attempt without a model: someone who speaks text plays a task. For experts, baselines, people and tests."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longloop.interfaces import Player
from longloop.types import Message, Outcome, Task


@dataclass(frozen=True)
class Played:
    """What was said, by both sides, and the verdict."""

    messages: list[Message]
    turns: int
    outcome: Outcome


async def play(env: Any, task: Task, player: Player, max_turns: int = 40) -> Played:
    """One attempt, from start to finish."""
    turns = 0
    arrived: Sequence[Message] = await answered(env.start(task))
    messages = list(arrived)
    while turns < max_turns and (said := await answered(player.act(arrived))):
        turns += 1
        action = Message("assistant", said)
        step = await answered(env.step(action))
        arrived = step.messages
        messages += [action, *arrived]
        if step.done:
            break
    return Played(messages, turns, await answered(env.finish()))


class Silent:
    """Does nothing at all: the floor of every result."""

    def act(self, messages: Sequence[Message]) -> str:
        return ""


class Script:
    """Says given things, one after the other."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = iter(lines)

    def act(self, messages: Sequence[Message]) -> str:
        return next(self._lines, "")


async def answered(value: Any) -> Any:
    """What a method returned, also where it has to be awaited."""
    return await value if inspect.isawaitable(value) else value
