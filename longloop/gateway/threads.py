"""The conversations of one attempt, told apart by what is said in them.

An agent sends a whole conversation with every call. A call continues the conversation whose messages, with the policy's
last answer, it begins with; of several, the longest. Any other call begins a conversation: that of a sub-agent, a title
for the page, a history that was edited or summed up. So the policy reads what the agent sent, and each of its answers
belongs to exactly one conversation.

Compared are roles, texts without the white space around them, names and arguments of calls, and tools. The ids of calls
are not.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.gateway.request import Request
from longloop.types import Message, Step

Plain = tuple[Any, ...]
"""What has to be equal for two messages to count as the same."""


@dataclass(eq=False)
class Thread:
    """One conversation."""

    name: str
    tools: str
    messages: list[Message] = field(default_factory=list)
    plain: list[Plain] = field(default_factory=list)

    def begins(self, messages: Sequence[Message]) -> bool:
        """Whether these messages go on from all that was said here."""
        known = zip(messages, self.messages, self.plain, strict=False)
        return len(messages) > len(self.messages) and all(
            one == same or plain(one) == said for one, same, said in known
        )

    def add(self, messages: Sequence[Message]) -> None:
        self.messages += messages
        self.plain += map(plain, messages)


class Threads:
    """All conversations of an attempt."""

    def __init__(self) -> None:
        self.all: list[Thread] = []
        self._current: Thread | None = None
        self._names: Counter[str] = Counter()

    def place(self, request: Request) -> Step:
        """What the policy has to read for a request: what is new in its conversation, or all of it."""
        tools = canonical(request.tools)
        known = [thread for thread in self.all if thread.tools == tools and thread.begins(request.messages)]
        if known:
            thread = max(known, key=lambda one: len(one.plain))
        else:
            thread = Thread(self._name(request.messages, tools), tools)
            self.all.append(thread)
        new = request.messages[len(thread.messages) :]
        thread.add(new)
        self._current = thread
        given = () if known else request.tools  # they are read where a conversation begins
        return Step(new, thread=thread.name, tools=given, stop=request.stop, max_tokens=request.max_tokens)

    def answered(self, message: Message) -> Sequence[Message]:
        """Take note of the answer to the request that was placed last. Returns the conversation with it."""
        assert self._current is not None
        self._current.add([message])
        return list(self._current.messages)

    def _name(self, messages: Sequence[Message], tools: str) -> str:
        """The first conversation has no name. Others are named after how they begin, whatever order they come in, so
        that their random numbers do not depend on who was faster."""
        if not self.all:
            return ""
        asked = [plain(message) for message in messages]
        name = hashlib.blake2b(repr((asked, tools)).encode(errors="replace"), digest_size=6).hexdigest()
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}-{self._names[name]}"


def plain(message: Message) -> Plain:
    """A message as it is compared."""
    calls = tuple((call.name, _arguments(call.arguments)) for call in message.calls)
    return message.role, message.content.strip(), calls


def _arguments(text: str) -> str:
    try:
        return canonical(json.loads(text))
    except (ValueError, RecursionError):
        return text


def canonical(value: Any) -> str:
    """JSON that is equal for equal values."""
    return json.dumps(value, sort_keys=True)
