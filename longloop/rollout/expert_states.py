"""Practice: the policy acts where an expert has acted, at each of its states, and no environment takes part.

A demonstration is cut after every action; what the model had read before that action is the state. States need nothing
of each other, so all are practised at the same time.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from longloop.rollout.episode import RolloutContext, ended, seed_of
from longloop.types import Group, Message, StopReason, Trajectory, Turn


async def practise(
    setting: RolloutContext,
    experts: Sequence[Trajectory],
    times: int,
    name: str,
    seed: int,
    progress: Callable[[int, int], None],
) -> list[Group]:
    """For each demonstration its group: itself as number 0, then `times` own actions at every one of its states.

    An own action is an attempt whose other turns are the expert's. A state that fills the context is left out.
    """
    gate = asyncio.Semaphore(setting.limits.concurrency)
    finished = 0

    async def act(place: int, turn: int, ids: Sequence[int], number: int) -> Trajectory:
        nonlocal finished
        expert = experts[place]
        async with gate:
            own = await _act(setting, expert.turns[turn], ids, f"{name}/{seed}/{place}/practice/{turn}/{number}")
        finished += 1
        progress(finished, len(everyone))
        attempt, turns = 1 + turn * times + number, (*expert.turns[:turn], own)
        return Trajectory(expert.task, attempt, turns, 0.0, False, StopReason.PRACTISED)

    # The longest state of a demonstration first: it is read once, and all the others are beginnings of it.
    running = [
        [
            asyncio.create_task(act(place, turn, ids, number))
            for turn, ids in reversed(list(states(expert)))
            if len(ids) < setting.limits.context
            for number in range(times)
        ]
        for place, expert in enumerate(experts)
    ]
    everyone = [task for tasks in running for task in tasks]
    try:
        await asyncio.gather(*everyone)
    finally:
        await ended(everyone)
        setting.engine.release()
    return [
        Group(expert.task, (replace(expert, attempt=0), *sorted((t.result() for t in tasks), key=lambda t: t.attempt)))
        for expert, tasks in zip(experts, running, strict=True)
    ]


def states(expert: Trajectory) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each turn's number, and the ids that were read before its action."""
    ids: tuple[int, ...] = ()
    for number, turn in enumerate(expert.turns):
        ids = turn.context_ids if turn.restarts_context else ids + turn.context_ids
        yield number, ids
        ids += turn.action_ids


async def _act(setting: RolloutContext, instead_of: Turn, ids: Sequence[int], session: str) -> Turn:
    """The policy's own action in place of the expert's."""
    asked = time.perf_counter()
    try:
        sampled = await setting.engine.sample(ids, setting.params(ids, seed_of(session)), session=session)
    finally:
        setting.engine.forget(session)
    return Turn(
        context=instead_of.context,
        context_ids=instead_of.context_ids,
        action=Message("assistant", setting.chat.decode(sampled.ids)),
        action_ids=sampled.ids,
        action_logprobs=sampled.logprobs,
        restarts_context=instead_of.restarts_context,
        finish=sampled.finish,
        seconds={"sample": time.perf_counter() - asked},
    )
