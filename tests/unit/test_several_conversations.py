"""An attempt with several conversations has its turns one conversation after the other. Methods that go by the order of
turns in time refuse it, and those that credit whole attempts credit every turn of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from longloop.build import named
from longloop.registry import ALGOS
from longloop.types import Group, Sample, UserError
from tests.support.samples import NOW, attempt, group

BY_TIME = (
    *("vineppo", "pav", "drpo", "arpo", "aepo", "gigpo", "igpo", "gtpo", "eapo", "archer", "turn_ppo"),
    *("reinforce_value", "digirl", "tppo", "empg", "aspo", "dmpo", "tree_dpo", "agent_q", "mcts_ipl"),
    *("empo", "ettrl", "seed_grpo"),  # by the last action, where nothing says what an attempt came to
)
BY_STATE = ("stepagent_implicit", "stepagent_inverse")
"""Methods that practise single turns, each from what its own conversation had read."""
NOBODY = cast(Any, None)
"""A learner that is not asked: refusals come first."""


class Reader:
    """A learner whose columns go by the token alone."""

    def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
        return [s.with_columns(**{name: np.sin(s.ids) * s.mask for name in columns}) for s in samples]


def three_turns(*threads: str) -> Group:
    """Two attempts and the expert's, with turns in these conversations."""
    plain = group(1.0, 0.0, sizes=(2, 1, 2))
    attempts = *plain.trajectories, replace(attempt(1.0, (2, 1, 2), 2), expert=True)
    return replace(
        plain,
        trajectories=tuple(
            replace(t, turns=tuple(replace(turn, thread=one) for turn, one in zip(t.turns, threads, strict=True)))
            for t in attempts
        ),
    )


TWO = three_turns("", "", "helper")


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in BY_TIME), ("ppo", {"lam": 0.9}), ("ppo", {"gamma": 0.9})]
)
def test_methods_that_go_by_time_refuse_it(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="Attempt 0 at task 'task' has several conversations"):
        named({"name": name}, ALGOS, "algo")(**options).credit([TWO], NOBODY, NOW)


@pytest.mark.parametrize("name", sorted({*ALGOS} - {*BY_TIME, *BY_STATE}))
def test_all_other_methods_credit_it_as_if_it_had_one(name: str) -> None:
    algo = named({"name": name}, ALGOS, "algo")()
    one, other = (
        algo.credit([of], cast(Any, Reader()), replace(NOW, memory={})) for of in (TWO, three_turns("", "", ""))
    )
    assert len(one) > 0
    assert [sample.advantages.tolist() for sample in one] == [sample.advantages.tolist() for sample in other]
