"""What an environment is: the class that yours derives from, with every member that longloop reads.

Four methods are required: `tasks`, `start`, `step` and `finish`. All else has a default here. The methods may be
`async` or plain functions; plain ones run in a thread, so that their deadlines hold as well.

This file imports nothing but the standard library and `longloop.types`: workers load it in virtualenvs that have no
other package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from longloop.types import Message, Outcome, Step, Task

REQUIRED = ("tasks", "start", "step", "finish")


class Player(Protocol):
    """Someone who speaks text: an expert, a baseline, a person. Plays one attempt, seeing what an agent sees."""

    def act(self, messages: Sequence[Message]) -> str | Awaitable[str]:
        """Return what to say next, or an empty text when there is nothing more to do.

        `messages` holds only what has just arrived: what `start` returned, then what each `step` returned. A player
        that needs what came before, or its own words, keeps them (docs/guides/environment.md has an example).
        """
        ...


class Environment:
    """One attempt at one task: made, started, stepped, finished, thrown away. Speaks messages, never sees token ids."""

    @dataclass(frozen=True)
    class Options:
        """The settings of the `[env]` table. Define a class of this name for your own: a frozen dataclass, with a
        string under each field that says what it means. Their values may be whatever TOML can write."""

    options: Any
    """The settings of this run, an `Options`. All attempts share the object."""

    version: ClassVar[str] = ""
    """The version of the environment. Raise it with every change that alters a score: runs, evaluations and comparisons
    carry it, and longloop does not mix two of them silently. Empty for an environment that does not count versions."""
    splits: tuple[str, ...] = ("train", "dev", "test")
    """The names of its splits."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward that `finish` pays. A reward outside counts as an error of the environment;
    None takes any finite number."""
    deterministic: bool = True
    """The same actions always meet the same answers and the same verdict. `check` and `doctor` test it if so."""
    expert_splits: tuple[str, ...] | None = None
    """The splits whose tasks `expert` can do; None for all."""
    lucky: tuple[str, ...] = ()
    """Baselines that may succeed now and then. Those whose names begin with `random` always may."""
    stop: tuple[str, ...] = ()
    """Texts that end an action, besides the model's own end token and the strings in `rollout.stop`."""
    analysis: Mapping[str, Any] = {}
    """What `longloop analyze` looks for in its attempts (docs/analyze.md)."""

    isolation: Literal["inline", "process", "venv"] = "inline"
    """Where it runs unless the config says otherwise: in the trainer's process, in worker processes, or in workers with
    a virtualenv of its own."""
    requires: tuple[str, ...] = ()
    """Exact pip requirements of its virtualenv, which `longloop envs install` builds."""
    prepare: tuple[tuple[str, ...], ...] = ()
    """Commands of the virtualenv, run once after pip."""
    system: tuple[str, ...] = ()
    """Programs that must be on the PATH, such as `java`."""
    variables: tuple[str, ...] = ()
    """Environment variables that its workers get, besides a few common ones such as PATH and HOME."""
    writes: tuple[str, ...] = ()
    """Folders that its workers may write to, besides their temporary ones. They are made if they do not exist."""

    can_fork: bool = False
    """Whether the class defines `fork`. longloop sets it."""
    has_expert: bool = False
    """Whether the class defines `expert`. longloop sets it."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.can_fork, cls.has_expert = cls.defines("fork"), cls.defines("expert")

    def __init__(self, options: Any) -> None:
        """Keep it quick: the constructor has no deadline. Do slow work in `start`."""
        self.options = options

    @classmethod
    def tasks(cls, split: str, options: Any) -> Sequence[Task]:
        """Return the tasks of a split, each with an id of its own; an empty list for a split that it does not have."""
        raise NotImplementedError

    def start(self, task: Task) -> Sequence[Message] | Step | Awaitable[Sequence[Message] | Step]:
        """Begin the task, and return the first messages; at least one. Return a `Step` with them to give the agent
        tools."""
        raise NotImplementedError

    def step(self, action: Message) -> Step | Awaitable[Step]:
        """Answer an action, which may be any text. A malformed one gets a message that says what is wrong.

        Where the agent has tools, `action.calls` are the calls that could be read from its text; each is answered by a
        message with the role `tool` whose `call` is the call's id. A call that cannot be read is text like any other.

        `Step.info["state"]` may hold a key of the state that the next action meets (`state_key` makes one): a short
        text that is equal for equal states of a task, whatever led there, in copies and repetitions as well. Methods
        such as GiGPO compare turns that began in the same state. Without a key, every state counts as another.
        `Step.info["failed"]` may be True where the action was malformed or failed; GTPO makes the turn pay for it.
        """
        raise NotImplementedError

    def finish(self) -> Outcome | Awaitable[Outcome]:
        """Score the state that was reached, and clean up. Called once, also after an attempt that was cut short."""
        raise NotImplementedError

    async def ready(self) -> None:
        """Wait for what an attempt needs before its deadlines begin to count, such as a free worker."""

    def fork(self) -> Environment | Awaitable[Environment]:
        """Return an independent copy at this turn. Tree search needs it."""
        raise NotImplementedError

    def expert(self, task: Task) -> Player | None:
        """Return a player who can do the task, or None if there is none. Imitation needs one, and `longloop check`
        expects it to succeed."""
        return None

    def baselines(self, task: Task) -> Mapping[str, Player] | Awaitable[Mapping[str, Player]]:
        """Return players, by name, who must not succeed. Doing nothing is always tried as well."""
        return {}

    @classmethod
    def audit(cls, seeds: int, progress: Callable[[list[Any]], Iterable[Any]]) -> Iterable[str]:
        """Yield lines that `longloop check` prints about tests of the environment's own; one that begins with `FAULT `
        is a fault. `seeds` says how much to try, `progress` shows a bar while its list is walked through, and may end
        the walk early."""
        return ()

    @classmethod
    def scenarios(cls) -> Sequence[tuple[str, str, int, Sequence[str]]]:
        """Return (name, split, difficulty, apps) of each kind of task, for `longloop envs NAME`."""
        return ()

    @staticmethod
    def state_key(*state: Any) -> str:
        """Return a key for `Step.info["state"]`: equal for equal states. `state` holds JSON values."""
        return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=8).hexdigest()

    @classmethod
    def defines(cls, method: str) -> bool:
        """Whether the class, or one it derives from, defines this method instead of leaving it to the base."""
        return next(kind for kind in cls.__mro__ if method in vars(kind)) is not Environment


def declare_as(proxy: Environment | type[Environment], environment: Environment | type[Environment]) -> None:
    """Let a proxy, which passes calls on to an environment, declare what an attempt in the environment depends on."""
    proxy.has_expert, proxy.expert_splits = environment.has_expert, environment.expert_splits
    proxy.deterministic, proxy.lucky = environment.deterministic, environment.lucky
    proxy.reward_range = environment.reward_range
