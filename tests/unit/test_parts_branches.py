"""Side rollouts, resets and refinements: hand numbers, enumerated values, unbiasedness, environments that fail."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from longloop.algos.drpo import DrPo
from longloop.algos.parts.branches import PlusTurns, Progress, ValueSteps, state_values
from longloop.algos.parts.part import Paid
from longloop.algos.parts.rollouts import Ask, Attempts, FromStates, Resets, apart, chance, state_before
from longloop.algos.pav import Pav
from longloop.algos.vineppo import VinePpo
from longloop.config import RolloutConfig
from longloop.envs.crossroads import ROADS, Crossroads
from longloop.envs.guess import Guess
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.store.trajectories import Trajectories
from longloop.types import Group, Message, Now, Sampled, SamplingParams, Step, StopReason, Task, Trajectory, UserError
from tests.support.samples import NOW, attempt, gradient, learner, once, sampled
from tests.support.tabular import PATHS, STATES, TOKENS, Exact, TableLearner, compare, estimates
from tests.support.worlds import CHAT

TASK = Task("crossroads", "train")


def sides(of: Trajectory, turn: int, *rewards: float) -> tuple[Trajectory, ...]:
    """Side rollouts from the state before a turn of an attempt. They end at once."""
    return tuple(replace(of, reward=reward, replayed=turn, side=True) for reward in rewards)


def valued(reward: float, *rewards: Sequence[float], turns: int = 3) -> Group:
    """An attempt, and the rewards of the side rollouts from each of its first states."""
    one = attempt(reward, (1,) * turns)
    beside = [side for turn, some in enumerate(rewards) for side in sides(one, turn, *some)]
    return Group(one.task, (one, *(replace(side, attempt=n) for n, side in enumerate(beside, 1))))


def beside(one: Trajectory, reward: float, sizes: Sequence[int], number: int) -> Trajectory:
    """Another attempt, which begins as the first does."""
    other = attempt(reward, sizes, number)
    return replace(other, turns=(replace(other.turns[0], context_ids=one.turns[0].context_ids), *other.turns[1:]))


def paid(group: Group) -> Paid:
    return Paid([[0.0] * len(t.turns) for t in group.scored], [t.reward for t in group.scored])


def steps(group: Group) -> list[list[float]]:
    return ValueSteps().of_group(group, paid(group))


# --- hand numbers ---


def test_vineppo_by_hand() -> None:
    """V = (0.25, 0.5, 0.75), R = 1."""
    group = valued(1.0, (0.0, 0.5), (0.5, 0.5), (1.0, 0.5))
    assert steps(group) == [[0.25, 0.25, 0.25]]
    assert [t.attempt for t in group.scored] == [0] and len(group.sides) == 6


def test_states_without_a_value_give_their_credit_to_the_turn_before() -> None:
    assert steps(valued(1.0, (0.25,))) == [[0.75, 0.0, 0.0]]
    assert steps(valued(1.0, (0.25,), (), (0.75,))) == [[0.5, 0.0, 0.25]]
    assert steps(valued(1.0, (), (0.5,))) == [[0.0, 0.5, 0.0]]


def test_the_advantages_add_up_to_what_the_first_state_did_not_promise() -> None:
    chance_of = random.Random(0)
    for _ in range(20):
        values = [chance_of.random() for _ in range(5)]
        (found,) = steps(valued(0.3, *[(v,) for v in values], turns=5))
        assert sum(found) == pytest.approx(0.3 - values[0])


def test_without_any_value_attempts_are_compared_with_each_other() -> None:
    alone = Group(TASK, (attempt(1.0, (1, 2), 0), attempt(0.5, (2,), 1), attempt(0.0, (2,), 2)))
    assert steps(alone) == [[0.75, 0.75], [0.0], [-0.75]]
    assert steps(Group(TASK, alone.trajectories[:1])) == [[0.0, 0.0]]
    failed = replace(alone.trajectories[0], stop=StopReason.ENV_ERROR, side=True, attempt=3)
    assert steps(Group(TASK, (*alone.trajectories, failed))) == steps(alone)


def test_attempts_in_one_state_share_its_value() -> None:
    """The first state is that of both; the second attempt goes on from elsewhere."""
    group = valued(1.0, (0.25, 0.75), (0.75,), turns=2)
    other = beside(group.scored[0], 0.0, (1, 1, 1), 9)
    assert steps(Group(TASK, (*group.trajectories, other))) == [[0.25, 0.25], [-0.5, 0.0, 0.0]]


def test_progress_by_hand() -> None:
    """q = (0.1, 0.4), and 0.4 at the end: the best of 4 succeeds at (0.3439, 0.8704, 0.8704)."""
    group = valued(0.4, (0.1,), (0.4,), turns=2)
    assert Progress(1.0, 4).of_group(group).turns == [pytest.approx([0.5265, 0.0])]
    assert Progress(3.0, 4).of_group(group).turns == [pytest.approx([3 * 0.5265, 0.0])]
    assert Progress(1.0, 1).of_group(group).turns == [pytest.approx(steps(group)[0])]
    assert Progress(1.0, 4).prover(1.5) == 1.0 and Progress(1.0, 4).prover(-0.5) == 0.0


def test_progress_is_added_to_the_outcome() -> None:
    group = valued(1.0, (0.5,), turns=2)
    both = Group(TASK, (*group.trajectories, beside(group.scored[0], 0.0, (1, 1), 9)))
    of = Progress(2.0, 1).of_group(both)
    assert of.turns == [[1.0, 0.0], [-1.0, 0.0]] and of.outcomes == [1.0, 0.0]
    assert PlusTurns().of_group(both, of) == [[2.0, 1.0], [-2.0, -1.0]]


@pytest.mark.parametrize("algo", [VinePpo(kl=0.0), Pav()])
def test_side_rollouts_are_read_and_never_trained_on(algo: Any) -> None:
    """Whatever their tokens and whatever the order, the samples are those of the attempts."""
    policy = learner(algo)
    first, second = valued(1.0, (0.0, 0.5), (0.5,), (1.0,)), valued(0.0, (1.0, 0.5), (0.25,), turns=2)
    second = Group(Task("other", "train"), second.trajectories)
    more = Group(first.task, (*first.trajectories, attempt(0.25, (2, 1), 20)))
    groups = [more, second]
    found = {}
    for turned in (groups, [Group(g.task, g.trajectories[::-1]) for g in groups[::-1]]):
        samples = algo.credit(turned, policy, NOW)
        assert algo.denominator(turned, samples) == 3
        key = {(turned[s.source.group].task.id, s.source.attempt): s.advantages.tolist() for s in samples}
        found[len(found)] = key
    assert found[0] == found[1]
    assert found[0].keys() <= {("task", 0), ("task", 20), ("other", 0)} and ("task", 0) in found[0]


@pytest.mark.parametrize("algo", [VinePpo(m=0), DrPo(beta=0.0)])
def test_attempts_without_an_advantage_are_held_to_the_reference_too(algo: Any) -> None:
    """With all attempts paid alike the KL term alone is learned from; without it there is nothing to learn."""
    model = learner(algo)
    groups = sampled([Group(TASK, (attempt(1.0, (2,), 0), attempt(1.0, (1, 2), 1)))], model)
    samples = algo.credit(groups, model, NOW)
    assert [s.source.attempt for s in samples] == [0, 1]
    moved = [s.with_columns(reference=s.columns["reference"] - 0.5) for s in samples]
    (minibatch,) = once(moved, algo.whole_units)
    slopes, metrics = gradient(model, minibatch, algo.loss)
    assert metrics["loss"] == pytest.approx(2 * algo.kl * (np.exp(-0.5) - 0.5), rel=1e-4)
    assert any(slope.any() for slope in slopes.values())
    assert replace(algo, kl=0.0).credit(groups, model, NOW) == []


# --- which states, and what they cost ---


def test_which_states_are_valued() -> None:
    one = attempt(1.0, (1, 1, 1, 1), 0)
    group = Group(TASK, (one, beside(one, 0.0, (1, 1, 1, 1), 1)))

    def of(part: FromStates, step: int = 2) -> list[tuple[int, int]]:
        return [(s.recorded.attempt, s.turn) for s in part.starts(group, Now(step, 9)) if s.recorded]

    assert of(FromStates(3)) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]
    assert of(FromStates(3, max_states=2)) == [(0, 0), (0, 1), (1, 1)]
    assert of(FromStates(3, every=2)) == [(0, 0), (0, 2), (1, 2)]
    assert of(FromStates(3, every=2), step=3) == [(0, 1), (0, 3), (1, 1), (1, 3)]
    assert of(FromStates(3, every=3), step=1) == [(0, 2), (1, 2)]
    failed = Group(TASK, (replace(group.trajectories[0], stop=StopReason.TIMEOUT),))
    assert FromStates(3).starts(failed, NOW) == []


def test_the_budget_counts_side_rollouts() -> None:
    """Two attempts with four states each, of which they share the first: 7 states, 3 rollouts from each."""
    assert FromStates(3, max_states=4).per_task(2) == 2 + 7 * 3
    assert FromStates(3, every=2, max_states=4).per_task(2) == 2 + 8 * 3
    assert VinePpo(k=2, m=3, max_states=4).attempts_per_task == 23
    assert Pav(k=2, m=0).attempts_per_task == 2
    assert DrPo(k=4).attempts_per_task == 5 and DrPo(k=4, beta=0.0).attempts_per_task == 4


# --- crossroads, whose values can be enumerated ---

RIGHT = 0.3
"""How often the coin goes right."""


class Coin:
    """A policy that goes right with a fixed probability."""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        right = random.Random(params.seed).random() < RIGHT
        chosen = CHAT.action_ids("r" if right else "l")
        return Sampled(chosen, [np.log(RIGHT if right else 1 - RIGHT), *[0.0] * (len(chosen) - 1)], "stop")

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def value(fork: str | float) -> float:
    if isinstance(fork, float):
        return fork
    left, right = ROADS[fork]
    return (1 - RIGHT) * value(left) + RIGHT * value(right)


def walks(make: Any = lambda: Crossroads(Crossroads.Options()), stored: Sequence[Group] = ()) -> GroupRollouts:
    context = RolloutContext(make, CHAT, Coin(), RolloutConfig(turn_tokens=8, max_turns=8), SamplingParams())
    return GroupRollouts(context, "test", abandon=False, stored=stored)


def collected(
    part: Attempts, rollouts: GroupRollouts, k: int, tasks: Sequence[Task] = (TASK,), step: int = 1
) -> list[Group]:
    return asyncio.run(asyncio.wait_for(part.collect(Ask(rollouts, tasks, k, 0, 0, Now(step, 9))), 60))


def courses(groups: Sequence[Group]) -> list[Any]:
    return [(t.attempt, t.action_texts, t.reward, t.replayed, t.side) for g in groups for t in g.trajectories]


def fork_at(trajectory: Trajectory, turn: int) -> str:
    return trajectory.turns[turn].context[-1].content


def assert_mean(rewards: Sequence[float], exact: float) -> None:
    """Within its 99.9% interval, which is narrow."""
    half = 3.3 * stdev(rewards) / len(rewards) ** 0.5 + 1e-9
    assert abs(fmean(rewards) - exact) <= half and half < 0.1, (fmean(rewards), exact, half)


def test_the_values_of_states_are_the_enumerated_ones() -> None:
    (group,) = collected(FromStates(300), walks(), k=6)
    assert len(group.scored) == 6 and len(group.sides) == 300 * len(state_values(group))
    met = defaultdict(list)
    for side in group.sides:
        assert side.turns[side.replayed :], "it was played on"
        met[fork_at(side, side.replayed)].append(side.reward)
    assert met.keys() == {fork_at(t, u) for t in group.scored for u in range(len(t.turns))} and len(met) >= 3
    for fork, rewards in met.items():
        assert_mean(rewards, value(fork))
    for t, advantages in zip(group.scored, steps(group), strict=True):
        values = [*(value(fork_at(t, u)) for u in range(len(t.turns))), t.reward]
        assert advantages == pytest.approx(np.diff(values), abs=0.12)


def test_side_rollouts_are_drawn_apart_from_the_attempts() -> None:
    """Rollouts from the first state with the attempts' own random numbers would be the attempts again."""
    (group,) = collected(FromStates(40, max_states=1), walks(), k=40)
    assert [t.action_texts for t in group.sides] != [t.action_texts for t in group.scored]
    (later,) = collected(FromStates(40, max_states=1), walks(), k=40, step=2)
    assert [t.action_texts for t in group.sides] != [t.action_texts for t in later.sides]
    assert len({t.attempt for t in group.trajectories}) == 80
    assert apart(Now(1, 9), 99) > apart(Now(2, 9)) and apart(Now(1, 9)) + 10**6 <= 0


