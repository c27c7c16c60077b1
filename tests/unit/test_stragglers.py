"""Stragglers are those longer than nearly all others, in tokens; the clock has no part in it."""

import asyncio
import math
import random
from typing import Any

import pytest

from longloop.rollout.episode import Record
from longloop.rollout.groups import GroupRollouts
from longloop.rollout.stragglers import STRAGGLER, Stragglers
from longloop.types import Group, Message, Outcome, Step, StopReason, Task, Trajectory, Turn
from tests.support.worlds import TASKS, Env, Log, collect, rollouts, starts

WORD = Message("assistant", "a")


def attempt(tokens: int, stop: StopReason = StopReason.FINISHED) -> Trajectory:
    """One turn of one token for each token."""
    turn = Turn((), (), WORD, (1,), (0.0,))
    return Trajectory(TASKS[0], 0, (turn,) * tokens, 1.0, True, stop, info={"verdict": "good"})


def cutoff(rule: Stragglers, *ended: tuple[int, Trajectory]) -> float:
    for task, trajectory in ended:
        rule.end(task, trajectory)
    return rule.cutoff


def test_the_cutoff_by_hand() -> None:
    """Of ten attempts at one task, nine must have ended: twice the ninth shortest, in whatever order they end."""
    lengths = [3, 1, 4, 1, 5, 9, 2, 6, 5, 30]
    for seed in range(20):
        rule, seen = Stragglers(1, 10, straggler_cutoff=0.9, min_scored=4), []
        for length in random.Random(seed).sample(lengths, 10):
            seen.append(cutoff(rule, (0, attempt(length))))
        assert seen[:8] == [math.inf] * 8 and seen == sorted(seen, reverse=True)
        assert seen[-1] == 2 * 9


def test_each_task_must_have_enough_that_are_scored() -> None:
    """An attempt that failed for the environment's reasons does not count, unless the task has no others."""
    broken = StopReason.ENV_ERROR
    rule = Stragglers(2, 3, straggler_cutoff=0.5, min_scored=2)
    assert cutoff(rule, (0, attempt(2)), (0, attempt(3)), (1, attempt(4))) == math.inf
    assert cutoff(rule, (1, attempt(5, broken))) == math.inf
    assert cutoff(rule, (1, attempt(7))) == 2 * 7
    rule = Stragglers(2, 3, straggler_cutoff=0.5, min_scored=2)
    assert cutoff(rule, *((1, attempt(n, broken)) for n in (1, 2, 8)), *((0, attempt(n)) for n in (1, 2))) == 2 * 8
    assert (
        cutoff(Stragglers(1, 2, straggler_cutoff=0.5, min_scored=4), (0, attempt(1)), (0, attempt(6))) == 2 * 6
    )  # of two, both


def test_all_are_waited_for_when_all_are_asked_for() -> None:
    rule = Stragglers(1, 3, straggler_cutoff=1.0, min_scored=1)
    assert cutoff(rule, (0, attempt(1)), (0, attempt(2))) == math.inf
    assert cutoff(rule, (0, attempt(50))) == 2 * 50


def test_what_is_left_of_a_straggler() -> None:
    """No verdict, and the turns that fit; also of one that ended by itself, later than the cutoff."""
    rule = Stragglers(1, 2, straggler_cutoff=0.5, min_scored=1)
    cutoff(rule, (0, attempt(3)))
    for stop in (StopReason.FINISHED, StopReason.CANCELLED, StopReason.ENV_ERROR):
        left = rule.judge(attempt(8, stop))
        assert (left.stop, left.error, left.reward, left.success) == (StopReason.CANCELLED, STRAGGLER, 0.0, False)
        assert len(left.turns) == 2 * 3 and left.info == {}
    assert rule.judge(attempt(6)) == attempt(6)
    short = rule.judge(attempt(2, StopReason.CANCELLED))
    assert (short.stop, short.error, len(short.turns)) == (StopReason.CANCELLED, STRAGGLER, 2)


def test_an_attempt_as_long_as_the_cutoff_goes_on() -> None:
    """The rule keeps it, so nothing cancels it before it is longer."""

    async def main() -> None:
        record, episode = Record(lambda: 6.0), asyncio.create_task(asyncio.sleep(60))
        for turn in attempt(6).turns:
            record.act(turn)
        record.look(episode)
        assert not record.abandoned and not episode.cancelling()
        with pytest.raises(asyncio.CancelledError):
            record.act(attempt(1).turns[0])
        assert record.abandoned
        episode.cancel()

    asyncio.run(main())


def test_what_must_have_ended_is_a_share_of_all_attempts() -> None:
    """Half of 3 tasks with 4 attempts each: six."""
    rule = Stragglers(3, 4, straggler_cutoff=0.5, min_scored=1)
    ended = [(number % 3, attempt(2)) for number in range(6)]
    assert cutoff(rule, *ended[:5]) == math.inf and cutoff(rule, ended[5]) == 2 * 2


class Patient(Env):
    """As many turns as it is told, with pauses that are drawn by lot: `chance` is the machine's load."""

    def __init__(self, log: Log, chance: random.Random) -> None:
        super().__init__(log)
        self.chance = chance

    async def step(self, action: Message) -> Step:
        await asyncio.sleep(self.chance.random() / 50)
        return Step([Message("user", "on")], done=action.content.startswith("end"))


