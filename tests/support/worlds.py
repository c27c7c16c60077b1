"""Small environments, good and bad, and rollouts in them without a model."""

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.base import Environment
from longloop.model import tiny
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.tokens.chat import Chat
from longloop.types import Group, Message, Outcome, SamplingParams, Start, Step, Task

CHAT = Chat(tiny.tokenizer())
TASKS = [Task(f"task {n}", "train", {"number": n}) for n in range(3)]
NEVER = threading.Event()


@dataclass
class Log:
    """What the environments of a test have seen."""

    made: int = 0
    live: int = 0
    most: int = 0
    steps: int = 0
    started: list[str] = field(default_factory=list)
    finished: Counter[int] = field(default_factory=Counter)


class Env(Environment):
    """Two turns, then a reward of 1. Notes in the log what is done with it."""

    turns = 2

    def __init__(self, log: Log) -> None:
        self.log = log
        self.number = log.made
        log.made += 1
        log.live += 1
        log.most = max(log.most, log.live)

    async def start(self, task: Task) -> Sequence[Message]:
        self.log.started.append(task.id)
        await asyncio.sleep(0)
        return [Message("user", "go")]

    async def step(self, action: Message) -> Step:
        self.turns -= 1
        await asyncio.sleep(0)
        return Step([Message("user", "on")], done=self.turns == 0)

    async def finish(self) -> Outcome:
        self.note_finish()
        return Outcome(1.0, True, {"verdict": "good"})

    def note_finish(self) -> None:
        self.log.finished[self.number] += 1
        self.log.live -= 1


def default(environment: type[Environment]) -> Callable[[], Environment]:
    """What makes an environment with its default options."""
    return lambda: environment(environment.Options())


def rollouts(make: Callable[[], Any], *, abandon: bool = True, say: Any = ("a",), **limits: Any) -> GroupRollouts:
    engine = ScriptedEngine(None, CHAT, say if callable(say) else list(say))
    return GroupRollouts(
        RolloutContext(make, CHAT, engine, RolloutConfig(**limits), SamplingParams()), "test", abandon=abandon
    )


def starts(tasks: Sequence[Task]) -> list[Start]:
    return [Start(task) for task in tasks]


def collect(what: GroupRollouts, tasks: Sequence[Task] = TASKS[:1], k: int = 4, seed: int = 0) -> list[Group]:
    """Every test ends: what should take a moment may not take a minute."""
    return asyncio.run(asyncio.wait_for(what.play(starts(tasks), k, seed), 60))


async def hangs(self: Env, *_: Any) -> Any:
    await asyncio.Event().wait()


def with_fault(method: str, fault: Callable[..., Any]) -> type[Env]:
    """An environment of which one method is at fault."""
    body = fault
    if method == "finish" and inspect.iscoroutinefunction(fault):

        async def body(self: Env) -> Any:
            self.note_finish()
            return await fault(self)

    elif method == "finish":

        def body(self: Env) -> Any:
            self.note_finish()
            return fault(self)

    return type("Faulty", (Env,), {method: body})


def one_bad_among(bad: Callable[[Log], Any], log: Log) -> Callable[[], Any]:
    """The second environment that is made is the bad one."""
    return lambda: bad(log) if log.made == 1 else Env(log)


def raising(kind: type[BaseException], *words: str, plain: bool = False) -> Callable[..., Any]:
    async def in_async_code(self: Env, *_: Any) -> Any:
        raise kind(*words)

    def in_plain_code(self: Env, *_: Any) -> Any:
        raise kind(*words)

    return in_plain_code if plain else in_async_code