def test_no_side_rollouts_are_plain_attempts() -> None:
    assert courses(collected(FromStates(0), walks(), k=3)) == courses(collected(Attempts(), walks(), k=3))


def test_a_run_folder_keeps_side_rollouts_apart(tmp_path: Path) -> None:
    groups = collected(FromStates(2), walks(), k=2)
    stored = Trajectories(tmp_path)
    stored.write(1, groups)
    assert [t.side for g in stored.read(1) for t in g.trajectories] == [t.side for g in groups for t in g.trajectories]
    assert sum(entry.scored for entry in stored.entries(1)) == sum(line.scored for line in stored.stored(1)) == 2
    assert len(stored.entries(1)) == len(groups[0].trajectories) > 2


# --- against the exact expectation, on the tabular crossroads ---

THETA = np.random.default_rng(0).normal(0, 0.7, (STATES, 2))
EXACT = Exact(THETA)


@cache
def through(path: int, turn: int) -> list[int]:
    """The paths that begin with these turns."""
    return [n for n, other in enumerate(PATHS) if other.turns[:turn] == PATHS[path].turns[:turn]]


@cache
def odds(path: int, turn: int) -> list[float]:
    return [float(p) for p in EXACT.probability[through(path, turn)]]


def exact_value(path: int, turn: int) -> float:
    if turn == len(PATHS[path].turns):
        return PATHS[path].reward
    return float(np.average([PATHS[n].reward for n in through(path, turn)], weights=odds(path, turn)))


