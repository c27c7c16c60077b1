"""The endpoint that agents in training call: one for the event loop that plays them, on the loopback interface. Each
attempt has its keys, which tell it apart.

It has no thread of its own: to wake one up for each call, and to be woken up by it, takes longer than all of HTTP. So
it answers when the policy lets go of the event loop, as the policy itself does. A worker, which has nothing else to do
between the trainer's calls, runs its event loop all the time.
"""

import asyncio
import socket
from collections import deque

from longloop.gateway.http import Connection
from longloop.gateway.http_request import HttpRequest
from longloop.gateway.request import Refused
from longloop.gateway.server import Server, body_of, send
from longloop.gateway.session import Session
from longloop.isolation import worker

_REMEMBERED = 10_000
"""Attempts that ended whose keys are remembered, to tell a late call from a forged one."""


class Endpoint:
    """Serves the sessions that are open. `here` returns the one of the running event loop."""

    _of_loops: "dict[asyncio.AbstractEventLoop, Endpoint]" = {}

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        bound = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        server = Server(self._agents, "policy", {("POST", "/outcome"): self._outcome})
        self._serving = asyncio.ensure_future(server.listen(bound))

    @classmethod
    def here(cls) -> "Endpoint":
        """The endpoint of the running event loop, started when first asked for. It ends with the loop."""
        loop = asyncio.get_running_loop()
        if loop not in cls._of_loops:
            for old in [old for old in cls._of_loops if old.is_closed()]:
                del cls._of_loops[old]
            cls._of_loops[loop] = cls()
            if worker.serving:
                worker.background = loop
        return cls._of_loops[loop]

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
