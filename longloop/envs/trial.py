"""Trying an environment out: what its expert and its baselines score, and whether a repeated attempt is the same."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from longloop.envs.play import Played, Script, Silent, answered, play
from longloop.interfaces import Player
from longloop.types import Task


@dataclass
class Score:
    """What one player got on a split."""

    rewards: list[float] = field(default_factory=list)
    successes: list[str] = field(default_factory=list)
    """The tasks it succeeded in."""
    failures: list[str] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0

    def add(self, task: Task, played: Played, seconds: float) -> None:
        self.rewards.append(played.outcome.reward)
        (self.successes if played.outcome.success else self.failures).append(task.id)
        self.steps += played.turns
        self.seconds += seconds

    @property
    def reward(self) -> float:
        return fmean(self.rewards)

    @property
    def success(self) -> float:
        return len(self.successes) / len(self.rewards)


async def scores(make: Callable[[], Any], tasks: Sequence[Task], *, expert: bool = True) -> dict[str, Score]:
    """Everyone who can play without a model, on every task: the expert, if there is one, and the baselines."""
    found: dict[str, Score] = {}
    for task in tasks:
        for number in itertools.count():
            env = make()
            everyone = await players(env, task, expert)
            name, player = list(everyone.items())[number]
            began = time.perf_counter()
            played = await play(env, task, player)
            found.setdefault(name, Score()).add(task, played, time.perf_counter() - began)
            if number + 1 == len(everyone):
                break
    return found


async def players(env: Any, task: Task, expert: bool = True) -> dict[str, Player]:
    """Who can play a task in this environment: where it lives in a worker, so do they."""
    known: dict[str, Player] = {"expert": env.expert(task)} if expert and hasattr(env, "expert") else {}
    return known | (await answered(env.baselines(task)) if hasattr(env, "baselines") else {"nothing": Silent()})


async def repeats(make: Callable[[], Any], task: Task) -> bool:
    """Whether the expert's actions, said again, meet the same answers and the same score."""
    env = make()
    first = await play(env, task, env.expert(task) if hasattr(env, "expert") else Script(["something"]))
    said = [message.content for message in first.messages if message.role == "assistant"]
    again = await play(make(), task, Script(said))
    return first == again


def splits(environment: type) -> tuple[str, ...]:
    """The splits that an environment says it has, or those that most have."""
    return getattr(environment, "splits", ("train", "dev", "test"))
