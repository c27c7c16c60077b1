"""Trying an environment out: what its expert and its baselines score, at what cost, and whether it keeps its word."""

import itertools
import json
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from longloop.envs.play import Played, Script, Silent, answered, expert_of, play
from longloop.interfaces import Player
from longloop.types import Task, UserError

_EXPERT_TURNS = 1000
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
    errors: list[str] = field(default_factory=list)
    """Attempts that the environment broke off, in its words."""
    steps: int = 0
    stepping: float = 0.0
    """Seconds in the environment's steps."""
    seconds: float = 0.0
    """Of whole attempts, their starts included."""
    memory: int = 0
    """The most bytes that were seen in use after an attempt."""

    def add(self, task: Task, played: Played, seconds: float) -> None:
        self.rewards.append(played.outcome.reward)
        (self.successes if played.outcome.success else self.failures).append(task.id)
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
        async for env, name, player in contests(make, task, lambda name: expert or name != "expert"):
            score = found.setdefault(name, Score())
            try:
                turns = {"max_turns": _EXPERT_TURNS} if name == "expert" else {}
                played = await play(env, task, player, **turns, patience=patience)
            except UserError:
                raise
            except TimeoutError as error:
                score.errors.append(f"{task.id}: {name} came to no end in {patience:g} s {error}".rstrip())
            except Exception as error:
                score.errors.append(f"{task.id}: {name} met {type(error).__name__}: {error}")
            else:
                score.add(task, played, time.perf_counter() - began)
            began = time.perf_counter()
    return found


async def contests(
    make: Callable[[], Any], task: Task, chosen: Callable[[str], bool]
) -> AsyncIterator[tuple[Any, str, Player]]:
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


async def repeats(make: Callable[[], Any], task: Task) -> bool:
    """Whether the expert's actions, said again, meet the same answers and the same score."""
    env = make()
    first = await play(env, task, expert_of(env, task) or Script(["something"]))
    said = [message.content for message in first.messages if message.role == "assistant"]
    again = await play(make(), task, Script(said))
    return first == again


async def violations(make: Callable[[], Any], task: Task, repeatable: bool = True) -> list[str]:
    """What of the contract a task's data, the answers to malformed actions, or a repeated attempt break."""
    broken = []
    try:
        if json.loads(json.dumps(task.data)) != task.data:
            raise TypeError("it reads back differently")
    except (TypeError, ValueError) as error:
        broken.append(f"{task.id}: the task's data must be JSON values ({error}).")
    try:
        await play(make(), task, Script(MALFORMED), patience=_PATIENCE)
    except UserError:
        raise
    except Exception as error:
        broken.append(f"{task.id}: any text is an action, but a malformed one met {type(error).__name__}: {error}.")
    else:
        if repeatable and not await repeats(make, task):
            broken.append(f"{task.id}: the same actions met other answers or another score the second time.")
    return broken


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
