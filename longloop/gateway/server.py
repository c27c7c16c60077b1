"""The APIs over HTTP: calls in, answers out, whole or as streams. Who answers is found by the key that is shown.

A client shows its key as API clients do (`Authorization: Bearer KEY`, `x-api-key: KEY`), or in the address
(`http://127.0.0.1:PORT/KEY/v1`). A stream begins with the first piece of its answer, and is pinged while it waits.
"""

import asyncio
import contextlib
import json
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import unquote

from longloop.gateway.anthropic_messages import AnthropicMessages
from longloop.gateway.chat_completions import ChatCompletions
from longloop.gateway.http import Connection, listen
from longloop.gateway.http_request import HttpRequest
from longloop.gateway.request import Answers, Api, Body, Piece, Refused, Reply
from longloop.gateway.responses import Responses

Route = Callable[[str, HttpRequest, Connection], Awaitable[None]]
"""Answers a request that shows a key."""

LOCAL = ("127.0.0.1", "localhost", "[::1]")
"""This machine's own names."""
_PING = 3.0
"""Seconds between signs of life in a stream that waits for its answer."""


class Server:
    """Serves the APIs on a socket. `find` gives who answers to a key, or raises `Refused`; `more` are more routes, by
    method and path. With `names`, a client that calls it neither by one of them nor by its address is refused: without
    a key, a page of some other site could let its name resolve to this machine, and read from here in a browser."""

    def __init__(
        self,
        find: Callable[[str], Answers],
        model: str,
        more: Mapping[tuple[str, str], Route] = {},
        names: Collection[str] = (),
    ) -> None:
        self._find, self._model, self._names = find, model, tuple(names)
        apis: list[Api] = [ChatCompletions(), Responses(), AnthropicMessages()]
        self._routes: dict[tuple[str, str], Route] = {("POST", api.path): partial(self._call, api) for api in apis}
        self._routes |= {("GET", "/v1/models"): self._models, **more}
        self._stopped = asyncio.Event()

    async def run(self, bound: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        """Answer until `stop` is called or, in the main thread, a signal comes."""
        if threading.current_thread() is threading.main_thread():  # where asyncio handles Ctrl-C, and nothing else
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopped.set)
        await self.listen(bound, ready)

    async def listen(self, bound: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        """Answer until `stop` is called."""
        self._loop = asyncio.get_running_loop()
        if self._names:
            address = bound.getsockname()[0]
            own = f"[{address}]" if ":" in address else address
            self._names = tuple(dict.fromkeys((*self._names, own)))
        await listen(bound, self._answer, self._stopped, ready)

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)

    async def _answer(self, request: HttpRequest, client: Connection) -> None:
        path, key = request.path, request.headers.get("authorization", "").removeprefix("Bearer ")
        if (request.method, path) not in self._routes:
            shown, _, rest = path.removeprefix("/").partition("/")
            path, key = f"/{rest}", unquote(shown)
        try:
            if self._names and re.sub(r":\d+$", "", request.headers.get("host", "")) not in self._names:
                raise Refused(400, f"This server answers to {', '.join(self._names)} alone.", "wrong_host")
            if (request.method, path) not in self._routes:
                raise Refused(404, f"There is no {request.method} {request.path}.", "not_found")
            await self._routes[request.method, path](key or request.headers.get("x-api-key", ""), request, client)
        except Refused as refused:
            send(client, ChatCompletions().refusal(refused), refused.status)

    async def _call(self, api: Api, key: str, request: HttpRequest, client: Connection) -> None:
        try:
            answers, body = self._find(key), body_of(request)
            asked = api.read(body, answers.earlier)
            retried = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
            async with contextlib.aclosing(answers.pieces(asked, body, retried)) as pieces:
                if body.get("stream"):
                    await _stream(api, pieces, body, client)
                else:
                    send(client, api.whole(await _whole(pieces), body))
        except Refused as refused:
            if client.begun:
                client.part(_event("error", api.refusal(refused)))
            else:
                send(client, api.refusal(refused), refused.status)

    async def _models(self, key: str, request: HttpRequest, client: Connection) -> None:
        self._find(key)
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "longloop"}
        send(client, {"object": "list", "data": [model]})


def send(client: Connection, content: Body, status: int = 200) -> None:
    """Answer with a JSON object."""
    client.send(status, json.dumps(content).encode())


def body_of(request: HttpRequest) -> Body:
    """The JSON object that was sent."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "The request must be a JSON object.")
    return body


async def _whole(pieces: AsyncIterator[Piece]) -> Reply:
    async for piece in pieces:
        if piece.reply is not None:
            return piece.reply
    raise AssertionError("an answer ends with a reply")


async def _stream(api: Api, pieces: AsyncIterator[Piece], body: Body, client: Connection) -> None:
    """The answer to a call as server-sent events."""
    with _pinging(client):
        async for kind, content in api.events(pieces, body):
            client.part(_event(kind, content))
            await client.room()


@contextlib.contextmanager
def _pinging(client: Connection) -> Iterator[None]:
    """Give a stream signs of life."""

    async def ping() -> None:
        while True:
            await asyncio.sleep(_PING)
            client.part(b": ping\n\n")

    pinging = asyncio.ensure_future(ping())
    try:
        yield
    finally:
        pinging.cancel()


def _event(kind: str, content: Mapping[str, Any] | str) -> bytes:
    data = content if isinstance(content, str) else json.dumps(content)
    return (f"event: {kind}\ndata: {data}\n\n" if kind else f"data: {data}\n\n").encode()
