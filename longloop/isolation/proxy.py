"""An environment that lives in a worker, and its players: what stands for them in the trainer, message by message.

Nobody who uses one needs to know. `ready` may be awaited before a deadline begins, since a free worker may have to be
waited for; whatever comes first does it otherwise.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from longloop.isolation.pool import Pool, Worker, WorkerLost
from longloop.types import Message, Outcome, Step, Task

T = TypeVar("T")


class Remote:
    """The three methods that every environment has; `remote` adds those that its class has besides."""

    def __init__(self, pool: Pool, place: tuple[Worker, int] | None = None) -> None:
        self._pool = pool
        self._place = place
        """The worker, and the environment's number in it."""
        self._over = False

    async def ready(self) -> None:
        """Have a worker, and the environment made in it."""
        if self._place is None:
            self._place = await self._pool.new()

    async def start(self, task: Task) -> Sequence[Message]:
        return await self.call("start", _messages, task=asdict(task))

    async def step(self, action: Message) -> Step:
        return await self.call("step", _step, action=action.content)

    async def finish(self) -> Outcome:
        """Also gives the worker back, whatever comes of it."""
        try:
            return await self.call("finish", _outcome)
        finally:
            if self._place is not None and not self._over:
                self._pool.closed(self._place[0])
            self._over = True

    async def call(self, name: str, read: Callable[[Any], T], **arguments: Any) -> T:
        if self._over:
            raise WorkerLost("the environment has been finished")
        await self.ready()
        assert self._place is not None
        worker, number = self._place
        return await worker.call(name, read, **({} if name == "act" else {"env": number}), **arguments)

    async def _fork(self) -> "Remote":
        number = await self.call("fork", int)
        assert self._place is not None
        self._place[0].open += 1
        return type(self)(self._pool, (self._place[0], number))

    def _expert(self, task: Task) -> "RemotePlayer":
        return RemotePlayer(self, task)

    async def _baselines(self, task: Task) -> "Mapping[str, RemotePlayer]":
        numbers = await self.call("baselines", dict, task=asdict(task))
        return {name: RemotePlayer(self, task, number) for name, number in numbers.items()}


class RemotePlayer:
    """Someone who plays beside an environment, in its worker. The expert is only made when it is asked to act."""

    def __init__(self, env: Remote, task: Task, number: int | None = None) -> None:
        self._env, self._task, self._number = env, task, number

    async def act(self, messages: Sequence[Message]) -> str:
        if self._number is None:
            self._number = await self._env.call("expert", int, task=asdict(self._task))
        return await self._env.call("act", _text, player=self._number, messages=[asdict(m) for m in messages])


_OPTIONAL = {"fork": Remote._fork, "expert": Remote._expert, "baselines": Remote._baselines}
_DECLARED = ("deterministic", "lucky", "expert_splits", "reward_range")


@functools.cache
def remote(environment: type) -> type[Remote]:
    """What stands for an environment's class: of the same name, with the methods that it has and what it declares."""
    methods = {name: how for name, how in _OPTIONAL.items() if hasattr(environment, name)}
    declared = {name: getattr(environment, name) for name in _DECLARED if hasattr(environment, name)}
    return type(environment.__name__, (Remote,), {**methods, **declared})


def _messages(value: Any) -> list[Message]:
    return [Message(_text(one["role"]), _text(one["content"])) for one in value]


def _step(value: Any) -> Step:
    if not isinstance(value["done"], bool):
        raise TypeError(f"done is {value['done']!r}")
    return Step(_messages(value["messages"]), value["reward"], value["done"], dict(value["info"]))


def _outcome(value: Any) -> Outcome:
    return Outcome(value["reward"], value["success"], dict(value["info"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
