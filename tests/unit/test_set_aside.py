"""Failures that are not the agent's: which are counted, when a task is set aside, when a run ends."""

import asyncio
from typing import Any

import pytest

from longloop.rollout.episode import seed_of
from longloop.rollout.failure_budget import IN_A_ROW, WINDOW, Faults
from longloop.types import Group, SamplingParams, StopReason, Task, Trajectory, UserError
from tests.support.worlds import TASKS, Env, Log, collect, raising, rollouts, with_fault

GOOD, BAD = Task("good", "train"), Task("bad", "train")


def ended(task: Task, stop: StopReason, error: str = "") -> Trajectory:
    return Trajectory(task, 0, (), 0.0, False, stop, error)


def settle(faults: Faults, *attempts: Trajectory) -> None:
    faults.settle([Group(attempts[0].task, attempts)])


def test_a_task_is_set_aside_after_so_many_failures_in_a_row() -> None:
    told: list[str] = []
    faults = Faults(1.0, told.append)
    settle(faults, *[ended(BAD, StopReason.TIMEOUT, "too slow")] * (IN_A_ROW - 1))
    settle(faults, ended(BAD, StopReason.FINISHED))  # a good one between them starts the count anew
    for n in range(IN_A_ROW):
        assert faults.instead(BAD, 3) is None and not told, n
        settle(faults, ended(BAD, StopReason.ENV_ERROR, f"broken {n}"))
    (words,) = told
    assert "Task 'bad' is set aside after 8 failures in a row, the last: broken 7." in words
    stand_in = faults.instead(BAD, 3)
    assert stand_in is not None and (stand_in.task, stand_in.attempt, stand_in.turns) == (BAD, 3, ())
    assert (stand_in.reward, stand_in.success, stand_in.stop) == (0.0, False, StopReason.SET_ASIDE)
    assert stand_in.error == "set aside after 8 failures in a row, the last: broken 7"
    assert faults.instead(GOOD, 0) is None
    assert faults.seen(stand_in) is stand_in
    settle(faults, *[stand_in] * 2 * IN_A_ROW)
    assert len(told) == 1 and faults.state()["in_a_row"] == {"bad": IN_A_ROW}


def test_tasks_are_counted_apart() -> None:
    """And an attempt that was abandoned says nothing of its task."""
    told: list[str] = []
    faults = Faults(1.0, told.append)
    for _ in range(IN_A_ROW - 1):
        settle(faults, ended(BAD, StopReason.TIMEOUT, "slow"), ended(BAD, StopReason.CANCELLED, "abandoned"))
        settle(faults, ended(GOOD, StopReason.ENV_ERROR, "broken"))
    assert not told and faults.state()["in_a_row"] == {"bad": IN_A_ROW - 1, "good": IN_A_ROW - 1}


def test_counts_outlive_a_restart() -> None:
    told: list[str] = []
    faults, later = Faults(1.0, told.append), Faults(1.0, told.append)
    settle(faults, *[ended(BAD, StopReason.TIMEOUT, "slow")] * IN_A_ROW)
    settle(faults, *[ended(GOOD, StopReason.TIMEOUT, "slow")] * (IN_A_ROW - 1))
    later.restore(faults.state())
    assert later.instead(BAD, 1) == faults.instead(BAD, 1) is not None
    settle(later, ended(GOOD, StopReason.TIMEOUT, "slow"))
    assert len(told) == 2 and later.instead(GOOD, 0) and not faults.instead(GOOD, 0)


def test_a_run_ends_when_more_than_its_share_of_the_latest_attempts_failed() -> None:
    """Half of a hundred may fail; the 51st ends it, and the most common error is told. Stragglers do not count."""
    faults = Faults(0.5, lambda text: None)
    tasks = [Task(str(n), "train") for n in range(WINDOW)]
    for n in range(50):
        faults.seen(ended(tasks[n], StopReason.CANCELLED, "abandoned"))
        faults.seen(ended(tasks[n], StopReason.ENV_ERROR, "odd" if n < 20 else "usual"))
    with pytest.raises(UserError, match=r"51 of the last 51 episodes .* 31 of them with: usual\."):
        faults.seen(ended(tasks[51], StopReason.TIMEOUT, "usual"))


def test_old_failures_are_forgotten() -> None:
    faults = Faults(0.1, lambda text: None)
    for n in range(5 * WINDOW):
        stop = StopReason.ENV_ERROR if n % 10 == 0 else StopReason.FINISHED
        faults.seen(ended(Task(str(n), "train"), stop, "now and then" if n % 10 == 0 else ""))


