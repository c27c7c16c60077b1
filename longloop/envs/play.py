"""An attempt without a model: a player, who speaks text, plays a task. For experts, baselines, people and tests."""

import asyncio
import contextlib
import inspect
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.calls import spoken
from longloop.envs.contract import expect
from longloop.envs.react import act
from longloop.types import Message, Outcome, Step, Task

_SHOWN = 80
"""Characters of an action that are shown."""


@dataclass(frozen=True)
class Played:
    """The record of an attempt: the messages of both sides, and the verdict."""

    messages: list[Message]
    opening: int
    """How many of them `start` returned. An example in them may have turns of an assistant as well."""
    turns: int
    outcome: Outcome
    states: tuple[str, ...] = ()
    """The key of the state that each action led to; empty texts if the environment gives none."""
    seconds: float = field(default=0.0, compare=False)
    """Spent in the environment's steps."""

    @property
    def said(self) -> list[str]:
        """The player's actions, turn by turn."""
        return [message.content for message in self.messages[self.opening :] if message.role == "assistant"]

    @property
    def ending(self) -> str:
        """How the attempt ended, in words, for someone who wonders why it failed."""
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


def expert_of(env: Environment, task: Task) -> Player | None:
    """Return a player who can do the task, or None if the environment has no expert for its split."""
    if not env.has_expert or (env.expert_splits is not None and task.split not in env.expert_splits):
        return None
    return env.expert(task)


async def play(
    env: Environment, task: Task, player: Player, max_turns: int = 40, patience: float | None = None
) -> Played:
    """Play one attempt from start to finish, and check every answer against the contract.

    An attempt that fails is finished too, so that its worker is given back. `patience` limits its seconds.
    """
    turns, seconds = 0, 0.0
    states: list[str] = []
    try:
        async with asyncio.timeout(patience):
            first = Step.of(expect("start", await answered(env.start(task))))
            arrived: Sequence[Message] = first.messages
            messages = list(arrived)
            opening = len(messages)
            while turns < max_turns and (said := await answered(player.act(arrived))):
                turns += 1
                action = spoken(said, first.tools)
                asked = time.perf_counter()
                step = expect("step", await answered(env.step(action)))
                seconds += time.perf_counter() - asked
                arrived = step.messages
                states.append(key_of(step))
                messages += [action, *arrived]
                if step.done:
                    break
    except BaseException:
        with contextlib.suppress(Exception):
            await answered(env.finish())
        raise
    async with asyncio.timeout(patience):
        outcome = expect("finish", await answered(env.finish()), env.reward_range)
    return Played(messages, opening, turns, outcome, tuple(states), seconds)


def key_of(step: Step) -> str:
    """The key of the state that a step led to; empty if the environment gives none."""
    return str(step.info.get("state", ""))


class Silent:
    """Does nothing at all, which is the floor of every result."""

    def act(self, messages: Sequence[Message]) -> str:
        return ""


class Script:
    """Says given things, one after the other."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)

    def act(self, messages: Sequence[Message]) -> str:
        return next(self._lines, "")


class Random:
    """Takes one of the possible actions at each turn, drawn with a seed."""

    def __init__(self, choices: Callable[[], Sequence[str]], seed: str) -> None:
        self._choices, self._rng = choices, random.Random(seed)

    def act(self, messages: Sequence[Message]) -> str:
        return act("", self._rng.choice(self._choices()))


def cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


async def answered(value: Any) -> Any:
    """Return what a method returned, awaited if it has to be."""
    return await value if inspect.isawaitable(value) else value
