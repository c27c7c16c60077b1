"""What trees, demonstrations and single actions at several tasks have in common: names, limits, counts, a tidy end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from longloop.rollout.failure_budget import IN_A_ROW
from longloop.rollout.groups import GroupRollouts
from longloop.types import Group, Message, Sampled, SamplingParams, Start, Step, StopReason, Task, Trajectory, UserError
from tests.support.samples import EXPERT
from tests.support.worlds import TASKS, Env, Log, rollouts, starts


class Engine:
    """Notes what it is asked; may fail or hang at some sessions."""

    def __init__(self, what: GroupRollouts, fails: str = "", hangs: str = "") -> None:
        self.engine, self.fails, self.hangs = what.context.engine, fails, hangs
        self.asked: dict[str, SamplingParams] = {}
        self.forgotten: set[str] = set()
        self.released = 0
        what.context = replace(what.context, engine=self)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        self.asked[session] = params
        await asyncio.sleep(0)
        if self.hangs and self.hangs in session:
            await asyncio.Event().wait()
        while self.hangs and not any(self.hangs in other for other in self.asked):
            await asyncio.sleep(0)
        if self.fails and self.fails in session:
            raise RuntimeError("the engine broke down")
        return await self.engine.sample(ids, params, session=session)

    def forget(self, session: str) -> None:
        self.forgotten.add(session)
        self.engine.forget(session)

    def release(self) -> None:
        self.released += 1


class Expert:
    async def act(self, messages: Sequence[Message]) -> str:
        return "a"


class Forks(Env):
    """Says which turn it is; can be copied, and has an expert."""

    turns, played, prepared = 4, 0, False

    async def ready(self) -> None:
        await asyncio.sleep(0)
        self.prepared = True

    async def start(self, task: Task) -> Sequence[Message]:
        assert self.prepared, "nobody waited for it"
        await super().start(task)
        return [Message("user", "turn 0")]

    async def step(self, action: Message) -> Step:
        self.played += 1
        return replace(await super().step(action), messages=[Message("user", f"turn {self.played}")])

    def fork(self) -> "Forks":
        copy = type(self)(self.log)
        copy.turns, copy.played = self.turns, self.played
        return copy

    def expert(self, task: Task) -> Expert:
        return Expert()


class Breaks(Forks):
    async def step(self, action: Message) -> Step:
        raise ValueError("no")


def done(work: Awaitable[list[Group]]) -> list[Group]:
    async def here() -> list[Group]:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(here())


def at_states(*recorded: Trajectory) -> list[Start]:
    """A start at each turn of each attempt."""
    return [Start(t.task, t, turn) for t in recorded for turn in range(len(t.turns))]


def by_number(session: str, turn: int) -> str:
    return session.rsplit("/", 1)[1]


def test_trees_have_names_of_their_own_and_leave_nothing_in_the_engine() -> None:
    what = rollouts(lambda: Forks(Log()), say=by_number)
    engine = Engine(what)
    groups = done(what.trees(TASKS[:2], 3, 1.0, seed=5))
    assert engine.asked.keys() == {f"test/{place}/{number}" for place in (5, 6) for number in range(3)}
    assert engine.forgotten == engine.asked.keys() and engine.released == 1
    assert isinstance(groups, list) and [group.task for group in groups] == TASKS[:2]


def test_what_was_played_before_is_heard_again() -> None:
    what = rollouts(lambda: Forks(Log()), say=by_number)
    (group,) = done(what.trees(TASKS[:1], 9, 1.0, seed=0))
    assert len(group.trajectories) == 9
    for one in group.trajectories:
        assert [turn.context for turn in one.turns] == [(Message("user", f"turn {n}"),) for n in range(4)]


@pytest.mark.parametrize("what", ["trees", "demonstrations"])
def test_tasks_take_turns_where_only_one_may_run(what: str) -> None:
    running: list[int] = []

    class Counts(Forks):
        async def start(self, task: Task) -> Sequence[Message]:
            self.log.steps += 1
            running.append(self.log.steps)
            return await super().start(task)

        async def finish(self) -> Any:
            self.log.steps -= self.played == 2
            return await super().finish()

    one = rollouts(lambda: type("Counts", (Counts,), {"turns": 2})(log), say=by_number, concurrency=1)
    log = Log()
    done(one.trees(TASKS, 1, 1.0, 0) if what == "trees" else one.demonstrations(TASKS))
    assert running == [1, 1, 1]


def test_failures_in_trees_and_demonstrations_set_tasks_aside() -> None:
    """And a tree of a task that was set aside is a single attempt that was not made."""
    what = rollouts(lambda: Breaks(Log()), max_failure_share=1.0)
    what.tell = lambda text: None
    done(what.demonstrations(TASKS[:2]))
    assert what.state()["in_a_row"] == {TASKS[0].id: 1, TASKS[1].id: 1}
    for attempts in (4, 3):
        assert [len(group.trajectories) for group in done(what.trees(TASKS[:1], attempts, 1.0, 0))] == [attempts]
    assert what.state()["in_a_row"][TASKS[0].id] == IN_A_ROW
    (group,) = done(what.trees(TASKS[:1], 3, 1.0, 0))
    assert [(t.stop, t.attempt) for t in group.trajectories] == [(StopReason.SET_ASIDE, 0)]
    later = rollouts(lambda: Breaks(Log()))
    later.restore(what.state())
    assert later.state() == what.state() and later.state()["aside"]


def test_the_progress_of_demonstrations_is_told() -> None:
    told: list[tuple[int, int]] = []
    what = rollouts(lambda: Forks(Log()), concurrency=1)
    what.progress = lambda finished, total: told.append((finished, total))
    done(what.demonstrations(TASKS[:2]))
    assert told == [(1, 2), (2, 2), (2, 2)]
    told.clear()
    done(what.demonstrations(TASKS[:2]))
    assert told == [(2, 2)], "known already"


def test_what_is_told_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    rollouts(lambda: Env(Log())).tell("a task was set aside")
    assert tuple(capsys.readouterr()) == ("", "a task was set aside\n")


def test_a_collection_releases_the_engine() -> None:
    what = rollouts(lambda: Env(Log()))
    engine = Engine(what)
    done(what.play(starts(TASKS), 2, 0))
    assert engine.released == 1


WORK: dict[str, Callable[[GroupRollouts], Awaitable[Any]]] = {
    "groups": lambda what: what.play(starts(TASKS[:2]), 1, 0),
    "trees": lambda what: what.trees(TASKS[:2], 2, 1.0, 0),
    "single actions": lambda what: what.play(at_states(EXPERT, EXPERT), 1, 0, single_action=True),
}


@pytest.mark.parametrize("kind", WORK)
def test_nothing_runs_on_when_the_engine_breaks_down(kind: str) -> None:
    """One fails while the other waits for an answer that never comes."""
    what = rollouts(lambda: Forks(Log()))
    among = "test/0" if kind == "single actions" else "test"  # the first start's sessions, and the second's
    Engine(what, fails=f"{among}/0/", hangs=f"{among}/1/")

    async def work() -> set[Any]:
        with pytest.raises(RuntimeError, match="broke down"):
            await asyncio.wait_for(WORK[kind](what), 60)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(work()) == set()


def test_demonstrations_end_together() -> None:
    """One task has no expert, while that of the other takes for ever."""

    class Slow(Forks):
        async def step(self, action: Message) -> Step:
            await asyncio.Event().wait()
            raise AssertionError

    log = Log()

    async def work() -> set[Any]:
        with pytest.raises(UserError, match="has no expert"):
            await what.demonstrations(TASKS[:2])
        return asyncio.all_tasks() - {asyncio.current_task()}

    what = rollouts(lambda: Slow(log) if log.made == 0 else Env(log))
    assert asyncio.run(work()) == set()


def test_what_single_actions_ask_and_keep() -> None:
    what = rollouts(lambda: Env(Log()), say=["a long answer"], stop=["END"], turn_tokens=2)
    engine = Engine(what)
    parted = replace(EXPERT, turns=(EXPERT.turns[0], replace(EXPERT.turns[1], restarts_context=True), EXPERT.turns[2]))
    states = at_states(parted, parted)
    groups = done(what.play(states, 2, 7, single_action=True))
    assert engine.asked.keys() == {f"test/7/{index}/{number}" for index in range(6) for number in range(2)}
    assert all(params.stop == ("END",) for params in engine.asked.values())
    assert engine.forgotten == engine.asked.keys() and engine.released == 1
    for start, group in zip(states, groups, strict=True):
        assert [one.attempt for one in group.trajectories] == [0, 1]
        for one in group.trajectories:
            assert (one.reward, one.success, one.stop) == (0.0, False, StopReason.PRACTISED)
            assert one.turns[:-1] == parted.turns[: start.turn]
            last, instead_of = one.turns[-1], parted.turns[start.turn]
            assert last.restarts_context == instead_of.restarts_context
            assert (last.finish, set(last.seconds)) == ("length", {"sample"})
            assert 0 <= last.seconds["sample"] < 60
