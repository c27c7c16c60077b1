"""StepAgent: what is practised where, which actions are compared, and what the discriminator may touch."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file

from longloop import api
from longloop.algos.reduce import last_action
from longloop.algos.stepagent import inspected
from longloop.algos.stepagent_implicit import StepAgentImplicit
from longloop.algos.stepagent_inverse import StepAgentInverse
from longloop.config import ModelConfig, RolloutConfig
from longloop.engines.engine import NativeEngine
from longloop.envs.crossroads import Crossroads
from longloop.envs.guess import Guess
from longloop.model.policy import load
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.rollout.starts import ids_at
from longloop.store.run import Run
from longloop.store.trajectories import Trajectories
from longloop.training import TaskStream
from longloop.types import Group, Sample, SamplingParams, Start, StopReason, Trajectory, UserError
from tests.support.helpers import Silent, load_config, train
from tests.support.runs import contents
from tests.support.samples import EXPERT, NOW, TASK, first_minibatch, learner, own, turn, with_known
from tests.support.worlds import CHAT, TASKS, default, rollouts

REWRITTEN = replace(EXPERT, turns=(EXPERT.turns[0], turn((1, 9, 4), (5, 6), restarts_context=True), EXPERT.turns[2]))


# --- inspection and practice ---


def no_environment() -> Any:
    raise AssertionError("practice needs no environment")


class Listening:
    """Notes what an engine is asked, and how many ask at once."""

    def __init__(self, what: GroupRollouts) -> None:
        self.engine: Any = what.context.engine
        self.asked: list[tuple[int, ...]] = []
        self.limits: list[int] = []
        self.forgotten: set[str] = set()
        self.sessions: set[str] = set()
        self.now = self.most = self.released = 0
        what.context = replace(what.context, engine=self)

    async def sample(self, ids: Any, params: SamplingParams, *, session: str) -> Any:
        self.asked.append(tuple(ids))
        self.limits.append(params.max_tokens)
        self.sessions.add(session)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return await self.engine.sample(ids, params, session=session)

    def forget(self, session: str) -> None:
        self.forgotten.add(session)

    def release(self) -> None:
        self.released += 1


def practised(what: GroupRollouts, *experts: Trajectory, times: int = 2, seed: int = 0) -> list[Group]:
    """These demonstrations, each with so many own actions at every one of its states."""

    async def demonstrations(tasks: Any) -> list[Group]:
        return [Group(task, (expert,)) for task, expert in zip(tasks, experts, strict=True)]

    what.demonstrations = demonstrations  # type: ignore[method-assign]
    return asyncio.run(asyncio.wait_for(inspected(what, [TASK] * len(experts), times, 1.0, seed), 60))


def states_of(expert: Trajectory) -> list[tuple[int, ...]]:
    """What was read before each action."""
    return [tuple(ids_at(Start(TASK, expert, turn)).tolist()) for turn in range(len(expert.turns))]


@pytest.mark.parametrize(
    ("expert", "expected"),
    [
        (EXPERT, [(1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7)]),
        (REWRITTEN, [(1, 2), (1, 9, 4), (1, 9, 4, 5, 6, 7)]),
    ],
)
def test_the_states_of_a_demonstration(expert: Trajectory, expected: list[tuple[int, ...]]) -> None:
    """What was read before each action; where the template rewrote history, only what it wrote then."""
    assert states_of(expert) == expected
    what = rollouts(no_environment, say=["x"], turn_tokens=3)
    heard = Listening(what)
    (group,) = practised(what, expert)
    assert heard.asked == [state for state in reversed(expected) for _ in range(2)], "the longest first"
    assert heard.sessions == heard.forgotten and len(heard.sessions) == 6 and heard.released == 1
    assert group.trajectories[0] == replace(expert, attempt=0)
    assert [t.attempt for t in group.trajectories] == list(range(7))
    x = (*CHAT.encode("x"), CHAT.end_id)
    for place, one in enumerate(group.trajectories[1:]):
        turns = place // 2
        assert one.stop is StopReason.PRACTISED and not one.stop.scored and not one.expert
        assert one.turns[:turns] == expert.turns[:turns] and len(one.turns) == turns + 1
        last = one.turns[-1]
        assert last.context_ids.tolist() == expert.turns[turns].context_ids.tolist()
        assert last.restarts_context == expert.turns[turns].restarts_context
        assert (last.action.content, last.action_key, last.finish) == ("x", x, "stop")
        sample = last_action(one, 4)
        assert tuple(sample.ids.tolist()) == expected[turns] + x
        assert sample.mask.tolist() == [False] * len(expected[turns]) + [True, True]
        assert sample.source == (4, one.attempt) and sample.stretch == len(one.stretches()) - 1


def test_only_so_many_at_once() -> None:
    what = rollouts(no_environment, concurrency=3)
    heard = Listening(what)
    told: list[tuple[int, int]] = []
    what.progress = lambda done, total: told.append((done, total))
    assert len(practised(what, EXPERT, EXPERT)) == 2
    assert heard.most == 3 and told == [(n, 12) for n in range(1, 13)]


def test_an_action_fits_the_context_and_a_state_that_fills_it_is_left_out() -> None:
    what = rollouts(no_environment, context=7, turn_tokens=4)
    heard = Listening(what)
    (group,) = practised(what, EXPERT, times=1)
    assert [len(state) for state in heard.asked] == [4, 2] and heard.limits == [3, 4]
    assert [len(t.turns) for t in group.trajectories] == [3, 1, 2]


def test_an_engine_that_fails_is_heard_and_released() -> None:
    what = rollouts(no_environment)
    heard = Listening(what)

    async def fails(*_: Any, **__: Any) -> Any:
        raise UserError("out of order")

    heard.sample = fails  # type: ignore[method-assign]
    with pytest.raises(UserError, match="out of order"):
        practised(what, EXPERT)
    assert heard.released == 1


def test_practice_is_repeatable_and_reads_a_demonstration_once() -> None:
    """Equal seeds, equal actions, whatever else is sampled; other seeds, others. Shared beginnings are read once."""
    policy = load(ModelConfig(hidden=32, device="cpu"), 0)
    turns = tuple(turn(tuple(range(1, 40)), (5, 6)) for _ in range(4))
    expert = replace(EXPERT, turns=turns)

    def go(concurrency: int, seed: int) -> tuple[list[tuple[int, ...]], int]:
        engine = NativeEngine(policy, CHAT, slots=concurrency, context=256)
        limits = RolloutConfig(turn_tokens=3, context=256, concurrency=concurrency)
        what = GroupRollouts(RolloutContext(no_environment, CHAT, engine, limits, SamplingParams()), "test")
        (group,) = practised(what, expert, times=3, seed=seed)
        return [t.turns[-1].action_key for t in group.trajectories[1:]], engine.forwarded

    actions, forwarded = go(16, 0)
    assert go(1, 0)[0] == actions and go(16, 1)[0] != actions and len(set(actions)) > 6
    whole, states_alone = 39 * 4 + 2 * 3, sum(3 * len(ids) for ids in states_of(expert))
    assert forwarded < whole + 12 * 4 < states_alone / 4


def test_a_whole_collection() -> None:
    """The guessing game's expert, cut after each of its actions. Nothing but the demonstrations needs a game."""
    what = rollouts(lambda: Guess(Guess.Options(3, 2)), say=["2"])
    tasks = TaskStream(Guess.tasks("train", Guess.Options(3, 2)), 0)
    groups = asyncio.run(StepAgentImplicit(practice=2).collect(what, tasks, 3, NOW))
    assert [len(g.trajectories) for g in groups] == [1 + 2 * len(g.expert.turns) for g in groups if g.expert]
    assert asyncio.run(StepAgentImplicit(least_reward=2.0).collect(what, tasks, 3, NOW)) == []


