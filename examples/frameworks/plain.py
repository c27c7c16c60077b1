"""The same game as a plain environment, to compare with: it says what an agent's framework would say."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longloop import Environment, Message, Outcome, Step, Task

_OPENINGS = Path(__file__).parent / "openings.json"


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
        self._found = False
        opening = json.loads(_OPENINGS.read_text())[self.options.framework]
        return Step([Message(*message) for message in opening["messages"]], tools=tuple(opening["tools"]))

    async def step(self, action: Message) -> Step:
        answers = [Message("tool", self._guess(json.loads(call.arguments)), call=call.id) for call in action.calls]
        return Step(answers, done=not answers)

    async def finish(self) -> Outcome:
        return Outcome(float(self._found), self._found)

    def _guess(self, arguments: dict[str, int]) -> str:
        number = arguments.get("number", 0)
        self._found = self._found or number == self._number
        return "right" if number == self._number else "higher" if number < self._number else "lower"
