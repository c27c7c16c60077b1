"""The worker's side: a process in which an environment lives, and the frames of its protocol.

It may run in the environment's own virtualenv, so this file imports only the standard library and those modules of
longloop that need no package. A frame is a length of four bytes (big-endian), then that many bytes of JSON; nothing is
ever unpickled. Every request has a number, `id`, which its answer repeats; docs/reliability.md lists the calls. The
worker ends, with every process it started, when the other end of the pipe is closed.
"""

import asyncio
import importlib
import inspect
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from longloop.envs.contract import NoExpert, expect, tasks_of
from longloop.envs.user_code import raised_at
from longloop.isolation.confinement import confine
from longloop.types import Action, Call, Message, Step, Task, UserError

serving = False
"""Whether this process is a worker. Whatever it starts belongs to its process group, and ends with it."""

background: asyncio.AbstractEventLoop | None = None
"""An event loop that runs between calls as well, because something is served in it."""

LONGEST = 1 << 27
"""The most bytes of a frame. Any text that strays onto the pipe reads as a longer one, and is thereby noticed."""

_HINT = ". In a worker, files can be written only in the temporary folder and in those that the class names in `writes`"


def packed(content: dict[str, Any]) -> bytes:
    """A frame. Steps and messages in it become objects, without a copy of what they hold."""
    body = json.dumps(content, default=_fields).encode()
    return len(body).to_bytes(4) + body


def _fields(value: object) -> dict[str, Any]:
    if not isinstance(value, Step | Message | Call):
        raise TypeError(f"{type(value).__name__} is no JSON value")
    return vars(value)


class Host:
    """The environments and players of a worker, by number. Its public methods are the calls of the protocol."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._envs: dict[int, Any] = {}
        self._players: dict[int, Any] = {}
        self._made = 0

    def load(self, environment: str, options: dict[str, Any], path: Sequence[str], data_limit: int) -> None:
        """The first call, made once: load the class from `module:Class`."""
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = data_limit if hard == resource.RLIM_INFINITY else min(data_limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        sys.path += [entry for entry in path if entry not in sys.path]
        module, _, name = environment.partition(":")
        self._class = getattr(importlib.import_module(module), name)
        self._options = self._class.Options(**options)

    def tasks(self, split: str) -> list[dict[str, Any]]:
        return [asdict(task) for task in tasks_of(self._class, split, self._options)]

    def new(self) -> int:
        return self._kept(self._envs, self._class(options=self._options))

    def start(self, env: int, task: dict[str, Any]) -> Any:
        return self._asked("start", env, Task(**task))

    def step(self, env: int, action: dict[str, Any]) -> Any:
        calls = tuple(Call(**call) for call in action.get("calls", ()))
        return self._asked("step", env, Action(**action | {"calls": calls}))

    def finish(self, env: int) -> Any:
        try:
            return asdict(self._asked("finish", env))
        finally:
            del self._envs[env]
            if not self._envs:
                self._players.clear()

    def fork(self, env: int) -> int:
        return self._kept(self._envs, self._answer(self._envs[env].fork()))

    def expert(self, env: int, task: dict[str, Any]) -> int:
        player = self._envs[env].expert(Task(**task))
        if player is None:
            raise NoExpert(f"there is no expert for {task['id']!r}; name the splits that have one in expert_splits")
        return self._kept(self._players, player)

    def baselines(self, env: int, task: dict[str, Any]) -> dict[str, int]:
        players = self._answer(self._envs[env].baselines(Task(**task)))
        return {name: self._kept(self._players, player) for name, player in players.items()}

    def act(self, player: int, messages: Sequence[dict[str, Any]]) -> str:
        heard = [Message(**one | {"calls": tuple(Call(**call) for call in one.get("calls", ()))}) for one in messages]
        said = self._players[player].act(heard)
        return expect("act", self._answer(said))

    def _asked(self, method: str, env: int, *arguments: Any) -> Any:
        return expect(method, self._answer(getattr(self._envs[env], method)(*arguments)))

    def _answer(self, value: Any) -> Any:
        """Return what a method returned, awaited if it has to be."""

        async def awaited() -> Any:
            return await value

        return self._loop.run_until_complete(awaited()) if inspect.isawaitable(value) else value

    def _kept(self, where: dict[int, Any], thing: Any) -> int:
        self._made += 1
        where[self._made] = thing
        return self._made


CALLS = [name for name in vars(Host) if not name.startswith("_")]


def serve(descriptor: int, file_limit: int, writes: Sequence[str]) -> None:
    """Answer requests until the pipe is closed. Whatever the environment prints goes to the log (stdout and stderr)."""
    global serving
    serving = True
    confine(writes, file_limit)  # before there is a second thread, which would not be confined
    os.set_inheritable(descriptor, False)
    pipe = socket.socket(fileno=descriptor)
    end = threading.Thread(target=_end_with, args=(pipe,), daemon=True)
    end.start()
    host = Host()
    with suppress(ConnectionError):
        while (header := _next(pipe)) and (body := _read(pipe, int.from_bytes(header))):
            request = json.loads(body)
            number, call = request.pop("id"), request.pop("call")
            if call not in CALLS:
                raise ValueError(f"no such call: {call!r}")
            try:
                answer = {"id": number, "value": getattr(host, call)(**request)}
            except BaseException as error:  # SystemExit included
                hint = _HINT if isinstance(error, PermissionError) else ""
                answer = {"id": number, "error": type(error).__name__, "text": f"{_told(error)}{hint}"}
            pipe.sendall(packed(answer))
    end.join()  # it kills what the environment started


def _told(error: BaseException) -> str:
    """Return the error's text, with the line of the environment's code that raised it."""
    where = "" if isinstance(error, UserError) else raised_at(error)
    return f"{error} ({where})" if where else str(error)


def _next(pipe: socket.socket) -> bytes:
    """Wait for the next request; return its length, or none at the end of the stream."""
    if background is not None:
        background.add_reader(pipe.fileno(), background.stop)  # asyncio describes a socket at length, a number not
        background.run_forever()
        background.remove_reader(pipe.fileno())
    return _read(pipe, 4)


def _read(pipe: socket.socket, size: int) -> bytes:
    """Read `size` bytes; return none at the end of the stream."""
    found = bytearray()
    while len(found) < size:
        part = pipe.recv(min(size - len(found), 1 << 20))
        if not part:
            return b""
        found += part
    return bytes(found)


def _end_with(pipe: socket.socket, kill: Callable[[int, int], None] = os.killpg) -> None:
    """Kill this process and its group when the trainer's end of the pipe closes, even in the middle of a step. `kill`
    is bound early, so that the environment cannot replace it."""
    poll = select.poll()
    poll.register(pipe, select.POLLRDHUP)
    poll.poll()
    kill(os.getpid(), signal.SIGKILL)
