"""One attempt at one task: environment and engine take turns until someone stops.

Whatever the environment does, an episode ends as a Trajectory: an exception or an overrun deadline is a stop reason,
never a reward and never a crash. Only mistakes that every episode would share (a context too short for the opening, a
template that refuses the roles) rise as UserError, and so does the loss of the machine that the environment was on.
"""

import asyncio
import hashlib
import math
import time
from collections.abc import Callable, Collection, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from longloop.config import RolloutConfig
from longloop.envs.base import Environment
from longloop.envs.contract import failure
from longloop.isolation.guard import Fault, Guarded
from longloop.protocols import Engine
from longloop.rollout.stragglers import STRAGGLER
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import (
    Action,
    Message,
    Outcome,
    RankLost,
    SamplingParams,
    Step,
    StopReason,
    Task,
    Trajectory,
    Turn,
    UserError,
)


@dataclass(frozen=True)
class RolloutContext:
    """What all episodes of a run share."""

    make: Callable[[], Environment]
    chat: Chat
    engine: Engine
    limits: RolloutConfig
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    """Texts that end an action in this environment, besides those of the limits."""
    preface: tuple[Message, ...] = ()
    """Messages that follow the environment's opening."""

    def params(self, ids: Sized, seed: int, asked: Step | Turn) -> SamplingParams:
        """How to sample the action that follows these ids, within what the environment asked for there."""
        room = min(self.limits.turn_tokens, self.limits.context - len(ids), asked.max_tokens or self.limits.turn_tokens)
        stop = *self.stop, *self.limits.stop, *asked.stop
        return replace(self.sampling, max_tokens=room, seed=seed, stop_ids=self.chat.end_ids, stop=stop)


