"""The user's own agent program as an environment: it is started for each attempt, and the policy answers its calls.

`start` launches the agent and returns what it first asks a model; `step` answers that call with the policy's action and
returns what is new in the next call; the agent's end is the end of the episode; `finish` is the verdict. The agent is
any program that finds its model at OPENAI_BASE_URL (or ANTHROPIC_BASE_URL) and its task, as JSON, in LONGLOOP_TASK. No
token id ever comes here, so none can be lost.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from longloop.envs.base import Environment
from longloop.envs.judge import Attempt, found, judged, outcome_of, reported
from longloop.envs.shared.user_files import absolute, read_tasks
from longloop.gateway.endpoint import Endpoint
from longloop.gateway.process import Program
from longloop.gateway.session import Session
from longloop.isolation import scratch, worker
from longloop.isolation.pool import VARIABLES
from longloop.types import Message, Outcome, Step, Task, UserError

_SECRET = ("judge", "answers")
"""Parts of a task's data that the agent is not told."""
_PATIENCE = 2.0
"""Seconds that an agent which was cut off has to end by itself."""
_FUNCTION = (sys.executable, "-m", "longloop.gateway.function")


class Agent(Environment):
    """Derive from it to list tasks in Python (`tasks`) or to hand the agent further variables (`variables`)."""

    @dataclass(frozen=True)
    class Options:
        command: list[str] = field(default_factory=list)
        """The agent: a program and its arguments. It is started for each attempt, in a folder of its own."""
        agent: str = ""
        """The agent, in place of a command: a Python function, as `module:function`, which is called with the task, the
        endpoint's address and a key."""
        tasks: str = ""
        """A file with a task on each line, as JSON: `id`, `split` and `data`."""
        judge: str | list[str] = ""
        """What scores the state that an attempt left: a Python function, as `module:function`, or a command. Empty
        takes the agent's word for it: what the function returns, or the file that LONGLOOP_OUTCOME names."""
        folder: str = ""
        """A folder that each attempt gets a copy of, to work in; empty for an empty one."""

        def __post_init__(self) -> None:
            if bool(self.command) == bool(self.agent):
                raise ValueError("name the agent either by `command` or by `agent`")

    options: Options
    deterministic = False
    isolation = "process"

    _session: Session | None = None
    _program: Program | None = None
    _base: Path | None = None
    _finished = False

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if options.judge and isinstance(options.judge, str):
            found(options.judge, "judge")  # a mistake shows before the first attempt
        for command in (options.command, options.judge):
            if command and isinstance(command, list) and shutil.which(command[0]) is None:
                raise UserError(f"There is no program {command[0]!r}; name one that is on the PATH, or its file.")
        if not options.tasks:
            raise UserError("env.tasks must name a file with a task on each line: id, split and data, as JSON.")
        return [task for task in read_tasks(Path(options.tasks)) if task.split == split]

    async def start(self, task: Task) -> Step:
        self._endpoint, self._task = Endpoint.here(), task
        self._base = Path(tempfile.mkdtemp(prefix="agent-"))
        self._folder, self._report = self._base / "work", self._base / "outcome.json"
        if self.options.folder:
            await asyncio.to_thread(shutil.copytree, self.options.folder, self._folder, symlinks=True)
        else:
            self._folder.mkdir()
        self._session = session = Session()
        self._endpoint.open(session)
        self._program = Program(*self._launch(task, session), self._folder)
        self._program.ended.add_done_callback(lambda _: session.leave())
        step = await self._next()
        if step.done:
            raise RuntimeError(f"the agent ended before it asked anything{self._program.last_words}")
        return step

    async def step(self, action: Message) -> Step:
        assert self._session is not None
        self._session.answer(action)
        return await self._next()

    async def finish(self) -> Outcome:
        if self._base is None:
            return Outcome(0.0, False)  # it was never started
        try:
            await self._end()
            outcome = await self._verdict()
            printed = self._program.output if self._program is not None else ""
            return replace(outcome, info={"output": printed} | outcome.info) if printed else outcome
        finally:
            if self._session is not None:
                self._endpoint.forget(self._session)
            scratch.remove(self._base)

    async def _next(self) -> Step:
        """The agent's next call, or its end."""
        assert self._session is not None and self._program is not None
        if step := await self._session.next():
            return step
        if code := self._program.ended.result():
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            raise RuntimeError(f"the agent {how}{self._program.last_words}")
        self._finished = True
        return Step(done=True)

    async def _end(self) -> None:
        """End the agent, with all that it started."""
        assert self._session is not None
        self._endpoint.close(self._session)
        if self._program is not None:
            await self._program.end(_PATIENCE)

    async def _verdict(self) -> Outcome:
        judge = self.options.judge
        if isinstance(judge, list):
            return await self._judged_by(judge)
        if judge:
            return await judged(found(judge, "judge"), self._attempt())
        outcome = reported(self._report)
        if outcome is None and self._finished:
            raise RuntimeError(
                "the agent ended without an outcome: write one to the file $LONGLOOP_OUTCOME, or set judge"
            )
        return outcome or Outcome(0.0, False, {"cut": True})

    def _attempt(self) -> Attempt:
        assert self._session is not None
        conversations = tuple(tuple(thread.messages) for thread in self._session.threads.all)
        output = self._program.output if self._program is not None else ""
        return Attempt(self._task, self._folder, conversations, output, self._finished)

    async def _judged_by(self, command: Sequence[str]) -> Outcome:
        """The verdict of a judge that is a program: it reports with a key that the agent has never seen."""
        assert self._session is not None
        said = [[asdict(message) for message in one] for one in self._attempt().conversations]
        conversations = self._folder.with_name("conversations.json")
        conversations.write_text(json.dumps(said))
        told = {
            "LONGLOOP_TASK": json.dumps(self._task.data),
            "LONGLOOP_CONVERSATIONS": str(conversations),
            "LONGLOOP_OUTCOME_URL": f"{self._endpoint.address}/outcome",
            "LONGLOOP_OUTCOME_KEY": self._session.judge_key,
        }
        program = Program(absolute(command), self._variables() | told, self._folder)
        try:
            code = await asyncio.shield(program.ended)
        finally:
            program.kill()
        if code or self._session.outcome is None:
            raise RuntimeError(f"the judge ended with code {code} and reported no outcome{program.last_words}")
        return outcome_of(self._session.outcome, "the judge")

    def _launch(self, task: Task, session: Session) -> tuple[list[str], dict[str, str]]:
        """The agent's command, and its environment variables."""
        told = {key: value for key, value in task.data.items() if key not in _SECRET}
        variables = self._variables() | {
            "OPENAI_BASE_URL": f"{self._endpoint.address}/v1",
            "OPENAI_API_KEY": session.key,
            "ANTHROPIC_BASE_URL": self._endpoint.address,
            "ANTHROPIC_API_KEY": session.key,
            "LONGLOOP_TASK": json.dumps(told),
        }
        if not self.options.judge:
            variables["LONGLOOP_OUTCOME"] = str(self._report)
        if not self.options.agent:
            return absolute(self.options.command), variables
        path = os.pathsep.join(str(Path(entry or ".").absolute()) for entry in sys.path)
        whole = json.dumps(asdict(replace(task, data=told)))
        return [*_FUNCTION, self.options.agent], variables | {"PYTHONPATH": path, "LONGLOOP_WHOLE_TASK": whole}

    def _variables(self) -> dict[str, str]:
        """Those of the worker, which has no others than it needs; elsewhere as few."""
        wanted = {*VARIABLES, "TMPDIR", *self.variables}
        return {key: value for key, value in os.environ.items() if worker.serving or key in wanted}
