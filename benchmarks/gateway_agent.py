"""An agent's environment that takes the times of HTTP requests, for `gateway.py`. Workers import this file and not that
one, which imports torch."""

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from longloop.gateway.env import Agent
from longloop.types import Outcome

_began: dict[Any, float] = {}
"""Connection -> when the first bytes of its request came."""
_inside: defaultdict[str, list[list[float]]] = defaultdict(list)
"""An agent's key -> when each of its requests began and when its response was written; and the process's CPU time."""


def _watch_http() -> None:
    """Take the times of all requests that this process serves from now on. The clock is the same for all processes."""
    received, completed = H11Protocol.data_received, H11Protocol.on_response_complete

    def data_received(self: Any, data: bytes) -> None:
        _began.setdefault(self, time.perf_counter())
        received(self, data)

    def on_response_complete(self: Any) -> None:
        key = dict(self.scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")
        _inside[key].append([_began.pop(self), time.perf_counter(), time.process_time()])
        completed(self)

    H11Protocol.data_received, H11Protocol.on_response_complete = data_received, on_response_complete


_watch_http()


class Measured(Agent):
    """Reports what the server measured beside what the agent did."""

    async def finish(self) -> Outcome:
        assert self._session is not None
        key = self._session.key
        outcome = await super().finish()
        return replace(outcome, info=outcome.info | {"inside": _inside.pop(key)})
