"""Faults in real workers, among many attempts: each costs its attempt and nothing else. And when there are too many."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from statistics import fmean
from typing import Any

import pytest

from longloop.algos.loop import Loop
from longloop.rollout.failure_budget import IN_A_ROW, Faults
from longloop.types import Group, StopReason, Task, Trajectory, UserError
from tests.support.obedient import FAULTS, Obedient, children, made, paid, plain, plan, pool, script
from tests.support.samples import NOW
from tests.support.worlds import Log, collect, default, hangs, raising, rollouts, starts, with_fault

EPISODES, K, WORKERS = 200, 8, 8
TASKS = Obedient.tasks("train")
BAD = plan(EPISODES, 0.05, K)
ERRORS = {
    "kill": "step() raised WorkerLost: the worker was killed by signal 9",
    "hang": "step() took longer than 5 s",
    "late": "step() took longer than 5 s",
    "leak": ("step() raised WorkerLost: the worker used ", "step() raised MemoryError"),  # whichever limit came first
    "garbage": "step() raised WorkerLost: the worker's answer to step() makes no sense: ValueError: it wrote something",
    "lie": "() raised WorkerLost: the worker's answer to ",
}


def collection(faults: dict[tuple[int, int], str]) -> list[Group]:
    """Two hundred episodes; nobody is abandoned."""
    before = children().keys()
    where = pool(size=WORKERS, memory=150, options={"late": 10.0})
    what = rollouts(made(where), say=script(faults), step_seconds=5.0, straggler_cutoff=1.0)
    try:
        groups = asyncio.run(asyncio.wait_for(what.play(starts(TASKS), K, 0), 200))
        assert len(where.pids) <= WORKERS
        for _ in range(6000):
            own = {pid: state for pid, state in children().items() if pid not in before}
            if "Z" not in own.values() and len(own) <= WORKERS:
                break
            time.sleep(0.02)
        assert "Z" not in own.values() and len(own) <= WORKERS
    finally:
        where.close()
    return groups


def test_a_worker_that_ends_while_nobody_needs_it_is_buried_and_replaced() -> None:
    where = pool(size=1)
    what = rollouts(made(where), say=script({}), straggler_cutoff=1.0)
    try:
        first = collect(what, TASKS[:1], k=2)
        (pid,) = where.pids
        os.kill(pid, signal.SIGKILL)
        for _ in range(6000):
            if pid not in children():
                break
            time.sleep(0.02)
        assert pid not in children()
        assert plain(collect(what, TASKS[:1], k=2)) == plain(first)
        assert pid not in where.pids and len(where.pids) == 1
    finally:
        where.close()


@pytest.fixture(scope="module")
def groups() -> tuple[list[Group], list[Group]]:
    """Without faults, and with ten of each kind."""
    return collection({}), collection(BAD)


def test_the_plan_is_as_it_should_be() -> None:
    assert Counter(BAD.values()) == dict.fromkeys(FAULTS, 10) and len(TASKS) * K == EPISODES


def test_all_other_episodes_are_unaffected(groups: Any) -> None:
    clean, faulty = map(plain, groups)
    for place in range(len(TASKS)):
        for attempt in range(K):
            one, other = clean[place].trajectories[attempt], faulty[place].trajectories[attempt]
            assert one.stop is StopReason.FINISHED and one.reward == paid(place, attempt)
            assert (other == one) == ((place, attempt) not in BAD)


def test_no_fault_is_paid_and_each_says_what_it_was(groups: Any) -> None:
    for (place, attempt), fault in BAD.items():
        one = groups[1][place].trajectories[attempt]
        assert one.stop is (StopReason.TIMEOUT if fault in ("hang", "late") else StopReason.ENV_ERROR)
        assert (one.reward, one.success, one.info, len(one.turns)) == (0.0, False, {}, 2)
        words = ERRORS[fault]
        assert any(some in one.error for some in (words if isinstance(words, tuple) else (words,)))


def test_baselines_are_those_computed_by_hand(groups: Any) -> None:
    credited = {sample.source: sample for sample in Loop(drop_below=0.0).credit(groups[1], None, NOW)}
    good = {place: [n for n in range(K) if (place, n) not in BAD] for place in range(len(TASKS))}
    assert credited.keys() == {(place, n) for place, numbers in good.items() for n in numbers}
    for (place, attempt), sample in credited.items():
        others = fmean(paid(place, n) for n in good[place] if n != attempt)
        assert max(sample.advantages, key=abs) == pytest.approx(paid(place, attempt) - others)


def failed(task: Task = TASKS[0], error: str = "boom") -> Trajectory:
    return Trajectory(task, 0, (), 0.0, False, StopReason.ENV_ERROR, error)


def went_well(task: Task = TASKS[0]) -> Trajectory:
    return Trajectory(task, 0, (), 1.0, True, StopReason.FINISHED)


def test_a_task_that_keeps_failing_is_set_aside_and_reported() -> None:
    """Not one that fails now and then, and no other; what stands for its attempts is not scored."""
    told: list[str] = []
    what = rollouts(default(with_task_fault("train-1")), say=script({}), straggler_cutoff=1.0)
    what.tell = told.append
    first = collect(what, TASKS[:3], k=IN_A_ROW)
    assert [t.stop for t in first[1].trajectories] == [StopReason.ENV_ERROR] * IN_A_ROW
    assert [line.split(" (tests")[0] for line in told] == [
        "Task 'train-1' is set aside after 8 failures in a row, the last: start() raised ValueError: bad"
    ]
    second = collect(what, TASKS[:3], k=2, seed=3)
    assert {t.stop for t in second[1].trajectories} == {StopReason.SET_ASIDE} and not second[1].scored
    assert second[1].trajectories[0].error.startswith("set aside after 8 failures in a row")
    assert [len(group.scored) for group in second] == [2, 0, 2] and len(told) == 1


def with_task_fault(bad: str) -> type:
    class Faulty(Obedient):
        def start(self, task: Task) -> Any:
            if task.id == bad:
                raise ValueError("bad")
            return super().start(task)

    return Faulty


def test_a_task_that_fails_now_and_then_is_not_set_aside() -> None:
    faults = Faults(1.0, pytest.fail)
    for _ in range(5):
        faults.settle([Group(TASKS[0], (*[failed()] * (IN_A_ROW - 1), went_well()))])
    assert faults.instead(TASKS[0], 0) is None


def test_who_is_set_aside_depends_on_the_order_of_attempts_and_is_kept() -> None:
    """Failures count in the order of attempts, whoever ended first; a checkpoint carries the count on."""
    groups = [Group(TASKS[0], (went_well(), *[failed()] * (IN_A_ROW - 1)))]
    one, resumed = Faults(1.0, pytest.fail), Faults(1.0, lambda text: None)
    for trajectory in reversed(groups[0].trajectories):
        one.seen(trajectory)
    one.settle(groups)
    assert one.instead(TASKS[0], 0) is None
    resumed.restore(json.loads(json.dumps(one.state())))
    resumed.settle([Group(TASKS[0], (failed(),))])
    assert resumed.instead(TASKS[0], 0) is not None and resumed.instead(TASKS[1], 0) is None
    again = Faults(1.0, pytest.fail)
    again.restore(resumed.state())
    assert again.instead(TASKS[0], 0) == resumed.instead(TASKS[0], 0)


def test_too_many_failures_stop_the_run() -> None:
    """More than half of the last hundred, at whatever tasks; stragglers do not count."""
    faults = Faults(0.5, lambda text: None)
    for number in range(100):
        faults.seen(went_well(TASKS[number % 25]))
        faults.seen(Trajectory(TASKS[0], 0, (), 0.0, False, StopReason.CANCELLED))
    for number in range(50):
        faults.seen(failed(TASKS[number % 25], "a" if number % 3 else "b"))
    with pytest.raises(UserError) as stopped:
        faults.seen(failed(TASKS[3], "a"))
    assert str(stopped.value).startswith(
        "51 of the last 100 episodes failed for reasons that are not the agent's, 34 of them with: a."
    )


@pytest.mark.parametrize(("fault", "seconds"), [(raising(ValueError, "boom"), 60.0), (hangs, 0.05)])
def test_a_broken_environment_ends_a_collection(fault: Any, seconds: float) -> None:
    log = Log()
    bad = with_fault("step", fault)
    with pytest.raises(UserError, match=r"5\d of the last 5\d episodes failed"):
        collect(rollouts(lambda: bad(log), step_seconds=seconds, concurrency=8), TASKS, k=4)
    assert log.live == 0, "those under way were finished"


def test_a_run_in_which_every_task_is_set_aside_does_not_go_on_for_ever() -> None:
    what = rollouts(with_task_fault("train-0"), say=script({}), straggler_cutoff=1.0)
    with pytest.raises(UserError, match=r"5\d of the last 5\d episodes failed"):
        for seed in range(100):
            collect(what, TASKS[:1], k=8, seed=seed)