def test_vineppo_is_unbiased() -> None:
    """E[1/|a| sum_u (V(s_u+1) - V(s_u)) S_u] with the enumerated V, although V is a mean of two rewards here."""
    exact, alike = np.zeros(2 * STATES), np.zeros(2 * STATES)
    for n, path in enumerate(PATHS):
        for u, decisions in enumerate(path.turns):
            score = EXACT.probability[n] / TOKENS[n] * sum(map(EXACT.score, decisions))
            exact += (exact_value(n, u + 1) - exact_value(n, u)) * score
            alike += (path.reward - EXACT.expected_reward) * score
    table = TableLearner(THETA)
    by_course = {state_before(table.trajectory(n, 0), 9): n for n in range(len(PATHS))}

    def with_rollouts(groups: list[Group], own: bool = False) -> list[Group]:
        return [replace(group, trajectories=(*group.trajectories, *drawn(group, own))) for group in groups]

    draw = random.Random(0)

    def drawn(group: Group, own: bool) -> list[Trajectory]:
        found: dict[Any, list[Trajectory]] = {}
        for one in group.trajectories:
            path = by_course[state_before(one, 9)]
            for turn in range(len(one.turns)):
                here = found.setdefault(state_before(one, turn), [])
                if own or not here:
                    chosen = [path] if own else draw.choices(through(path, turn), odds(path, turn), k=2)
                    here += [replace(table.trajectory(n, 0), replayed=turn, side=True) for n in chosen]
        return [replace(t, attempt=n) for n, t in enumerate((t for some in found.values() for t in some), 50)]

    algo = VinePpo(k=2, kl=0.0, epochs=1, minibatch=0)
    rows = estimates(algo, table, k=2, groups=25, prepare=with_rollouts)
    verdict = compare(rows, exact)
    assert verdict.inside and verdict.error < 0.05 and verdict.width < 0.15, verdict
    assert not compare(rows, alike).inside, "and it is not LOOP's expectation"
    # values from the attempts themselves instead of rollouts of their own: wrong, and the test says so
    wrong = compare(
        estimates(algo, table, k=2, groups=25, prepare=lambda groups: with_rollouts(groups, own=True)), exact
    )
    assert not wrong.inside and wrong.error > 0.05


