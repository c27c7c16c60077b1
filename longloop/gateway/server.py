"""The HTTP side of the APIs: calls in, answers out, whole or as streams. Who answers is found by the key that is shown.

A client shows its key as API clients do (`Authorization: Bearer KEY`, `x-api-key: KEY`), or in the address
(`http://127.0.0.1:PORT/KEY/v1`). A stream begins with the first piece of its answer, and is pinged while it waits.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from longloop.gateway.anthropic_messages import AnthropicMessages
from longloop.gateway.chat_completions import ChatCompletions
from longloop.gateway.request import Answers, Api, Body, Event, Piece, Refused, Reply
from longloop.gateway.responses import Responses

T = TypeVar("T")
Route = tuple[str, str, Callable[[Any], Awaitable[Any]]]
"""A method, a path, and what answers there."""

_LARGEST = 1 << 24
"""Bytes of a request."""
_PING = 3.0
"""Seconds between signs of life in a stream that waits for its answer."""
_OPTIONS: dict[str, Any] = {"log_level": "critical", "lifespan": "off", "access_log": False, "ws": "none"}


class Server:
    """Serves the APIs on a socket. `find` gives who answers to a key, or raises `Refused`; `more` are more routes."""

    def __init__(
        self, find: Callable[[str], Answers], model: str, more: Sequence[Route] = (), middleware: Sequence[Any] = ()
    ) -> None:
        self._find, self._model = find, model
        self._more, self._middleware = more, middleware
        self._server: Any = None

    async def run(self, bound: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
        """Answer until `stop` is called or, in the main thread, a signal comes."""
        import uvicorn

        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio would only for sockets of its own
        bound.listen(1024)
        options = _OPTIONS | {"timeout_keep_alive": 3600, "timeout_graceful_shutdown": 1}
        self._server = uvicorn.Server(uvicorn.Config(self.app(), http="h11", **options))
        ready()
        await self._server.serve(sockets=[bound])

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._server.should_exit = True

    def app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Route as HttpRoute

        apis: list[Api] = [ChatCompletions(), Responses(), AnthropicMessages()]
        routes: list[Route] = [("POST", api.path, partial(self._call, api)) for api in apis]
        routes += [("GET", "/v1/models", self._models), *self._more]
        return Starlette(
            routes=[
                HttpRoute(prefix + path, function, methods=[method])
                for prefix in ("", "/{key}")
                for method, path, function in routes
            ],
            middleware=self._middleware,
        )

    async def _call(self, api: Api, request: Any) -> Any:
        from starlette.responses import JSONResponse, StreamingResponse

        try:
            answers = self._find(key_of(request))
            body = await body_of(request)
            asked = api.read(body, answers.earlier)
            retried = request.headers.get("x-stainless-retry-count", "0") not in ("", "0")
            pieces = answers.pieces(asked, body, retried)
            if not body.get("stream"):
                return JSONResponse(api.whole(await _unless_gone(request, _whole(pieces)), body))
            events = api.events(pieces, body)
            first = await _begun(request, events)
            return StreamingResponse(_stream(api, first, events), media_type="text/event-stream")
        except Refused as refused:
            return JSONResponse(api.refusal(refused), refused.status)

    async def _models(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        try:
            self._find(key_of(request))
        except Refused as refused:
            return refusal(refused)
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "longloop"}
        return JSONResponse({"object": "list", "data": [model]})


def local_only() -> list[Any]:
    """Middleware for a server without a key: a foreign name that resolves to this machine, as a page of some other site
    in a browser could use it, is refused."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    return [Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"], www_redirect=False)]


def refusal(refused: Refused) -> Any:
    """An error in OpenAI's words."""
    from starlette.responses import JSONResponse

    return JSONResponse(ChatCompletions().refusal(refused), refused.status)


def key_of(request: Any) -> str:
    shown = request.headers.get("authorization", "").removeprefix("Bearer ")
    return request.path_params.get("key") or shown or request.headers.get("x-api-key", "")


async def body_of(request: Any) -> Body:
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


async def _whole(pieces: AsyncIterator[Piece]) -> Reply:
    async for piece in pieces:
        if piece.reply is not None:
            return piece.reply
    raise AssertionError("an answer ends with a reply")


async def _unless_gone(request: Any, work: Awaitable[T]) -> T:
    """Wait for something, unless the client hangs up before."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise Refused(499, "The client has gone away.", "client_gone")
    finally:
        gone.cancel()  # nobody waits for its end, which would come a moment later than the answer
        await _ended(working)


async def _begun(request: Any, events: AsyncIterator[Event]) -> asyncio.Future[Event]:
    """A stream's first event, which may still have to come. A call that is refused at once gets the status that says
    so."""
    first = asyncio.ensure_future(anext(events))
    try:
        await _unless_gone(request, asyncio.wait({first}, timeout=_PING))
        if first.done():
            first.result()
        return first
    except BaseException:
        await _ended(first)
        raise


async def _gone(request: Any) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _stream(api: Api, first: asyncio.Future[Event], events: AsyncIterator[Event]) -> AsyncIterator[str]:
    """The answer to a call as server-sent events. A client that hangs up cancels this."""
    event = first
    try:
        while True:
            while not (await asyncio.wait({event}, timeout=_PING))[0]:
                yield ": ping\n\n"
            kind, content = event.result()
            data = content if isinstance(content, str) else json.dumps(content)
            yield f"event: {kind}\ndata: {data}\n\n" if kind else f"data: {data}\n\n"
            event = asyncio.ensure_future(anext(events))
    except StopAsyncIteration:
        pass
    except Refused as refused:
        yield f"event: error\ndata: {json.dumps(api.refusal(refused))}\n\n"
    finally:
        await _ended(event)


async def _ended(task: asyncio.Future[Any]) -> None:
    """Cancel something that may still be running, and wait for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Refused, StopAsyncIteration):
        await task
