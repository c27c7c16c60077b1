"""Attempts that begin at a turn of a recorded one: replayed in a new environment, or a single action without any."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longloop.config import ModelConfig, RolloutConfig
from longloop.engines.engine import NativeEngine
from longloop.model.policy import load
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.rollout.starts import ids_at
from longloop.store.trajectories import Trajectories
from longloop.types import Group, Message, Outcome, Sampled, SamplingParams, Start, Step, StopReason, Task, Trajectory
from tests.support.worlds import CHAT, TASKS, Env, Log, collect, rollouts

TURNS = 4


class Sum(Env):
    """Adds up what it is told, letter by letter (a: 1, b: 2, ...), and says the sum after each of four turns.

    The reward is the sum: it is right only if all actions were taken in this environment.
    """

    total, played = 0, 0

    async def start(self, task: Task) -> Sequence[Message]:
        await super().start(task)
        return [Message("user", f"{task.data['number']} at first")]

    async def step(self, action: Message) -> Step:
        self.log.steps += 1
        self.played += 1
        self.total += worth(action.content)
        return Step([Message("user", self.answer())], reward=float(self.total), done=self.played == TURNS)

    def answer(self) -> str:
        return f"sum {self.total}"

    async def finish(self) -> Outcome:
        self.note_finish()
        return Outcome(float(self.total), False, {"sum": self.total})


def worth(text: str) -> int:
    return sum(ord(letter) - ord("a") + 1 for letter in text if letter.isalpha())


class Asked:
    """An engine that notes each request: its session, what was read, and how to sample."""

    def __init__(self, what: GroupRollouts) -> None:
        self.engine = what.context.engine
        self.requests: list[tuple[str, list[int], SamplingParams]] = []
        self.forgotten: list[str] = []
        self.released = 0
        what.context = replace(what.context, engine=self)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        self.requests.append((session, list(ids), params))
        return await self.engine.sample(ids, params, session=session)

    def forget(self, session: str) -> None:
        self.forgotten.append(session)
        self.engine.forget(session)

    def release(self) -> None:
        self.released += 1
        self.engine.release()


def play(what: GroupRollouts, starts: Sequence[Start], k: int, seed: int = 0, **options: Any) -> list[Group]:
    return asyncio.run(asyncio.wait_for(what.play(starts, k, seed, **options), 60))


def recorded(say: Sequence[str] = ("a", "bb", "c", "d")) -> Trajectory:
    """A whole attempt, its log-probs changed to numbers that nothing else would give."""
    (group,) = collect(rollouts(lambda: Sum(Log()), say=say), k=1)
    (one,) = group.trajectories
    assert one.stop is StopReason.FINISHED and len(one.turns) == TURNS
    turns = [replace(t, action_logprobs=[-0.25 * (n + 1)] * len(t.action_ids)) for n, t in enumerate(one.turns)]
    return replace(one, turns=tuple(turns))


def said(trajectory: Trajectory) -> list[str]:
    return [turn.action.content for turn in trajectory.turns]


# --- replayed, then played ---


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_an_attempt_goes_on_from_a_turn_of_a_recorded_one(turn: int) -> None:
    """The turns before it are the recorded ones, id by id, and nobody sampled them; then the policy acts."""
    before, log = recorded(), Log()
    what = rollouts(lambda: Sum(log), say=["z", "yy", "x"])
    engine = Asked(what)
    (group,) = play(what, [Start(TASKS[0], before, turn)], k=1)
    (one,) = group.trajectories
    for old, new in zip(before.turns[:turn], one.turns, strict=False):
        assert new.action_key == old.action_key and new.context_ids.tolist() == old.context_ids.tolist()
        assert new.action_logprobs.tolist() == old.action_logprobs.tolist() and new.context == old.context
    live = ["z", "yy", "x"][: TURNS - turn]
    assert said(one) == [*said(before)[:turn], *live]
    assert len(engine.requests) == len(live), "one request for each turn that was played anew"
    assert engine.requests[0][1] == ids_at(Start(TASKS[0], before, turn)).tolist()

    # The environment heard all of them: what it pays and says follows from the recorded actions and the new ones.
    sums = [sum(map(worth, said(one)[: n + 1])) for n in range(TURNS)]
    assert [t.reward for t in one.turns] == sums and one.reward == sums[-1] == one.info["sum"]
    assert [t.context[0].content for t in one.turns[1:]] == [f"sum {total}" for total in sums[:-1]]
    assert (one.stop, log.made, log.steps) == (StopReason.FINISHED, 1, TURNS)
    assert engine.forgotten == ["test/0/0"] and engine.released == 1


def test_a_start_at_the_beginning_takes_nothing_over() -> None:
    before = recorded()
    for start in (Start(TASKS[0]), Start(TASKS[0], before, 0)):
        what = rollouts(lambda: Sum(Log()), say=["z"])
        engine = Asked(what)
        (group,) = play(what, [start], k=2)
        assert [said(one) for one in group.trajectories] == [["z"] * TURNS] * 2
        assert len(engine.requests) == 2 * TURNS


def test_an_attempt_goes_on_where_a_recorded_one_stopped() -> None:
    """One that had used its turns: all of them are replayed, and the policy acts where nobody has."""
    before = recorded()
    cut = replace(before, turns=before.turns[:2], stop=StopReason.MAX_TURNS)
    (group,) = play(rollouts(lambda: Sum(Log()), say=["z", "yy"]), [Start(TASKS[0], cut, 2)], k=1)
    (one,) = group.trajectories
    assert (one.stop, one.error, one.replayed) == (StopReason.FINISHED, "", 2)
    assert said(one) == [*said(cut), "z", "yy"] and one.reward == sum(map(worth, said(one)))


def test_attempts_from_one_state_differ_by_their_seeds() -> None:
    """A real model: K attempts share the recorded turns and part after them; equal seeds give equal attempts."""
    before = recorded()
    policy = load(ModelConfig(device="cpu", hidden=16, layers=1), seed=0)

    def attempts(seed: int) -> tuple[Trajectory, ...]:
        limits = RolloutConfig(turn_tokens=8)
        context = RolloutContext(
            lambda: Sum(Log()), CHAT, NativeEngine(policy, CHAT, slots=4), limits, SamplingParams()
        )
        (group,) = play(GroupRollouts(context, "test", abandon=False), [Start(TASKS[0], before, 2)], 4, seed)
        return group.trajectories

    one, again, other = attempts(0), attempts(0), attempts(1)
    for trajectory in (*one, *other):
        assert [t.action_key for t in trajectory.turns[:2]] == [t.action_key for t in before.turns[:2]]
    assert len({t.turns[2].action_key for t in (*one, *other)}) == 8
    assert [t.stretches() for t in one] == [t.stretches() for t in again]
    assert [t.attempt for t in one] == [0, 1, 2, 3]


def test_each_start_has_its_own_group() -> None:
    """Starts at several turns, tasks and attempts, side by side; temperatures hold for what is sampled."""
    first, second = recorded(), recorded(("d", "c", "bb", "a"))
    asked = [Start(TASKS[0], first, 1), Start(TASKS[0], second, 3), Start(TASKS[1]), Start(TASKS[0], second, 1)]
    what = rollouts(lambda: Sum(Log()), say=["z"])
    engine = Asked(what)
    groups = play(what, asked, k=2, seed=5, temperatures=[0.5, 0.75])
    assert [group.task for group in groups] == [start.task for start in asked]
    assert [[said(one) for one in group.trajectories] for group in groups] == [
        [["a", "z", "z", "z"]] * 2,
        [["d", "c", "bb", "z"]] * 2,
        [["z"] * 4] * 2,
        [["d", "z", "z", "z"]] * 2,
    ]
    sampled = {(session, params.temperature) for session, _, params in engine.requests}
    assert sampled == {(f"test/{5 + index}/{n}", (0.5, 0.75)[n]) for index in range(4) for n in range(2)}
    assert len(engine.requests) == 2 * (3 + 1 + 4 + 3)


def test_recorded_turns_that_restarted_the_context_are_replayed_too() -> None:
    """What is read at a turn begins where its stretch does."""
    one = recorded()
    parted = replace(one, turns=(*one.turns[:2], replace(one.turns[2], restarts_context=True), one.turns[3]))
    (whole,) = one.stretches()
    first, second = parted.stretches()
    assert ids_at(Start(TASKS[0], parted, 1)).tolist() == first.ids[: -len(one.turns[1].action_ids)].tolist()
    assert ids_at(Start(TASKS[0], parted, 3)).tolist() == second.ids[: -len(one.turns[3].action_ids)].tolist()
    assert len(first.ids) + len(second.ids) == len(whole.ids)


# --- environments that do not answer equally ---


class Moody(Sum):
    """Answers otherwise than `Sum` from a turn on."""

    turn = 1

    def answer(self) -> str:
        return super().answer() + ("" if self.played < self.turn else " or so")


@pytest.mark.parametrize(("otherwise", "start"), [(1, 1), (1, 3), (2, 3), (3, 3)])
def test_an_environment_that_answers_otherwise_fails_the_attempt(otherwise: int, start: int) -> None:
    """As if it had raised: no reward, no part in a baseline; it is finished, and the policy is never asked."""
    before, log = recorded(), Log()
    kind = type("Moody", (Moody,), {"turn": otherwise})
    what = rollouts(lambda: kind(log), say=["z"])
    engine = Asked(what)
    (group,) = play(what, [Start(TASKS[0], replace(before, attempt=5), start)], k=2)
    for one in group.trajectories:
        assert (one.stop, one.reward, one.success, one.info) == (StopReason.ENV_ERROR, 0.0, False, {})
        assert one.error == (
            f"at turn {otherwise} the environment does not answer as it did in attempt 5, so an attempt cannot go on "
            "from there; it must answer equal actions equally"
        )
        assert said(one) == said(before)[:otherwise]
    assert group.scored == () and engine.requests == [] and log.finished == {0: 1, 1: 1}
    assert what.state()["in_a_row"] == {TASKS[0].id: 2}, "counted as every failure of an environment is"


def test_an_environment_that_begins_otherwise_fails_the_attempt() -> None:
    class Other(Sum):
        async def start(self, task: Task) -> Sequence[Message]:
            await super().start(task)
            return [Message("user", "something else")]

    what = rollouts(lambda: Other(Log()), say=["z"])
    engine = Asked(what)
    (group,) = play(what, [Start(TASKS[0], recorded(), 2)], k=1)
    (one,) = group.trajectories
    assert (one.stop, one.turns) == (StopReason.ENV_ERROR, ()) and one.error.startswith("at turn 0 the environment")
    assert engine.requests == []


@pytest.mark.parametrize("turns", [1, 2])
def test_an_environment_that_ends_before_the_start_fails_the_attempt(turns: int) -> None:
    """It is done though the recorded attempt went on: its verdict on actions that nobody sampled does not count."""

    class Short(Sum):
        async def step(self, action: Message) -> Step:
            return replace(await super().step(action), done=self.played == turns)

        async def finish(self) -> Outcome:
            return replace(await super().finish(), success=True)

    what = rollouts(lambda: Short(Log()), say=["z"])
    engine = Asked(what)
    (group,) = play(what, [Start(TASKS[0], recorded(), 2)], k=1)
    (one,) = group.trajectories
    assert (one.stop, one.reward, one.success, one.info) == (StopReason.ENV_ERROR, 0.0, False, {})
    assert one.error.startswith(f"at turn {turns} the environment does not answer as it did in attempt 0")
    assert group.scored == () and engine.requests == []


def test_what_is_heard_after_the_start_may_differ() -> None:
    """From there on the policy says other things, so other answers are no fault."""
    kind = type("Moody", (Moody,), {"turn": 3})
    (group,) = play(rollouts(lambda: kind(Log()), say=["z"]), [Start(TASKS[0], recorded(), 2)], k=1)
    (one,) = group.trajectories
    assert (one.stop, one.error) == (StopReason.FINISHED, "") and one.turns[3].context[0].content.endswith("or so")


# --- with something said after the opening ---


class Ruled(Sum):
    """Opens with three messages."""

    async def start(self, task: Task) -> Sequence[Message]:
        return [Message("system", "rules"), Message("assistant", "ready"), *await super().start(task)]


RULED = [("system", "rules"), ("assistant", "ready")]


@pytest.mark.parametrize(
    ("preface", "heard"),
    [
        ([("user", "plan first")], [*RULED, ("user", "0 at first\n\nplan first")]),
        (
            [("user", "plan"), ("assistant", "a plan"), ("user", "go")],
            [*RULED, ("user", "0 at first\n\nplan"), ("assistant", "a plan"), ("user", "go")],
        ),
        ([("assistant", "a plan")], [*RULED, ("user", "0 at first"), ("assistant", "a plan")]),
    ],
)
def test_two_messages_of_one_role_become_one(preface: list[tuple[str, str]], heard: list[tuple[str, str]]) -> None:
    """Only there, where the opening and what is said after it meet."""
    what = rollouts(lambda: Ruled(Log()), say=["z"])
    start = Start(TASKS[0], preface=tuple(Message(role, text) for role, text in preface))
    (group,) = play(what, [start], k=1)
    assert [(one.role, one.content) for one in group.trajectories[0].turns[0].context] == heard


# --- a single action ---


@pytest.mark.parametrize("turn", range(TURNS))
def test_a_single_action_needs_no_environment(turn: int) -> None:
    """It stands in place of the recorded one, after the recorded turns; later ones are not there."""
    before, log = recorded(), Log()
    what = rollouts(lambda: Sum(log), say=["zz"], turn_tokens=9, stop=["END"])
    engine = Asked(what)
    start = Start(TASKS[0], before, turn)
    (group,) = play(what, [start], k=3, seed=7, single_action=True)
    assert log.made == 0 and len(engine.requests) == 3
    assert {params.stop_ids for _, _, params in engine.requests} == {CHAT.end_ids}
    assert [one.attempt for one in group.trajectories] == [0, 1, 2] and group.scored == ()
    for one in group.trajectories:
        assert (one.stop, one.reward, one.success) == (StopReason.PRACTISED, 0.0, False)
        assert one.replayed == turn and one.turns[turn].seconds.keys() == {"sample"}
        assert one.turns[:turn] == before.turns[:turn] and said(one) == [*said(before)[:turn], "zz"]
        assert one.turns[turn].context == before.turns[turn].context
        assert one.turns[turn].context_ids.tolist() == before.turns[turn].context_ids.tolist()
    state = ids_at(start).tolist()
    for session, ids, params in engine.requests:
        assert ids == state and (params.max_tokens, params.stop) == (9, ("END",))
        assert session in {f"test/7/0/{n}" for n in range(3)}
    assert len({params.seed for _, _, params in engine.requests}) == 3
    assert sorted(engine.forgotten) == sorted(session for session, _, _ in engine.requests) and engine.released == 1


class Limits(Sum):
    """Lets the agent say less where it acts for the third time, and ends that action by a text."""

    async def step(self, action: Message) -> Step:
        step = await super().step(action)
        return replace(step, stop=("STOP",), max_tokens=2) if self.played == 2 else step


def test_a_single_action_is_sampled_within_what_the_environment_asked_for(tmp_path: Path) -> None:
    """Also where the recorded attempt was stored meanwhile, as a demonstration is."""
    groups = collect(rollouts(lambda: Limits(Log()), say=("a", "bb", "c", "d")), k=1)
    kept = Trajectories(tmp_path)
    kept.write(1, groups)
    assert [(t.stop, t.max_tokens) for t in groups[0].trajectories[0].turns] == [
        ((), 0),
        ((), 0),
        (("STOP",), 2),
        ((), 0),
    ]
    what = rollouts(lambda: Limits(Log()), say=["zz"], turn_tokens=9, stop=["END"])
    engine = Asked(what)
    play(what, [Start(TASKS[0], kept.read(1)[0].trajectories[0], turn) for turn in (1, 2)], k=1, single_action=True)
    asked = {session: (params.stop, params.max_tokens) for session, _, params in engine.requests}
    assert asked == {"test/0/0/0": (("END",), 9), "test/0/1/0": (("END", "STOP"), 2)}


def test_single_actions_differ_by_their_seeds() -> None:
    policy = load(ModelConfig(device="cpu", hidden=16, layers=1), seed=0)
    states = [Start(TASKS[0], recorded(), turn) for turn in (1, 2)]

    def actions(seed: int) -> list[tuple[int, ...]]:
        limits = RolloutConfig(turn_tokens=8)
        context = RolloutContext(
            lambda: Sum(Log()), CHAT, NativeEngine(policy, CHAT, slots=4), limits, SamplingParams()
        )
        groups = play(GroupRollouts(context, "test"), states, 3, seed, single_action=True)
        return [one.turns[-1].action_key for group in groups for one in group.trajectories]

    assert actions(0) == actions(0) and len(set(actions(0) + actions(1))) == 12


@pytest.mark.parametrize(("room", "attempts"), [(0, 0), (1, 2)])
def test_a_state_that_fills_the_context_gets_no_action(room: int, attempts: int) -> None:
    """Its group is there and empty; a state with room for one token gets actions of one token."""
    states = [Start(TASKS[0], recorded(), turn) for turn in (0, 2)]
    full = len(ids_at(states[1]))
    what = rollouts(lambda: Sum(Log()), say=["zz"], context=full + room)
    told: list[tuple[int, int]] = []
    what.progress = lambda done, total: told.append((done, total))
    engine = Asked(what)
    short, long = play(what, states, k=2, single_action=True)
    assert [len(group.trajectories) for group in (short, long)] == [2, attempts]
    assert [len(one.turns[-1].action_ids) for one in long.trajectories] == [1] * attempts
    assert len(engine.requests) == 2 + attempts == len(told) and told[-1] == (2 + attempts, 2 + attempts)
