"""An agent's environment that takes the times of HTTP requests, for `gateway.py`. Workers import this file and not that
one, which imports torch."""

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

from longloop.gateway.env import Agent
from longloop.gateway.http import Connection
from longloop.gateway.http_request import HttpRequest
from longloop.types import Outcome

_began: dict[Any, float] = {}
"""Connection -> when the first bytes of its request came."""
_inside: defaultdict[str, list[list[float]]] = defaultdict(list)
"""An agent's key -> when each of its requests began and when its response was written; and the process's CPU time."""


def _watch_http() -> None:
    """Take the times of all requests that this process serves from now on. The clock is the same for all processes."""
    received, serve = Connection.received, Connection._serve

    def begun(self: Connection, data: bytes) -> None:
        _began.setdefault(self, time.perf_counter())
        received(self, data)

    async def served(self: Connection, request: HttpRequest) -> None:
        await serve(self, request)
        key = request.headers["authorization"].removeprefix("Bearer ")
        _inside[key].append([_began.pop(self), time.perf_counter(), time.process_time()])

    Connection.received, Connection._serve = begun, served  # type: ignore[method-assign]


_watch_http()


class Measured(Agent):
    """Reports what the server measured beside what the agent did."""

    async def finish(self) -> Outcome:
        assert self._session is not None
        key = self._session.key
        outcome = await super().finish()
        return replace(outcome, info=outcome.info | {"inside": _inside.pop(key)})