@pytest.mark.parametrize("algo", [StepAgentImplicit(), StepAgentInverse()])
def test_an_environment_without_an_expert(algo: Any) -> None:
    what = rollouts(default(Crossroads))
    with pytest.raises(UserError, match="Crossroads has no expert, so there is nothing to imitate"):
        asyncio.run(algo.collect(what, TaskStream(TASKS, 0), 1, NOW))


# --- implicit ---


class Known:
    """A learner that says -1 of every action token, and of an action what is written down for it."""

    def __init__(self, logits: dict[tuple[int, ...], float] | None = None) -> None:
        self.logits = logits or {}
        self.fitted: list[tuple[tuple[int, ...], float, float]] = []
        """What every head was fitted on, one after the other."""
        self.heads: list[tuple[set[tuple[int, ...]], set[tuple[int, ...]]]] = []
        """For each head the states that it was fitted at, and those of samples that it was asked to judge."""

    def read(self, samples: Any, *columns: str) -> list[Sample]:
        return with_known(samples, columns, lambda s: {"logprobs": -1.0 * s.mask})

    def fit(self, head: str, samples: Any, targets: Any, weights: Any, lr: float, steps: int) -> None:
        assert head == "discriminator"
        self.fitted += [(tuple(s.ids.tolist()), t, w) for s, t, w in zip(samples, targets, weights, strict=True)]
        self.heads.append((set(map(self.state, samples)), set()))

    @staticmethod
    def state(sample: Sample) -> tuple[int, ...]:
        """What was read before the first action."""
        return tuple(sample.ids[: sample.mask.argmax()].tolist())

    def judge(self, head: str, samples: Any) -> list[list[float]]:
        def actions(sample: Any) -> list[tuple[int, ...]]:
            columns = list(zip(sample.ids, sample.mask, sample.turns, strict=True))
            acting = dict.fromkeys(turn for _, chosen, turn in columns if chosen)
            return [tuple(id for id, chosen, at in columns if chosen and at == turn) for turn in acting]

        assert head == "discriminator"
        self.heads[-1][1].update(map(self.state, samples))
        return [[self.logits[action] for action in actions(sample)] for sample in samples]


