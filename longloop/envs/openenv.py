"""OpenEnv: environments behind that project's servers, in a container, on a machine of yours or as a Space.

`env.url` is the address of a server that runs, or `env.command` starts one for each worker. Spoken is its wire, a
WebSocket, as of version 0.10: the package itself is not needed here. What an action is follows from the server's
schema:

    one text            the agent's words are the action, as in {"message": "..."}
    tools (MCP)         the agent calls them
    anything else       the agent calls one tool, `act`, whose arguments are the action

A task is what `reset` is given: a seed, a task that the server lists, or a line of a file of yours. The reward of an
attempt is the sum of what its steps pay, or the last of them.
"""

import atexit
import functools
import importlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from longloop.envs.base import Environment
from longloop.envs.calls import arguments_of
from longloop.envs.shared.user_files import absolute, read_tasks
from longloop.types import Call, Message, Outcome, Step, Task, UserError

_ACT = "act"
_PATIENCE = 60.0
"""Seconds that a server which was started has until it answers."""
_MOST = 1 << 26
"""The most bytes of a server's message."""
_SEEDS = {"train": 0, "dev": 1_000_000, "test": 2_000_000}


class OpenEnv(Environment):
    @dataclass(frozen=True)
    class Options:
        url: str = ""
        """The address of a server that runs, such as `http://127.0.0.1:8000`. All attempts share it."""
        command: list[str] = field(default_factory=list)
        """What starts a server, in place of an address: a program with `{port}` among its arguments. Each worker starts
        one of its own."""
        tasks: str = ""
        """A file with a task on each line, as JSON: `id`, `split` and `data`, which is what `reset` is given. Empty
        takes the tasks that the server lists, or else seeds."""
        count: int = 100
        """Seeds in each of train, dev and test, where there are no tasks."""
        reward: Literal["sum", "last"] = "sum"
        """What an attempt is paid: the sum of its steps' rewards, or the last of them."""
        success: float = 1.0
        """The reward from which on an attempt is a success."""
        shown: list[str] = field(default_factory=list)
        """The fields of an observation that the agent sees; empty for all but the metadata."""
        about: str = ""
        """What the agent is told before each task."""

        def __post_init__(self) -> None:
            if bool(self.url) == bool(self.command):
                raise ValueError("name the server either by `url` or by `command`")
            if self.command and not any("{port}" in word for word in self.command):
                raise ValueError("write {port} where `command` takes the port to listen on")

    options: Options
    isolation = "venv"
    requires = ("websockets==17.4",)

    _socket: Any = None
    _paid: tuple[float, ...] = ()

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if options.command and shutil.which(options.command[0]) is None:
            raise UserError(f"env.command = {options.command}: name a program that is on the PATH, or its file.")
        if options.tasks:
            return [task for task in read_tasks(Path(options.tasks)) if task.split == split]
        listed = _server(options).tasks(split)
        if listed is not None:
            return [Task(f"{split}/{n}", split, {"split": split, "index": n}) for n in range(listed)]
        count = options.count if split in _SEEDS else 0
        return [Task(f"{split}/{n}", split, {"seed": _SEEDS[split] + n}) for n in range(count)]

    def start(self, task: Task) -> Step:
        server = _server(self.options)
        client = importlib.import_module("websockets.sync.client")
        self._socket = client.connect(f"ws{server.url.removeprefix('http')}/ws", max_size=_MOST, proxy=None)
        opening = self._asked("reset", task.data)
        schema = server.schema["action"]
        self._has_tools = _has_tools(schema)
        self._field = None if self._has_tools else _text_field(schema)
        self._tools: dict[str, dict[str, Any]] = {}
        if self._has_tools:
            listed = self._asked("step", {"type": "list_tools"})["observation"]["tools"]
            self._tools = {tool["name"]: _tool(tool["name"], tool, tool["input_schema"]) for tool in listed}
        elif self._field is None:
            self._tools = {_ACT: _tool(_ACT, schema, _without_metadata(schema))}
        about = [Message("system", self.options.about)] if self.options.about else []
        return Step([*about, Message("user", self._shown(opening))], tools=tuple(self._tools.values()))

    def step(self, action: Message) -> Step:
        if self._field is not None:
            answer = self._act({self._field: action.content})
            return Step([Message("user", answer.text)], answer.reward, answer.done, {"failed": answer.failed})
        if not action.calls:
            return Step([Message("user", "Error: call a tool")], info={"failed": True})
        messages, answers = [], []
        for call in action.calls:
            answers.append(answer := self._called(call))
            messages.append(Message("tool", answer.text, call=call.id))
            if answer.done:
                break
        failed = any(answer.failed for answer in answers)
        return Step(messages, sum(answer.reward for answer in answers), answers[-1].done, {"failed": failed})

    def finish(self) -> Outcome:
        if self._socket is not None:
            self._socket.close()
        reward = sum(self._paid) if self.options.reward == "sum" else (0.0, *self._paid)[-1]
        return Outcome(reward, reward >= self.options.success)

    def _called(self, call: Call) -> "_Answer":
        """What a call of a tool leads to."""
        if call.name not in self._tools:
            return _Answer(f"Error: there is no tool {call.name[:40]!r}", failed=True)
        try:
            arguments = arguments_of(call)
        except ValueError as error:
            return _Answer(f"Error: {error}", failed=True)
        named = {"type": "call_tool", "tool_name": call.name, "arguments": arguments}
        return self._act(named if self._has_tools else arguments)

    def _act(self, action: dict[str, Any]) -> "_Answer":
        """What an action leads to. One that does not fit the schema is the agent's mistake."""
        try:
            answer = self._asked("step", action)
        except _Invalid as error:
            return _Answer(f"Error: {error}", failed=True)
        reward = float(answer["reward"] or 0.0)
        self._paid = (*self._paid, reward)
        failed = bool(self._has_tools and answer["observation"].get("error"))
        return _Answer(self._shown(answer), reward, bool(answer["done"]), failed)

    def _asked(self, what: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """The server's answer to a message."""
        closed = importlib.import_module("websockets.exceptions").ConnectionClosed
        with suppress(closed):  # a server that refuses to talk says why before it closes
            self._socket.send(json.dumps({"type": what, "data": data}))
        try:
            answer = json.loads(self._socket.recv())
        except closed as error:
            raise RuntimeError(f"the server has closed the connection: {error}") from error
        told: dict[str, Any] = answer["data"]
        if answer["type"] != "error":
            return told
        if told.get("code") == "VALIDATION_ERROR":
            raise _Invalid("; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in told["errors"]))
        hint = " (set env.workers, or raise its max_concurrent_envs)" if told.get("code") == "CAPACITY_REACHED" else ""
        raise RuntimeError(f"the server says: {told['message']}{hint}")

    def _shown(self, answer: Mapping[str, Any]) -> str:
        """An observation as the agent sees it: a single text as it is, anything else as JSON."""
        observation = answer["observation"]
        said = {key: value for key, value in observation.items() if value is not None}
        chosen = {key: said[key] for key in self.options.shown if key in said}
        if not self.options.shown:
            hidden = ("metadata", "tool_name")
            chosen = {key: value for key, value in said.items() if key not in hidden} or observation["metadata"]
        only = next(iter(chosen.values())) if len(chosen) == 1 else None
        if isinstance(only, dict) and isinstance(only.get("data"), str):  # what an MCP tool returns
            only = only["data"]
        return only if isinstance(only, str) else json.dumps(chosen, ensure_ascii=False)


@dataclass(frozen=True)
class _Answer:
    """What an action led to."""

    text: str
    reward: float = 0.0
    done: bool = False
    failed: bool = False


class _Invalid(Exception):
    """An action that does not fit the server's schema."""


@dataclass(frozen=True)
class _Server:
    """A server that answers."""

    url: str

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schemas of actions and observations."""
        return self.get("/schema")

    def tasks(self, split: str) -> int | None:
        """How many tasks it lists in a split; None if it lists none at all."""
        try:
            name = self.get("/list_environments")[0]
            splits = [one["name"] for one in self.get(f"/{name}/splits")]
            return self.get(f"/{name}/num_tasks", {"split": split})["num_tasks"] if split in splits else 0
        except urllib.error.HTTPError as error:
            if error.code in (404, 501):  # an older server, or one without tasks
                return None
            raise

    def get(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return json.load(answer)


def _server(options: OpenEnv.Options) -> _Server:
    return _started(options.url, tuple(options.command))


@functools.cache
def _started(url: str, command: tuple[str, ...]) -> _Server:
    """The server of this process. One that was started is killed when it has not answered in time, or as the process
    exits."""
    if not command:
        return _answering(_Server(url.rstrip("/")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([word.replace("{port}", str(port)) for word in absolute(command)])
    atexit.register(_end, process)
    try:
        return _answering(_Server(f"http://127.0.0.1:{port}"), process, command)
    except BaseException:
        _end(process)
        raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def _answering(
    server: _Server, process: "subprocess.Popen[bytes] | None" = None, command: Sequence[str] = ()
) -> _Server:
    """A server once it answers: at once, or if it was started, within the deadline."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            server.get("/health")
            return server
        except OSError as error:
            if process is not None and process.poll() is not None:
                raise UserError(
                    f"env.command = {list(command)} ended with code {process.returncode}. Try it yourself, with a "
                    "number for {port}."
                ) from error
            if process is None or time.monotonic() > deadline:
                raise UserError(
                    f"There is no OpenEnv server at {server.url}: {error}. Start it, and try again."
                ) from error
            time.sleep(0.1)


def _text_field(schema: Mapping[str, Any]) -> str | None:
    """The field of an action that is all the agent says: the only one there is, or the only one required."""
    fields = {key: value for key, value in schema.get("properties", {}).items() if key != "metadata"}
    names = [key for key in fields if key in schema.get("required", ())] or list(fields)
    return names[0] if len(names) == 1 and fields[names[0]].get("type") == "string" else None


def _has_tools(schema: Mapping[str, Any]) -> bool:
    """Whether actions are calls of MCP tools."""
    fields = schema.get("properties", {}).keys() - {"metadata", "type"}
    return not fields or fields == {"tool_name", "arguments"}


def _tool(name: str, described: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": name, "description": described.get("description") or "", "parameters": dict(parameters)}
    return {"type": "function", "function": function}


def _without_metadata(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an action, as the parameters of a tool."""
    fields = {key: value for key, value in schema.get("properties", {}).items() if key != "metadata"}
    kept = {key: schema[key] for key in ("required", "$defs") if key in schema}
    return {"type": "object", "properties": fields, **kept}
