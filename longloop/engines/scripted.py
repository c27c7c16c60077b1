"""Replays given actions: for tests that need no model, and to make an agent act as prescribed.

Log-probs are 0: a learner refuses to train on them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from longloop.tokens.chat import Chat
from longloop.types import Sampled, SamplingParams, Watch


class ScriptedEngine:
    """actions: a list that every episode goes through turn by turn, repeating the last, or a function from the
    session's name and the turn's number to the text of the action."""

    def __init__(self, policy: Any, chat: Chat, actions: list[str] | Callable[[str, int], str]) -> None:
        self._script = actions if callable(actions) else lambda _, turn: actions[min(turn, len(actions) - 1)]
        self._chat = chat
        self._turns: Counter[str] = Counter()

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, session: str, watch: Watch | None = None
    ) -> Sampled:
        text = self._script(session, self._turns[session])
        self._turns[session] += 1
        said = self._chat.action_ids(text)
        cut = np.array(said[: params.max_tokens], np.int64)
        if watch is not None:
            for id in cut.tolist():
                watch(id)
        return Sampled(cut, np.zeros(len(cut)), "stop" if len(cut) == len(said) else "length")

    def forget(self, session: str) -> None:
        self._turns.pop(session, None)

    def release(self) -> None:
        self._turns.clear()
