"""Errands by function calls: the same errands, worlds and judge, for agents that call tools instead of writing code.

Each API is a tool named `app__api` (tools.py), which the model calls in its own format. By default an errand comes with
the tools of the apps that it needs: all 224 fill a context. The expert makes the calls that the code of the expert of
Errands makes, one in each action.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from errands.apps import BY_NAME
from errands.catalog import setting
from errands.env import Errands, TaskOptions
from errands.people import FIRST, LAST
from errands.tools import ToolEpisode, tool_names
from errands.version import __version__
from longloop import Environment, Message, Outcome, Player, Step, Task
from longloop.envs.calls import called
from longloop.envs.play import Script, Silent

_NO_CALL = "(There is no call of a tool in your message. When you are done, call owner__complete_task.)"
_ANSWERS = (lambda rng: rng.randrange(100), lambda rng: f"{rng.choice(FIRST)} {rng.choice(LAST)}")


class ErrandsTools(Environment):
    @dataclass(frozen=True)
    class Options(TaskOptions):
        all_tools: bool = False
        """Offer the tools of all apps, not only of those that the errand needs."""

    options: Options
    version = __version__
    reward_range = (0.0, 1.0)
    splits = Errands.splits

    _episode: ToolEpisode | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        return Errands.tasks(split, options)

    def start(self, task: Task) -> Step:
        self._episode = ToolEpisode(task, None if self.options.all_tools else task.data["apps"])
        messages = [Message(one["role"], one["content"]) for one in self._episode.messages]
        return Step(messages, tools=tuple(self._episode.tools))

    def step(self, action: Message) -> Step:
        assert self._episode is not None, "step() before start()"
        if not action.calls:
            return Step([Message("user", _NO_CALL)], info={"failed": True})
        answers = [(call.id, self._episode.call(call.name, call.arguments)) for call in action.calls]
        failed = any(text.startswith("Error") for _, text in answers)
        messages = [Message("tool", text, call=id) for id, text in answers]
        return Step(messages, done=self._episode.done, info={"failed": failed})

    def finish(self) -> Outcome:
        return Outcome(0.0, False) if self._episode is None else self._episode.finish()

    def expert(self, task: Task) -> Player:
        """Someone who can do the task, though not from what comes back: the calls are known before."""
        return Script(_said(task))

    def baselines(self, task: Task) -> dict[str, Player]:
        """Agents that must not succeed."""
        rng = random.Random(f"baseline/{task.id}")
        answer = rng.choice(_ANSWERS)(rng)
        world = setting(task.data["scenario"], task.data["world"]).world()
        complete = next(name for name, api in tool_names(world, ["owner"]).items() if api.name == "complete_task")
        world.close()
        return {
            "nothing": Silent(),
            "complete at once": Script([called(complete, {})]),
            "answer at random": Script([called(complete, {"answer": answer})]),
        }


def _said(task: Task) -> Iterator[str]:
    """What to say to make the calls that the expert's code makes, with its thought before the first of each turn."""
    env = Errands(Errands.Options())
    expert = env.expert(task)
    heard: Sequence[Message] = Step.of(env.start(task)).messages
    world: Any = env.world
    names = {id(api): name for name, api in tool_names(world, list(BY_NAME)).items()}
    made: list[str] = []
    take = world.call

    def record(api: Any, arguments: dict[str, Any]) -> Any:
        made.append(called(names[id(api)], arguments))
        return take(api, arguments)

    world.call = record
    try:
        while said := expert.act(heard):
            made.clear()
            step = env.step(Message("assistant", said))
            heard = step.messages
            thought = said.partition("\n")[0].removeprefix("Thought: ")
            for number, call in enumerate(made):
                yield call if number else f"{thought}\n{call}"
            if step.done:
                return
    finally:
        env.finish()
