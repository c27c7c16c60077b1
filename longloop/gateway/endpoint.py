"""The endpoint that agents in training call: one for the process, on the loopback interface. Each attempt has its keys,
which tell it apart.

A worker has nothing else to do between calls, so the endpoint lives in its event loop, which then runs all the time.
Elsewhere it has a thread and an event loop of its own: the policy's passes and updates would keep it waiting.
"""

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from longloop.gateway.http import Connection
from longloop.gateway.http_request import HttpRequest
from longloop.gateway.request import Refused
from longloop.gateway.server import Server, body_of, send
from longloop.gateway.session import Session
from longloop.isolation import worker

T = TypeVar("T")

_REMEMBERED = 10_000
"""Attempts that ended whose keys are remembered, to tell a late call from a forged one."""


class Endpoint:
    """Serves the sessions that are open. `here` returns the one of this process."""

    _of_process: "tuple[int, Endpoint] | None" = None

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop() if worker.serving else asyncio.new_event_loop()
        self._sessions: dict[str, Session] = {}
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        bound = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        server = Server(self._agents, "policy", {("POST", "/outcome"): self._outcome})
        if worker.serving:
            worker.background = self._loop
            self._serving = self._loop.create_task(server.listen(bound))
        else:
            serve = self._loop.run_until_complete
            threading.Thread(target=serve, args=(server.listen(bound),), daemon=True, name="gateway").start()

    @classmethod
    def here(cls) -> "Endpoint":
        """The endpoint of this process, started when first asked for."""
        if cls._of_process is None or cls._of_process[0] != os.getpid():
            cls._of_process = os.getpid(), cls()
        return cls._of_process[1]

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the endpoint's event loop, where sessions live. Cancelling the caller cancels it."""
        if asyncio.get_running_loop() is self._loop:
            return await work
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

    async def _outcome(self, key: str, request: HttpRequest, client: Connection) -> None:
        """The judge's report."""
        session = self._session(key)
        if session.judge_key != key:
            raise Refused(403, "The agent's key can ask, and nothing else: the judge reports.", "wrong_key")
        session.outcome = dict(body_of(request))
        send(client, {})

    def _agents(self, key: str) -> Session:
        """The session that an agent's key opens."""
        session = self._session(key)
        if session.key != key:
            raise Refused(403, "The judge's key can report an outcome, and nothing else.", "wrong_key")
        return session

    def _session(self, key: str) -> Session:
        if key in self._over:
            raise Refused(410, "This attempt is over.", "attempt_over")
        if key not in self._sessions:
            raise Refused(401, "No attempt has this key; use the one in OPENAI_API_KEY.", "invalid_api_key")
        return self._sessions[key]
