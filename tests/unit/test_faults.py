"""A bad environment is a recorded outcome, never a reward, a crash or a hang."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from longloop.algos.loop import Loop
from longloop.store.trajectories import Trajectories
from longloop.types import Group, Message, Outcome, Step, StopReason, Trajectory
from tests.support.samples import NOW
from tests.support.worlds import NEVER, Env, Log, collect, hangs, one_bad_among, raising, rollouts, with_fault


def answering(answer: Any) -> Callable[..., Any]:
    async def answers(self: Env, *_: Any) -> Any:
        return answer

    return answers


def blocks(self: Env, *_: Any) -> Any:
    NEVER.wait(20)


ERROR, LATE = StopReason.ENV_ERROR, StopReason.TIMEOUT
FAULTS = {
    "raises": (raising(ValueError, "boom"), ERROR, "{}() raised ValueError: boom"),
    "raises in plain code": (raising(ValueError, "boom", plain=True), ERROR, "{}() raised ValueError: boom"),
    "runs out": (raising(StopIteration), ERROR, "{}() raised RuntimeError: "),
    "runs out in plain code": (raising(StopIteration, plain=True), ERROR, "{}() raised RuntimeError: "),
    "exits": (raising(SystemExit, "bye"), ERROR, "{}() raised SystemExit: bye"),
    "exits in plain code": (raising(SystemExit, "bye", plain=True), ERROR, "{}() raised SystemExit: bye"),
    "has a task cancelled": (raising(asyncio.CancelledError), ERROR, "{}() raised CancelledError"),
    "gives up waiting": (raising(TimeoutError, "no answer"), ERROR, "{}() raised TimeoutError: no answer"),
    "answers nonsense": (answering(7), ERROR, "{}() must return"),
    "hangs": (hangs, LATE, "{}() took longer than 0.5 s"),
    "blocks": (blocks, LATE, "{}() took longer than 0.5 s"),
}


def assert_only_the_second_failed(group: Group, log: Log, stop: StopReason, error: str) -> Trajectory:
    """Right reason and words, no reward; the others as ever; each environment finished once."""
    failed = group.trajectories[1]
    assert failed.stop is stop and not stop.scored
    assert failed.error.startswith(error)
    assert (failed.reward, failed.success, failed.info) == (0.0, False, {})
    others = [t for t in group.trajectories if t is not failed]
    assert [(t.stop, t.reward, len(t.turns)) for t in others] == [(StopReason.FINISHED, 1.0, 2)] * 3
    assert group.scored == tuple(others)
    assert set(log.finished.values()) == {1}
    return failed


@pytest.mark.parametrize("method", ["start", "step", "finish"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_environment_is_a_recorded_outcome(method: str, name: str) -> None:
    """Whatever it does, and wherever: the attempt ends with the turns it had, the rest goes on."""
    fault, stop, error = FAULTS[name]
    log = Log()
    what = rollouts(
        one_bad_among(with_fault(method, fault), log), step_seconds=0.5, concurrency=2, straggler_cutoff=1.0
    )
    failed = assert_only_the_second_failed(collect(what)[0], log, stop, error.format(method))
    assert len(failed.turns) == {"start": 0, "step": 1, "finish": 2}[method]
    assert log.finished == dict.fromkeys(range(4), 1)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("start", []),
        ("start", "go"),
        ("start", [{"role": "user", "content": "go"}]),
        ("start", [Message("user", None)]),  # type: ignore[arg-type]
        ("step", None),
        ("step", Step()),
        ("step", Step(["on"])),  # type: ignore[list-item]
        ("step", Step([Message("user", b"on")])),  # type: ignore[arg-type]
        ("finish", 1.0),
        ("finish", Outcome(float("nan"), True)),
        ("finish", Outcome("1", True)),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_answer_is_a_fault(method: str, answer: Any) -> None:
    log = Log()
    what = rollouts(one_bad_among(with_fault(method, answering(answer)), log), straggler_cutoff=1.0)
    assert_only_the_second_failed(collect(what)[0], log, StopReason.ENV_ERROR, f"{method}() ")


ON = [Message("user", "on")]


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("start", answering([Message("user", "caf\udce9")])),  # as from a file name that is not UTF-8
        ("start", raising(ValueError, "caf\udce9")),
        ("step", answering(Step(ON, info={"seen": {1, 2}}))),
        ("step", answering(Step(ON, reward=np.float32(0.5)))),
        ("finish", answering(Outcome(np.float32(0.5), True))),
        ("finish", answering(Outcome(1.0, np.bool_(True)))),
        ("finish", answering(Outcome(1.0, True, {"state": object()}))),
    ],
    ids=["half a letter", "half a letter in an error", "a set", "paid numpy", "numpy", "numpy bool", "an object"],
)
def test_a_careless_answer_does_not_keep_the_others_from_being_stored(method: str, fault: Any, tmp_path: Path) -> None:
    """Taken or refused, what is left of it can be written and read again."""
    groups = collect(rollouts(one_bad_among(with_fault(method, fault), Log()), max_turns=3, straggler_cutoff=1.0))
    store = Trajectories(tmp_path)
    store.write(1, groups, Loop().credit(groups, None, NOW))
    assert [t.stop for t in store.read(1)[0].trajectories] == [t.stop for t in groups[0].trajectories]
    assert len(groups[0].scored) >= 3


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_constructor_that_raises(kind: type[BaseException]) -> None:
    def refuse(log: Log) -> Any:
        log.made += 1
        raise kind("no licence")

    log = Log()
    what = rollouts(one_bad_among(refuse, log), straggler_cutoff=1.0)
    text = f"the constructor raised {kind.__name__}: no licence"
    assert_only_the_second_failed(collect(what)[0], log, StopReason.ENV_ERROR, text)
    assert sorted(log.finished) == [0, 2, 3]


def test_plain_methods_may_return_something_to_await() -> None:
    """For instance a decorator's plain function around an async one."""

    class Wrapped(Env):
        def step(self, action: Message) -> Any:
            return Env.step(self, action)

    assert collect(rollouts(lambda: Wrapped(Log())), k=1)[0].trajectories[0].stop is StopReason.FINISHED


def test_the_first_fault_is_the_one_that_is_told() -> None:
    """Finish is called after it, once, and its own failure does not hide the cause."""
    faulty = with_fault("finish", raising(ValueError, plain=True))
    faulty.step = hangs
    log = Log()
    one = collect(rollouts(lambda: faulty(log), step_seconds=0.2), k=1)[0].trajectories[0]
    assert one.stop is StopReason.TIMEOUT and one.error.startswith(
        "step() took longer than 0.2 s (tests/support/worlds.py:"
    )
    assert log.finished == {0: 1}


def test_an_episode_has_a_deadline_too() -> None:
    """Though each of its steps keeps its own."""

    class Slow(Env):
        turns = 1000

        async def step(self, action: Message) -> Step:
            await asyncio.sleep(0.05)
            return await super().step(action)

    log = Log()
    one = collect(rollouts(lambda: Slow(log), seconds=0.5, max_turns=1000), k=1)[0].trajectories[0]
    assert (one.stop, one.error) == (StopReason.TIMEOUT, "the episode took longer than 0.5 s")
    assert one.turns and one.reward == 0.0 and log.finished == {0: 1}