@pytest.mark.parametrize("expert", [EXPERT, REWRITTEN])
def test_pairs_of_actions(expert: Trajectory) -> None:
    """At each state the expert's action and each other one; what is equal to it, or said twice, is left out."""
    practised = [own(1, 1, (9,), expert), own(2, 1, (3,), expert), own(3, 1, (9,), expert)]
    practised += [own(4, 2, (5, 6), expert), own(5, 2, (5, 7, 8), expert), own(6, 2, (6,), expert)]
    samples = StepAgentImplicit().credit([Group(TASK, (expert, *practised))], Known(), NOW)
    second = (1, 2, 3, 4) if expert is EXPERT else (1, 9, 4)
    assert [(tuple(s.ids.tolist()), s.action_tokens) for s in samples] == [
        ((1, 2, 3), 1),
        ((1, 2, 9), 1),
        ((*second, 5, 6), 2),
        ((*second, 5, 7, 8), 3),
        ((*second, 5, 6), 2),
        ((*second, 6), 1),
    ]
    assert [s.pair for s in samples] == [0, 0, 1, 1, 2, 2]
    assert [s.advantages[-1] for s in samples] == [1.0, -1.0] * 3
    for sample in samples:
        others = len(sample.ids) - sample.action_tokens
        assert not sample.mask[:others].any(), "only the action itself"
        assert sample.columns["logprobs"].tolist() == (-1.0 * sample.mask).tolist()
        assert sample.weights.tolist() == (1.0 * sample.mask).tolist()


