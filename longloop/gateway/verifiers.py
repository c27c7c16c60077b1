"""verifiers: the environments of that library, such as those of the Environments Hub, as they are.

`env.id` names a module whose `load_environment` makes one: a `MultiTurnEnv` or what derives from it (`SingleTurnEnv`,
`ToolEnv`, `StatefulToolEnv`), or an `EnvGroup` of them. Such an environment asks a model by itself, so it is played as
an agent is: its own loop runs, and what it asks its client is what the policy reads and answers. Prompts, tools, stop
conditions and rubric are its own.

The package is version 0.3.1, the last with these classes. The reward is the rubric's.
"""

import asyncio
import functools
import importlib
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from longloop.envs.base import Environment
from longloop.gateway import fields
from longloop.gateway.request import Refused, Reply, Request
from longloop.gateway.session import Session
from longloop.types import Call, Message, Outcome, Step, Task, UserError

_HELD_OUT = 10
"""Of an environment without data for evaluation, one example in so many is held out for `dev`."""


class Verifiers(Environment):
    """Derive from it to install packages beside verifiers (`requires`) or to hand keys to a judge (`variables`)."""

    @dataclass(frozen=True)
    class Options:
        id: str = ""
        """The environment: a module with a function `load_environment`, installed or in the folder where you start."""
        arguments: dict[str, Any] = field(default_factory=dict)
        """What `load_environment` is called with."""
        success: float = 1.0
        """The reward from which on an attempt is a success."""

    options: Options
    splits = ("train", "dev")
    isolation = "venv"
    requires = ("verifiers==0.3.1",)
    variables = ("HF_HOME", "HF_HUB_OFFLINE")
    writes = (os.environ.get("HF_HOME", "~/.cache/huggingface"),)
    """Many environments take their data from the Hugging Face hub."""

    _rollout: asyncio.Task[Any] | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if split not in cls.splits:
            return []
        environment = _loaded(options)
        if environment.requires_group_rollouts:
            raise UserError(
                f"env.id = {options.id!r}: its rubric scores several attempts together, and longloop scores each by "
                "itself. Give it reward functions of single attempts."
            )
        examples, numbers = _examples(environment, split)
        answers = examples["answer"] if "answer" in examples.column_names else None
        known = {n: [answers[n]] for n in numbers if isinstance(answers[n], str)} if answers is not None else {}
        return [
            Task(f"{split}/{n}", split, {"index": n} | ({"answers": known[n]} if n in known else {})) for n in numbers
        ]

    async def start(self, task: Task) -> Step:
        self._environment = _loaded(self.options)
        self._session = Session()
        examples, _ = _examples(self._environment, task.split)
        row = dict(examples[task.data["index"]])
        self._rollout = asyncio.create_task(self._environment.rollout(row, _client(self._session), "policy", {}))
        self._rollout.add_done_callback(lambda _: self._session.leave())
        step = await self._next()
        if step.done:
            raise RuntimeError("the environment ended before it asked anything")
        return step

    async def step(self, action: Message) -> Step:
        self._session.answer(action)
        return await self._next()

    async def finish(self) -> Outcome:
        if self._rollout is None:
            return Outcome(0.0, False)  # it was never started
        self._session.close()
        state = await self._rollout
        _raise_error(state)
        rubric = self._environment.rubric
        try:
            with _Complaints() as complaints:
                await rubric.score_rollout(state)
        finally:
            await rubric.cleanup(state)
        if complaints.heard and state["trajectory"]:  # the rubric takes a 0 for it; of nobody's words it may
            raise RuntimeError(complaints.heard[0])
        reward = float(state["reward"])
        info = {"metrics": state["metrics"], "stop": state.get("stop_condition")}
        return Outcome(reward, reward >= self.options.success, json.loads(json.dumps(info, default=str)))

    async def _next(self) -> Step:
        """What the environment asks next, or its end."""
        assert self._rollout is not None
        if step := await self._session.next():
            return step
        state = self._rollout.result()
        _raise_error(state)
        return Step(_told(state.get("final_env_response")), done=True)


