"""The viewer's web server. It binds to loopback, answers to loopback's names only, and writes nothing but tags.

A page of some other site in the same browser cannot read from here: a foreign name that resolves to this machine is
refused by the Host header, and no page may load, embed or run anything that is not its own. Nor can it tag a run: a
browser sends JSON to a foreign origin only after asking, which nobody answers, and the Origin must be the viewer's own.
"""

import json
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from longloop.store.tags import set_tag
from longloop.types import UserError
from longloop.viewer.page import NotThere
from longloop.viewer.pages import HERE, Pages

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_LARGEST = 4096
"""Bytes that a request to tag a run may have."""


class _Headers:
    """Adds the security headers to every answer, errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await self._app(scope, receive, answer)


def app(pages: Pages) -> ASGIApp:
    def page(request: Request) -> Response:
        query = {name: request.query_params.getlist(name) for name in request.query_params}
        try:
            return HTMLResponse(pages.html(request.path_params["path"], query))
        except NotThere as problem:
            return HTMLResponse(pages.missing(str(problem)), 404)

    def version(request: Request) -> Response:
        return PlainTextResponse(pages.version(request.query_params.getlist("run")))

    async def tag(request: Request) -> Response:
        if request.headers.get("origin") != f"http://{request.headers.get('host')}":
            return PlainTextResponse("Only the viewer's own pages can tag a run.", 403)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return PlainTextResponse("A tag is sent as application/json.", 415)
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST:
                return PlainTextResponse("That is more than a tag.", 413)
        try:
            match json.loads(body):
                case {"tag": str(name), "on": bool(on)}:
                    run = pages.run(request.path_params["name"])
                    await run_in_threadpool(set_tag, run.folder, name, on)
                    return PlainTextResponse("")
        except NotThere as problem:
            return PlainTextResponse(str(problem), 404)
        except UserError as problem:
            return PlainTextResponse(str(problem), 400)
        except (ValueError, RecursionError):
            pass
        return PlainTextResponse('Send {"tag": "words", "on": true}, or false to remove it.', 400)

    routed = Starlette(
        routes=[
            Route("/version", version),
            Route("/run/{name}/tags", tag, methods=["POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
            Route("/{path:path}", page),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"], www_redirect=False),
        ],
    )
    return _Headers(routed)  # outside of it: what Starlette answers to an exception comes from its outermost layer


def listen(port: int) -> socket.socket:
    """A socket on the loopback address; port 0 takes any that is free."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
        bound.listen()
    except OSError as error:
        raise UserError(f"Port {port} cannot be used: {error.strerror}. Take any free one with --port 0.") from error
    return bound


def serve(pages: Pages, bound: socket.socket) -> None:
    """Answer until interrupted."""
    config = uvicorn.Config(
        app(pages), log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[bound])