def test_the_implicit_loss_starts_at_log_two() -> None:
    """At the reference every pair's loss is log 2, and a token's slope half of beta: up for the expert's."""
    algo = StepAgentImplicit(beta=0.4, minibatch=3)
    model = learner(algo)
    group = Group(TASK, (EXPERT, own(1, 1, (9,)), own(2, 2, (9,)), own(3, 3, (9, 9))))
    minibatch = first_minibatch(algo, [group], model)
    slopes: dict[tuple[int, ...], list[float]] = {}

    def loss(scored: Any, batch: Any) -> Any:
        logp_N = scored.logp_N.detach().requires_grad_()
        total, metrics = algo.loss(replace(scored, logp_N=logp_N), batch)
        (slope_N,) = torch.autograd.grad(total, logp_N)
        slopes[tuple(batch.adv_N.tolist())] = slope_N.tolist()
        return algo.loss(scored, batch)[0], metrics

    metrics = model.gradient(minibatch, loss)
    assert metrics["loss"] == pytest.approx(math.log(2), rel=1e-5)
    assert metrics["margin"] == pytest.approx(0, abs=1e-6) and "kl" not in metrics
    assert slopes and all(of == pytest.approx([-0.2 * side for side in sides]) for sides, of in slopes.items())


def test_stored_advantages(tmp_path: Any) -> None:
    """A demonstration has its samples cut after each action; the columns of the whole keep what each was given."""
    group = Group(TASK, (replace(EXPERT, attempt=0), own(1, 1, (9,)), own(2, 3, (9, 9))))
    samples = StepAgentImplicit().credit([group], Known(), NOW)
    store = Trajectories(tmp_path)
    store.write(1, [group], samples)
    assert store.read(1) == [group], "the columns of the attempts after it are in their place"
    advantages = load_file(tmp_path / "000001.safetensors")["advantages"].tolist()
    assert advantages == [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, -1, -1]


# --- inverse ---


def test_both_sides_count_the_same_at_each_state() -> None:
    """The expert's action 1, each of n own ones 1/n; labels are smoothed by 0.1. Each state is in one fit."""
    known = Known(dict.fromkeys([(9,), (3,), (8,)], 0.0))
    group = Group(TASK, (EXPERT, own(1, 1, (9,)), own(2, 1, (3,)), own(3, 3, (9,)), own(4, 3, (8,)), own(5, 3, (8,))))
    StepAgentInverse().credit([group], known, NOW)
    state = (1, 2, 3, 4, 5, 6, 7)
    assert sorted(known.fitted) == sorted(
        [
            ((1, 2, 3), 0.95, 1.0),
            ((1, 2, 9), 0.05, 1 / 2),
            ((1, 2, 3), 0.05, 1 / 2),
            ((*state, 8), 0.95, 1.0),
            ((*state, 9), 0.05, 1 / 3),
            ((*state, 8), 0.05, 1 / 3),
            ((*state, 8), 0.05, 1 / 3),
        ]
    )


def demonstrations(number: int) -> list[Group]:
    """So many demonstrations of two turns, two own actions at each state, and two own attempts beside them."""
    groups = []
    for n in range(number):
        task = replace(TASK, id=f"task {n}")
        turns = (turn((1, 10 + n), (3,)), turn((4,), (5,)))
        shown = replace(EXPERT, task=task, attempt=0, turns=turns)
        practised = [own(1 + 2 * at + a, at + 1, (20 + a,), shown) for at in range(2) for a in range(2)]
        tried = [
            Trajectory(task, 5 + a, (turns[0], turn((6,), (20 + a,))), float(a), a == 1, StopReason.FINISHED)
            for a in range(2)
        ]
        groups.append(Group(task, (shown, *(replace(t, task=task) for t in practised), *tried)))
    return groups


