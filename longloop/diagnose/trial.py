"""Trials of an environment without a model: what its players score, at what cost, and whether it keeps its contract."""

import contextlib
import itertools
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import psutil

from longloop.envs.base import Environment, Player
from longloop.envs.calls import spoken
from longloop.envs.contract import NoExpert, remarks
from longloop.envs.play import Played, Script, Silent, answered, cut, expert_of, key_of, play
from longloop.isolation.guard import Watched
from longloop.isolation.proxy import Remote
from longloop.types import Fault, Step, StopReason, Task, UserError

Make = Callable[[], Watched]

_EXPERT_TURNS = 1000
_WORDS, _WORD = 8, 200
"""How many of a task's words are tried if there is no expert, and the most characters of each."""
_PATIENCE = 600.0
"""Seconds that an attempt may take."""
_OFTEN = 0.1
"""Seconds between two looks at the memory, for which all processes are gone through: an attempt may take less."""
MALFORMED = (
    *(" ", "?", 'Action: {"\x00\x1b[31m": [', "Thought: nothing but a thought"),
    *("\N{GRINNING FACE} " * 20, "(" * 500, "never ending " * 1000),
)
"""Actions that no agent should take, but some will."""


@dataclass
class Score:
    """What one player got on a split."""

    rewards: list[float] = field(default_factory=list)
    successes: list[str] = field(default_factory=list)
    """The tasks at which it succeeded."""
    failures: list[str] = field(default_factory=list)
    why: str = ""
    """How the first failure ended."""
    errors: dict[str, list[str]] = field(default_factory=dict)
    """Attempts that the environment ended with an error: what happened, and at which tasks."""
    steps: int = 0
    stepping: float = 0.0
    """Seconds spent in the environment's steps."""
    seconds: float = 0.0
    """Seconds of whole attempts, their starts included."""
    memory: int = 0
    """The most bytes that were in use after an attempt."""
    looked: float = -math.inf
    """When that was looked at last."""
    remarks: dict[str, str] = field(default_factory=dict)
    """What is odd about the messages, and the first task where it was seen."""

    def add(self, task: Task, played: Played, seconds: float) -> None:
        self.rewards.append(played.outcome.reward)
        (self.successes if played.outcome.success else self.failures).append(task.id)
        if not played.outcome.success and not self.why:
            self.why = played.ending
        self.remarks |= dict.fromkeys(remarks(played.messages, played.opening), task.id) | self.remarks
        self.steps += played.turns
        self.stepping += played.seconds
        self.seconds += seconds
        if time.perf_counter() - self.looked >= _OFTEN:
            self.memory, self.looked = max(self.memory, resident()), time.perf_counter()

    @property
    def reward(self) -> float:
        return fmean(self.rewards) if self.rewards else math.nan

    @property
    def success(self) -> float:
        return len(self.successes) / len(self.rewards) if self.rewards else math.nan


async def scores(
    make: Callable[[], Environment],
    tasks: Sequence[Task],
    *,
    expert: bool = True,
    seconds: float = math.inf,
    patience: float = _PATIENCE,
) -> dict[str, Score]:
    """Return the scores of everyone who can play without a model: the expert, if there is one, and the baselines.

    Tasks are played in their order until `seconds` have passed, the first one in any case. A baseline has as many turns
    as an agent by default, the expert as many as it needs.
    """
    found: dict[str, Score] = {}
    ends = time.perf_counter() + seconds
    for index, task in enumerate(tasks):
        if index and time.perf_counter() > ends:
            break
        began = time.perf_counter()
        name = "nothing"
        try:
            async with aclosing(contests(make, task, lambda name: expert or name != "expert")) as everyone:
                async for env, name, player in everyone:
                    score = found.get(name, Score())
                    turns = {"max_turns": _EXPERT_TURNS} if name == "expert" else {}
                    try:
                        played = await play(env, task, player, **turns, patience=patience)
                    except NoExpert:  # in a worker, this shows when it is asked to act
                        continue
                    except Exception as error:
                        _note(score, task, error, patience)
                    else:
                        score.add(task, played, time.perf_counter() - began)
                    found[name] = score
                    began = time.perf_counter()
        except Exception as error:  # before anyone could play
            _note(found.setdefault(name, Score()), task, error, patience)
    return found


def _note(score: Score, task: Task, error: Exception, patience: float) -> None:
    """Record an attempt that ended with an error."""
    if isinstance(error, UserError):
        raise error
    late = isinstance(error, TimeoutError)
    text = f"it came to no end in {patience:g} s {error}".rstrip() if late else words(error)
    score.errors.setdefault(text, []).append(task.id)


async def contests(
    make: Callable[[], Environment], task: Task, chosen: Callable[[str], bool]
) -> AsyncGenerator[tuple[Environment, str, Player]]:
    """Yield those who can play a task, each with an environment of its own: a player may ask it for valid actions, and
    lives in its worker, if there is one."""
    for number in itertools.count():
        env = make()
        everyone = list((await players(env, task, chosen)).items())
        yield env, *everyone[number]
        if number + 1 == len(everyone):
            return


