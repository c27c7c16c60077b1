"""A guessing game: find a hidden number from "higher" and "lower". Small enough to learn from nothing in a minute.

The number is hidden from the agent, so every split has the same tasks, one for each number. Random guesses find it in
tries/highest of the cases; halving the range finds every one of 1..7 in three tries.
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass

from longloop.envs.base import Environment
from longloop.types import Message, Outcome, Step, Task


class Guess(Environment):
    @dataclass(frozen=True)
    class Options:
        highest: int = 7
        """The hidden number is one of 1 to this."""
        tries: int = 3
        """Guesses that an attempt has."""

    options: Options
    reward_range = (0.0, 1.0)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._tries = options.tries
        self._low, self._high = 1, options.highest
        """What the answers leave possible."""
        self._found = False

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if split not in cls.splits:
            return []
        highest = options.highest
        return [
            Task(f"guess-{n}-of-{highest}", split, {"number": n, "answers": [str(n)]}) for n in range(1, highest + 1)
        ]

    async def start(self, task: Task) -> Sequence[Message]:
        self._number: int = task.data["number"]
        return [Message("user", f"guess 1-{self.options.highest}")]

    async def step(self, action: Message) -> Step:
        self._tries -= 1
        said = re.search(r"\d+", action.content)
        guess = int(said.group()[:9]) if said else None  # an action is any text: a bad one is feedback, not an error
        self._found = guess == self._number
        if self._found or self._tries == 0:
            return Step(done=True)
        if guess is None:
            answer = "number?"
        elif guess < self._number:
            answer, self._low = "higher", max(self._low, guess + 1)
        else:
            answer, self._high = "lower", min(self._high, guess - 1)
        state = f"{self._low}-{self._high}, {self._tries} left"
        return Step([Message("user", answer)], info={"state": state, "failed": guess is None})

    async def finish(self) -> Outcome:
        return Outcome(reward=float(self._found), success=self._found)

    def fork(self) -> "Guess":
        return copy.copy(self)

    def expert(self, task: Task) -> "Halver":
        return Halver(self.options.highest)


class Halver:
    """Finds the number by halving the range that is left."""

    def __init__(self, highest: int) -> None:
        self._low, self._high = 1, highest
        self._said = 0

    def act(self, messages: Sequence[Message]) -> str:
        if messages[-1].content == "higher":
            self._low = self._said + 1
        elif messages[-1].content == "lower":
            self._high = self._said - 1
        self._said = (self._low + self._high) // 2
        return str(self._said)
