"""HTTP for the APIs: requests in, answers out, whole or in parts, over connections that are kept.

What HTTP is, h11 knows; this connects it to asyncio, and to nothing else: an agent waits for every call, and a server
for any application takes twice as long. The requests of a connection are answered one after the other; when the client
hangs up, the answer is cancelled.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11

from longloop.gateway.request import Refused

_LARGEST = 1 << 24
"""Bytes of a request's body."""
_LONGEST = 1 << 16
"""Bytes of a request's first line and headers."""
_GRACE = 1.0
"""Seconds for answers to end when the server does, and for a client to read why its request was refused."""


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
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST)
        self._asked: h11.Request | None = None
        self._body = bytearray()
        """What has come of a request."""
        self.answering: asyncio.Task[None] | None = None
        self._refused = False
        self._room = asyncio.Event()
        self._room.set()

    @property
    def begun(self) -> bool:
        """Whether a part of the answer has been sent."""
        return self._http.our_state is h11.SEND_BODY

    @property
    def _ahead(self) -> bool:
        """Whether too much has come of the requests after the one that is being answered."""
        return len(self._http.trailing_data[0]) > _LARGEST

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
        self._http.receive_data(data)
        if self.answering is None:
            self._begin()
        elif self._ahead:
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
        head = self._head(status, kind, ("content-length", str(len(content))))
        self._transport.write(head + self._said(h11.Data(content)) + self._said(h11.EndOfMessage()))

    def part(self, event: bytes) -> None:
        """Answer with one more event of a stream."""
        head = b"" if self.begun else self._head(200, "text/event-stream")
        self._transport.write(head + self._said(h11.Data(event)))

    async def room(self) -> None:
        """Wait for a client that reads more slowly than it is answered."""
        await self._room.wait()

    def _head(self, status: int, kind: str, *more: tuple[str, str]) -> bytes:
        headers = [("date", formatdate(usegmt=True)), ("content-type", kind), *more]
        return self._said(h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase))

    def _said(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    def _begin(self) -> None:
        """Begin to answer the next request, if all of it has come."""
        try:
            request = self._next()
        except (Refused, h11.RemoteProtocolError) as error:
            self._refuse(error)
            return
        if request is not None:
            self.answering = asyncio.get_running_loop().create_task(self._serve(request))

    def _next(self) -> HttpRequest | None:
        """The next request, or None where more has to come first."""
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._asked, self._body = event, bytearray()
                self._expect(next((int(length) for name, length in event.headers if name == b"content-length"), 0))
            elif isinstance(event, h11.Data):
                self._body += event.data
                self._expect(len(self._body))
            elif isinstance(event, h11.EndOfMessage) and self._asked is not None:
                asked, headers = self._asked, dict[str, str]()
                for name, value in ((name.decode(), value.decode("latin-1")) for name, value in asked.headers):
                    headers[name] = f"{headers[name]}, {value}" if name in headers else value
                path = asked.target.decode("ascii").partition("?")[0]
                return HttpRequest(asked.method.decode(), path, headers, bytes(self._body))
            else:
                if self._http.they_are_waiting_for_100_continue:
                    self._transport.write(
                        self._said(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
                    )
                return None

    def _expect(self, size: int) -> None:
        if size > _LARGEST:
            raise Refused(413, f"A request may have {_LARGEST >> 20} MB.")

    def _refuse(self, error: Refused | h11.RemoteProtocolError) -> None:
        """Say that a request is none, and hear no more."""
        self._refused = True
        status = error.status if isinstance(error, Refused) else error.error_status_hint
        headers = [("date", formatdate(usegmt=True)), ("content-type", "text/plain"), ("connection", "close")]
        said = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
        self._transport.write(
            self._said(said) + self._said(h11.Data(str(error).encode())) + self._said(h11.EndOfMessage())
        )
        self._transport.write_eof()  # whoever still sends must be let to, or would never read the answer
        asyncio.get_running_loop().call_later(_GRACE, self._transport.abort)

    async def _serve(self, request: HttpRequest) -> None:
        try:
            await self._answer(request, self)
        except BaseException:
            self._transport.abort()  # nobody shall take what was sent for the whole answer
            raise
        if self.begun:
            self._transport.write(self._said(h11.EndOfMessage()))
        self.answering = None
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
        else:
            self._http.start_next_cycle()
            self._begin()
            if not self._ahead:
                self._transport.resume_reading()
