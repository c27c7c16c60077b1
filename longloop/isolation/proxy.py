"""The trainer's side of an environment that lives in a worker, and of its players: each call becomes a request.

`ready` waits for a free worker. Await it before a deadline begins; otherwise the first call waits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from longloop.envs.base import Environment, declare_as
from longloop.isolation.lending import Lender, Worker, WorkerLost
from longloop.types import Call, Message, Outcome, Step, Task

T = TypeVar("T")


class Remote(Environment):
    """An environment in a worker. `remote` makes the class for an environment's."""

    def __init__(self, lender: Lender, key: tuple[Worker, int] | None = None) -> None:
        self._lender = lender
        self._key = key
        """The worker, and the environment's number in it."""
        self._over = False

    async def ready(self) -> None:
        """Wait for a worker, and have the environment made in it."""
        if self._key is None:
            self._key = await self._lender.new()

    async def start(self, task: Task) -> Sequence[Message] | Step:
        return await self.call("start", _opening, task=asdict(task))

    async def step(self, action: Message) -> Step:
        return await self.call("step", _step, action=action)

    async def finish(self) -> Outcome:
        """Return the verdict. The worker is given back even if there is none."""
        try:
            return await self.call("finish", _outcome)
        finally:
            if self._key is not None and not self._over:
                self._lender.closed(self._key[0])
            self._over = True

    async def call(self, name: str, read: Callable[[Any], T], **arguments: Any) -> T:
        if self._over:
            raise WorkerLost("the environment has been finished")
        await self.ready()
        assert self._key is not None
        worker, number = self._key
        return await worker.call(name, read, **({} if name == "act" else {"env": number}), **arguments)

    async def fork(self) -> "Remote":
        number = await self.call("fork", int)
        assert self._key is not None
        self._key[0].open += 1
        return type(self)(self._lender, (self._key[0], number))

    def expert(self, task: Task) -> "RemotePlayer":
        return RemotePlayer(self, task)

    async def baselines(self, task: Task) -> "Mapping[str, RemotePlayer]":
        numbers = await self.call("baselines", dict, task=asdict(task))
        return {name: RemotePlayer(self, task, number) for name, number in numbers.items()}


class RemotePlayer:
    """A player in the worker of its environment. The expert (no number) is made when it first acts."""

    def __init__(self, env: Remote, task: Task, number: int | None = None) -> None:
        self._env, self._task, self._number = env, task, number

    async def act(self, messages: Sequence[Message]) -> str:
        if self._number is None:
            self._number = await self._env.call("expert", int, task=asdict(self._task))
        return await self._env.call("act", _text, player=self._number, messages=list(messages))


def remote(environment: type[Environment]) -> type[Remote]:
    """Return the proxy class of an environment's class: it has its name, and declares what it declares."""
    proxy: type[Remote] = type(environment.__name__, (Remote,), {})
    declare_as(proxy, environment)
    proxy.can_fork = environment.can_fork
    return proxy


def _opening(value: Any) -> list[Message] | Step:
    return _step(value) if isinstance(value, dict) else _messages(value)


def _messages(value: Any) -> list[Message]:
    return [
        Message(
            _text(one["role"]),
            _text(one["content"]),
            tuple(map(_call, one.get("calls", ()))),
            _text(one.get("call", "")),
        )
        for one in value
    ]


def _call(value: Any) -> Call:
    return Call(*(_text(value[name]) for name in ("id", "name", "arguments", "text")))


def _step(value: Any) -> Step:
    if not isinstance(value["done"], bool):
        raise TypeError(f"done is {value['done']!r}")
    return Step(
        _messages(value["messages"]),
        value["reward"],
        value["done"],
        dict(value["info"]),
        rebuild=value.get("rebuild") is True,
        thread=_text(value.get("thread", "")),
        tools=tuple(map(dict, value.get("tools", ()))),
        stop=tuple(map(_text, value.get("stop", ()))),
        max_tokens=int(value.get("max_tokens", 0)),
    )


def _outcome(value: Any) -> Outcome:
    return Outcome(value["reward"], value["success"], dict(value["info"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
