"""Demonstrations: an environment's own expert plays a task, and what it says becomes a trajectory like any other.

The expert speaks text; its tokens are what the policy's tokenizer makes of it, with the log-prob 0 of someone who is
sure. A stored trajectory can be told again in the same way.
"""

import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any

from longloop.envs.play import expert_of
from longloop.interfaces import Environment, Player
from longloop.rollout.episode import Setting, run_episode
from longloop.rollout.guard import Guarded, ready
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Message, Sampled, Step, Task, Trajectory, UserError


async def demonstrate(setting: Setting, task: Task) -> Trajectory:
    """The expert's attempt at a task, as far as it has something to say: nobody should learn to say nothing."""
    env = setting.make()
    seat: Any = _Seat(env, required(env, task), setting)
    alone = replace(setting, make=lambda: seat, engine=seat)
    attempt = await run_episode(alone, task, 0, f"demonstration/{task.id}")
    said = [place for place, turn in enumerate(attempt.turns, 1) if turn.action.content]
    return replace(attempt, turns=attempt.turns[: max(said, default=0)], expert=True)


def required(env: Any, task: Task) -> Player:
    """Who can do the task, or a clear word that nobody can."""
    expert = expert_of(env, task)
    if expert is None:
        where = f" for the split {task.split!r}" if hasattr(env, "expert") else ""
        raise UserError(
            f"{type(env).__name__} has no expert{where}, so there is nothing to imitate. Name a run whose attempts are "
            "worth it with demos=RUN, or give the environment one (docs/new-environment.md)."
        )
    return expert


def retold(chat: Chat, trajectory: Trajectory) -> Trajectory:
    """A stored trajectory in the policy's own tokens, whichever model or expert it came from."""
    transcript = Transcript(chat)
    turns = []
    for turn in trajectory.turns:
        context_ids, fresh = transcript.receive(turn.context)
        said = _said(chat, turn.action.content)
        transcript.act(said)
        turns.append(
            replace(turn, context_ids=context_ids, fresh=fresh, action_ids=said.ids, action_logprobs=said.logprobs)
        )
    return replace(trajectory, turns=tuple(turns), expert=True)


def _said(chat: Chat, text: str) -> Sampled:
    ids = (*chat.encode(text), chat.end_id)
    return Sampled(ids, (0.0,) * len(ids), "stop")


class _Seat:
    """Where the expert sits: it watches as the environment and speaks as the engine."""

    def __init__(self, env: Environment, expert: Player, setting: Setting) -> None:
        self._env, self._expert, self._chat = env, Guarded(expert), setting.chat
        self._seconds = setting.limits.step_seconds
        self._seen: Sequence[Message] = ()

    async def ready(self) -> None:
        await ready(self._env)

    def start(self, task: Task) -> Any:
        return self._watch(self._env.start(task))

    def step(self, action: Message) -> Any:
        return self._watch(self._env.step(action))

    def finish(self) -> Any:
        return self._env.finish()

    async def sample(self, ids: Sequence[int], **_: Any) -> Sampled:
        return _said(self._chat, await self._expert.call("act", (self._seen,), self._seconds))

    def _watch(self, answer: Any) -> Any:
        if inspect.isawaitable(answer):
            return self._watch_later(answer)
        self._seen = answer.messages if isinstance(answer, Step) else answer
        return answer

    async def _watch_later(self, answer: Awaitable[Any]) -> Any:
        return self._watch(await answer)

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...
