"""An endpoint whose calls are answered by a function in place of a policy; a server in a thread; a plain client."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from longloop.gateway.endpoint import Endpoint
from longloop.gateway.server import Server
from longloop.gateway.session import Session
from longloop.types import Message, Step

Policy = Callable[[Step], Any]


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of the tests' endpoint, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


@contextmanager
def serving(policy: Policy) -> Iterator[tuple[Endpoint, Session]]:
    """An open session; `policy` is a function of what it reads, or a coroutine."""
    session = Session()

    async def begin() -> Endpoint:
        endpoint = Endpoint.here()
        endpoint.open(session)
        return endpoint

    async def answer() -> None:
        while True:
            action = policy(await session.next())
            session.answer(await action if asyncio.iscoroutine(action) else action)

    async def end() -> None:
        endpoint.close(session)
        endpoint.forget(session)

    endpoint = asyncio.run_coroutine_threadsafe(begin(), _loop()).result(10)
    answering = asyncio.run_coroutine_threadsafe(answer(), _loop())
    try:
        yield endpoint, session
    finally:
        answering.cancel()
        asyncio.run_coroutine_threadsafe(end(), _loop()).result(10)


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    address: str


@contextmanager
def listening(server: Server, host: str = "127.0.0.1") -> Iterator[Address]:
    """A server that listens on a free port, in a thread of its own."""
    bound, ready = socket.create_server((host, 0)), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.run(bound, ready.set)))
    thread.start()
    assert ready.wait(30)
    try:
        yield Address(f"http://{host}:{bound.getsockname()[1]}")
    finally:
        server.stop()
        thread.join(30)
        bound.close()


def says(text: str) -> Policy:
    return lambda step: Message("assistant", text)


def post(
    endpoint: Endpoint | Address, path: str, body: Any, key: str | None = None, **headers: str
) -> tuple[int, dict[str, Any] | str]:
    """The status, and the JSON or the text that came back."""
    where = urlsplit(endpoint.address)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    shown = {"authorization": f"Bearer {key}"} if key else {}
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", path, sent, {"content-type": "application/json", **shown, **headers})
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, json.loads(text) if reply.headers["content-type"].startswith("application/json") else text


def events(text: Any) -> list[tuple[str, Any]]:
    """The events of a stream: type, and what it holds."""
    found = []
    for block in str(text).strip().split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
        if fields:
            data = fields["data"]
            found.append((fields.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found
