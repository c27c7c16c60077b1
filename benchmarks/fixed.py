"""Environments that go their way whatever the agent says, so that every side of a benchmark does the same work."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from errands.env import Errands
from longloop.envs.base import Environment
from longloop.types import Message, Outcome, Step, Task

_SHORT = ("phone-number-of-someone", "next-meeting", "cost-of-last-order")
"""Done in three turns."""


class Fixed(Environment):
    """So many turns; any number that differs from attempt to attempt is the reward."""

    @dataclass(frozen=True)
    class Options:
        turns: int

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._turn, self._said = 0, ""

    def step(self, action: Message) -> Step:
        self._turn += 1
        self._said += action.content
        messages = self._next()
        return Step(done=True) if self._turn == self.options.turns else Step(messages)

    def finish(self) -> Outcome:
        return Outcome(reward_of(self._said), success=False)

    def _next(self) -> Sequence[Message]:
        raise NotImplementedError


class Words(Fixed):
    """Observes random words; so many tokens a turn, of which `framing` are the chat template's."""

    @dataclass(frozen=True)
    class Options(Fixed.Options):
        observed: int
        framing: int

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._observed = options.observed - options.framing

    @classmethod
    def tasks(cls, split: str, options: Any) -> list[Task]:
        return [Task(str(number), split, {"number": number}) for number in range(100)]

    def start(self, task: Task) -> Sequence[Message]:
        self._number = task.data["number"]
        return [Message("user", words(self._number, 0, self._observed))]

    def _next(self) -> Sequence[Message]:
        # One less than at first: an action that was cut is closed by an end token, which is observed, too.
        return [Message("user", words(self._number, self._turn, self._observed - 1))]


class Uneven(Fixed):
    """Observes random words, of lengths that are set: `opening` at first, then `observed`, or a quarter, half or three
    quarters of each, from task to task."""

    @dataclass(frozen=True)
    class Options(Fixed.Options):
        opening: int
        observed: int
        framing: int

    options: Options

    @classmethod
    def tasks(cls, split: str, options: Any) -> list[Task]:
        return [Task(str(number), split, {"number": number}) for number in range(100)]

    def start(self, task: Task) -> Sequence[Message]:
        self._number = task.data["number"]
        return self._observation(self.options.opening)

    def _next(self) -> Sequence[Message]:
        return self._observation(self.options.observed - 1)  # an action that was cut is closed by an end token

    def _observation(self, most: int) -> Sequence[Message]:
        length = most * (1 + self._number % 4) // 4
        return [Message("user", words(self._number, self._turn, length - self.options.framing))]


class Along(Fixed):
    """An errand that the expert does: what comes back of its own actions is observed."""

    @classmethod
    def tasks(cls, split: str, options: Any) -> list[Task]:
        return [task for task in Errands.tasks(split, Errands.Options()) if task.scenario not in _SHORT]

    def start(self, task: Task) -> Sequence[Message]:
        self._env = Errands(Errands.Options())
        self._expert = self._env.expert(task)
        self._heard = self._env.start(task)
        return self._heard

    def finish(self) -> Outcome:
        self._env.finish()
        return super().finish()

    def _next(self) -> Sequence[Message]:
        self._heard = self._env.step(Message("assistant", self._expert.act(self._heard))).messages
        return self._heard


def words(task: int, turn: int, count: int) -> str:
    """What is observed before a turn: so many words, hence so many ids."""
    draw = random.Random(100 * task + turn)
    return " ".join(f"w{draw.randrange(4000)}" for _ in range(count))


def reward_of(actions: str) -> float:
    return sum(map(ord, actions)) % 11 / 10
