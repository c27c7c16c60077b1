"""An attempt with several conversations has its turns one conversation after the other. Methods that go by the order of
turns in time refuse it, and those that credit whole attempts credit every turn of it."""

from dataclasses import replace
from typing import Any, cast

import pytest

from longloop.build import named
from longloop.registry import ALGOS
from longloop.types import Group, UserError
from tests.support.samples import NOW, group

NOBODY = cast(Any, None)
"""A learner that is not asked: refusals come first."""


def two_conversations() -> Group:
    """Of two attempts, with two turns in the first conversation and one in the helper's."""
    plain = group(1.0, 0.0, sizes=(2, 1, 2))
    threads = "", "", "helper"
    return replace(
        plain,
        trajectories=tuple(
            replace(t, turns=tuple(replace(turn, thread=one) for turn, one in zip(t.turns, threads, strict=True)))
            for t in plain.trajectories
        ),
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("vineppo", "pav", "drpo", "arpo", "aepo", "gigpo", "igpo", "gtpo", "eapo", "archer")),
        *((name, {}) for name in ("turn_ppo", "reinforce_value", "digirl")),
        *[("ppo", {"lam": 0.9}), ("ppo", {"gamma": 0.9})],
    ],
)
def test_methods_that_go_by_time_refuse_it(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="Attempt 0 at task 'task' has several conversations"):
        named({"name": name}, ALGOS, "algo")(**options).credit([two_conversations()], NOBODY, NOW)


@pytest.mark.parametrize("name", ["rloo", "dapo", "bnpo", "compose"])
def test_methods_that_credit_whole_attempts_do_not(name: str) -> None:
    algo = named({"name": name}, ALGOS, "algo")()
    one, other = (algo.credit([of], NOBODY, NOW) for of in (two_conversations(), group(1.0, 0.0, sizes=(2, 1, 2))))
    assert len(one) > 0
    assert [sample.advantages.tolist() for sample in one] == [sample.advantages.tolist() for sample in other]
