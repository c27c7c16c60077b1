"""Trying an environment out: what its expert and its baselines score, at what cost, and whether it keeps its word."""

import itertools
import math
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from longloop.envs.contract import remarks
from longloop.envs.play import Played, Script, Silent, answered, cut, expert_of, play
from longloop.isolation.proxy import Remote
from longloop.protocols import Player
from longloop.types import Fault, Message, StopReason, Task, UserError

_EXPERT_TURNS = 1000
_WORDS, _WORD = 8, 200
"""Words that are tried where there is no expert, and the characters of each."""
_PATIENCE = 600.0
"""Seconds that an attempt may take."""
MALFORMED = (
    *(" ", "?", 'Action: {"\x00\x1b[31m": [', "Thought: nothing but a thought"),
    *("\N{GRINNING FACE} " * 20, "(" * 500, "never ending " * 1000),
)
"""Actions that no agent should say, and some will."""


@dataclass
class Score:
    """What one player got on a split."""

    rewards: list[float] = field(default_factory=list)
    successes: list[str] = field(default_factory=list)
    """The tasks it succeeded in."""
    failures: list[str] = field(default_factory=list)
    why: str = ""
    """How the first of the failures ended."""
    errors: dict[str, list[str]] = field(default_factory=dict)
    """Attempts that the environment broke off: what happened, and at which tasks."""
    steps: int = 0
    stepping: float = 0.0
    """Seconds in the environment's steps."""
    seconds: float = 0.0
    """Of whole attempts, their starts included."""
    memory: int = 0
    """The most bytes that were seen in use after an attempt."""
    remarks: dict[str, str] = field(default_factory=dict)
    """What is odd about the messages, and at which task it was seen first."""

    def add(self, task: Task, played: Played, seconds: float) -> None:
        self.rewards.append(played.outcome.reward)
        (self.successes if played.outcome.success else self.failures).append(task.id)
        if not played.outcome.success and not self.why:
            self.why = played.ending
        self.remarks |= dict.fromkeys(remarks(played.messages), task.id) | self.remarks
        self.steps += played.turns
        self.stepping += played.seconds
        self.seconds += seconds
        self.memory = max(self.memory, resident())

    @property
    def reward(self) -> float:
        return fmean(self.rewards) if self.rewards else math.nan

    @property
    def success(self) -> float:
        return len(self.successes) / len(self.rewards) if self.rewards else math.nan


async def scores(
    make: Callable[[], Any],
    tasks: Sequence[Task],
    *,
    expert: bool = True,
    seconds: float = math.inf,
    patience: float = _PATIENCE,
) -> dict[str, Score]:
    """Everyone who can play without a model: the expert, if there is one, and the baselines.

    Tasks are taken in turn until the seconds are over, the first one in any case. A baseline has the turns that an
    agent has by default, the expert as many as it needs.
    """
    found: dict[str, Score] = {}
    ends = time.perf_counter() + seconds
    for place, task in enumerate(tasks):
        if place and time.perf_counter() > ends:
            break
        began = time.perf_counter()
        name = "nothing"
        try:
            async with aclosing(contests(make, task, lambda name: expert or name != "expert")) as everyone:
                async for env, name, player in everyone:
                    score = found.setdefault(name, Score())
                    turns = {"max_turns": _EXPERT_TURNS} if name == "expert" else {}
                    try:
                        played = await play(env, task, player, **turns, patience=patience)
                    except Exception as error:
                        _note(score, task, error, patience)
                    else:
                        score.add(task, played, time.perf_counter() - began)
                    began = time.perf_counter()
        except Exception as error:  # before anyone could play
            _note(found.setdefault(name, Score()), task, error, patience)
    return found


def _note(score: Score, task: Task, error: Exception, patience: float) -> None:
    """Write down an attempt that came to nothing."""
    if isinstance(error, UserError):
        raise error
    late = isinstance(error, TimeoutError)
    text = f"it came to no end in {patience:g} s {error}".rstrip() if late else words(error)
    score.errors.setdefault(text, []).append(task.id)


async def contests(
    make: Callable[[], Any], task: Task, chosen: Callable[[str], bool]
) -> AsyncGenerator[tuple[Any, str, Player]]:
    """Who can play a task, each with an environment of their own: there they look for valid actions, and where it lives
    in a worker, so do they."""
    for number in itertools.count():
        env = make()
        everyone = list((await players(env, task, chosen)).items())
        yield env, *everyone[number]
        if number + 1 == len(everyone):
            return


async def players(env: Any, task: Task, chosen: Callable[[str], bool] = lambda name: True) -> dict[str, Player]:
    """The expert, if there is one, who does nothing, and the other baselines; of these the chosen ones."""
    found: dict[str, Player] = {}
    if chosen("expert") and (expert := expert_of(env, task)) is not None:  # to ask it may take a while
        found["expert"] = expert
    others = await answered(env.baselines(task)) if hasattr(env, "baselines") else {}
    return found | {name: player for name, player in ({"nothing": Silent()} | others).items() if chosen(name)}


def by_luck(environment: Any, player: str) -> bool:
    """Whether a baseline may succeed now and then without that being a fault."""
    return player.startswith("random") or player in getattr(environment, "lucky", ())


def spread(tasks: Sequence[Task]) -> list[Task]:
    """All the tasks, in an order of which any beginning lies evenly over them."""
    order = sorted(range(len(tasks)), key=lambda place: place * (math.sqrt(5) - 1) / 2 % 1)
    return [tasks[place] for place in order]


