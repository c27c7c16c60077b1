"""An expert in the place of the engine: what it says in text becomes what is sampled."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from longloop.envs.base import Player
from longloop.envs.calls import spoken
from longloop.envs.contract import NoExpert
from longloop.envs.play import answered
from longloop.isolation.guard import Watched
from longloop.rollout.episode import RolloutContext
from longloop.tokens.chat import Chat
from longloop.types import Fault, Message, Outcome, Sampled, SamplingParams, Step, StopReason, Task, UserError


class ExpertAsEngine:
    """Environment and engine in one: it watches the environment for the expert, who then speaks as the engine."""

    def __init__(self, env: Watched, expert: Player, context: RolloutContext) -> None:
        self._env, self._expert, self._chat = env, expert, context.chat
        self._seen: Sequence[Message] = ()
        self._conversation: list[Message] = []
        self._tools: Sequence[dict[str, Any]] = ()
        self._lost = True  # until it has answered

    async def ready(self) -> None:
        await self._env.ready()

    async def start(self, task: Task) -> Sequence[Message] | Step:
        opening = await self._env.start(task)
        first = Step.of(opening)
        self._seen, self._conversation, self._tools = first.messages, list(first.messages), first.tools
        self._lost = False
        return opening

    async def step(self, action: Message) -> Step:
        self._lost = True
        step = await self._env.step(action)
        self._lost = False
        self._seen = step.messages
        self._conversation = [*([] if step.rebuild else (*self._conversation, action)), *step.messages]
        return step

    async def finish(self) -> Outcome:
        if self._lost:
            await self._env.leave()
            return Outcome(0.0, False)  # nobody looks at it
        return await self._env.finish()

    @property
    def reward_range(self) -> tuple[float, float] | None:
        return self._env.reward_range

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        try:
            action = spoken(await answered(self._expert.act(self._seen)), self._tools)
        except NoExpert as error:
            raise Fault(StopReason.ENV_ERROR, str(error)) from error
        if not action.calls:
            return said_by(self._chat, action.content)
        spelled = self._chat.spell(self._conversation, action, self._tools)
        if spelled is None:
            raise UserError(
                "The expert calls a tool, and how this model's chat template writes a call could not be seen, so there "
                "is nothing to imitate. Set model.chat_template to a file with a template that takes tools."
            )
        return _sure(spelled)

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...


def said_by(chat: Chat, action: str | Message) -> Sampled:
    """A text, or a message with its calls, as an engine would have sampled it. Its log-probs are 0."""
    return _sure(chat.action_ids(action))


def _sure(ids: Sequence[int]) -> Sampled:
    return Sampled(np.array(ids), np.zeros(len(ids)), "stop")
