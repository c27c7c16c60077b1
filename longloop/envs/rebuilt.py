"""Environments whose context is rebuilt at every turn: the agent sees a report of its own instead of its history.

    class Reports(Rebuilt, Errands):
        pass

    env.name = "my_module:Reports"

This is the workspace of IterResearch (arXiv 2511.07327): the task, the last report, the last action and its result. An
action holds the next report between <report> and </report>; the environment gets the rest. An action without a report
keeps the last one. However many turns an attempt has, its context does not grow with them.

This file imports nothing but the standard library and what environments may import: it is used in workers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.types import Message, Step, Task

_RESULT = "\n\nIts result:\n"


class Rebuilt(Environment):
    """Put it before the class of an environment. Rewards, verdicts, copies and state keys are the environment's."""

    instruction = (
        "You will not see this conversation again: at each turn you get the task, your last report, your last action "
        "and its result. Write what you found out and what is left to do between <report> and </report>, then act."
    )
    """Follows the task. It may be empty."""
    report = re.compile(r"<report>(.*?)</report>", re.DOTALL)
    """What a report is in an action; its group is the text."""

    _opening: tuple[Message, ...] = ()
    _report = ""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        inner: Any = super()
        cls.can_fork, cls.has_expert = (
            getattr(inner, name) is not getattr(Environment, name) for name in ("fork", "expert")
        )

    def start(self, task: Task) -> Any:
        return _then(super().start(task), self._opened)

    def step(self, action: Message) -> Any:
        reports = self.report.findall(action.content)
        self._report = reports[-1].strip() if reports else self._report
        said = self.report.sub("", action.content).strip()
        return _then(super().step(replace(action, content=said)), partial(self._stepped, said))

    def fork(self) -> Any:
        return _then(super().fork(), self._copied)

    def expert(self, task: Task) -> Player | None:
        player = super().expert(task)
        return None if player is None else _Reader(player, self.instruction)

    def baselines(self, task: Task) -> Any:
        return _then(super().baselines(task), self._read)

    def _opened(self, opening: Sequence[Message] | Step) -> Sequence[Message] | Step:
        self._opening = tuple(Step.of(opening).messages)
        messages = self._with(self.instruction)
        return replace(opening, messages=messages) if isinstance(opening, Step) else messages

    def _stepped(self, said: str, step: Step) -> Step:
        if step.done:
            return step
        result = "\n".join(message.content for message in step.messages)
        report = f"Your report:\n{self._report or 'none'}\n\nYour last action:\n{said}{_RESULT}{result}"
        shown = f"{self.instruction}\n\n{report}" if self.instruction else report
        return replace(step, messages=self._with(shown), rebuild=True)

    def _with(self, text: str) -> Sequence[Message]:
        """The opening, with a text at its end."""
        *before, last = self._opening
        return [*before, replace(last, content=f"{last.content}\n\n{text}") if text else last]

    def _copied(self, copy: Any) -> Any:
        copy._opening, copy._report = self._opening, self._report
        return copy

    def _read(self, players: Mapping[str, Player]) -> Mapping[str, Player]:
        return {name: _Reader(player, self.instruction) for name, player in players.items()}


class _Reader:
    """A player of the environment, who is shown what the environment says alone."""

    def __init__(self, player: Player, instruction: str) -> None:
        self._player, self._instruction = player, instruction

    def act(self, messages: Sequence[Message]) -> str | Awaitable[str]:
        *before, last = messages
        _, found, result = last.content.partition(_RESULT)
        if found:
            return self._player.act([replace(last, content=result)])
        instruction = f"\n\n{self._instruction}" if self._instruction else ""
        return self._player.act([*before, replace(last, content=last.content.removesuffix(instruction))])


def _then(answer: Any, what: Callable[[Any], Any]) -> Any:
    """What follows from an answer, at once or when it is there."""

    async def later() -> Any:
        return what(await answer)

    return later() if inspect.isawaitable(answer) else what(answer)
