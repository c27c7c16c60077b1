"""As much of HTTP as the APIs need: requests in, answers out, whole or in parts, over connections that are kept.

An agent waits for every call, and every call comes through here: a server for any application takes several times as
long. It knows no API. The requests of a connection are answered one after the other; when the client hangs up, the
answer is cancelled.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

from longloop.gateway.request import Refused, need

_LARGEST = 1 << 24
"""Bytes of a request's body."""
_LONGEST = 1 << 16
"""Bytes of a request's first line and headers."""
_GRACE = 1.0
"""Seconds for answers to end when the server does, and for a client to read why its request was refused."""
_REQUEST = re.compile(r"([A-Z]+) ([^ ?]+)\S* HTTP/1\.([01])")
_HEADER = re.compile(r"([!-9;-~]+):[ \t]*(.*?)[ \t]*")
_HOW_LONG = "The request does not say how long its body is as HTTP has it."


@dataclass(frozen=True)
class HttpRequest:
    method: str
    path: str
    """Without a query."""
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes


Answer = Callable[[HttpRequest, "Connection"], Awaitable[None]]
"""Answers a request: with one `send`, or with one `part` after the other."""
Reading = Generator[None, None, bytes]
"""Takes something from what has been received. It yields where more has to come first."""


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


class Connection(asyncio.Protocol):
    """A client's connection."""

    def __init__(self, answer: Answer, connections: "set[Connection]") -> None:
        self._answer, self._connections = answer, connections
        self._received = bytearray()
        self._requests = self._read()
        self.answering: asyncio.Task[None] | None = None
        self.begun = False
        """Whether a part of the answer has been sent."""
        self._keep = self._framed = True
        """Whether further requests may come, and whether parts are told apart: not so in HTTP/1.0."""
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

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._received += data
        if self.answering is None:
            self._begin()
        elif len(self._received) > _LARGEST:  # of requests after the one that is being answered
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
        self._write(content, status, kind, f"content-length: {len(content)}")

    def part(self, event: bytes) -> None:
        """Answer with one more event of a stream."""
        framed = b"%x\r\n%b\r\n" % (len(event), event) if self._framed else event
        if self.begun:
            self._transport.write(framed)
        else:
            self.begun = True
            self._write(framed, 200, "text/event-stream", "transfer-encoding: chunked" if self._framed else "")

    async def room(self) -> None:
        """Wait for a client that reads more slowly than it is answered."""
        await self._room.wait()

    def _write(self, content: bytes, status: int, kind: str, length: str) -> None:
        """The head of an answer, and with it what there is of its content."""
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"date: {formatdate(usegmt=True)}"
        lines = *first, f"content-type: {kind}", length, "" if self._keep else "connection: close"
        self._transport.write("\r\n".join(filter(None, lines)).encode() + b"\r\n\r\n" + content)

    def _begin(self) -> None:
        """Begin to answer the next request, if all of it has come."""
        try:
            request = next(self._requests)
        except Refused as refused:
            self._refused, self._keep = True, False
            self.send(refused.status, str(refused).encode(), "text/plain")
            self._transport.write_eof()  # whoever still sends must be let to, or would never read the answer
            asyncio.get_running_loop().call_later(_GRACE, self._transport.abort)
            return
        if request is not None:
            self.answering = asyncio.get_running_loop().create_task(self._serve(request))

    async def _serve(self, request: HttpRequest) -> None:
        try:
            await self._answer(request, self)
        except BaseException:
            self._transport.abort()  # nobody shall take what was sent for the whole answer
            raise
        if self.begun and self._framed:
            self._transport.write(b"0\r\n\r\n")
        self.answering, self.begun = None, False
        if not self._keep:
            self._transport.close()
            return
        self._begin()
        if self.answering is None or len(self._received) <= _LARGEST:
            self._transport.resume_reading()

    def _read(self) -> Generator[HttpRequest | None, None, None]:
        """Each request, and None where more has to come first."""
        while True:
            first, *lines = (yield from self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            asked = _REQUEST.fullmatch(first)
            need(asked, "This is no request of HTTP/1.1.")
            assert asked is not None
            headers: dict[str, str] = {}
            for line in lines:
                header = _HEADER.fullmatch(line)
                need(header, "A header of the request is none of HTTP.")
                assert header is not None
                name, value = header[1].lower(), header[2]
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            self._framed = asked[3] == "1"
            self._keep = self._framed and "close" not in headers.get("connection", "").lower()
            yield HttpRequest(asked[1], asked[2], headers, (yield from self._body(headers)))

    def _body(self, headers: Mapping[str, str]) -> Reading:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length", "0")
        if headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if coding is None:
            need(re.fullmatch("[0-9]{1,15}", length), _HOW_LONG)
            return (yield from self._take(int(length)))
        need(coding.lower() == "chunked" and "content-length" not in headers, _HOW_LONG)
        body = bytearray()
        while True:
            size = (yield from self._until(b"\r\n")).partition(b";")[0].strip()
            need(re.fullmatch(b"[0-9a-fA-F]{1,15}", size), _HOW_LONG)
            body += yield from self._take(int(size, 16), len(body))
            if not int(size, 16):
                break
            need((yield from self._take(2)) == b"\r\n", _HOW_LONG)
        while (yield from self._until(b"\r\n")):
            pass  # headers that follow the body
        return bytes(body)

    def _until(self, mark: bytes) -> Reading:
        while (end := self._received.find(mark, 0, _LONGEST)) < 0:
            if len(self._received) >= _LONGEST:
                raise Refused(431, f"The headers of a request may have {_LONGEST >> 10} KB.")
            yield
        return (yield from self._take(end + len(mark)))[:end]

    def _take(self, size: int, before: int = 0) -> Reading:
        if before + size > _LARGEST:
            raise Refused(413, f"A request may have {_LARGEST >> 20} MB.")
        while len(self._received) < size:
            yield
        found = bytes(self._received[:size])
        del self._received[:size]
        return found