@pytest.mark.parametrize("number", [1, 2, 5])
def test_no_action_is_judged_by_a_head_that_was_fitted_at_its_state(number: int) -> None:
    """Two heads, whose states are disjoint and are all states; each judges what the other was fitted on."""
    known = Known({(20,): 1.0, (21,): 0.0, (3,): 0.5})
    groups = demonstrations(number)
    samples = StepAgentInverse().credit(groups, known, NOW)
    (first, judged_first), (second, judged_second) = known.heads
    assert not first & second and len(first | second) == 2 * number
    assert (judged_first, judged_second) == (second, first)
    assert len(samples) == 4 * number
    assert abs(len(first) - len(second)) <= 2, "a demonstration's two states lie in one half, if there are several"
    if number > 1:
        beginnings = [{state[:2] for state in half} for half in (first, second)]
        assert not beginnings[0] & beginnings[1]


def test_a_half_does_not_depend_on_the_order_of_the_demonstrations() -> None:
    known, turned = Known({(20,): 1.0, (21,): 0.0}), Known({(20,): 1.0, (21,): 0.0})
    groups = demonstrations(5)
    StepAgentInverse().credit(groups, known, NOW)
    StepAgentInverse().credit(groups[::-1], turned, NOW)
    assert known.heads == turned.heads


class Partial(Known):
    """Judges an action 1 by the first head and -1 by the second."""

    def judge(self, head: str, samples: Any) -> list[list[float]]:
        return [[3.0 - 2 * len(self.heads)] * len(logits) for logits in super().judge(head, samples)]


@pytest.mark.parametrize("number", [1, 2])
def test_own_attempts_are_judged_by_the_other_half(number: int) -> None:
    """Action by action where one demonstration is all there is; a state that it never met lies in the first half."""
    known = Partial({(20,): 0.0, (21,): 0.0, (3,): 0.0})
    samples = StepAgentInverse(final=1.0).credit(demonstrations(number), known, NOW)
    for place in range(number):
        opening, later = (1, 10 + place), (1, 10 + place, 3, 4)
        by = {state: 1.0 if state in known.heads[1][0] else -1.0 for state in (opening, later)}
        # the first head judges what the second was fitted on, and the second what the first was
        paid = {s.source: s.columns["logged"][-1] for s in samples}
        assert [paid[place, n] for n in (1, 2, 3, 4)] == [by[opening]] * 2 + [by[later]] * 2
        unmet = 1.0 if number == 1 else by[opening]
        assert [paid[place, n] for n in (5, 6)] == [(by[opening] + unmet) / 2 + final for final in (0.0, 1.0)]


def test_a_single_state_teaches_nothing() -> None:
    """There is no other half to fit a head on."""
    known = Known({(9,): 1.0, (8,): 0.0})
    shown = replace(EXPERT, turns=EXPERT.turns[:1])
    assert StepAgentInverse().credit([Group(TASK, (shown, own(1, 1, (9,)), own(2, 1, (8,))))], known, NOW) == []
    assert not known.heads


def test_rewards_are_compared_within_a_state() -> None:
    """Logits 2, -1 and -9, which counts as -5: 2 + 3 = 5, -1 + 1.5 = 0.5, -5 - 0.5 = -5.5. Then 1 against 0."""
    known = Known({(9,): 2.0, (8, 8): -1.0, (7,): -9.0, (3,): 1.0, (4,): 0.0})
    first = [own(1, 1, (9,)), own(2, 1, (8, 8)), own(3, 1, (7,))]
    group = Group(TASK, (EXPERT, *first, own(4, 2, (3,)), own(5, 2, (4,)), own(6, 3, (9,)), own(7, 3, (9,))))
    samples = StepAgentInverse().credit([group], known, NOW)
    assert [s.advantages[-1] for s in samples] == pytest.approx([5.0, 0.5, -5.5, 1.0, -1.0])
    assert [s.source for s in samples] == [(0, n) for n in range(1, 6)], "two equal actions teach nothing"
    assert [sum(s.mask) for s in samples] == [1, 2, 1, 1, 1]
    assert [sum(s.weights) for s in samples] == [1.0] * 5 and samples[1].weights[-2:].tolist() == [0.5, 0.5]
    assert [s.columns["logged"][-1] for s in samples] == [2.0, -1.0, -5.0, 1.0, 0.0]
    assert samples[3].logprobs[-1] == -1.0, "as it was sampled"


