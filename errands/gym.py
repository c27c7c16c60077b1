"""Errands in the interface of Gymnasium: text in, text out. Works without that library, too.

    env = ErrandsEnv(split="train")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step("Thought: ...\\n```python\\n...\\n```")

With Gymnasium installed it is a `gymnasium.Env`, and `gymnasium.make("errands.gym:Errands-v1")` makes it. The reward of
an episode comes with its last step; all others are 0.
"""

import importlib
import random
from collections.abc import Sequence
from typing import Any

from errands.env import Errands
from longloop import Message, Outcome, Task

MAX_TURNS = 40
LONGEST = 100_000
"""Characters of an action or an observation, as the spaces say; an action that is longer is answered all the same."""

gymnasium: Any
try:
    gymnasium = importlib.import_module("gymnasium")
except ModuleNotFoundError:
    gymnasium = None

_Env: Any = gymnasium.Env if gymnasium else object
_Space: Any = gymnasium.spaces.Text if gymnasium else object


class AnyText(_Space):
    """The space of all texts. Gymnasium's own has only those of a small alphabet, from which samples are drawn."""

    def __init__(self) -> None:
        if gymnasium:
            super().__init__(LONGEST, min_length=0)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= LONGEST

    def __contains__(self, x: Any) -> bool:
        return self.contains(x)

    def __repr__(self) -> str:
        return "AnyText()"


class ErrandsEnv(_Env):
    """Tasks of a split, one after another. The options are those of `Errands.Options`."""

    metadata: dict[str, Any] = {"render_modes": []}
    render_mode = None

    def __init__(self, split: str = "train", max_turns: int = MAX_TURNS, **options: Any) -> None:
        self.observation_space, self.action_space = AnyText(), AnyText()
        self.max_turns = max_turns
        self._options = Errands.Options(**options)
        self._tasks = self._tasks_of(split)
        self._draw = random.Random()
        self._attempt: Errands | None = None
        self._turns = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin the task that `options={"task": id}` names, or one that is drawn: the same one for the same seed."""
        if gymnasium:
            super().reset(seed=seed)
        if seed is not None:
            self._draw = random.Random(seed)
        wanted = (options or {}).get("task")
        task = self._draw.choice(self._tasks) if wanted is None else self._task(wanted)
        self.close()
        self._attempt, self._turns = Errands(self._options), 0
        return _seen(self._attempt.start(task), {"task": task.id})

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act once. The episode is truncated after `max_turns` actions; the state that was reached is scored then."""
        if self._attempt is None:
            raise RuntimeError("The episode is over, or none has begun: call reset().")
        self._turns += 1
        step = self._attempt.step(Message("assistant", action))
        truncated = not step.done and self._turns >= self.max_turns
        observation, info = _seen(step.messages, {})
        reward = 0.0
        if step.done or truncated:
            outcome = self._finished()
            reward = outcome.reward
            info |= {"success": outcome.success} | outcome.info
        return observation, reward, step.done, truncated, info

    def close(self) -> None:
        """End the episode that is running, if any."""
        if self._attempt is not None:
            self._finished()

    def _finished(self) -> Outcome:
        assert self._attempt is not None
        attempt, self._attempt = self._attempt, None
        return attempt.finish()

    def _task(self, id: str) -> Task:
        for task in self._tasks_of(id.partition("/")[0]):
            if task.id == id:
                return task
        raise ValueError(f"There is no task {id!r}. `Errands.tasks(split, options)` lists those of a split.")

    def _tasks_of(self, split: str) -> Sequence[Task]:
        tasks = Errands.tasks(split, self._options)
        if not tasks:
            raise ValueError(f"There are no tasks in the split {split!r}. The splits are {', '.join(Errands.splits)}.")
        return tasks


def _seen(messages: Sequence[Message], info: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Messages as one text, with their roles where there are several; `info` gets them one by one."""
    spoken = [{"role": message.role, "content": message.content} for message in messages]
    parts = [f"[{message.role}]\n{message.content}" for message in messages]
    return "\n\n".join(parts) if len(parts) > 1 else messages[0].content, info | {"messages": spoken}


if gymnasium:
    gymnasium.register("Errands-v1", entry_point="errands.gym:ErrandsEnv")