async def players(env: Environment, task: Task, chosen: Callable[[str], bool] = lambda name: True) -> dict[str, Player]:
    """Return the chosen ones among the expert, if there is one, `nothing`, and the other baselines."""
    found: dict[str, Player] = {}
    if chosen("expert") and (expert := expert_of(env, task)) is not None:  # asking for it may take a while
        found["expert"] = expert
    others = await answered(env.baselines(task))
    return found | {name: player for name, player in ({"nothing": Silent()} | others).items() if chosen(name)}


def by_luck(environment: Environment | type[Environment], player: str) -> bool:
    """Return whether a baseline may succeed now and then without that being a fault."""
    return player.startswith("random") or player in environment.lucky


def evenly_spaced(tasks: Sequence[Task]) -> list[Task]:
    """Return all tasks, ordered so that the first n of them, for any n, are spaced evenly over the list."""
    order = sorted(range(len(tasks)), key=lambda index: index * (math.sqrt(5) - 1) / 2 % 1)
    return [tasks[index] for index in order]


async def alone(make: Callable[[], Environment], task: Task) -> Played:
    """Play an attempt that can be repeated: the expert's, or if there is none, words of the task that may mean
    something."""
    env = make()
    words = Script([*itertools.islice(_words(task.data), _WORDS), "?"])
    try:
        return await play(env, task, expert_of(env, task) or words)
    except NoExpert:
        return await play(make(), task, words)


async def difference(make: Callable[[], Environment], task: Task) -> str:
    """Repeat an attempt, and say what was different the second time; empty if nothing was."""
    first = await alone(make, task)
    return _differs(first, await play(make(), task, Script(first.said)))


async def sharing(make: Make, tasks: Sequence[Task]) -> tuple[str, str]:
    """Play attempts side by side, turn by turn. Return how they disturbed each other, and which attribute of the
    environment's class they changed for all; empty texts if all is well.

    Attempts in workers are not tried, since each has a process of its own.
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
    if not env.deterministic:
        return "", kept
    for task, played in zip(some, together, strict=True):
        if other := _differs(first[task.id], played):
            return f"at {task.id!r} {other}", kept
    return "", kept


async def _side_by_side(make: Make, attempts: Sequence[tuple[Task, Sequence[str]]]) -> list[Played]:
    """Start every attempt before the first action, then let each take a turn, and so on until all have finished."""
    envs = [make() for _ in attempts]
    states: list[list[str]] = [[] for _ in attempts]
    try:
        first = [Step.of(await env.start(task)) for env, (task, _) in zip(envs, attempts, strict=True)]
        messages = [list(step.messages) for step in first]
        openings = [len(heard) for heard in messages]
        for turn in range(max(len(said) for _, said in attempts)):
            for env, begun, heard, keys, (_, said) in zip(envs, first, messages, states, attempts, strict=True):
                if turn < len(said):
                    action = spoken(said[turn], begun.tools)
                    step = await env.step(action)
                    heard += [action, *step.messages]
                    keys.append(key_of(step))
        outcomes = [await env.finish() for env in envs]
    except BaseException:
        for env in envs:
            await env.leave()
        raise
    return [
        Played(heard, opening, len(said), outcome, tuple(keys))
        for heard, opening, (_, said), outcome, keys in zip(messages, openings, attempts, outcomes, states, strict=True)
    ]


def _differs(first: Played, again: Played) -> str:
    """Say which method first gave another answer; empty if none did."""
    if first == again:
        return ""
    turns = 0
    for place, (one, other) in enumerate(zip(first.messages, again.messages, strict=False)):
        if one != other:
            method = f"step() gave another answer to action {turns}" if turns else "start() returned other messages"
            return f"{method} ({cut(one.content)!r}, then {cut(other.content)!r})"
        turns += one.role == "assistant" and place >= first.opening
    if len(first.messages) != len(again.messages):
        return f"step() answered action {turns} with more or fewer messages"
    for number, keys in enumerate(zip(first.states, again.states, strict=True), 1):
        if keys[0] != keys[1]:
            return f"step() gave another info['state'] after action {number} ({keys[0]!r}, then {keys[1]!r})"
    paid = [f"{played.outcome.reward:g}" for played in (first, again)]
    return f"finish() gave another verdict (paid {paid[0]}, then {paid[1]})"


def _words(data: Any) -> Iterator[str]:
    """Yield the values in a task's data, since one of them may be the answer."""
    if isinstance(data, dict | list):
        for one in data.values() if isinstance(data, dict) else data:
            yield from _words(one)
    elif data not in (None, ""):
        yield str(data)[:_WORD]


def _class_state(environment: type) -> dict[str, Any]:
    """Return the attributes of a class and its bases that are not methods."""
    return {
        name: value
        for kind in reversed(environment.__mro__[:-1])
        for name, value in vars(kind).items()
        if not name.startswith("__") and not callable(value) and not hasattr(value, "__get__")
    }


def _is_other(before: Any, after: Any) -> bool:
    """Return whether an attribute was set to another value. A cache that has grown is still the same object."""
    try:
        return before is not after and bool(before != after)
    except Exception:
        return True


async def violations(make: Callable[[], Environment], task: Task, repeatable: bool = True) -> list[str]:
    """Return how the environment breaks the contract when it meets malformed actions, or a repeated attempt.

    Raises what every task would meet in the same way: a failure without any action, or a timeout.
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
    """Describe the error that ended an attempt."""
    return str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"


def resident() -> int:
    """Return the bytes of memory in use by this process and its descendants."""
    this, total = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            total += process.memory_info().rss
    return total
