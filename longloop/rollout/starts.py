"""Attempts that begin at a turn of a recorded one.

A new environment is led there: the recorded actions are taken again, without sampling, and what the policy reads must
be what was recorded, id by id. An environment that answers otherwise fails, as one that raises does.

Where a single action is asked for, no environment is needed: the policy reads the recorded turns and acts once.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from longloop.protocols import Engine
from longloop.rollout.episode import Record, RolloutContext, ended, run_episode, seed_of
from longloop.types import Fault, Group, Ids, Sampled, SamplingParams, Start, StopReason, Trajectory, Turn


async def run_from(context: RolloutContext, start: Start, attempt: int, session: str, record: Record) -> Trajectory:
    """An attempt from a start; see `run_episode`."""
    context = replace(context, preface=start.preface)
    if start.recorded is None or not start.turns:
        return await run_episode(context, start.task, attempt, session, record)
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
    ids: list[Ids] = []
    for turn in start.recorded.turns[: start.turn + 1]:
        if turn.restarts_context:
            ids.clear()
        ids += [turn.context_ids, turn.action_ids]
    return np.concatenate(ids[:-1])


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
        if self._turn < len(recorded.turns) and not np.array_equal(ids, ids_at(replace(self._start, turn=self._turn))):
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


async def act_once(
    contexts: Sequence[RolloutContext],
    starts: Sequence[Start],
    k: int,
    name: str,
    progress: Callable[[int, int], None],
) -> list[Group]:
    """K attempts from each start that end with one action. A state that fills the context gets none."""
    gate = asyncio.Semaphore(contexts[0].limits.concurrency)
    states = [ids_at(start) for start in starts]
    finished = 0

    async def attempt(index: int, number: int) -> Trajectory:
        nonlocal finished
        start = starts[index]
        assert start.recorded is not None
        async with gate:
            instead_of, session = start.recorded.turns[start.turn], f"{name}/{index}/{number}"
            own = await _act(contexts[number % len(contexts)], instead_of, states[index], session)
        finished += 1
        progress(finished, len(running))
        return Trajectory(
            start.task, number, (*start.turns, own), 0.0, False, StopReason.PRACTISED, replayed=len(start.turns)
        )

    # From the end: the longest state of an attempt is read once, and the earlier ones are beginnings of it.
    running = {
        (index, number): asyncio.create_task(attempt(index, number))
        for index in reversed(range(len(starts)))
        if len(states[index]) < contexts[0].limits.context
        for number in range(k)
    }
    try:
        await asyncio.gather(*running.values())
    finally:
        await ended(running.values())
        contexts[0].engine.release()
    return [
        Group(start.task, tuple(running[index, n].result() for n in range(k) if (index, n) in running))
        for index, start in enumerate(starts)
    ]


async def _act(context: RolloutContext, instead_of: Turn, ids: Ids, session: str) -> Turn:
    """The policy's own action in place of a recorded one."""
    asked = time.perf_counter()
    try:
        params = context.params(ids, seed_of(session))
        sampled = await context.engine.sample(ids.tolist(), params, session=session)
    finally:
        context.engine.forget(session)
    return Turn(
        context=instead_of.context,
        context_ids=instead_of.context_ids,
        action=context.chat.message(sampled.ids.tolist()),
        action_ids=sampled.ids,
        action_logprobs=sampled.logprobs,
        restarts_context=instead_of.restarts_context,
        rebuilt=instead_of.rebuilt,
        finish=sampled.finish,
        seconds={"sample": time.perf_counter() - asked},
    )