# --- resets ---


def demonstration(*said: str) -> Group:
    """A stored attempt that walks so."""
    turns, at = [], "oak"
    for word in said:
        context = (Message("user", at),)
        turns.append(replace(attempt(0.0).turns[0], context=context, action=Message("assistant", word)))
        following = ROADS[at]["lr".index(word)]
        at = following if isinstance(following, str) else at
    return Group(TASK, (replace(attempt(0.6), task=TASK, turns=tuple(turns)),))


def test_attempts_begin_in_a_state_of_the_demonstration() -> None:
    """The mean reward from each cut is the enumerated value of that state; only own tokens are trained on."""
    rollouts = walks(stored=[demonstration("l", "r", "l")])
    groups = collected(Resets(), rollouts, k=120, tasks=[TASK] * 6)
    cuts = [{t.replayed for t in group.trajectories} for group in groups]
    assert all(len(cut) == 1 for cut in cuts), "all attempts of a group begin in the same state"
    assert set().union(*cuts) == {1, 2}
    by_cut = defaultdict(list)
    for group in groups:
        for t in group.scored:
            assert t.action_texts[: t.replayed] == ("l", "r", "l")[: t.replayed] and len(t.turns) > t.replayed
            by_cut[t.replayed].append(t.reward)
    assert_mean(by_cut[1], value("elm"))
    assert_mean(by_cut[2], value("fir"))
    assert abs(value("elm") - value("fir")) > 0.1


