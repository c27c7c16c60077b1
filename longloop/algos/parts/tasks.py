"""Tasks: which ones a step takes, and how many turns an attempt may have."""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from longloop.algos.parts.part import Part, memory_of
from longloop.algos.parts.shape import by_attempt
from longloop.protocols import Tasks
from longloop.types import Group, Now, Sample, SampleSource, Task, UserError


class InOrder(Part):
    """The next tasks of the shuffled stream."""

    def take(self, tasks: Tasks, n: int, now: Now) -> list[Task]:
        return tasks.take(n)

    def max_turns(self, now: Now) -> int:
        """The most turns of an attempt in this step; 0 for the run's own limit."""
        return 0

    def learn(self, groups: Sequence[Group], samples: Sequence[Sample], now: Now) -> None:
        """Note what a step's tasks gave, for the choice of the next."""


class Bandit(InOrder):
    """DUMP's: tasks from the sources whose latest `window` attempts have the largest |A|, or that are hardly known.

    A source is a scenario, or a split where tasks have none. Within a source the tasks come in shuffled epochs. With
    one source this is `InOrder`; at a high temperature every source is equally likely.
    """

    temperature: float = 0.1
    window: int = 300

    def take(self, tasks: Tasks, n: int, now: Now) -> list[Task]:
        sources: dict[str, list[Task]] = defaultdict(list)
        for task in tasks.all:
            sources[source_of(task)].append(task)
        if len(sources) == 1:
            return tasks.take(n)
        memory = memory_of(self, now)
        chances = self.chances(sorted(sources), memory)
        taken = []
        for _ in range(n):
            draw = random.Random(f"source/{tasks.seed}/{tasks.taken}")
            (source,) = draw.choices(list(chances), list(chances.values()))
            tasks.taken += 1
            known = memory.setdefault(source, _unknown())
            epoch, index = divmod(known["taken"], len(sources[source]))
            known["taken"] += 1
            order = random.Random(f"{source}/{tasks.seed}/{epoch}").sample(sources[source], len(sources[source]))
            taken.append(order[index])
        return taken

    def chances(self, sources: Sequence[str], memory: dict[str, Any]) -> dict[str, float]:
        """How likely each source is drawn: the softmax of its upper confidence bound."""
        known = [memory.get(source, _unknown()) for source in sources]
        attempts = sum(one["attempts"] for one in known)
        bounds = [
            (fmean(one["sizes"]) if one["sizes"] else 0.0)
            + math.sqrt(2 * math.log(attempts + 1) / (one["attempts"] + 1))
            for one in known
        ]
        weights = [math.exp((bound - max(bounds)) / self.temperature) for bound in bounds]
        return {source: weight / math.fsum(weights) for source, weight in zip(sources, weights, strict=True)}

    def learn(self, groups: Sequence[Group], samples: Sequence[Sample], now: Now) -> None:
        """Note |A| of every scored attempt; it is 0 for one that was left out."""
        memory = memory_of(self, now)
        mean = by_attempt(samples, lambda s: s.advantages)
        found = sorted(
            (source_of(group.task), group.task.id, t.attempt, abs(mean.get(SampleSource(index, t.attempt), 0.0)))
            for index, group in enumerate(groups)
            for t in group.scored
        )
        for source, _, _, size in found:
            known = memory.setdefault(source, _unknown())
            known["attempts"] += 1
            known["sizes"] = [*known["sizes"], size][-self.window :]


class Horizon(InOrder):
    """ScalingInter-RL's: attempts have rounds[0] turns for `every` steps, then rounds[1] and so on; the last stays."""

    rounds: tuple[int, ...] = ()
    every: int = 100

    def __post_init__(self) -> None:
        if self.every < 1 or any(turns < 1 for turns in self.rounds):
            raise UserError("algo.rounds and algo.every must be at least 1: a stage has steps, an attempt turns.")

    def max_turns(self, now: Now) -> int:
        return self.rounds[min((now.step - 1) // self.every, len(self.rounds) - 1)] if self.rounds else 0


class EveryTwice(InOrder):
    """Each task in two steps: the next of the stream to plan for, then the same ones to act on the plans."""

    def take(self, tasks: Tasks, n: int, now: Now) -> list[Task]:
        before = [] if planning(now) else [group.task for group in now.past(now.step - 1)]
        return before or tasks.take(n)


def planning(now: Now) -> bool:
    """Whether this step learns to plan: every other does, beginning with the first."""
    return now.step % 2 == 1


def source_of(task: Task) -> str:
    return task.scenario or task.split


def _unknown() -> dict[str, Any]:
    return {"taken": 0, "attempts": 0, "sizes": []}
