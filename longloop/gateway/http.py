"""HTTP for the APIs: requests in, answers out, whole or in parts, over connections that are kept.

httptools reads requests (http_request.py); this connects it to asyncio, and to nothing else: an agent waits for every
call, and a server for any application takes three times as long. The requests of a connection are answered one after
the other; when the client hangs up, the answer is cancelled.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from longloop.gateway.http_request import HttpRequest, RequestReader
from longloop.gateway.request import Refused

_GRACE = 1.0
"""Seconds for answers to end when the server does, and for a client to read why its request was refused."""
_AHEAD = 1 << 20
"""Bytes of further requests that are taken from a client during an answer."""
_PIECE = 1 << 16
"""Bytes that are read at a time."""

Answer = Callable[[HttpRequest, "Connection"], Awaitable[None]]
"""Answers a request: with one `send`, or with one `part` after the other."""


async def listen(bound: socket.socket, answer: Answer, stopped: asyncio.Event, ready: Callable[[], None]) -> None:
    """Answer whoever calls until it is stopped; answers under way may then end."""
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio would only for sockets of its own
    connections: set[Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answer, connections), sock=bound, backlog=1024)
    ready()
    try:
        await stopped.wait()
    finally:
        server.close()
        if answering := {one.answering for one in connections if one.answering}:
            await asyncio.wait(answering, timeout=_GRACE)
        for connection in list(connections):
            connection.close()


class Connection(asyncio.BufferedProtocol):
    """A client's connection. It has a buffer of its own, for asyncio would make one of 256 KB whenever something comes,
    which takes longer than to read the request."""

    def __init__(self, answer: Answer, connections: "set[Connection]") -> None:
        self._answer, self._connections = answer, connections
        self._reader = RequestReader()
        self._buffer = bytearray(_PIECE)
        self._later = bytearray()
        """What has come during an answer."""
        self._request: HttpRequest | None = None
        """The request that is being answered."""
        self.answering: asyncio.Task[None] | None = None
        self.begun = False
        """Whether a part of the answer has been sent."""
        self._refused = False
        self._room = asyncio.Event()
        self._room.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self.answering:
            self.answering.cancel()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received(bytes(memoryview(self._buffer)[:nbytes]))

    def received(self, data: bytes) -> None:
        """Read more of what the client sends."""
        if self._refused:
            return
        if self.answering is None:
            self._reader.feed(data)
            self._begin()
            return
        self._later += data
        if len(self._later) > _AHEAD:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def close(self) -> None:
        """End it, and the answer under way."""
        self._transport.close()
        if self.answering:
            self.answering.cancel()

    def send(self, status: int, content: bytes, kind: str = "application/json") -> None:
        """Answer with all there is to say."""
        assert self._request is not None
        head = _head(status, kind, f"content-length: {len(content)}", *self._ends)
        self._transport.write(head if self._request.method == "HEAD" else head + content)

    def part(self, event: bytes) -> None:
        """Answer with one more event of a stream."""
        head = b""
        if not self.begun:
            self.begun = True
            head = _head(200, "text/event-stream", *(["transfer-encoding: chunked"] * self._chunked), *self._ends)
        self._transport.write(head + (b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event))

    async def room(self) -> None:
        """Wait for a client that reads more slowly than it is answered."""
        await self._room.wait()

    @property
    def _chunked(self) -> bool:
        """Whether a stream comes in chunks: before HTTP 1.1, it ends with the connection."""
        assert self._request is not None
        return self._request.version == "1.1"

    @property
    def _ends(self) -> list[str]:
        """The header that says that this is the connection's last answer, if it is."""
        assert self._request is not None
        return [] if self._request.keeps else ["connection: close"]

    def _begin(self) -> None:
        """Begin to answer the next request, if all of it has come."""
        while self._later and not self._reader.read:
            self._reader.feed(bytes(self._later[:_PIECE]))
            del self._later[:_PIECE]
        if not self._reader.read:
            if self._reader.expected:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        request = self._reader.read.popleft()
        if isinstance(request, Refused):
            self._refuse(request)
        else:
            self._request = request
            self.answering = asyncio.get_running_loop().create_task(self._serve(request))

    def _refuse(self, why: Refused) -> None:
        """Say that a request is none, and hear no more."""
        self._refused = True
        content = str(why).encode()
        head = _head(why.status, "text/plain", f"content-length: {len(content)}", "connection: close")
        self._transport.write(head + content)
        self._transport.write_eof()  # whoever still sends must be let to, or would never read the answer
        asyncio.get_running_loop().call_later(_GRACE, self._transport.abort)

    async def _serve(self, request: HttpRequest) -> None:
        try:
            await self._answer(request, self)
        except BaseException:
            self._transport.abort()  # nobody shall take what was sent for the whole answer
            raise
        if self.begun and self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self.answering, self.begun = None, False
        if not request.keeps:
            self._transport.close()
            return
        self._begin()
        if len(self._later) <= _AHEAD:
            self._transport.resume_reading()


def _head(status: int, kind: str, *more: str) -> bytes:
    """The head of an answer."""
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return "\r\n".join((first, f"date: {formatdate(usegmt=True)}", f"content-type: {kind}", *more, "\r\n")).encode()
