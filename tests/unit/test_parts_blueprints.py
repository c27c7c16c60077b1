"""HiMAC's rollouts on crossroads: who plans, who follows which plan, and what is trained on."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from longloop.algos.himac import Himac
from longloop.algos.parts.rollouts import (
    Ask,
    Attempts,
    BestRefinement,
    Blueprints,
    FromStates,
    Resets,
    best_plan,
    paid_plans,
)
from longloop.algos.parts.tasks import EveryTwice
from longloop.config import RolloutConfig
from longloop.envs.crossroads import Crossroads
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.training import TaskStream
from longloop.types import Group, Message, Now, Sampled, SamplingParams, Start, StopReason, Task
from tests.support.samples import NOW, attempt, learner
from tests.support.worlds import CHAT

TASK = Task("crossroads", "train")


class Planner:
    """Plans to go left or right by chance, and goes where a plan says; without one, by chance."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        read = CHAT.decode(list(ids))
        self.asked.append((read, params.temperature))
        chance = "lr"[random.Random(params.seed).random() < 0.5]
        way = next((way for way in "lr" if f"follow this plan:\n{way}" in read), chance)
        chosen = CHAT.action_ids(way)
        return Sampled(chosen, [-0.7] * len(chosen), "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def world() -> tuple[GroupRollouts, Planner]:
    engine, limits = Planner(), RolloutConfig(turn_tokens=8, max_turns=8, context=2048)
    context = RolloutContext(lambda: Crossroads(Crossroads.Options()), CHAT, engine, limits, SamplingParams())
    return GroupRollouts(context, "test", abandon=False), engine


def collected(part: Attempts, now: Now, k: int = 3) -> tuple[list[Group], Planner]:
    rollouts, engine = world()
    return asyncio.run(asyncio.wait_for(part.collect(Ask(rollouts, [TASK], k, 0, 0, now)), 60)), engine


PART = Blueprints(plans=6, ask="first plan", follow="follow this plan:")


def test_plans_are_paid_what_the_attempts_that_follow_them_are() -> None:
    """All right is worth 1, all left 0.2. The plan's record has one turn; the attempts are side rollouts."""
    (group,), engine = collected(PART, Now(1, 9))
    assert len(group.scored) == len(group.sides) == 6
    assert {(t.action_texts, t.reward, t.success) for t in group.scored} == {(("l",), 0.2, False), (("r",), 1.0, True)}
    for plan, side in zip(group.scored, group.sides, strict=True):
        assert set(side.action_texts) == {plan.action_texts[0]} and len(side.turns) == 2 and side.reward == plan.reward
        assert plan.turns[0].context[-1].content.endswith(PART.ask)
    assert {temperature for read, temperature in engine.asked if PART.follow in read} == {0.0}
    assert {temperature for read, temperature in engine.asked if PART.follow not in read} == {1.0}


def test_the_next_step_follows_the_best_plan_of_the_same_tasks() -> None:
    planned, _ = collected(PART, Now(1, 9))
    now = Now(2, 9, past=lambda step: planned if step == 1 else [])
    (group,), engine = collected(PART, now)
    assert [t.action_texts for t in group.trajectories] == [("r", "r")] * 3 and not group.sides
    assert all(f"{PART.follow}\nr" in read and temperature == 1.0 for read, temperature in engine.asked)
    assert all(PART.ask not in read for read, _ in engine.asked), "planning is over"


def test_of_equal_plans_the_first_is_followed_and_one_that_failed_to_run_is_not() -> None:
    planned, _ = collected(PART, Now(1, 9))
    same = replace(planned[0], trajectories=tuple(replace(t, reward=0.5) for t in planned[0].trajectories))
    first = min(same.scored, key=lambda t: t.attempt).action_texts[0]
    (group,), _ = collected(PART, Now(2, 9, past=lambda step: [same]))
    assert {t.action_texts[0] for t in group.trajectories} == {first}
    broken = replace(
        planned[0],
        trajectories=tuple(
            replace(t, stop=StopReason.ENV_ERROR) if t.action_texts[0] == "r" else t for t in planned[0].trajectories
        ),
    )
    (group,), _ = collected(PART, Now(2, 9, past=lambda step: [broken]))
    assert {t.action_texts[0] for t in group.trajectories} == {"l"}


def test_without_plans_they_are_plain_attempts() -> None:
    for step in (1, 2):
        one, other = (collected(part, Now(step, 9))[0] for part in (Blueprints(plans=0), Attempts()))
        assert [t.action_texts for t in one[0].trajectories] == [t.action_texts for t in other[0].trajectories]
    assert Himac(plans=0).attempts_per_task == 8 and Himac(k=4, plans=8).attempts_per_task == 16


def test_tasks_come_in_two_steps() -> None:
    stream = TaskStream([Task(str(n), "train") for n in range(6)], seed=0)
    part, stored = EveryTwice(), dict[int, list[Group]]()
    taken = []
    for step in (1, 2, 3, 4):
        tasks = part.take(stream, 2, Now(step, 9, past=stored.__getitem__))
        stored[step] = [Group(task, ()) for task in tasks]
        taken.append([task.id for task in tasks])
    assert taken[0] == taken[1] and taken[2] == taken[3] and not set(taken[0]) & set(taken[2])
    assert stream.taken == 4


def test_nothing_but_the_plan_is_trained_on_when_planning() -> None:
    """Log-probs and tokens of the attempts that followed a plan change nothing."""
    algo = Himac(kl=0.0)
    groups, _ = collected(PART, Now(1, 9))
    other = [
        replace(
            group,
            trajectories=tuple(
                replace(t, turns=tuple(replace(turn, action_logprobs=turn.action_logprobs - 1.0) for turn in t.turns))
                if t.side
                else t
                for t in group.trajectories
            ),
        )
        for group in groups
    ]
    model = learner(algo)
    one, two = (algo.credit(some, model, NOW) for some in (groups, other))
    assert len(one) == 6 and one == two
    plan = len(CHAT.action_ids("l"))
    assert all(sample.action_tokens == plan for sample in one)
    rewards = [t.reward for t in groups[0].scored]
    scaled = (np.array(rewards) - np.mean(rewards)) / (np.std(rewards, ddof=1) + 1e-6)
    assert [sample.advantages[sample.mask][0] for sample in one] == pytest.approx(scaled.tolist())


class Limited:
    """Rollouts that note how many attempts of how many turns they are asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    async def play(self, starts: Sequence[Start], k: int, seed: int, *, max_turns: int, **_: object) -> list[Group]:
        self.asked.append((len(starts), k, max_turns))
        return [Group(start.task, tuple(attempt(0.5, (1, 1), n) for n in range(k))) for start in starts]

    async def demonstrations(self, tasks: Sequence[Task]) -> list[Group]:
        return [Group(task, ()) for task in tasks]


@pytest.mark.parametrize(
    ("part", "step", "asked"),
    [
        (Attempts(), 1, [(1, 3, 7)]),
        (FromStates(m=2), 1, [(1, 3, 7), (6, 2, 7)]),
        (Resets(), 1, [(1, 3, 7)]),
        (BestRefinement(), 1, [(1, 2, 7), (2, 1, 7)]),
        (Blueprints(plans=4), 1, [(1, 4, 1), (4, 1, 7)]),
        (Blueprints(plans=4), 2, [(1, 3, 7)]),
    ],
)
def test_every_attempt_is_as_long_as_the_step_allows(part: Attempts, step: int, asked: list[tuple[int, ...]]) -> None:
    rollouts = Limited()
    now = Now(step, 9, past=lambda _: [])
    asyncio.run(part.collect(Ask(rollouts, [TASK], 3, 0, 7, now)))  # type: ignore[arg-type]
    assert rollouts.asked == asked


def test_a_plan_that_was_not_said_is_not_followed() -> None:
    """The task may have filled the context."""

    class Mute(Limited):
        async def play(self, starts: Sequence[Start], k: int, seed: int, *, max_turns: int, **_: object) -> list[Group]:
            groups = await super().play(starts, k, seed, max_turns=max_turns)
            if max_turns > 1:
                return groups
            return [
                replace(g, trajectories=(replace(g.trajectories[0], turns=()), *g.trajectories[1:])) for g in groups
            ]

    rollouts = Mute()
    asyncio.run(Blueprints(plans=4).collect(Ask(rollouts, [TASK], 3, 0, 7, Now(1, 9))))  # type: ignore[arg-type]
    assert rollouts.asked == [(1, 4, 1), (3, 1, 7)]


def test_a_plan_has_the_end_of_the_attempt_that_followed_it() -> None:
    plan = replace(attempt(0.0, (1,), 4), unread=(Message("user", "more"),))
    followed = replace(attempt(1.0, (1,), 0), stop=StopReason.MAX_TURNS, error="why", info={"key": "7"})
    paid, side = paid_plans(TASK, [plan], [followed]).trajectories
    assert (paid.reward, paid.success, paid.stop, paid.error, paid.info) == (
        1.0,
        True,
        StopReason.MAX_TURNS,
        "why",
        {"key": "7"},
    )
    assert paid.unread == () and paid.turns == plan.turns and side.side


def test_the_best_plan_is_the_first_of_equals_whatever_their_order() -> None:
    assert best_plan(Group(TASK, ())) is None
    best = best_plan(Group(TASK, (attempt(0.5, (1,), 2), attempt(0.5, (1,), 1), attempt(0.2, (1,), 0))))
    assert best is not None and best.attempt == 1
