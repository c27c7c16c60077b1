"""ARPO's and AEPO's forks: where attempts are left, how many begin anew, and that branches share what came before."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from longloop.algos.aepo import Aepo
from longloop.algos.arpo import Arpo
from longloop.algos.parts.rollouts import Ask, Attempts, UnsureForks, balanced, chance, unsure
from longloop.config import RolloutConfig
from longloop.envs.crossroads import Crossroads
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.types import Group, Now, Sampled, SamplingParams, Start, StopReason, Task, Trajectory
from tests.support.samples import attempt
from tests.support.worlds import CHAT

TASKS = [Task("one", "train"), Task("other", "train")]


class Coin:
    """Goes right half of the time. Each request is noted."""

    def __init__(self) -> None:
        self.asked, self.sessions = 0, set[str]()

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        self.asked += 1
        self.sessions.add(session)
        said = CHAT.action_ids(random.Random(params.seed).choice("lr"))
        return Sampled(said, [-0.7] * len(said), "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def collected(part: Attempts, k: int, engine: Any = None) -> list[Group]:
    limits = RolloutConfig(turn_tokens=8, max_turns=8)
    make = lambda: Crossroads(Crossroads.Options())  # noqa: E731
    context = RolloutContext(make, CHAT, engine or Coin(), limits, SamplingParams())
    rollouts = GroupRollouts(context, "test", abandon=False)
    return asyncio.run(asyncio.wait_for(part.collect(Ask(rollouts, TASKS, k, 0, 0, Now(1, 9))), 60))


def courses(groups: Sequence[Group]) -> list[Any]:
    return [(t.attempt, t.action_texts, t.reward, t.replayed) for g in groups for t in g.trajectories]


def surprised(*surprises: float, number: int = 0) -> Trajectory:
    """An attempt with one token a turn, drawn with these -log p."""
    return attempt(0.0, (1,) * len(surprises), number, logprobs=[-x for x in surprises])


def left(part: UnsureForks, *trajectories: Trajectory) -> list[tuple[int, int]]:
    starts, _ = part.forks(Group(TASKS[0], trajectories), 3)
    return [(start.recorded.attempt, start.turn) for start in starts if start.recorded]


def test_an_attempt_is_left_where_the_policy_was_unsure() -> None:
    """w = 1 and a threshold of 1: where -log p rose by one, always; where it fell, never."""
    part = UnsureForks(w=1.0, threshold=1.0)
    one, other = surprised(0.5, 1.6, 0.2, 1.7), surprised(1.0, 0.1, 2.5, number=1)
    assert left(part, one) == [(0, 1), (0, 3)]
    assert left(part, one, other) == left(part, other, one) == [(0, 1), (1, 2), (0, 3)], "the earliest first"
    assert left(part, replace(one, replayed=1)) == [(0, 3)], "behind the turn at which it began itself"
    assert left(part, replace(one, stop=StopReason.TIMEOUT)) == []


def test_the_rule_by_hand() -> None:
    part = UnsureForks()
    one = surprised(1.0, 1.5, 0.5, 1.0)
    x = {turn: chance("fork", 3, "one", 0, turn) for turn in (1, 2, 3)}
    shift = {1: 0.1, 2: -0.1, 3: 0.0}
    assert left(part, one) == [(0, turn) for turn in x if x[turn] + shift[turn] >= 0.5]
    assert unsure(attempt(0.0, (30,), logprobs=[-1.0] * 10 + [-3.0] * 10 + [-9.0] * 10), 0) == pytest.approx(2.0)


def test_branches_begin_as_the_attempts_that_they_leave() -> None:
    """All are left at once, before their second turn: that takes 4 of 8 places, and one turn of each is not drawn."""
    engine = Coin()
    groups = collected(UnsureForks(first=4, threshold=-9.0), 8, engine)
    for group in groups:
        assert [t.attempt for t in group.scored] == list(range(8))
        firsts = [t.action_texts[0] for t in group.scored]
        assert firsts[4:] == firsts[:4]
        assert [t.action_texts for t in group.scored[4:]] != [t.action_texts for t in group.scored[:4]], "they part"
        assert all(t.replayed == 0 for t in group.scored), "shared turns are trained on with each"
    assert engine.asked == sum(len(t.turns) for g in groups for t in g.trajectories) - 2 * 4


def test_places_that_stay_free_are_filled_from_the_beginning() -> None:
    engine = Coin()
    groups = collected(UnsureForks(first=2, threshold=9.0), 8, engine)
    assert [len(g.scored) for g in groups] == [8, 8]
    assert len({t.action_texts[0] for t in groups[0].scored[2:]}) == 2
    assert len(engine.sessions) == 16, "no two attempts have the same random numbers"


def test_without_forks_attempts_are_plain() -> None:
    assert courses(collected(UnsureForks(first=6), 6)) == courses(collected(Attempts(), 6))
    assert Arpo(k=6).attempts_per_task == 6 and Start(TASKS[0]).turns == ()


@pytest.mark.parametrize(("rise", "first"), [(-1.0, 7), (-0.3, 8), (0.0, 9), (0.3, 9), (1.0, 10)])
def test_aepo_begins_so_many_attempts_anew(rise: float, first: int) -> None:
    """K = 16, and how much surer the policy was after answers than at first, as the mean of two turns."""
    one = surprised(2.0, 2.0 - rise - 0.5, 2.0 - rise + 0.5)
    assert balanced(Group(TASKS[0], (one,)), 16) == first
    assert balanced(Group(TASKS[0], (surprised(5.0),)), 16) == 9, "one turn tells nothing"
    assert balanced(Group(TASKS[0], (surprised(90.0, 0.0),)), 16) == 16
    assert balanced(Group(TASKS[0], (replace(one, stop=StopReason.ENV_ERROR),)), 16) == 9


def test_forks_in_a_row_become_rarer() -> None:
    """x lies between 10 and 11 at each turn: times 1, 0.8 and 0.6 it is above 5.9, times 0.4 it is not."""
    part = UnsureForks(w=10.0, threshold=5.9, penalty=0.2)
    one = surprised(0.0, *[1.0] * 9)
    assert left(part, one) == [(0, turn) for turn in (1, 2, 3, 5, 6, 7, 9)]
    starts, in_a_row = part.forks(Group(TASKS[0], (one,)), 3, in_a_row=2)
    assert [start.turn for start in starts] == [1, 3, 4, 5, 7, 8, 9] and in_a_row == 3, "earlier ones count"
    assert left(replace(part, penalty=0.0), one) == [(0, turn) for turn in range(1, 10)]


def test_aepo_makes_k_attempts_of_which_the_first_says_how_many_begin_anew() -> None:
    engine = Coin()
    groups = collected(UnsureForks(first=0, threshold=-9.0), 8, engine)
    for group in groups:
        assert [t.attempt for t in group.scored] == list(range(8))
        firsts = [t.action_texts[0] for t in group.scored]
        assert firsts[5:] == firsts[:3], "5 = 1 + 8 / 2 from the beginning, since all turns are as sure"
    assert engine.asked == sum(len(t.turns) for g in groups for t in g.trajectories) - 2 * 3
    assert len(engine.sessions) == 16 and Aepo().attempts_per_task == 16
    assert courses(collected(Aepo(first=6).parts.rollouts, 6)) == courses(collected(Attempts(), 6))


class Scripted:
    """Rollouts whose attempts have as many turns as the test says, and that note what they are asked for."""

    def __init__(self, *turns: int) -> None:
        self.turns = turns
        self.calls: list[tuple[list[tuple[str, int]], int, int]] = []

    async def play(self, starts: Sequence[Start], k: int, seed: int, *, max_turns: int) -> list[Group]:
        self.calls.append(([(start.task.id, start.turn) for start in starts], k, seed))
        assert max_turns == 7
        size = {task.id: turns for task, turns in zip(TASKS, self.turns, strict=True)}
        return [
            Group(
                s.task, tuple(replace(surprised(*[1.0] * size[s.task.id], number=n), replayed=s.turn) for n in range(k))
            )
            for s in starts
        ]


def test_groups_fork_until_each_is_full_and_every_call_has_a_seed_of_its_own() -> None:
    """Attempts at the first task have one turn and nowhere to be left: its free places are filled in the end."""
    rollouts = Scripted(1, 3)
    part = UnsureForks(first=1, threshold=-9.0)
    groups = asyncio.run(part.collect(Ask(rollouts, TASKS, 4, 0, 7, Now(1, 9))))  # type: ignore[arg-type]
    assert [len(group.trajectories) for group in groups] == [4, 4]
    begun, forked, again, filled = rollouts.calls
    assert begun == ([("one", 0), ("other", 0)], 1, 0)
    assert forked[0] == [("other", 1), ("other", 2)]
    assert again[0] == [("other", 2)], "the branches are left behind the turn at which they began, not the first again"
    assert filled[0] == [("one", 0)] * 3
    assert len({seed for _, _, seed in rollouts.calls}) == 4


def test_forks_in_a_row_begin_at_none() -> None:
    """With a penalty of 1, a fork is followed by none: that of turn 1 by turn 2's, which is none."""
    rollouts = Scripted(4, 4)
    asyncio.run(
        UnsureForks(first=1, threshold=1e-9, w=0.0, penalty=1.0).collect(Ask(rollouts, TASKS, 2, 0, 7, Now(1, 9)))
    )  # type: ignore[arg-type]
    assert rollouts.calls[1][0] == [("one", 1), ("other", 1)]


def test_the_first_turn_is_none_that_followed() -> None:
    """H_0 = 2 and H_1 = 0: 1 + floor(16 sigmoid(1)), where with the mean of both it were sigmoid(1/2)."""
    assert balanced(Group(TASKS[0], (surprised(2.0, 0.0),)), 16) == 1 + 11
