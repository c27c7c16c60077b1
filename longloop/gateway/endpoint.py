"""The HTTP server: one for the process, in a thread of its own, on the loopback interface. Keys tell attempts apart.

An agent shows its key as API clients do (`Authorization: Bearer KEY`, `x-api-key: KEY`), or in the address
(`http://127.0.0.1:PORT/KEY/v1`). Whole answers are awaited before the first word is sent, also where the client wants a
stream: a stream is pinged until then.
"""

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from longloop.gateway.anthropic_messages import AnthropicMessages
from longloop.gateway.chat_completions import ChatCompletions
from longloop.gateway.request import Api, Body, Refused, Reply
from longloop.gateway.responses import Responses
from longloop.gateway.session import Session

T = TypeVar("T")

_LARGEST = 1 << 24
"""Bytes of a request."""
_PING = 3.0
"""Seconds between signs of life in a stream that waits for its answer."""
_REMEMBERED = 10_000
"""Attempts that ended whose keys are remembered, to tell a late call from a forged one."""


class Endpoint:
    """Serves the sessions that are open. `here` returns the one of this process."""

    _of_process: "tuple[int, Endpoint] | None" = None

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._sessions: dict[str, Session] = {}
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio would only for sockets of its own
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True, name="gateway").start()

    @classmethod
    def here(cls) -> "Endpoint":
        """The endpoint of this process, started when first asked for."""
        if cls._of_process is None or cls._of_process[0] != os.getpid():
            cls._of_process = os.getpid(), cls()
        return cls._of_process[1]

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the endpoint's event loop, where sessions live. Cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def open(self, session: Session) -> None:
        self._sessions[session.key] = self._sessions[session.judge_key] = session

    def close(self, session: Session) -> None:
        """End a session. Its judge may still report until it is forgotten."""
        session.close()
        if self._sessions.pop(session.key, None) is not None:
            self._over.append(session.key)

    def forget(self, session: Session) -> None:
        self._sessions.pop(session.judge_key, None)

    def _serve(self) -> None:
        import uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Route

        apis: list[Api] = [ChatCompletions(), Responses(), AnthropicMessages()]
        paths: list[tuple[str, Callable[..., Any], str]] = [
            (api.path, partial(self._call, api), "POST") for api in apis
        ]
        paths += [("/v1/models", self._models, "GET"), ("/outcome", self._outcome, "POST")]
        routes = [
            Route(prefix + path, function, methods=[method])
            for prefix in ("", "/{key}")
            for path, function, method in paths
        ]
        options: dict[str, Any] = {"log_level": "critical", "lifespan": "off", "access_log": False, "ws": "none"}
        config = uvicorn.Config(Starlette(routes=routes), http="h11", timeout_keep_alive=3600, **options)
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(uvicorn.Server(config).serve(sockets=[self._socket]))

    async def _call(self, api: Api, request: Any) -> Any:
        """A call of an agent's."""
        from starlette.responses import JSONResponse, StreamingResponse

        async def answer() -> Any:
            session = self._session(request)
            if session.key != _key(request):
                raise Refused(403, "The judge's key can report an outcome, and nothing else.", "wrong_key")
            body = await _body(request)
            asked = api.read(body, session.earlier)
            retried = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
            ask = partial(session.ask, asked, body, retried)
            if body.get("stream"):
                if session.over:
                    await ask()  # refuses it, before the status is sent
                return StreamingResponse(_stream(api, ask, body), media_type="text/event-stream")
            reply = await _unless_gone(request, ask)
            return JSONResponse(api.whole(reply, body))

        try:
            return await answer()
        except Refused as refused:
            return JSONResponse(api.refusal(refused), refused.status)

    async def _models(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        try:
            self._session(request)
        except Refused as refused:
            return JSONResponse(ChatCompletions().refusal(refused), refused.status)
        return JSONResponse({"object": "list", "data": [{"id": "policy", "object": "model", "owned_by": "longloop"}]})

    async def _outcome(self, request: Any) -> Any:
        """The judge's report."""
        from starlette.responses import JSONResponse

        try:
            session = self._session(request)
            if session.judge_key != _key(request):
                raise Refused(403, "The agent's key can ask, and nothing else: the judge reports.", "wrong_key")
            session.outcome = dict(await _body(request))
        except Refused as refused:
            return JSONResponse(ChatCompletions().refusal(refused), refused.status)
        return JSONResponse({})

    def _session(self, request: Any) -> Session:
        key = _key(request)
        if key in self._over:
            raise Refused(410, "This attempt is over.", "attempt_over")
        if key not in self._sessions:
            raise Refused(401, "No attempt has this key; use the one in OPENAI_API_KEY.", "invalid_api_key")
        return self._sessions[key]


def _key(request: Any) -> str:
    shown = request.headers.get("authorization", "").removeprefix("Bearer ")
    return request.path_params.get("key") or shown or request.headers.get("x-api-key", "")


async def _body(request: Any) -> Body:
    """The JSON object that was sent."""
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > _LARGEST:
            raise Refused(413, f"A request may have {_LARGEST >> 20} MB.", "too_large")
    try:
        body = json.loads(found)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused(400, "The request must be a JSON object.")
    return body


async def _unless_gone(request: Any, ask: Callable[[], Coroutine[Any, Any, Reply]]) -> Reply:
    """The answer to a call, unless the client hangs up before."""
    asking = asyncio.ensure_future(ask())
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        raise Refused(499, "The client has gone away.", "client_gone")
    finally:
        for task in (asking, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Refused):
                await task


async def _gone(request: Any) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(api: Api, ask: Callable[[], Coroutine[Any, Any, Reply]], body: Body) -> AsyncIterator[str]:
    """The answer to a call as server-sent events. A client that hangs up cancels this."""
    asking = asyncio.ensure_future(ask())
    try:
        while not (await asyncio.wait({asking}, timeout=_PING))[0]:
            yield ": ping\n\n"
        for kind, content in api.events(asking.result(), body):
            data = content if isinstance(content, str) else json.dumps(content)
            yield f"event: {kind}\ndata: {data}\n\n" if kind else f"data: {data}\n\n"
    except Refused as refused:
        yield f"event: error\ndata: {json.dumps(api.refusal(refused))}\n\n"
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError, Refused):
            await asking