class _Complaints(logging.Handler):
    """Listens to what verifiers logs as an error: that is all that becomes of a reward function that fails."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())

    def __enter__(self) -> "_Complaints":
        logging.getLogger("verifiers").addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("verifiers").removeHandler(self)


def _client(session: Session) -> Any:
    """A client, as the package's environments know them, whose calls the policy answers."""
    clients, errors, types = (importlib.import_module(f"verifiers.{name}") for name in ("clients", "errors", "types"))

    base: Any = clients.OpenAIChatCompletionsClient

    class Policy(base):
        async def get_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **others: Any
        ) -> Any:
            request = Request(_messages(prompt), tuple(_tool(tool) for tool in tools or ()))
            try:
                reply = await session.ask(request, {"call": secrets.token_hex(8)})
            except Refused as error:  # the attempt was cut off; this ends the loop and keeps what was reached
                raise errors.OverlongPromptError(str(error)) from error
            return types.Response(id=reply.id, created=int(time.time()), model=model, message=_said(types, reply))

    return Policy(None)


def _said(types: Any, reply: Reply) -> Any:
    """The policy's answer, in the package's words."""
    calls = [types.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in reply.message.calls]
    return types.ResponseMessage(
        content=reply.message.content,
        tool_calls=calls or None,
        finish_reason={"calls": "tool_calls"}.get(reply.finish, reply.finish),
        is_truncated=reply.finish == "length",
    )


def _messages(given: Sequence[Any]) -> tuple[Message, ...]:
    """The package's messages, in ours."""
    return tuple(_message(one if isinstance(one, Mapping) else one.model_dump()) for one in given)


def _message(given: Mapping[str, Any]) -> Message:
    calls = tuple(Call(call["id"], call["name"], call["arguments"]) for call in given.get("tool_calls") or ())
    role = "user" if given["role"] == "text" else given["role"]
    try:
        content = fields.text_of(given["content"], f"a {role} message")
    except Refused as error:
        raise RuntimeError(str(error)) from error
    return Message(role, content, calls, given.get("tool_call_id") or "")


def _told(final: Any) -> tuple[Message, ...]:
    """What an environment says at its end: messages, a text, or nothing."""
    return (Message("user", final),) if isinstance(final, str) else _messages(final or ())


def _tool(tool: Any) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


def _raise_error(state: Any) -> None:
    """Raise what went wrong in an environment, which keeps it in its state."""
    if error := state.get("error"):
        cause = error.__cause__ or error
        raise RuntimeError(f"the environment failed: {type(cause).__name__}: {cause}") from error


def _examples(environment: Any, split: str) -> tuple[Any, Sequence[int]]:
    """The dataset of a split, and the numbers of its examples there."""
    train, evaluation = environment.build_dataset(), environment.build_eval_dataset()
    if train is not None and evaluation is not None:
        chosen = train if split == "train" else evaluation
        return chosen, range(len(chosen))
    only = train if train is not None else evaluation
    return only, [n for n in range(len(only)) if (n % _HELD_OUT == _HELD_OUT - 1) == (split == "dev")]


def _loaded(options: Verifiers.Options) -> Any:
    if not options.id:
        raise UserError("env.id must name an environment; docs/environments/verifiers.md has an example.")
    return _made(options.id, json.dumps(options.arguments))


@functools.lru_cache(maxsize=8)
def _made(id: str, arguments: str) -> Any:
    verifiers = importlib.import_module("verifiers")
    with suppress(AttributeError, ImportError):  # the progress bars of its datasets
        importlib.import_module("datasets").disable_progress_bars()
    try:
        return verifiers.load_environment(id, **json.loads(arguments))
    except Exception as error:
        raise UserError(f"env.id = {id!r} with env.arguments = {arguments}: {error}") from error
