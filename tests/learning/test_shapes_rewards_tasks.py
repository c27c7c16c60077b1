"""What methods learn besides success: to agree without labels, which tasks to take, in how many turns."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from longloop.algos.parts.rewards import Votes
from longloop.envs.guess import Guess
from longloop.types import Group, Task
from tests.learning.test_composed import COMMON
from tests.support.helpers import train


def agreement(groups: Sequence[Group]) -> float:
    """The mean share of its group that an attempt agrees with."""
    return fmean(share for group in groups for share in Votes().votes(group))


@pytest.mark.parametrize("name", ["empo", "ettrl"])
def test_without_labels_the_attempts_come_to_agree(tmp_path: Path, name: str) -> None:
    _, run, steps = train(tmp_path, f"algo.name={name}", *COMMON, "algo.lr=1e-2", "steps=20")
    assert len(steps) == 20
    assert agreement(run.trajectories.read(1)) < 0.3 and agreement(run.trajectories.read(20)) > 0.8


class HalfHopeless(Guess):
    """The guessing game, and as many tasks that nobody can solve."""

    @classmethod
    def tasks(cls, split: str, options: Any) -> Sequence[Task]:
        given = super().tasks(split, options)
        hopeless = [replace(t, id=f"hopeless {t.id}", data={"number": 99}, scenario="hopeless") for t in given]
        return [*(replace(task, scenario="guess") for task in given), *hopeless]


def test_the_bandit_takes_tasks_from_which_something_is_learned(tmp_path: Path) -> None:
    env = f"env.name={__name__}:HalfHopeless"
    _, run, _ = train(tmp_path, "algo.name=dump", env, *COMMON, "algo.kl=0.0", "algo.lr=1e-2", "steps=24")
    taken = [g.task.scenario for step in range(13, 25) for g in run.trajectories.read(step)]
    assert len(taken) == 12 * 6 and taken.count("guess") >= 0.65 * len(taken), taken.count("guess")
    assert "hopeless" in taken, "a source is tried again from time to time"


def test_attempts_become_longer_by_stages(tmp_path: Path) -> None:
    rounds = ["algo.rounds=[1,2]", "algo.every=2", "algo.kl=0.0"]
    *_, steps = train(tmp_path, "algo.name=scaling_inter", *COMMON, *rounds, "steps=4")
    assert [step["turns"] for step in steps[:2]] == [1.0, 1.0]
    assert all(step["turns"] > 1.5 for step in steps[2:])
