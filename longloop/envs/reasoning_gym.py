"""Reasoning Gym: questions made from seeds, in a hundred kinds from sums to sudoku, each with a scorer of its own.

The generators of Stojanovski et al. (2025) in version 0.1.25. `env.datasets` names one or several of them, each with
the settings that make it easy or hard. An attempt is a single answer: what stands between <answer> and </answer>, or
all that the agent said if it wrote no such tags.

The reward is the dataset's own score, 0 to 1, and success is a score of 1. The expert says the reference answer.
"""

import functools
import importlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.envs.base import Environment, Player
from longloop.envs.play import Script, Silent
from longloop.types import Message, Outcome, Step, Task, UserError

SYSTEM = """Think about the question, then give the final answer between <answer> and </answer>."""
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SEEDS = {"train": 0, "dev": 1_000_000, "test": 2_000_000}
"""A dataset makes item n from its seed plus n, so these are far apart."""

_EXAMPLES = ("example_answer", "example_correct_answer", "possible_answer")
"""Where datasets that take several answers keep a right one."""


class ReasoningGym(Environment):
    @dataclass(frozen=True)
    class Options:
        datasets: dict[str, dict[str, Any]] = field(default_factory=lambda: {"chain_sum": {}})
        """The datasets by name, each with its settings: `{chain_sum = {min_terms = 2, max_terms = 3}, gcd = {}}`."""
        count: int = 500
        """Tasks of each dataset in each of train, dev and test."""

    options: Options
    isolation = "venv"
    requires = ("reasoning-gym==0.1.25",)
    reward_range = (0.0, 1.0)

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._answer: str | None = None

    @classmethod
    def tasks(cls, split: str, options: Options) -> Sequence[Task]:
        if split not in cls.splits:
            return []
        if not 0 < options.count <= _SEEDS["dev"]:
            raise UserError(f"env.count = {options.count}: it must lie between 1 and {_SEEDS['dev']:,}.")
        for name in options.datasets:
            _dataset(options, name, split)  # a mistake shows before the first attempt
        return [
            Task(f"{name}/{split}/{n}", split, {"dataset": name, "index": n}, scenario=name)
            for n in range(options.count)
            for name in options.datasets
        ]

    def start(self, task: Task) -> Sequence[Message]:
        self._task = task
        return [Message("system", SYSTEM), Message("user", self._item(task.data["index"])["question"])]

    def step(self, action: Message) -> Step:
        tagged = _ANSWER.findall(action.content)
        self._answer = (tagged[-1] if tagged else action.content).strip()
        return Step(done=True)

    def finish(self) -> Outcome:
        if self._answer is None:
            return Outcome(0.0, False)
        item = self._item(self._task.data["index"])
        try:
            score = float(self._dataset.score_answer(self._answer, item))
        except Exception as error:  # some scorers parse the answer, which is any text
            return Outcome(0.0, False, {"key": self._answer, "scorer": f"{type(error).__name__}: {error}"})
        reward = min(max(score, 0.0), 1.0)
        return Outcome(reward, reward == 1.0, {"key": self._answer})

    def expert(self, task: Task) -> Player | None:
        """Return a player who says the reference answer, if the dataset has one."""
        self._task = task
        said = _said(self._item(task.data["index"]))
        return Script(said) if said else None

    def baselines(self, task: Task) -> dict[str, Player]:
        """`random` says the reference answer of the next task of the dataset."""
        self._task = task
        return {"nothing": Silent(), "random": Script(_said(self._item((task.data["index"] + 1) % self.options.count)))}

    @property
    def _dataset(self) -> Any:
        return _dataset(self.options, self._task.data["dataset"], self._task.split)

    def _item(self, index: int) -> dict[str, Any]:
        return self._dataset[index]


def _said(item: dict[str, Any]) -> list[str]:
    """What to say to give the reference answer, if there is one. Where several answers are right, it is an example in
    the item's metadata."""
    answer = item["answer"]
    if answer is None:
        found = [item["metadata"][key] for key in _EXAMPLES if key in item["metadata"]]
        answer = found[0] if found else None
    if answer is None:
        return []
    return [f"<answer>{answer if isinstance(answer, str) else json.dumps(answer)}</answer>"]


def _dataset(options: ReasoningGym.Options, name: str, split: str) -> Any:
    return _made(name, json.dumps(options.datasets[name]), _SEEDS[split], options.count)


@functools.lru_cache(maxsize=1000)
def _made(name: str, settings: str, seed: int, count: int) -> Any:
    gym = importlib.import_module("reasoning_gym")
    try:
        return gym.create_dataset(name, **json.loads(settings), seed=seed, size=count)
    except (ValueError, TypeError, AssertionError) as error:
        raise UserError(f"env.datasets.{name} = {settings}: {error}.") from error
