"""Episodes that do not come to their end: cancelled, without an engine, with messages that no template takes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from longloop.rollout.episode import Record, RolloutContext, run_episode
from longloop.tokens.transcript import Transcript
from longloop.types import Message, Sampled, SamplingParams, Step, StopReason, Trajectory, UserError
from tests.support.worlds import TASKS, Env, Log, collect, rollouts


def played(setting: RolloutContext, record: Record | None = None) -> Trajectory:
    return asyncio.run(asyncio.wait_for(run_episode(setting, TASKS[0], 0, "session", record), 60))


class Waits(Env):
    """Its steps wait for what never comes."""

    async def step(self, action: Message) -> Step:
        self.log.steps += 1
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("abandoned", [False, True])
def test_who_is_cancelled_is_cancelled_unless_it_was_abandoned(abandoned: bool) -> None:
    """An abandoned episode reports what it did, and its environment is finished."""
    log, record = Log(), Record()

    async def cancelled() -> Trajectory:
        episode = asyncio.create_task(run_episode(rollouts(lambda: Waits(log)).context, TASKS[0], 3, "one", record))
        while not log.steps:
            await asyncio.sleep(0)
        record.abandoned = abandoned
        episode.cancel()
        return await episode

    if not abandoned:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(cancelled())
        return
    one = asyncio.run(cancelled())
    assert (one.stop, one.attempt, len(one.turns), one.reward) == (StopReason.CANCELLED, 3, 1, 0.0)
    assert log.finished == {0: 1}


class Judges(Env):
    """Its verdict takes for ever, or it gives up; it is asked for after one turn."""

    turns = 1
    gives_up = False

    async def finish(self) -> Any:
        self.note_finish()
        if self.gives_up:
            raise asyncio.CancelledError("of its own accord")
        await asyncio.Event().wait()


def abandoned_when(there: Callable[[], bool], setting: RolloutContext) -> Trajectory:
    """An episode that is abandoned as soon as it is there."""
    record = Record()

    async def abandoned() -> Trajectory:
        episode = asyncio.create_task(run_episode(setting, TASKS[0], 0, "one", record))
        while not there():
            await asyncio.sleep(0)
        record.abandoned = True
        episode.cancel()
        return await asyncio.wait_for(episode, 30)

    return asyncio.run(abandoned())


def test_a_verdict_is_asked_for_once() -> None:
    log = Log()
    one = abandoned_when(lambda: bool(log.finished), rollouts(lambda: Judges(log)).context)
    assert one.stop is StopReason.CANCELLED and log.finished == {0: 1}


def test_an_environment_may_give_up_while_it_is_left() -> None:
    class GivesUp(Waits, Judges):
        gives_up = True

    log = Log()
    one = abandoned_when(lambda: log.steps > 0, rollouts(lambda: GivesUp(log)).context)
    assert one.stop is StopReason.CANCELLED and log.finished == {0: 1}


def test_what_was_heard_and_not_answered_is_kept() -> None:
    setting, asked = rollouts(lambda: Env(Log())).context, []

    async def sample(ids: Sequence[int], *_: Any, **__: Any) -> Sampled:
        asked.append(ids)
        await asyncio.Event().wait()
        raise AssertionError

    setting.engine.sample = sample  # type: ignore[method-assign]
    one = abandoned_when(lambda: bool(asked), setting)
    assert one.unread == (Message("user", "go"),) and one.turns == ()


def test_an_engine_that_is_too_slow_is_not_the_episodes_fault() -> None:
    setting = rollouts(lambda: Env(Log())).context

    async def sample(ids: Sequence[int], *_: Any, **__: Any) -> Sampled:
        raise TimeoutError("no answer from the engine")

    setting.engine.sample = sample  # type: ignore[method-assign]
    with pytest.raises(TimeoutError, match="no answer from the engine"):
        played(setting)


@pytest.mark.parametrize("turn", [0, 1])
def test_messages_that_no_template_takes(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the opening every episode would meet them; later they are this environment's failure."""
    receive, heard = Transcript.receive, []

    def refuse(self: Transcript, messages: Sequence[Message], *more: Any) -> Any:
        heard.append(messages)
        if len(heard) > turn:
            raise UserError("no such role")
        return receive(self, messages, *more)

    monkeypatch.setattr(Transcript, "receive", refuse)
    log = Log()
    setting = rollouts(lambda: Env(log)).context
    if turn == 0:
        with pytest.raises(UserError, match="no such role"):
            played(setting)
    else:
        one = played(setting)
        assert (one.stop, one.error, len(one.turns)) == (StopReason.ENV_ERROR, "no such role", 1)
    assert log.finished == {0: 1}


def test_what_a_turn_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step's reward and info, whether the context began anew, and how long engine and environment took."""

    class Pays(Env):
        async def step(self, action: Message) -> Step:
            return replace(await super().step(action), reward=0.25, info={"seen": 1})

    receive = Transcript.receive
    monkeypatch.setattr(Transcript, "receive", lambda self, messages, *_: (receive(self, messages)[0], True))
    setting, asked = rollouts(lambda: Pays(Log()), stop=["END"]).context, []
    sample = setting.engine.sample

    async def listen(ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        asked.append(params.stop)
        return await sample(ids, params, session=session)

    setting.engine.sample = listen  # type: ignore[method-assign]
    for turn in played(setting).turns:
        assert (turn.reward, turn.info, turn.restarts_context) == (0.25, {"seen": 1}, True)
        assert set(turn.seconds) == {"sample", "env"} and all(0 <= spent < 60 for spent in turn.seconds.values())
    assert asked == [("END",)] * 2


def test_a_context_with_room_for_one_token_is_enough() -> None:
    opening = len(played(rollouts(lambda: Env(Log())).context).turns[0].context_ids)
    one = played(rollouts(lambda: Env(Log()), say=["a long answer"], context=opening + 1).context)
    assert one.stop is StopReason.CONTEXT_FULL and [len(turn.action_ids) for turn in one.turns] == [1]
    with pytest.raises(UserError, match=r"rollout\.context is"):
        played(rollouts(lambda: Env(Log()), context=opening).context)


def test_a_straggler_stops_at_the_turn_that_makes_it_one() -> None:
    """Though all others have ended, and nobody else looks."""
    log = Log()

    class Endless(Env):
        async def step(self, action: Message) -> Step:
            while len(log.finished) < 9:
                await asyncio.sleep(0)
            log.steps += 1
            await asyncio.sleep(0)
            return Step([Message("user", "on")], done=False)

    what = rollouts(
        lambda: Endless(log) if log.made == 0 else Env(log), straggler_cutoff=0.9, min_scored=4, max_turns=40
    )
    (group,) = collect(what, k=10)
    assert group.trajectories[0].stop is StopReason.CANCELLED
    assert 0 < log.steps < 10
