"""The policy behind the APIs, for whoever calls: `longloop serve`.

A call that continues a conversation which was answered before goes on from the very ids that the policy read and said
there, as in training, and the engine reads only what is new. Any other conversation is rendered from its beginning.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from longloop.gateway.request import Body, Piece, Refused, Request, told
from longloop.gateway.threads import canonical, plain
from longloop.protocols import WatchedEngine
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Action, Message, Sampled, SamplingParams, UserError

_KEPT = 512
"""Conversations that may be continued from where they were left. Those that were left longest ago are forgotten."""
_MOST = 1024
"""Calls that are answered or wait at once; further ones are told to come again."""
_PACE = 0.1
"""Seconds at least between two pieces of a stream."""
_PIECES = 320
"""Pieces of all streams in a second, about at most: each costs time in which the engine waits."""
_SLOWEST = 0.5
"""Seconds at most between two pieces: a reader still sees an answer grow."""


@dataclass(eq=False)
class _Conversation:
    """What the policy has read and said in one conversation."""

    session: str
    """Its name for the engine."""
    transcript: Transcript


class Served:
    """Answers calls. `sampling` is how, where a client does not say, and at which texts every answer ends, as actions
    did in training; `turn_tokens` and `context` limit an answer, and a conversation with it. `key` is what clients must
    show; empty if any may call."""

    def __init__(
        self, engine: WatchedEngine, chat: Chat, sampling: SamplingParams, turn_tokens: int, context: int, key: str = ""
    ) -> None:
        self._engine, self._chat, self._sampling = engine, chat, sampling
        self._turn_tokens, self._context, self._key = turn_tokens, context, key
        self.earlier: OrderedDict[str, Sequence[Message]] = OrderedDict()
        """The conversations that replies ended, by the replies' ids."""
        self._known: OrderedDict[str, _Conversation] = OrderedDict()
        """Conversations that may be continued, by what was said in them."""
        self._answering = 0

    def find(self, key: str) -> "Served":
        """Itself, for who shows the key."""
        if self._key and not hmac.compare_digest(key.encode(), self._key.encode()):
            raise Refused(401, "This server needs its key: show it as your client shows an API key.", "invalid_api_key")
        return self

    async def pieces(self, request: Request, body: Body, retried: bool) -> AsyncGenerator[Piece, None]:
        """The policy's answer. It comes piece by piece where the client wants a stream and there are no tools: calls
        are known as such when they have been said to their end."""
        if self._answering >= _MOST:
            raise Refused(429, f"{_MOST} calls are being answered already; try again later.", "too_many_calls")
        said = _Said(request.tools)
        beginnings = [said.add(message) for message in request.messages]
        conversation, new = self._continued(request.messages, beginnings)
        self._answering += 1
        kept = False
        try:
            ids = self._read(conversation.transcript, new, request)
            read, id = len(ids), secrets.token_hex(12)
            tokens: asyncio.Queue[int | None] = asyncio.Queue()
            watch = tokens.put_nowait if body.get("stream") and not request.tools else None
            params, session = self._params(ids, request), conversation.session
            sampling = asyncio.ensure_future(self._engine.sample(ids, params, session=session, watch=watch))
            sampling.add_done_callback(lambda _: tokens.put_nowait(None))
            spoken = _Spoken(self._chat, request.stop)
            try:
                async for text in _heard(tokens, spoken, sampling, lambda: pace(self._answering)):
                    yield Piece(id, text)
                sampled = _result(sampling)
            finally:
                sampling.cancel()
            action = conversation.transcript.act(sampled)
            how = sampled.finish, read, len(sampled.ids)
            reply = told(id, request, Action(action.role, action.content, action.calls, "", *how))
            self.earlier[id] = [*request.messages[request.instructions :], reply.message]
            self._keep(conversation, said.add(reply.message))
            kept = True
            yield Piece(id, reply.message.content[spoken.sent :], reply)
        finally:
            self._answering -= 1
            if not kept:
                self._engine.forget(conversation.session)

    def _continued(
        self, messages: Sequence[Message], beginnings: Sequence[str]
    ) -> tuple[_Conversation, Sequence[Message]]:
        """The longest known conversation that a call continues, or one that begins; and what is new in it."""
        for count in range(len(messages) - 1, 0, -1):
            if known := self._known.pop(beginnings[count - 1], None):
                return known, messages[count:]
        return _Conversation(secrets.token_hex(8), Transcript(self._chat)), messages

    def _keep(self, conversation: _Conversation, digest: str) -> None:
        """Remember a conversation that ends with a reply, and forget what was left longest ago."""
        before, self._known[digest] = self._known.pop(digest, None), conversation
        if before is not None:
            self._engine.forget(before.session)
        while len(self._known) > _KEPT:
            self._engine.forget(self._known.popitem(last=False)[1].session)
        while len(self.earlier) > _KEPT:
            self.earlier.popitem(last=False)

    def _read(self, transcript: Transcript, new: Sequence[Message], request: Request) -> Sequence[int]:
        """The conversation's ids."""
        try:
            transcript.receive(new, tools=request.tools)
        except UserError as error:
            raise Refused(400, str(error)) from error
        if len(transcript.ids) >= self._context:
            raise Refused(
                400,
                f"The conversation has {len(transcript.ids)} tokens, and the context {self._context}.",
                "context_length_exceeded",
            )
        return transcript.ids

    def _params(self, ids: Sequence[int], request: Request) -> SamplingParams:
        default = self._sampling
        return SamplingParams(
            default.temperature if request.temperature is None else request.temperature,
            default.top_p if request.top_p is None else request.top_p,
            min(request.max_tokens or self._turn_tokens, self._context - len(ids)),
            secrets.randbits(63) if request.seed is None else request.seed,
            self._chat.end_ids,
            (*default.stop, *request.stop),
        )


