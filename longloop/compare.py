"""Several methods on one environment: from the same start, with the same number of attempts, on the same tasks.

The config is that of a run. What a method needs besides stands in a table `[methods.NAME]`, as in the config itself
(`[methods.eto]` `steps = 3`, `[methods.eto.algo]` `lr = 1e-6`). The budget is the config's own: steps x tasks x K
attempts, the expert's counted like the policy's; a method that does not say how many steps it takes gets as many as
that allows.
"""

import copy
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from longloop.algos import ALGOS
from longloop.config import Config, nearest, read, resolve
from longloop.types import UserError

BASE = "base"
"""The model before any training, as a method."""
_STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
"""The 97.5% points of Student's t for 2, 3, ... 10 seeds."""

Scores = Mapping[str, float]
"""A task's id -> the share of its attempts that succeeded."""


@dataclass(frozen=True)
class Entry:
    """One run of the comparison."""

    method: str
    seed: int
    config: Config


class Plan:
    """What is to be run, in order: who others start from comes first."""

    def __init__(self, path: Path, overrides: Sequence[str], methods: Sequence[str], seeds: int, start: str) -> None:
        tree = read(path)
        self._own = tree.pop("methods", {})
        for name in self._own.keys() - {*ALGOS, *methods}:
            raise UserError(f"There is no method {name!r}, for which {path} has settings.{nearest(name, ALGOS)}")
        self._path, self._tree = path, tree
        self._base = resolve(tree, str(path), overrides)  # which also puts the overrides into the tree
        self.start = start
        self.folder = Path(self._base.folder) / self._base.name
        order = sorted(methods, key=lambda name: (name != BASE, name != start))
        self.entries = [Entry(name, seed, self._config(name, seed)) for name in order for seed in range(seeds)]

    def model(self, seed: int) -> Path:
        """Where the others' start is kept."""
        return self.folder / "models" / f"{self.start}-{seed}"

    def _config(self, method: str, seed: int) -> Config:
        from longloop.build import algorithm

        own = self._own.get(method, {})
        tree = copy.deepcopy(self._tree)
        if method != BASE and tree.get("algo", {}).get("name", "loop") != method:
            tree["algo"] = {}  # its settings are another method's
        _merge(tree, own)
        if method != BASE:
            tree["algo"] = {"name": method} | tree.get("algo", {})
        tree |= {"folder": str(self.folder), "name": f"{method}-{seed}", "seed": seed}
        if method not in (BASE, self.start) and self.start != BASE:
            tree.setdefault("model", {})["path"] = str(self.model(seed))
        config = resolve(tree, f"{self._path} ([methods.{method}] included)")
        if "steps" in own or method == BASE:
            return config
        budget = self._base.steps * self._base.tasks_per_step * algorithm(self._base).k
        steps = max(1, round(budget / (config.tasks_per_step * algorithm(config).k)))
        return config.model_copy(update={"steps": steps})


def _merge(tree: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping):
            _merge(tree.setdefault(key, {}), value)
        else:
            tree[key] = value


def over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and how far the 95% interval by Student's t reaches from it (0 for a single seed)."""
    if len(values) < 2:
        return fmean(values), 0.0
    return fmean(values), _STUDENT[min(len(values), 10) - 2] * stdev(values) / math.sqrt(len(values))


def paired(one: Sequence[Scores], other: Sequence[Scores], draws: int = 2000) -> tuple[float, float, float]:
    """How much better one is than the other on the same tasks: mean, and a 95% bootstrap interval over the tasks."""
    tasks = sorted(set[str]().union(*one) & set[str]().union(*other))
    gains = [_mean(task, one) - _mean(task, other) for task in tasks]
    draw = random.Random(0)
    means = sorted(fmean(draw.choices(gains, k=len(gains))) for _ in range(draws))
    return fmean(gains), means[int(0.025 * draws)], means[int(0.975 * draws)]


def _mean(task: str, runs: Sequence[Scores]) -> float:
    return fmean(run[task] for run in runs if task in run)
