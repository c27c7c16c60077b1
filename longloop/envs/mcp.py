"""MCP: the tools of Model Context Protocol servers, for tasks of your own, with a judge of your own.

`env.servers` names the servers, each by a command to start or by the address of one that runs. The agent gets their
tools as its own, and an action without a call ends the attempt. Each attempt has a copy of `env.folder`, in which its
servers are started; they are ended before the judge looks at it.

A line of the file of tasks is `{"id": ..., "split": ..., "data": {"instruction": ...}}`. `data["calls"]` may hold
reference calls, `{"name": ..., "arguments": {...}}`, and `data["answers"]` the answers that follow them: then there is
an expert. The agent is told only the instruction.
"""

import asyncio
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.calls import arguments_of, called
from longloop.envs.judge import Attempt, found, judged
from longloop.envs.play import Script, Silent
from longloop.envs.shared.user_files import absolute, read_tasks
from longloop.types import Call, Message, Outcome, Step, Task, UserError

_INHERITED = ("TMPDIR", "PYTHONHASHSEED")
"""Environment variables that a server gets, besides those that the package passes on (PATH, HOME and the like)."""


class Mcp(Environment):
    @dataclass(frozen=True)
    class Options:
        servers: dict[str, list[str] | str] = field(default_factory=dict)
        """The servers by name: a command, or the URL of a server that runs. `python` is the environment's own."""
        tasks: str = ""
        """A file with a task on each line, as JSON: `id`, `split` and `data`, with an `instruction` in it."""
        judge: str = ""
        """What scores an attempt: a Python function, as `module:function`, which is given a `longloop.Attempt`."""
        folder: str = ""
        """A folder that each attempt gets a copy of, for its servers to work in; empty for an empty one."""
        about: str = ""
        """What the agent is told before each task."""

    options: Options
    isolation = "venv"
    requires = ("mcp==2.3.0",)

    _base: Path | None = None
    _holding: asyncio.Task[None] | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if not (options.servers and options.tasks and options.judge):
            raise UserError(
                "env.servers, env.tasks and env.judge must be set; docs/environments/mcp.md has an example."
            )
        for name, server in options.servers.items():
            if isinstance(server, list) and (not server or shutil.which(_program(server)[0]) is None):
                raise UserError(f"env.servers.{name} = {server}: name a program that is on the PATH, or its file.")
        found(options.judge, "judge")  # a mistake shows before the first attempt
        tasks = [task for task in read_tasks(Path(options.tasks)) if task.split == split]
        for task in tasks:
            if not isinstance(task.data.get("instruction"), str):
                raise UserError(f'{options.tasks}: the data of {task.id!r} has no "instruction", which must be a text.')
        return tasks

    async def start(self, task: Task) -> Step:
        self._task = task
        self._base = Path(tempfile.mkdtemp(prefix="mcp-"))
        self._folder = self._base / "work"
        if self.options.folder:
            shutil.copytree(self.options.folder, self._folder, symlinks=True)
        else:
            self._folder.mkdir()
        self._end, self._finished = asyncio.Event(), False
        clients: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(clients))
        self._tools = {
            (f"{name}__{tool.name}" if len(self.options.servers) > 1 else tool.name): (client, tool)
            for name, client in (await clients).items()
            for tool in await _tools(client)
        }
        about = [Message("system", self.options.about)] if self.options.about else []
        self._conversation = [*about, Message("user", task.data["instruction"])]
        schemas = tuple(_schema(name, tool) for name, (_, tool) in self._tools.items())
        return Step(list(self._conversation), tools=schemas)

    async def step(self, action: Message) -> Step:
        self._conversation.append(action)
        if not action.calls:
            self._finished = True
            return Step(done=True)
        answers, failed = [], False
        for call in action.calls:
            text, wrong = await self._answer(call)
            answers.append(Message("tool", text, call=call.id))
            failed = failed or wrong
        self._conversation += answers
        return Step(answers, info={"failed": failed})

    async def finish(self) -> Outcome:
        if self._base is None:
            return Outcome(0.0, False)  # it was never started
        try:
            if self._holding is not None:
                self._end.set()
                await self._holding
            attempt = Attempt(self._task, self._folder, (tuple(self._conversation),), "", self._finished)
            return await judged(found(self.options.judge, "judge"), attempt)
        finally:
            shutil.rmtree(self._base, ignore_errors=True)

    def expert(self, task: Task) -> Player | None:
        """Return a player who makes the task's reference calls and gives its first answer, if it has any of them."""
        calls, answers = task.data.get("calls"), task.data.get("answers")
        if calls is None and not answers:
            return None
        last = answers[0] if answers else "Done."
        return Script([*(called(call["name"], call.get("arguments", {})) for call in calls or ()), last])

    def baselines(self, task: Task) -> dict[str, Player]:
        """`words` ends the attempt without a call."""
        return {"nothing": Silent(), "words": Script(["Done."])}

    async def _hold(self, clients: asyncio.Future[dict[str, Any]]) -> None:
        """Keep the connections until the end: the package wants them opened and closed by the same task."""
        mcp = importlib.import_module("mcp")
        try:
            async with AsyncExitStack() as stack:
                opened = {}
                for name, server in self.options.servers.items():
                    where = server if isinstance(server, str) else self._command(mcp, server)
                    opened[name] = await stack.enter_async_context(mcp.Client(where))
                clients.set_result(opened)
                await self._end.wait()
        except BaseException as error:
            if clients.done():
                raise
            clients.set_exception(RuntimeError(f"the MCP server {name!r} could not be reached: {_first(error)}"))

    def _command(self, mcp: Any, server: Sequence[str]) -> Any:
        program, *arguments = absolute(_program(server))
        wanted = (*_INHERITED, *self.variables)
        variables = {key: os.environ[key] for key in wanted if key in os.environ}
        return mcp.StdioServerParameters(command=program, args=arguments, cwd=self._folder, env=variables)

    async def _answer(self, call: Call) -> tuple[str, bool]:
        """What a call returns, and whether it failed."""
        if call.name not in self._tools:
            return f"Error: there is no tool {call.name[:40]!r}", True
        client, tool = self._tools[call.name]
        try:
            arguments = arguments_of(call)
        except ValueError as error:
            return f"Error: {error}", True
        mcp = importlib.import_module("mcp")
        try:
            result = await client.call_tool(tool.name, arguments)
        except mcp.MCPError as error:
            if error.code == mcp.types.CONNECTION_CLOSED:
                raise RuntimeError("the MCP server has ended") from error
            return (
                f"Error: {error.error.message}",
                True,
            )  # the server's answer, to arguments that it refuses for instance
        text = "\n".join(getattr(block, "text", f"({block.type})") for block in result.content)
        return (f"Error: {text}", True) if result.is_error else (text, False)


def _program(server: Sequence[str]) -> list[str]:
    """A server's command, with the Python of this virtualenv for `python`."""
    return [sys.executable if server[0] == "python" else server[0], *server[1:]]


async def _tools(client: Any) -> list[Any]:
    """All tools of a server, which may list them in several parts."""
    tools: list[Any] = []
    cursor = None
    while True:
        part = await client.list_tools(cursor=cursor)
        tools += part.tools
        cursor = part.next_cursor
        if not cursor:
            return tools


def _schema(name: str, tool: Any) -> dict[str, Any]:
    described = {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": described}


def _first(error: BaseException) -> str:
    """The text of an error, or of the first in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
