"""One episode's conversation as token ids: append-only, with the action ids exactly as sampled."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from longloop.tokens.chat import Chat
from longloop.types import Ids, Message, Sampled


class Transcript:
    """Alternates `receive` (messages in, ids out) and `act` (ids in, message out). `ids` is what the model has seen."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.ids: list[int] = []
        self.tools: Sequence[dict[str, Any]] = ()
        """What the agent may call in the conversation."""
        self._messages: list[Message] = []
        self._rendered = ""
        self._action = Message("assistant", "")
        self._ended = False

    def receive(
        self, messages: Sequence[Message], rebuild: bool = False, tools: Sequence[dict[str, Any]] = ()
    ) -> tuple[Ids, bool]:
        """New messages -> (ids to add, whether they restart the context: then they replace everything before them).

        With `rebuild` they are the whole conversation. `tools` count where one begins, for the first time or anew.
        """
        first = not self._messages
        if rebuild:
            self._messages.clear()
        if first or rebuild:
            self.tools = tools
        self._messages += messages
        rendered = self.chat.render(self._messages, tools=self.tools)
        added = None if first or rebuild else self.chat.extension(self._rendered, self._action, rendered, self._ended)
        self._rendered = rendered
        if added is None:
            self.ids = list(self.chat.encode(rendered))
            return np.array(self.ids), not first
        ids = self.chat.encode(added)  # begins by closing a turn that was cut: as context, untrained
        self.ids += ids
        return np.array(ids, np.int64), False

    def act(self, sampled: Sampled) -> Message:
        """The model's ids, kept verbatim -> the message they spell."""
        ids = sampled.ids.tolist()
        self.ids += ids
        self._ended = bool(ids) and ids[-1] in self.chat.end_ids
        self._action = self.chat.message(ids, self.tools)
        self._messages.append(self._action)
        return self._action
