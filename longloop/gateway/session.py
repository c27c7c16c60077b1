"""One attempt's side of the endpoint: the agent's calls wait here, and the policy answers them one after the other.

It knows neither HTTP nor token ids, and lives in the endpoint's event loop.
"""

import asyncio
import hashlib
import json
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.gateway.request import Body, Piece, Refused, Reply, Request, told
from longloop.gateway.threads import Threads
from longloop.types import Message, Step

_MOST_WAITING = 256
"""Calls that may wait at once. No agent needs more; one that runs wild is told so."""


@dataclass(eq=False)
class _Ask:
    """A call of the agent's."""

    request: Request
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a reply."""
    reply: Reply | Refused | None = None
    clients: int = 0
    """How many wait for the reply: the one who asked, and those who ask for the same again."""
    delivered: bool = False


class Session:
    """The calls of one attempt, from when it begins until it is closed."""

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)
        """What the agent shows: it can ask, and nothing else."""
        self.judge_key = secrets.token_hex(16)
        """What the judge shows: it can report an outcome, and nothing else."""
        self.outcome: dict[str, Any] | None = None
        """What the judge reported."""
        self.earlier: dict[str, Sequence[Message]] = {}
        """The conversations that replies ended, by the replies' ids."""
        self.threads = Threads()
        self._waiting: deque[_Ask] = deque()
        self._arrived = asyncio.Event()
        self._current: _Ask | None = None
        self._asks: dict[str, _Ask] = {}
        """The last call with each body."""
        self._left = False
        self.over = False

    async def pieces(self, request: Request, body: Body, retried: bool) -> AsyncGenerator[Piece, None]:
        """The policy's answer to a call, in one piece."""
        reply = await self.ask(request, body, retried)
        yield Piece(reply.id, reply.message.content, reply)

    async def ask(self, request: Request, body: Body, retried: bool = False) -> Reply:
        """The policy's answer to a call, from the agent's side.

        A call that is sent again gets the answer of the first, or waits for it with the first: if the client says that
        it is a retry, or if nobody was left to take the answer.
        """
        if self.over:
            raise Refused(410, "This attempt is over.", "attempt_over")
        digest = hashlib.blake2b(json.dumps(body, sort_keys=True).encode()).hexdigest()
        ask = self._asks.get(digest)
        if ask is None or not (retried or (ask.clients == 0 and not ask.delivered)):
            if len(self._waiting) >= _MOST_WAITING:
                raise Refused(429, f"{_MOST_WAITING} calls of this attempt are waiting already.", "too_many_calls")
            ask = self._asks[digest] = _Ask(request)
            self._waiting.append(ask)
            self._arrived.set()
        ask.clients += 1
        try:
            await ask.answered.wait()
            if isinstance(ask.reply, Refused):
                raise ask.reply
            assert ask.reply is not None
            ask.delivered = True
            return ask.reply
        finally:
            ask.clients -= 1
            if not ask.clients and ask in self._waiting:  # the client went away before its turn came
                self._waiting.remove(ask)
                if self._asks.get(digest) is ask:
                    del self._asks[digest]

    async def next(self) -> Step | None:
        """The next call, as what the policy has to read; None when the agent has left."""
        while not self._left and not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        if self._left:
            return None
        self._current = self._waiting.popleft()
        return self.threads.place(self._current.request)

    def leave(self) -> None:
        """Take note that the agent has ended: it does not wait for its calls any more."""
        self._left = True
        self._arrived.set()

    def answer(self, action: Message) -> None:
        """Answer the call that `next` returned."""
        ask, self._current = self._current, None
        assert ask is not None
        reply = told(secrets.token_hex(12), ask.request, action)
        self.earlier[reply.id] = self.threads.answered(reply.message)[ask.request.instructions :]
        ask.reply = reply
        ask.answered.set()

    def close(self) -> None:
        """End it: whoever waits or comes later is told that the attempt is over."""
        self.over = True
        for ask in (*self._waiting, *filter(None, [self._current])):
            ask.reply = Refused(
                400, "The attempt is over: its turns, its context or its time are used up.", "longloop_stopped"
            )
            ask.answered.set()
        self._waiting.clear()
        self._current = None
