"""The agent's Python session: its code runs in a sandbox (pydantic-monty), and `apis` is its only way out.

Variables stay between turns. The clock stands still, random numbers are seeded, and time, memory, output and the number
of API calls are limited; whatever the code does, what comes back is text.
"""

import atexit
import functools
import importlib.util
import re
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

from pydantic_monty import (
    ClassInstance,
    CollectString,
    Monty,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
)

from longloop.envs.errands.api import Api, ApiError
from longloop.envs.errands.apps import BY_NAME
from longloop.envs.errands.world import World

SECONDS = 1.0
"""Of computing per turn."""
MEMORY = 16 * 2**20
CALLS = 250
"""API calls per turn."""
SUSPENSIONS = 40 * CALLS
"""Times that a session may ask anything outside the sandbox, refused calls included: only computing counts as time."""
OUTPUT = 2000
"""Characters of output that come back from a turn."""

_PATIENCE = 100
"""Dead workers that are put up with before a session is given up."""
_IDS = UUID("00000000-0000-0000-0000-00000000e22a")
_RAISES: dict[int, type[Exception]] = {401: PermissionError, 403: PermissionError, 404: LookupError}


class Session:
    """One Python session in one world."""

    def __init__(self, world: World, state: bytes | None = None) -> None:
        self._world = world
        self._calls = 0
        self._apis = _Root(world, self._call)
        self._start(state)

    def run(self, code: str) -> str:
        """Run code; what it printed, and the traceback if it failed."""
        printed = CollectString(max_bytes=20 * OUTPUT)
        self._calls = 0
        error = ""
        try:
            self._monty.feed_run(code, inputs={"apis": self._apis}, print_callback=printed)
        except (MontyRuntimeError, MontySyntaxError) as raised:
            error = self._explain(raised)
        except MontyCrashedError:
            error = self._restart("the code crashed the interpreter")
        except MontyError as raised:
            error = f"{type(raised).__name__}: {raised}"
        return _cut(printed.output, error) or "(no output)"

    def dump(self) -> bytes:
        """The session's variables and functions; `Session(world, state)` goes on from there."""
        return self._monty.dump()

    def close(self) -> None:
        self._monty.__exit__(None, None, None)
        del self._monty  # it holds on to `apis`, which holds on to this session, and no collector sees into it

    def _start(self, state: bytes | None = None) -> None:
        for left in reversed(range(_PATIENCE)):
            self._monty = self._checkout()
            try:
                self._monty.__enter__()
                break
            except MontyCrashedError:  # a worker that died while it was idle; each is met once
                if not left:
                    raise
        if state is not None:
            self._monty.load_session(state)

    def _checkout(self) -> MontySession:
        return _pool().checkout(
            script_name="code",
            limits={
                "max_feed_duration_secs": SECONDS,
                "max_memory": MEMORY,
                "max_recursion_depth": 200,
                "max_suspensions": SUSPENSIONS,
            },
            os_policy={"datetime": self._world.now, "sleep": "zero", "random_start": {"seed": self._world.seed}},
        )

    def _restart(self, why: str) -> str:
        """A session whose code overran cannot be trusted any more: begin anew, and say so."""
        self.close()
        self._start()
        return f"{why}; the session was restarted and its variables are gone."

    def _alive(self) -> bool:
        """Whether the worker goes on: running out of memory may have ended it."""
        try:
            self._monty.feed_run("")
        except (RuntimeError, MontyError):
            return False
        return True

    def _explain(self, raised: MontyRuntimeError | MontySyntaxError) -> str:
        kind = type(raised.exception())
        if kind is TimeoutError and "time limit" in str(raised):
            return "TimeoutError: " + self._restart(f"the code ran for more than {SECONDS:g} s")
        if kind is RuntimeError and "suspension limit" in str(raised):
            return "RuntimeError: " + self._restart("the session made too many API calls")
        if kind is MemoryError:
            why = f"the code used more than {MEMORY >> 20} MB, or printed too much"
            return f"MemoryError: {why}" if self._alive() else "MemoryError: " + self._restart(why)
        return re.sub(r'File "<python-input-\d+>"', 'File "code"', raised.display())

    def _call(self, api: Api, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        self._calls += 1
        if self._calls > CALLS:
            raise RuntimeError(f"429 More than {CALLS} API calls in one turn.")
        if arguments:
            raise TypeError(f"422 {api.app}.{api.name} takes its parameters by keyword: {', '.join(api.parameters)}.")
        try:
            return self._world.call(api, keywords)
        except ApiError as error:
            raise _RAISES.get(error.code, ValueError)(str(error)) from None


Caller = Callable[[Api, tuple[Any, ...], dict[str, Any]], Any]


class _Apis:
    """What `apis` is."""


class _App:
    """What `apis.mail` is."""


class _Root(ClassInstance):
    """Serves `apis.<app>`. Ids are fixed, so that a forked session finds the same objects again."""

    def __init__(self, world: World, call: Caller) -> None:
        super().__init__(_Apis(), id=uuid5(_IDS, "apis"), eager_attrs=tuple(BY_NAME), lazy_attrs="all")
        self._apps = {name: _Branch(world, name, call) for name in BY_NAME}

    def get_eager_attrs(self) -> dict[str, Any]:
        return self._apps

    def lookup_lazy_attrs(self, name: str) -> Any:
        raise LookupError(f"there is no app {name!r}; the apps are {', '.join(BY_NAME)}")


class _Branch(ClassInstance):
    """Serves `apis.<app>.<api>(...)`."""

    def __init__(self, world: World, app: str, call: Caller) -> None:
        super().__init__(_App(), id=uuid5(_IDS, app), lazy_attrs="all", allowed_methods="all")
        self._world, self._app, self._call = world, app, call

    def lookup_lazy_attrs(self, name: str) -> Any:
        if name in self._world.apis(self._app):
            raise LookupError(f"{self._app}.{name} can only be called, as apis.{self._app}.{name}(...)")
        raise self._missing(name)

    def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        api = self._world.apis(self._app).get(name)
        if api is None:
            raise self._missing(name)
        return self._call(api, args, kwargs)

    def _missing(self, name: str) -> LookupError:
        return LookupError(
            f"{self._app} has no API {name!r}; see apis.docs.list_apis(app={self._app!r}) for those it has"
        )


def _cut(output: str, error: str) -> str:
    """Output and error within the limit. The error is kept whole as far as can be: it is what the agent must read."""
    error = error if len(error) <= OUTPUT // 2 else f"{error[: OUTPUT // 4]}\n...\n{error[-OUTPUT // 4 :]}"
    room = OUTPUT - len(error)
    if len(output) > room:
        output = f"{output[:room]}\n... ({len(output) - room} characters more were cut; print less)\n"
    return (output + error).strip("\n")


@functools.cache
def _pool() -> Monty:
    """The worker processes, shared by all sessions of this process; they are light and started when needed."""
    if importlib.util.find_spec("opentelemetry") is None:
        sys.modules["opentelemetry"] = None  # type: ignore[assignment]  # monty looks for it several times a turn
    pool = Monty(max_processes=4096, min_processes=1, request_timeout=10 * SECONDS, max_checkouts_per_worker=1000)
    pool.__enter__()
    atexit.register(pool.__exit__, None, None, None)
    return pool
