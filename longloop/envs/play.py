"""An attempt without a model: someone who speaks text plays a task. For experts, baselines, people and tests."""

import asyncio
import contextlib
import inspect
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.envs.contract import expect
from longloop.envs.react import act
from longloop.protocols import Player
from longloop.types import Message, Outcome, Task

_SHOWN = 80
"""Characters that are shown of what was said."""


@dataclass(frozen=True)
class Played:
    """What was said, by both sides, and the verdict."""

    messages: list[Message]
    turns: int
    outcome: Outcome
    seconds: float = field(default=0.0, compare=False)
    """Spent in the environment's steps."""

    @property
    def said(self) -> list[str]:
        """What the player said, turn by turn."""
        return [message.content for message in self.messages if message.role == "assistant"]

    @property
    def ending(self) -> str:
        """How it ended, for someone who wonders why it failed."""
        paid = f"it was paid {self.outcome.reward:g} after {self.turns} turn{'s' * (self.turns != 1)}"
        tests = self.outcome.info.get("tests")
        failed = [str(test.get("name")) for test in tests or () if isinstance(test, dict) and not test.get("passed")]
        if failed:
            return f"{paid}, failing {cut(', '.join(failed))}"
        if not self.said:
            return f"{paid}, saying nothing"
        last = self.messages[-1]
        heard = f", and the answer was {cut(last.content)!r}" if last.role != "assistant" else ""
        return f"{paid}; its last words were {cut(self.said[-1])!r}{heard}"


def expert_of(env: Any, task: Task) -> Player | None:
    """Who can do the task; None where the environment has no expert, or none for the task's split."""
    if hasattr(env, "expert") and task.split in getattr(env, "expert_splits", (task.split,)):
        return env.expert(task)
    return None


async def play(env: Any, task: Task, player: Player, max_turns: int = 40, patience: float | None = None) -> Played:
    """One attempt, from start to finish; every answer is held against the contract.

    One that fails is finished too, to give back its worker. Where it lives in one, it has `patience` seconds.
    """
    leave = getattr(env, "leave", env.finish)  # what was given up may still run: who is guarded does not wait for it
    turns, seconds = 0, 0.0
    try:
        async with asyncio.timeout(patience):
            arrived: Sequence[Message] = expect("start", await answered(env.start(task)))
            messages = list(arrived)
            while turns < max_turns and (said := await answered(player.act(arrived))):
                turns += 1
                action = Message("assistant", said)
                asked = time.perf_counter()
                step = expect("step", await answered(env.step(action)))
                seconds += time.perf_counter() - asked
                arrived = step.messages
                messages += [action, *arrived]
                if step.done:
                    break
    except BaseException:
        with contextlib.suppress(Exception):
            await answered(leave())
        raise
    async with asyncio.timeout(patience):
        return Played(messages, turns, expect("finish", await answered(env.finish()), env), seconds)


class Silent:
    """Does nothing at all: the floor of every result."""

    def act(self, messages: Sequence[Message]) -> str:
        return ""


class Script:
    """Says given things, one after the other."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)

    def act(self, messages: Sequence[Message]) -> str:
        return next(self._lines, "")


class Random:
    """Does any of the actions that there are at each turn, drawn with a seed."""

    def __init__(self, choices: Callable[[], Sequence[str]], seed: str) -> None:
        self._choices, self._rng = choices, random.Random(seed)

    def act(self, messages: Sequence[Message]) -> str:
        return act("", self._rng.choice(self._choices()))


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


async def answered(value: Any) -> Any:
    """What a method returned, also where it has to be awaited."""
    return await value if inspect.isawaitable(value) else value