async def ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel whatever of these still runs, and wait for its end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def seed_of(*parts: object) -> int:
    """A seed made from the parts: it depends on what is sampled and not on what was sampled before."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())


class Record:
    """What an episode has done so far, for others to watch. An episode that grows beyond the cutoff is abandoned."""

    def __init__(self, cutoff: Callable[[], float] = lambda: math.inf) -> None:
        self.turns: list[Turn] = []
        """In the order of time."""
        self.threads: list[str] = []
        """The conversation of each turn (`Step.thread`)."""
        self.transcripts: dict[str, Transcript] = {}
        """The conversations."""
        self.unread: list[Message] = []
        """Messages that the policy has not answered yet."""
        self.abandoned = False
        self._cutoff = cutoff

    def restart(self) -> None:
        """Forget what was done: the episode begins anew."""
        for done in (self.turns, self.threads, self.transcripts, self.unread):
            done.clear()

    def act(self, turn: Turn, thread: str = "") -> None:
        """Add a turn: the action was taken, whatever the environment makes of it."""
        self.turns.append(turn)
        self.threads.append(thread)
        self.unread.clear()
        if self._too_long():
            self.abandoned = True
            raise asyncio.CancelledError  # a task that cancels itself ends as cancelled if it awaits nothing more

    def by_conversation(self) -> tuple[Turn, ...]:
        """The turns, one conversation after the other. Those of an attempt with a single one stay as they are."""
        order = list(self.transcripts)
        numbers = sorted(range(len(self.turns)), key=lambda number: order.index(self.threads[number]))
        return tuple(self.turns[number] for number in numbers)

    def look(self, episode: asyncio.Task[Any]) -> None:
        """Cancel an episode that has become too long. It still reports what it did."""
        if self._too_long() and not self.abandoned and not episode.done():
            self.abandoned = True
            episode.cancel()

    def _too_long(self) -> bool:
        return sum(len(turn.action_ids) for turn in self.turns) > self._cutoff()


async def run_episode(
    context: RolloutContext, task: Task, attempt: int, session: str, record: Record | None = None
) -> Trajectory:
    """`session` names the episode: its random numbers follow from it, and its KV cache is kept under it."""
    record = record or Record()
    stop, error, outcome = StopReason.CANCELLED, STRAGGLER, Outcome(0.0, False)
    judged = False
    try:
        env = Guarded(context.make())
        await env.ready()
    except RankLost:
        raise
    except (Exception, SystemExit) as raised:
        error = failure("the constructor", raised)
        return Trajectory(task, attempt, (), 0.0, False, StopReason.ENV_ERROR, error)
    try:
        stop, error = await _play_to_the_end(context, env, task, session, record)
        judged = True  # once, whatever happened before
        if stop.scored:
            outcome = await env.call("finish", (), context.limits.step_seconds)
        else:
            outcome = Outcome(0.0, False, await env.leave(context.limits.step_seconds))
    except Fault as fault:
        stop, error = fault.stop, str(fault)
    except asyncio.CancelledError:
        if not record.abandoned:
            raise
        stop, error = StopReason.CANCELLED, STRAGGLER
        if not judged:
            await _clean_up(context, env)
    except Exception:  # the engine's, or the user's to mend
        if not judged:
            with suppress(Exception):
                await env.leave(context.limits.step_seconds)
        raise
    finally:
        for thread in record.transcripts or [""]:
            context.engine.forget(_session(session, thread))
    turns, unread = record.by_conversation(), tuple(record.unread)
    return Trajectory(task, attempt, turns, outcome.reward, outcome.success, stop, error, outcome.info, unread=unread)


async def _play_to_the_end(
    context: RolloutContext, env: Guarded, task: Task, session: str, record: Record
) -> tuple[StopReason, str]:
    """Why the episode stopped, and an error message if it failed."""
    try:
        async with asyncio.timeout(context.limits.seconds) as deadline:
            return await _play(context, env, task, session, record), ""
    except Fault as fault:
        return fault.stop, str(fault)
    except TimeoutError:
        if not deadline.expired():
            raise  # the engine's, not the episode's
        return StopReason.TIMEOUT, f"the episode took longer than {context.limits.seconds:g} s"


async def _play(context: RolloutContext, env: Guarded, task: Task, session: str, record: Record) -> StopReason:
    """Turns until the environment is done or a limit is reached; the record fills up as they happen."""
    limits = context.limits
    step = Step.of(await env.call("start", (task,), limits.step_seconds))
    step = replace(step, messages=_followed(step.messages, context.preface))
    record.unread += step.messages
    for _ in range(limits.max_turns):
        begins = step.thread not in record.transcripts
        transcript = record.transcripts.setdefault(step.thread, Transcript(context.chat))
        tools = step.tools if begins else transcript.tools
        try:
            context_ids, fresh = transcript.receive(step.messages, step.rebuild, tools)
        except UserError as error:
            if not record.turns:
                raise  # every episode would meet it
            raise Fault(StopReason.ENV_ERROR, str(error)) from error
        room = limits.context - len(transcript.ids)
        if room < 1 and not record.turns:
            raise UserError(
                f"The opening of task {task.id!r} has {len(transcript.ids)} tokens and rollout.context is "
                f"{limits.context}. Raise rollout.context, or shorten the environment's first messages."
            )
        if room < 1:
            return StopReason.CONTEXT_FULL
        asked = time.perf_counter()
        conversation = _session(session, step.thread)
        prompt, number = len(transcript.ids), record.threads.count(step.thread)
        params = context.params(transcript.ids, seed_of(conversation, number), step)
        sampled = await context.engine.sample(transcript.ids, params, session=conversation)
        acted = time.perf_counter()
        another = begins and bool(record.turns)
        turn = Turn(
            context=tuple(step.messages),
            context_ids=context_ids,
            action=transcript.act(sampled),
            action_ids=sampled.ids,
            action_logprobs=sampled.logprobs,
            restarts_context=fresh or another,
            rebuilt=step.rebuild or another,
            finish=sampled.finish,
            tools=tuple(tools) if begins or step.rebuild else (),
            thread=step.thread,
            stop=tuple(step.stop),
            max_tokens=step.max_tokens,
        )
        record.act(turn, step.thread)
        said = turn.action
        action = Action(said.role, said.content, said.calls, "", sampled.finish, prompt, len(sampled.ids))
        step = await env.call("step", (action,), limits.step_seconds)
        seconds = {"sample": acted - asked, "env": time.perf_counter() - acted}
        record.turns[-1] = replace(turn, reward=step.reward, info=step.info, seconds=seconds)
        record.unread += step.messages
        if step.done:
            return StopReason.FINISHED
    return StopReason.MAX_TURNS


def _session(session: str, thread: str) -> str:
    """The name of a conversation: the episode's own, unless it is a further one."""
    return f"{session}/{thread}" if thread else session


def _followed(opening: Sequence[Message], preface: Sequence[Message]) -> Sequence[Message]:
    """The opening and the preface. Two messages of one role become one: many chat templates refuse them otherwise."""
    if preface and opening[-1].role == preface[0].role:
        joined = Message(preface[0].role, f"{opening[-1].content}\n\n{preface[0].content}")
        return [*opening[:-1], joined, *preface[1:]]
    return [*opening, *preface]


async def _clean_up(context: RolloutContext, env: Guarded) -> None:
    """Call finish() for cleanup and discard its result."""
    this = asyncio.current_task()
    assert this is not None
    this.uncancel()
    with suppress(RankLost):
        await env.leave(context.limits.step_seconds)