class _Spoken:
    """The text of an answer as its tokens come: what may be sent, because no later token changes it."""

    def __init__(self, chat: Chat, stops: Sequence[str]) -> None:
        self._chat, self._stops = chat, stops
        self._held = max((len(stop) - 1 for stop in stops), default=0)
        """Characters that may be the beginning of a text that ends the answer."""
        self._ids: list[int] = []
        self._text = ""
        self._begin = self._end = 0
        """The ids whose text came last. The next are decoded behind them: alone, a token may lose its space."""
        self.sent = 0
        """How many characters may have been sent."""

    def add(self, ids: Sequence[int]) -> str:
        """What may be sent now."""
        self._ids += ids
        before = self._chat.decode(self._ids[self._begin : self._end])
        now = self._chat.decode(self._ids[self._begin :])
        if now.endswith("\ufffd"):  # a character that is not complete
            return ""
        self._text += now[len(before) :]
        self._begin, self._end = self._end, len(self._ids)
        stopped = [self._text.index(stop) for stop in self._stops if stop in self._text]
        end = min(stopped, default=len(self._text) - self._held)
        piece = self._text[self.sent : max(end, self.sent)]
        self.sent += len(piece)
        return piece


def pace(answering: int) -> float:
    """Seconds between two pieces of a stream while so many calls are being answered."""
    return min(max(_PACE, answering / _PIECES), _SLOWEST)


async def _heard(
    tokens: "asyncio.Queue[int | None]", spoken: _Spoken, sampling: asyncio.Future[Sampled], pause: Callable[[], float]
) -> AsyncIterator[str]:
    """What may be sent of an answer, as its tokens come; None is the last of them."""
    while True:
        came = [await tokens.get()]
        while not tokens.empty():
            came.append(tokens.get_nowait())
        if text := spoken.add([id for id in came if id is not None]):
            yield text
        if came[-1] is None:
            return
        await asyncio.wait({sampling}, timeout=pause())


def _result(sampling: asyncio.Future[Sampled]) -> Sampled:
    try:
        return sampling.result()
    except Exception as error:
        raise Refused(500, f"The engine failed: {error}", "engine_failed") from error


class _Said:
    """A digest of what was said in a conversation, with the tools that it has."""

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self._digest = hashlib.blake2b(canonical(tools).encode())

    def add(self, message: Message) -> str:
        """The digest with one more message."""
        self._digest.update(repr(plain(message)).encode(errors="replace"))
        return self._digest.hexdigest()
