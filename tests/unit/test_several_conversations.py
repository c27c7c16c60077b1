"""An attempt with several conversations has its turns one conversation after the other. Methods that go by the order of
turns in time refuse it, and those that credit whole attempts credit every turn of it."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from longloop.algos import composed, dmpo, tree_dpo
from longloop.build import named
from longloop.diagnose.environment import replay, watched
from longloop.registry import ALGOS
from longloop.types import Group, Message, Sample, Step, Task, Trajectory, UserError
from tests.support.samples import NOW, TASK, attempt
from tests.support.worlds import Env, Log, collect, rollouts

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


def attempts(*order: int) -> Group:
    """Two attempts and the expert's: two turns of a first conversation and one of a helper's, stored in this order."""
    sizes, threads = (2, 1, 2), ("", "", "helper")

    def one(reward: float, number: int) -> Trajectory:
        t = attempt(reward, sizes, number)
        turns = [replace(turn, thread=thread) for turn, thread in zip(t.turns, threads, strict=True)]
        stored = [turns[turn] for turn in order]
        new = [bool(n) and turn.thread != stored[n - 1].thread for n, turn in enumerate(stored)]
        return replace(t, turns=tuple(replace(t, restarts_context=new) for t, new in zip(stored, new, strict=True)))

    return Group(TASK, (one(1.0, 0), one(0.0, 1), replace(one(1.0, 2), expert=True)))


def credited(algo: Any, *order: int) -> dict[tuple[int, int], list[float]]:
    """The advantages and weights of each turn of each attempt."""
    found = defaultdict(list)
    for s in algo.credit([attempts(*order)], cast(Any, Reader()), replace(NOW, memory={})):
        for turn in np.unique(s.turns[s.mask]):
            at = s.mask & (s.turns == turn)
            found[s.source.attempt, order[turn]] += [*s.advantages[at], *s.weights[at]]
    return found


TWO = attempts(0, 1, 2)


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in BY_TIME), ("ppo", {"lam": 0.9}), ("ppo", {"gamma": 0.9})]
)
def test_methods_that_go_by_time_refuse_it(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="Attempt 0 at task 'task' has several conversations"):
        named({"name": name}, ALGOS, "algo")(**options).credit([TWO], NOBODY, NOW)


@pytest.mark.parametrize("name", sorted({*ALGOS} - {*BY_TIME, *BY_STATE}))
def test_for_all_other_methods_it_does_not_matter_which_is_stored_first(name: str) -> None:
    algo = named({"name": name}, ALGOS, "algo")()
    one, other = credited(algo, 0, 1, 2), credited(algo, 2, 0, 1)
    assert len(one) > 0 and one.keys() == other.keys()
    assert all(sorted(one[turn]) == pytest.approx(sorted(other[turn]), rel=1e-9, abs=1e-12) for turn in one)


@pytest.mark.parametrize("name", ["gigpo", "gtpo", "eapo", "digirl", "empg", "dmpo", "tree_dpo", "agent_q", "mcts_ipl"])
def test_for_those_that_refuse_it_matters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (composed, dmpo, tree_dpo):
        monkeypatch.setattr(module, "refuse_conversations", lambda attempts: None)
    with pytest.raises(AssertionError):
        test_for_all_other_methods_it_does_not_matter_which_is_stored_first(name)


class Consulting(Env):
    """Has a helper of its own between two turns: its first conversation, the helper's, the first again."""

    turns = 3

    async def start(self, task: Task) -> Sequence[Message]:
        return [Message("user", "go")]

    async def step(self, action: Message) -> Step:
        self.turns -= 1
        return Step([Message("user", f"{self.turns} left")], done=not self.turns, thread="helper" * (self.turns == 2))


class Whimsical(Consulting):
    """Asks its helper at every other attempt only."""

    attempts = itertools.count()

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        return replace(step, thread="") if step.thread and next(self.attempts) % 2 else step


@pytest.mark.parametrize(("environment", "verdict"), [(Consulting, "pass"), (Whimsical, "fail")])
def test_an_attempt_is_made_again_in_the_order_of_time(environment: type[Env], verdict: str) -> None:
    made = rollouts(lambda: environment(Log()))
    groups = collect(made, k=1)
    stored = [turn.thread for turn in groups[0].trajectories[0].turns]
    assert stored == ["", "", "helper"]
    found = asyncio.run(replay(watched(made.context), groups))
    assert found.verdict == verdict, found