def test_tasks_set_aside_are_not_played() -> None:
    """The first collection sets the task aside; in the second no environment is made for it."""
    log = Log()
    broken = with_fault("step", raising(ValueError, "no"))
    what = rollouts(lambda: broken(log), max_failure_share=1.0, straggler_cutoff=1.0)
    told: list[str] = []
    what.tell = told.append
    assert {t.stop for t in collect(what, k=IN_A_ROW)[0].trajectories} == {StopReason.ENV_ERROR}
    made = log.made
    (group,) = collect(what, k=3)
    assert log.made == made == IN_A_ROW and len(told) == 1
    assert [(t.stop, t.attempt) for t in group.trajectories] == [(StopReason.SET_ASIDE, n) for n in range(3)]


def test_an_idle_agent_is_scored_and_does_nothing() -> None:
    log = Log()
    what = rollouts(lambda: Env(log), max_turns=5)
    floor = what.idle()
    (group,) = collect(floor, k=2)
    assert [(t.stop, t.turns, t.reward) for t in group.trajectories] == [(StopReason.MAX_TURNS, (), 1.0)] * 2
    assert what.context.limits.max_turns == 5 and floor._name == "test/idle" and not floor._abandon


def test_rollouts_apart_share_what_is_imitated_and_nothing_else() -> None:
    what = rollouts(lambda: Env(Log()))
    what._stored = {TASKS[0].id: collect(what)[0]}
    other = what.fork_for_probe("elsewhere", what.context)
    assert other._name == "elsewhere" and not other._abandon and other._stored == what._stored
    (shown,) = asyncio.run(other.demonstrations(TASKS[:1]))
    assert all(t.expert for t in shown.trajectories) and what._stored, "what was taken there is still here"


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    what = rollouts(lambda: Env(Log()), concurrency=1)
    what.progress = lambda done, total: told.append((done, total))
    collect(what, k=3)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_seeds_differ_by_name_place_attempt_and_turn() -> None:
    """Every action is sampled with a seed of its own, and the same one in a second collection."""

    def seeds(name: str, seed: int) -> list[tuple[str, int]]:
        asked: list[tuple[str, int]] = []
        what = rollouts(lambda: Env(Log()))
        what._name = name
        sample = what.context.engine.sample

        async def listen(ids: Any, params: SamplingParams, *, session: str) -> Any:
            asked.append((session, params.seed))
            return await sample(ids, params, session=session)

        what.context.engine.sample = listen  # type: ignore[method-assign]
        collect(what, TASKS[:2], k=2, seed=seed)
        return sorted(asked)

    first = seeds("a", 5)
    assert {session for session, _ in first} == {"a/5/0", "a/5/1", "a/6/0", "a/6/1"}
    assert seeds("a", 5) == first
    everything = [seed for asked in (first, seeds("b", 5), seeds("a", 7)) for _, seed in asked]
    assert len(set(everything)) == len(everything) == 3 * 8
    assert seed_of("a", 1) != seed_of("a", 2) and 0 <= seed_of("a", 1) < 2**64


def test_a_demonstration_counts_once_however_often_the_run_is_resumed() -> None:
    class Unshown(Env):
        expert_splits = ("train",)

        def expert(self, task: Task) -> Any:
            raise ValueError("nobody knows")

    def what() -> Any:
        return rollouts(lambda: Unshown(Log()), max_failure_share=1.0)

    first = what()
    asyncio.run(first.demonstrations(TASKS[:1]))
    asyncio.run(first.demonstrations(TASKS[:1]))
    state = first.state()
    assert list(state["in_a_row"].values()) == [1]
    for _ in range(IN_A_ROW):
        resumed = what()
        resumed.restore(state)
        asyncio.run(resumed.demonstrations(TASKS[:1]))
        assert resumed.state() == state


def test_an_expert_that_is_broken_ends_a_resumed_run_as_well() -> None:
    class Unshown(Env):
        expert_splits = ("train",)

        def expert(self, task: Task) -> Any:
            raise ValueError("nobody knows")

    tasks = [Task(str(number), "train") for number in range(60)]
    resumed = rollouts(lambda: Unshown(Log()), max_failure_share=0.1)
    resumed.restore(resumed.state() | {"demonstrations": [task.id for task in tasks]})
    with pytest.raises(UserError, match="nobody knows"):
        asyncio.run(resumed.demonstrations(tasks))