def talkative(session: str, turn: int) -> str:
    """Attempts of one to nine turns, and one that would never end."""
    chance = random.Random(session)
    if session.endswith("/0/3"):
        return "go on"
    return "end" if turn >= chance.randrange(9) else "on " * chance.randrange(5)


@pytest.mark.parametrize("concurrency", [3, 64])
def test_a_busy_machine_abandons_whom_an_idle_one_does(concurrency: int) -> None:
    """Trajectory by trajectory, turn by turn."""

    def collected(load: int) -> list[Group]:
        chance = random.Random(load)
        what = rollouts(
            lambda: Patient(Log(), chance), say=talkative, straggler_cutoff=0.8, min_scored=3, concurrency=concurrency
        )
        return collect(what, TASKS, k=5)

    def timeless(groups: list[Group]) -> list[Any]:
        of = [t for group in groups for t in group.trajectories]
        return [(t.stop, t.error, t.reward, t.info, [(x.action, x.context_ids.tolist()) for x in t.turns]) for t in of]

    first = collected(0)
    stops = [t.stop for group in first for t in group.trajectories]
    assert first[0].trajectories[3].stop is StopReason.CANCELLED and first[0].trajectories[3].turns
    assert stops.count(StopReason.CANCELLED) <= 3 and all(len(group.scored) >= 3 for group in first)
    for load in range(1, 6):
        assert timeless(collected(load)) == timeless(first)


class Prompt(Env):
    """Waits for the other attempts, and ends without waiting, so that nothing can interrupt it there."""

    async def step(self, action: Message) -> Step:
        done = action.content.startswith("end")
        if not done:
            await asyncio.sleep(0.1)
        return Step([Message("user", "on")], done=done)


def test_a_straggler_that_ends_with_the_action_that_was_too_much() -> None:
    """Nothing is awaited between that action and the episode's end, yet its cancellation stays its own."""

    def say(session: str, turn: int) -> str:
        if not session.endswith("/0/3"):
            return "end " + "on " * 10
        return "on" if turn < 2 else "end " + "on " * 40

    groups = collect(rollouts(lambda: Prompt(Log()), say=say, straggler_cutoff=0.8, min_scored=3), TASKS[:1], k=5)
    stops = [t.stop for t in groups[0].trajectories]
    assert stops == [StopReason.FINISHED] * 3 + [StopReason.CANCELLED, StopReason.FINISHED]


class Stuck(Env):
    """Never returns from its first step."""

    async def step(self, action: Message) -> Step:
        await self.wait()
        raise AssertionError

    async def wait(self) -> None:
        await asyncio.Event().wait()


def one_in_ten(kind: type[Env], log: Log) -> Any:
    return lambda: kind(log) if log.made == 1 else Env(log)


def wordy(session: str, turn: int) -> str:
    return "a" * 40 if session.endswith("/1") else "a"


def test_a_straggler_is_cancelled_wherever_it_is() -> None:
    """Within a step that never returns; its environment is finished like all others."""

    class Cleans(Stuck):
        async def wait(self) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise asyncio.CancelledError("cleaned up") from None

    for kind in (Stuck, Cleans):
        log = Log()
        group = collect(rollouts(one_in_ten(kind, log), say=wordy, straggler_cutoff=0.9, min_scored=4), k=10)[0]
        assert group.trajectories[1].stop is StopReason.CANCELLED and not group.trajectories[1].turns
        assert len(group.scored) == 9
        assert log.finished == dict.fromkeys(range(10), 1)


def test_a_short_one_that_hangs_is_no_straggler() -> None:
    """It runs into its deadline, as it would alone."""
    what = rollouts(one_in_ten(Stuck, Log()), straggler_cutoff=0.5, min_scored=1, step_seconds=0.3)
    group = collect(what, k=10)[0]
    assert [t.stop for t in group.trajectories].count(StopReason.TIMEOUT) == 1 and len(group.scored) == 9


def test_nobody_is_abandoned_where_every_attempt_counts() -> None:
    """In evaluations."""

    class Long(Env):
        turns = 5

        async def finish(self) -> Outcome:
            await super().finish()
            return Outcome(0.5, False)

    what = rollouts(one_in_ten(Long, Log()), abandon=False, straggler_cutoff=0.1, min_scored=1)
    assert {t.stop for t in collect(what, k=10)[0].trajectories} == {StopReason.FINISHED}
    assert GroupRollouts(what.context, "in training")._abandon


def test_a_collection_that_is_cancelled_finishes_its_environments() -> None:
    log = Log()

    async def cancelled() -> None:
        task = asyncio.create_task(rollouts(lambda: Stuck(log)).play(starts(TASKS), 2, 0))
        while len(log.started) < 6:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log.finished == dict.fromkeys(range(6), 1) and log.live == 0

    asyncio.run(cancelled())


def test_tasks_have_their_own_counts() -> None:
    """Two tasks, one of which takes much longer: its shortest attempts are still waited for."""

    def say(session: str, turn: int) -> str:
        return ("a" * 30 if "/1/" in session else "a") * (1 + int(session[-1])) ** 2

    groups = collect(rollouts(lambda: Env(Log()), say=say, straggler_cutoff=0.5, min_scored=3), TASKS[:2], k=5)
    assert [len(group.scored) for group in groups] == [5, 4]
    assert [t.attempt for t in groups[1].scored] == [0, 1, 2, 3]


def test_a_task_without_attempts_to_wait_for() -> None:
    assert collect(rollouts(lambda: Env(Log())), [Task("x", "train")], k=1)[0].scored