def test_a_demonstrations_tokens_change_nothing() -> None:
    algo = DrPo(k=4, kl=0.0)
    policy = learner(algo)
    one = Group(TASK, tuple(replace(attempt(r, (2, 3, 1), 0), attempt=n) for n, r in enumerate((0.0, 1.0))))
    (one,) = sampled([one], policy)

    def told(shift: float) -> list[Any]:
        turns = [
            replace(turn, action_logprobs=turn.action_logprobs + shift * (u < 2))
            for u, turn in enumerate(one.scored[0].turns)
        ]
        group = Group(TASK, tuple(replace(t, turns=tuple(turns), replayed=2) for t in one.trajectories))
        samples = algo.credit([group], policy, NOW)
        assert [s.action_tokens for s in samples] == [1, 1] and [s.weights.sum() for s in samples] == [1.0, 1.0]
        return [(s.mask.tolist(), (s.logprobs * s.mask).tolist(), s.advantages.tolist()) for s in samples]

    assert told(0.0) == told(-3.0)


def test_without_resets_attempts_are_plain() -> None:
    rollouts = walks(stored=[demonstration("l", "r", "l")])
    assert courses(collected(Resets(0.0), rollouts, k=3)) == courses(collected(Attempts(), walks(), k=3))
    assert DrPo(beta=0.0).parts.rollouts == Attempts()


def test_a_share_of_the_tasks_is_reset() -> None:
    rollouts = walks(stored=[demonstration("l", "r", "l")])
    groups = collected(Resets(0.5), rollouts, k=1, tasks=[TASK] * 60)
    assert 15 < sum(group.trajectories[0].replayed > 0 for group in groups) < 45


def test_a_demonstration_of_one_action_resets_nothing() -> None:
    groups = collected(
        Resets(), walks(lambda: Guess(Guess.Options(3, 2))), k=2, tasks=Guess.tasks("train", Guess.Options(3, 2))
    )
    assert [{t.replayed for t in group.trajectories} for group in groups] == [{1}, {0}, {1}]


def test_chance() -> None:
    """Even, and the same for the same parts."""
    drawn = [chance("a", n) for n in range(1000)]
    assert min(drawn) >= 0 and max(drawn) < 1 and abs(fmean(drawn) - 0.5) < 0.03
    assert drawn[:5] == [chance("a", n) for n in range(5)] != [chance("b", n) for n in range(5)]


# --- environments that cannot be replayed ---


class Fickle(Crossroads):
    """Never says the same twice."""

    asked = 0

    async def step(self, action: Message) -> Step:
        Fickle.asked += 1
        step = await super().step(action)
        return replace(step, messages=[Message("user", f"{m.content} {Fickle.asked}") for m in step.messages])


def test_an_environment_that_cannot_be_replayed_is_refused() -> None:
    rollouts = walks(lambda: Fickle(Fickle.Options()))
    with pytest.raises(UserError, match=r"let none of \d+ attempts do so: at turn 1 the environment does not answer"):
        collected(FromStates(4), rollouts, k=3)
    with pytest.raises(UserError, match="let none of 8 attempts do so"):
        collected(Resets(), walks(lambda: Fickle(Fickle.Options()), stored=[demonstration("l", "r", "l")]), k=8)


def test_single_failures_leave_their_states_without_a_value() -> None:
    """Few enough to be an accident: the attempts are credited with what is known."""
    (group,) = collected(FromStates(2, max_states=2), walks(lambda: Fickle(Fickle.Options())), k=2)
    failed = [t for t in group.trajectories if t.stop is StopReason.ENV_ERROR]
    assert len(failed) == 4 and all(t.side for t in failed) and len(group.sides) == 2
    first = fmean(t.reward for t in group.sides)
    assert steps(group) == [[t.reward - first, *[0.0] * (len(t.turns) - 1)] for t in group.scored]


def test_every_demonstration_is_begun_in() -> None:
    shown = Group(TASK, (attempt(1.0, (1, 1), 0), attempt(1.0, (1, 1), 1)))
    starts = [Resets().start(shown, seed) for seed in range(20)]
    assert {start.recorded.attempt for start in starts if start.recorded} == {0, 1}
