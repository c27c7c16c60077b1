"""Demonstrations: an environment's own expert plays a task, and what it says becomes a trajectory like any other.

The expert speaks text, which the policy's tokenizer encodes; its tokens have log-prob 0. A stored trajectory is encoded
in the same way. Where the expert calls a tool, the policy's chat template says how its model would have called it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from longloop.envs.base import Player
from longloop.envs.play import expert_of
from longloop.isolation.guard import Watched
from longloop.rollout.episode import RolloutContext, run_episode
from longloop.rollout.expert import ExpertAsEngine, said_by
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Fault, StopReason, Task, Trajectory, UserError


async def demonstrate(context: RolloutContext, task: Task) -> Trajectory:
    """The expert's attempt at a task. Empty actions at its end are left out: nobody should learn to say nothing."""
    try:
        env, _, expert = with_expert(lambda: Watched(context.make, context.limits.step_seconds), task)
    except Fault as fault:
        return Trajectory(task, 0, (), 0.0, False, fault.stop, str(fault), expert=True)
    both: Any = ExpertAsEngine(env, expert, context)
    alone = replace(context, make=lambda: both, engine=both)
    attempt = await run_episode(alone, task, 0, f"demonstration/{task.id}")
    spoken = [number for number, turn in enumerate(attempt.turns, 1) if turn.action.content]
    return replace(attempt, turns=attempt.turns[: max(spoken, default=0)], expert=True)


def with_expert(make: Callable[[], Watched], task: Task) -> tuple[Watched, Task, Player]:
    """An environment, its task, and its expert. Raises UserError if there is none."""
    env = make()
    expert = expert_of(env, task)
    if expert is None:
        where = f" for the split {task.split!r}" if env.has_expert else ""
        raise UserError(
            f"{type(env.env).__name__} has no expert{where}, so there is nothing to imitate. Name a run whose attempts "
            "are worth it with demos=RUN, or give the environment one (docs/guides/environment.md)."
        )
    return env, task, expert


def why_failed(trajectory: Trajectory) -> str:
    """Why a demonstration failed; empty if it succeeded."""
    if trajectory.success:
        return ""
    if not trajectory.stop.scored:
        return trajectory.error
    if trajectory.stop is StopReason.MAX_TURNS:
        return f"no success within rollout.max_turns, paid {trajectory.reward:g}"
    if trajectory.stop is StopReason.CONTEXT_FULL:
        return "the conversation no longer fitted into rollout.context"
    return f"all was done that the expert does, and paid {trajectory.reward:g}"


def retokenize(chat: Chat, trajectory: Trajectory) -> Trajectory:
    """Encode a stored trajectory with the policy's own tokenizer, whichever model or expert it came from."""
    transcript = Transcript(chat)
    turns = []
    for turn in trajectory.turns:
        context_ids, fresh = transcript.receive(turn.context, turn.rebuilt, turn.tools)
        said = said_by(chat, turn.action)
        if turn.finish == "length" and len(said.ids) > 1:  # it never came to its end
            said = replace(said, ids=said.ids[:-1], logprobs=said.logprobs[:-1], finish="length")
        transcript.act(said)
        turns.append(
            replace(
                turn,
                context_ids=context_ids,
                restarts_context=fresh,
                action_ids=said.ids,
                action_logprobs=said.logprobs,
            )
        )
    return replace(trajectory, turns=tuple(turns), expert=True)
