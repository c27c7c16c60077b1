"""Attempts that begin at a turn of a recorded one.

A new environment is led there: the recorded actions are taken again, without sampling, and what the policy reads must
be what was recorded, id by id. An environment that answers otherwise fails, as one that raises does.

Where a single action is asked for, no environment is needed: the policy reads the recorded turns and acts once.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from longloop.protocols import Engine
from longloop.rollout.episode import Record, RolloutContext, run_episode, seed_of
from longloop.types import Fault, Ids, Sampled, SamplingParams, Start, StopReason, Trajectory, Turn


async def run_from(context: RolloutContext, start: Start, attempt: int, session: str, record: Record) -> Trajectory:
    """An attempt from a start; see `run_episode`."""
    context = replace(context, preface=start.preface)
    if not start.turns:
        return await run_episode(context, start.task, attempt, session, record)
    assert start.recorded is not None
    replaying = replace(context, engine=_ReplayThenLive(context.engine, start))
    one = await run_episode(replaying, start.task, attempt, session, record)
    one = replace(one, replayed=min(len(start.turns), len(one.turns)))
    if one.stop is StopReason.FINISHED and len(one.turns) < min(start.turn + 1, len(start.recorded.turns)):
        error = _otherwise(len(one.turns), start.recorded)
        return replace(one, stop=StopReason.ENV_ERROR, error=error, reward=0.0, success=False, info={})
    return one


def ids_at(start: Start) -> Ids:
    """What the policy has read when it acts at a start's turn."""
    assert start.recorded is not None
    return start.recorded.read_before(start.turn)


class _ReplayThenLive:
    """An engine that first says what was recorded, if it is asked what was recorded."""

    def __init__(self, engine: Engine, start: Start) -> None:
        self._engine, self._start = engine, start
        self._turn = 0
        self._live = False

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        if self._turn < len(self._start.turns) or not self._live:
            self._check(ids)
        if self._turn == len(self._start.turns):
            self._live = True
            return await self._engine.sample(ids, params, session=session)
        turn = self._start.turns[self._turn]
        self._turn += 1
        return Sampled(turn.action_ids, turn.action_logprobs, turn.finish)

    def _check(self, ids: Sequence[int]) -> None:
        recorded = self._start.recorded
        assert recorded is not None
        if self._turn < len(recorded.turns) and not np.array_equal(ids, recorded.read_before(self._turn)):
            raise Fault(StopReason.ENV_ERROR, _otherwise(self._turn, recorded))

    def forget(self, session: str) -> None:
        self._engine.forget(session)

    def release(self) -> None:
        self._engine.release()


def _otherwise(turn: int, recorded: Trajectory) -> str:
    return (
        f"at turn {turn} the environment does not answer as it did in attempt {recorded.attempt}, so an attempt cannot "
        "go on from there; it must answer equal actions equally"
    )


async def act(context: RolloutContext, instead_of: Turn, ids: Ids, session: str) -> Turn:
    """The policy's own action in place of a recorded one, after these ids."""
    asked = time.perf_counter()
    try:
        params = context.params(ids, seed_of(session), instead_of)
        sampled = await context.engine.sample(ids.tolist(), params, session=session)
    finally:
        context.engine.forget(session)
    return replace(
        instead_of,
        action=context.chat.message(sampled.ids.tolist()),
        action_ids=sampled.ids,
        action_logprobs=sampled.logprobs,
        reward=0.0,
        info={},
        finish=sampled.finish,
        seconds={"sample": time.perf_counter() - asked},
    )