def test_final_adds_what_the_environment_paid() -> None:
    """Own attempts: the mean of their actions' rewards plus `final` times their own, against the others'."""
    one = Trajectory(
        TASK, 2, (turn((1,), (9,)), turn((2,), (8,), restarts_context=True)), 1.0, True, StopReason.FINISHED
    )
    other = replace(one, attempt=3, turns=(turn((1,), (7,)),), reward=0.0)
    failed = replace(one, attempt=4, stop=StopReason.ENV_ERROR)
    group = Group(TASK, (EXPERT, own(1, 1, (9,)), own(5, 2, (9,)), one, other, failed))
    known = Known({(9,): 2.0, (8,): -9.0, (7,): 0.5})
    samples = StepAgentInverse(final=2.0).credit([group], known, NOW)
    # (2 - 5) / 2 + 2 * 1 = 0.5 in two stretches, and 0.5 + 0 = 0.5
    assert [s.source for s in samples] == [(0, 2), (0, 2), (0, 3)]
    assert [s.columns["logged"][-1] for s in samples] == [0.5] * 3 and [s.advantages[-1] for s in samples] == [0.0] * 3
    samples = StepAgentInverse(final=1.0).credit([group], known, NOW)
    assert [s.columns["logged"][-1] for s in samples] == [-0.5, -0.5, 0.5]
    assert [s.advantages[-1] for s in samples] == [-1.0, -1.0, 1.0]
    assert [s.weights[-1] for s in samples] == [0.5, 0.5, 1.0]
    assert StepAgentInverse().credit([group], known, NOW) == [], "one action at a state and no weight for attempts"


def test_final_makes_own_attempts_beside_the_practice() -> None:
    what = rollouts(lambda: Guess(Guess.Options(3, 2)), say=["2"])
    tasks = TaskStream(Guess.tasks("train", Guess.Options(3, 2)), 0)
    groups = asyncio.run(StepAgentInverse(final=1.0, k=2, practice=2).collect(what, tasks, 3, NOW))
    for group in groups:
        assert group.expert is not None and len(group.policy_trajectories) == 2
        assert [t.attempt for t in group.trajectories] == list(range(1 + 2 * len(group.expert.turns) + 2))


def test_a_single_own_action_cannot_be_compared() -> None:
    with pytest.raises(UserError, match=r"algo\.practice = 1.*needs algo\.practice >= 2"):
        StepAgentInverse(practice=1)


# --- whole runs ---


@pytest.mark.parametrize(
    "settings",
    [["algo.name=stepagent_implicit", "algo.k=1"], ["algo.name=stepagent_inverse", "algo.final=0.5", "algo.k=2"]],
)
def test_a_resumed_run_is_the_run_that_was_not_stopped(settings: list[str], tmp_path: Any) -> None:
    """Weights, optimizer, head, metrics and trajectories, all but the times."""
    _, whole, steps = train(tmp_path, *settings, "steps=4", "name=whole")
    assert all(step["update"] for step in steps) and not any(step["guard"] for step in steps)
    _, stopped, _ = train(tmp_path, *settings, "steps=2", "name=stopped")
    parts = api.prepared(load_config(tmp_path, *settings, "steps=4", "name=stopped"))
    with Run.reopen(stopped.folder) as run:
        asyncio.run(api.run_loop(parts, run, Silent()))
    a, b = contents(whole.folder), contents(stopped.folder)
    a["metrics"], b["metrics"] = (
        {n: m for n, m in x["metrics"].items() if n != 2} for x in (a, b)
    )  # evaluated at its end
    b = {name: value for name, value in b.items() if not name.startswith("evaluations/000002")}
    assert a.keys() == b.keys() and [name for name in a if a[name] != b[name]] == []
