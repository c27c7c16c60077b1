"""An environment with tools: a sum is to be made with `add`. A helper of its own thread checks it."""

import json

from longloop.envs.base import Environment
from longloop.types import Action, Message, Outcome, Step, Task

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


class Toolbox(Environment):
    _sum = 0
    _checked = False

    @classmethod
    def tasks(cls, split: str, options: object) -> list[Task]:
        return [Task(f"{split}-{n}", split, {"a": n, "b": 2}) for n in range(3)]

    def start(self, task: Task) -> Step:
        self._task = task
        said = f"add {task.data['a']} and {task.data['b']}"
        return Step([Message("system", "use tools"), Message("user", said)], tools=(ADD,), stop=("stop here",))

    def step(self, action: Message) -> Step:
        if self._checked:
            return Step(done=True)
        if not action.calls:
            self._checked = True
            return Step([Message("user", "is it right?")], thread="helper", max_tokens=5)
        answers = []
        for call in action.calls:
            given = json.loads(call.arguments)
            self._sum = given.get("a", 0) + given.get("b", 0)
            answers.append(Message("tool", str(self._sum), call=call.id))
        assert isinstance(action, Action) and action.tokens > 0 and action.prompt_tokens > 0
        return Step(answers, info={"calls": len(action.calls)})

    def finish(self) -> Outcome:
        right = self._sum == self._task.data["a"] + self._task.data["b"]
        return Outcome(float(right), right)
