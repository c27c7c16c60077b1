"""The same game as a plain environment, to compare with: it says what an agent's framework would say."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longloop import Call, Environment, Message, Outcome, Step, Task

_OPENINGS = Path(__file__).parent / "openings.json"
_TRIES = 2
"""Guesses that count, as for the judge of the agents."""


class GuessWithTool(Environment):
    @dataclass(frozen=True)
    class Options:
        framework: str = "openai"
        """Whose words open the conversation: a key of `openings.json`."""

    options: Options
    reward_range = (0.0, 1.0)

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        return [Task(f"guess-{n}-of-3", split, {"number": n}) for n in (1, 2, 3)]

    async def start(self, task: Task) -> Step:
        self._number = task.data["number"]
        self._guesses: list[int | None] = []
        self._opening = json.loads(_OPENINGS.read_text())[self.options.framework]
        self._told = [Message(*message) for message in self._opening["messages"]]
        return Step([*self._told], tools=tuple(self._opening["tools"]))

    async def step(self, action: Message) -> Step:
        if not action.calls:
            return Step(done=True)
        if "retold" in self._opening:
            return self._retold(action)
        return Step([Message("tool", self._guess(call), call=call.id) for call in action.calls])

    async def finish(self) -> Outcome:
        found = self._number in self._guesses[:_TRIES]
        return Outcome(float(found), found)

    def _retold(self, action: Message) -> Step:
        """The conversation anew, as a framework sends it that tells the model of its calls in words of its own."""
        for call in action.calls:
            retold = self._opening["retold"] % (call.id, _number(call))
            observed = self._opening["observed"] % self._guess(call)
            self._told += [Message("assistant", retold), Message("user", observed)]
        return Step([*self._told], rebuild=True, tools=tuple(self._opening["tools"]))

    def _guess(self, call: Call) -> str:
        number = _number(call)
        self._guesses.append(number)
        if number is None:
            return "number?"
        return "right" if number == self._number else "higher" if number < self._number else "lower"


def _number(call: Call) -> int | None:
    """The number that a call names; None where it names none, whatever a model has written there."""
    try:
        number = json.loads(call.arguments)["number"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if type(number) is int else None