async def alone(make: Callable[[], Any], task: Task) -> Played:
    """An attempt that can be made again: the expert's, or where there is none some words that may mean something."""
    env = make()
    return await play(env, task, expert_of(env, task) or Script([*itertools.islice(_words(task.data), _WORDS), "?"]))


async def difference(make: Callable[[], Any], task: Task) -> str:
    """What is another when an attempt's actions are said again; empty when nothing is."""
    first = await alone(make, task)
    return _differs(first, await play(make(), task, Script(first.said)))


async def sharing(make: Callable[[], Any], tasks: Sequence[Task]) -> tuple[str, str]:
    """How attempts that are made side by side, turn by turn, disturb each other; and what the environment's class was
    seen to keep for all of them. Both empty when all is well.

    `make` is for guarded environments. Attempts in workers have a process each, which is as far apart as it gets.
    """
    env = make()
    kind = type(env.env)
    if issubclass(kind, Remote):
        return "", ""
    some = [*tasks[:2], tasks[0]]
    first, states = {}, []
    for task in some:
        first[task.id] = await alone(make, task)
        states.append(_class_state(kind))
    together = await _side_by_side(make, [(task, first[task.id].said) for task in some])
    states.append(_class_state(kind))
    changed = (
        name
        for one, other in itertools.pairwise(states)
        for name, value in other.items()
        if _is_other(one.get(name), value)
    )
    kept = f"{kind.__name__}.{name}" if (name := next(changed, "")) else ""
    if not getattr(env, "deterministic", True):
        return "", kept
    for task, played in zip(some, together, strict=True):
        if other := _differs(first[task.id], played):
            return f"at {task.id!r} {other}", kept
    return "", kept


async def _side_by_side(make: Callable[[], Any], attempts: Sequence[tuple[Task, Sequence[str]]]) -> list[Played]:
    """Every attempt is started before the first action, then each makes a turn, and again, until all have finished."""
    envs = [make() for _ in attempts]
    try:
        messages = [list(await env.start(task)) for env, (task, _) in zip(envs, attempts, strict=True)]
        for turn in range(max(len(said) for _, said in attempts)):
            for env, heard, (_, said) in zip(envs, messages, attempts, strict=True):
                if turn < len(said):
                    action = Message("assistant", said[turn])
                    heard += [action, *(await env.step(action)).messages]
        outcomes = [await env.finish() for env in envs]
    except BaseException:
        for env in envs:
            await env.leave()
        raise
    return [
        Played(heard, len(said), outcome)
        for heard, (_, said), outcome in zip(messages, attempts, outcomes, strict=True)
    ]


def _differs(first: Played, again: Played) -> str:
    """The first method that answered otherwise."""
    if first == again:
        return ""
    turns = 0
    for one, other in zip(first.messages, again.messages, strict=False):
        if one != other:
            method = f"step() gave another answer to action {turns}" if turns else "start() returned other messages"
            return f"{method} ({cut(one.content)!r}, then {cut(other.content)!r})"
        turns += one.role == "assistant"
    if len(first.messages) != len(again.messages):
        return f"step() answered action {turns} with more or fewer messages"
    paid = [f"{played.outcome.reward:g}" for played in (first, again)]
    return f"finish() gave another verdict (paid {paid[0]}, then {paid[1]})"


def _words(data: Any) -> Iterator[str]:
    """What a task's data names: where there is no expert, an answer may be among it."""
    if isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from _words(one)
    elif data not in (None, ""):
        yield str(data)[:_WORD]


def _class_state(environment: type) -> dict[str, Any]:
    """What a class and its bases hold besides methods."""
    return {
        name: value
        for kind in reversed(environment.__mro__[:-1])
        for name, value in vars(kind).items()
        if not name.startswith("__") and not callable(value) and not hasattr(value, "__get__")
    }


def _is_other(before: Any, after: Any) -> bool:
    """Whether an attribute was set to something else. A cache that has grown is still the same object."""
    try:
        return before is not after and bool(before != after)
    except Exception:
        return True


async def violations(make: Callable[[], Any], task: Task, repeatable: bool = True) -> list[str]:
    """What of the contract the answers to malformed actions, or a repeated attempt, break.

    What would fail at every task in the same way, or take as long again, is raised.
    """
    await play(make(), task, Silent(), patience=_PATIENCE)
    try:
        await play(make(), task, Script(MALFORMED), patience=_PATIENCE)
        other = await difference(make, task) if repeatable else ""
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, Fault) and error.stop is StopReason.TIMEOUT:
            raise
        return [words(error)]
    return [f"the same actions met something else the second time: {other}"] if other else []


def words(error: Exception) -> str:
    """What happened to an attempt."""
    return str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"


def splits(environment: type) -> tuple[str, ...]:
    """The splits that an environment says it has, or those that most have."""
    return getattr(environment, "splits", ("train", "dev", "test"))


def resident() -> int:
    """Bytes of memory in use by this process and all that descend from it; 0 where there is no /proc to tell."""
    pages, waiting = 0, [str(os.getpid())]
    while waiting:
        process = Path("/proc", waiting.pop())
        try:
            pages += int((process / "statm").read_text().split()[1])
            for children in process.glob("task/*/children"):
                waiting += children.read_text().split()
        except OSError:
            continue  # it has ended meanwhile
    return pages * os.sysconf("SC_PAGE_SIZE")
