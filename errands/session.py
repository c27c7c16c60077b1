"""The agent's Python session: its code runs in a sandbox (pydantic-monty), and `apis` is its only way out.

Variables stay between turns. The clock stands still, random numbers are seeded, and computing, memory, output and the
work of the APIs are limited; whatever the code does, what comes back is text.

No limit that code meets in earnest is a matter of seconds on the wall: the sandbox's computing is CPU time, limited by
the kernel, and the work of the APIs is counted (world.py). A loaded machine makes nobody late.
"""

import atexit
import functools
import importlib.util
import math
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from pydantic_monty import (
    ClassInstance,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
)

from errands.api import Api, ApiError
from errands.apps import BY_NAME
from errands.database import Overspent
from errands.notebook import as_written, showing
from errands.reader import ReaderError, read
from errands.tame import LONGEST, parsed, tame
from errands.values import Arguments, TooLarge, Unreadable, arguments
from errands.world import Names, World

SECONDS = 1.0
"""Of computing per turn: CPU time in the sandbox (up to twice as much: the kernel counts whole seconds), and as much
again for the work of the APIs, in nominal nanoseconds."""
WALL = 30.0 if hasattr(resource, "prlimit") else SECONDS
"""Seconds that a turn's computing may take by the clock, where the CPU time of another process can be limited."""
MEMORY = 16 * 2**20
CALLS = 250
"""API calls per turn."""
QUESTIONS = 4 * CALLS
"""Times that a turn may ask anything outside the sandbox, refused calls included."""
SUSPENSIONS = 40 * CALLS
"""The same for a session."""
OUTPUT = 2000
"""Characters of output that come back from a turn."""
FLOOD = 500 * OUTPUT
"""Characters of output after which a turn is stopped."""
NOTHING = "(no output; print what you want to see)"
"""What comes back from code that printed nothing."""

_CALL_NS, _VALUE_NS, _LARGE_NS, _DUMPED_NS = 20_000, 1000, 50_000_000, 2
"""What a call costs, a value passed to it, an argument refused (it may be all of the sandbox's memory), and a byte of
the sandbox that is copied for another process."""
_PATIENCE = 100
"""Dead workers that are put up with before a session is given up."""
_IDS = UUID("00000000-0000-0000-0000-00000000e22a")
_ALL = frozenset(BY_NAME)
_CALLED_APP = re.compile(r"\bapis\.(\w+)\.\w+\(")
_BESIDES_CALLS = re.compile(r"\bapis\b(?!\.\w+\.\w+\()")
"""`apis` where it is not the beginning of a call."""
_RAISES: dict[int, type[Exception]] = {401: PermissionError, 403: PermissionError, 404: LookupError}

Snapshot = FunctionSnapshot | NameLookupSnapshot | FutureSnapshot | MontyComplete


class _Stop(Exception):
    """The turn is over, whatever the code would do next."""


class Session:
    """One Python session in one world."""

    def __init__(self, world: World, state: bytes | None = None) -> None:
        self._world = world
        self._calls = self._questions = 0
        self._apps = _apps(world.disguise)
        self._tame = True
        """Whether all that the session has run is tame."""
        self.failed = False
        """Whether the code that ran last ended with an error."""
        self._lost = ""
        """What the next output begins with, if the variables were lost."""
        self._has_apis = False
        """Whether its variable `apis` is known to be what it was when last sent."""
        self._sent = frozenset[str]() if state is None else _ALL
        """The apps that came with it: all that code has named."""
        self._start(state)

    def run(self, code: str) -> str:
        """Run code; what it printed, the value of an expression at its end, and the traceback if it failed."""
        printed = _Printed(self._monty.worker_pid)
        self._calls = self._questions = 0
        self._world.allowance = round(SECONDS * 1e9)
        error = ""
        read = _read(code, self._apps.names)
        self._tame = self._tame and read.tame
        try:
            self._allow_computing()
            # Stepwise, as what the code ends with is then never converted, nor what is passed to anything but an API.
            state = self._feed(read, printed)
            while not isinstance(state, MontyComplete):
                state = self._answer(state)
        except _Stop as stop:
            error = self._restart(str(stop))
        except MontyError as raised:
            error = self._restart(_PRINTED) if printed.total > FLOOD else self._explain(raised)
            error = error if read.shown is None else as_written(error, code, read.shown)
        finally:
            self._world.allowance = None
        self.failed = bool(error)
        lost, self._lost = self._lost, ""
        return lost + (_cut(printed, error) or NOTHING)

    def dump(self) -> bytes:
        """The session's variables and functions; `Session(world, state)` goes on from there. Those that do not fit into
        its memory twice are lost, and nothing is returned."""
        self._allow_computing()
        try:
            return bytes([self._tame]) + self._monty.dump()
        except MontyError as error:
            if not _overran(error):
                raise
            self._lost = self._restart(_COPIED) + "\n"
            return b""

    def close(self) -> None:
        self._monty.__exit__(None, None, None)
        del self._monty

    def _start(self, state: bytes | None = None) -> None:
        for left in reversed(range(_PATIENCE)):
            self._monty = self._checkout()
            try:
                self._monty.__enter__()
                break
            except MontyCrashedError:  # a worker that died while it was idle; each is met once
                if not left:
                    raise
        if state is None:
            return
        if not state:
            self._sent, self._lost = frozenset(), f"{_COPIED}{_RESTARTED}\n"
            return
        self._tame = bool(state[0])
        self._allow_computing()
        try:
            self._monty.load_session(state[1:])
        except MontyError as error:
            if not _overran(error):
                raise
            self._lost = self._restart(_COPIED) + "\n"

    def _checkout(self) -> MontySession:
        return _pool().checkout(
            script_name="code",
            limits={
                "max_feed_duration_secs": WALL,
                "max_memory": MEMORY,
                "max_recursion_depth": 200,
                "max_suspensions": SUSPENSIONS,
            },
            os_policy={"datetime": self._world.now, "sleep": "zero", "random_start": {"seed": self._world.seed}},
        )

    def _restart(self, why: str) -> str:
        """A session whose code overran cannot be trusted any more: begin anew, and say so."""
        self.close()
        self._tame, self._has_apis, self._sent = True, False, frozenset()
        self._start()
        return why + _RESTARTED

    def _allow_computing(self) -> None:
        """Have the kernel end the worker when it has used SECONDS more of CPU time."""
        pid = self._monty.worker_pid
        if pid is None or not hasattr(resource, "prlimit"):
            return
        try:
            used = time.clock_gettime(~pid << 3 | 2)  # the number of another process's CPU clock (Linux)
            resource.prlimit(pid, resource.RLIMIT_CPU, (math.ceil(used + SECONDS), resource.RLIM_INFINITY))
        except OSError:
            pass  # it is dead: whoever uses it will be told

    def _alive(self) -> bool:
        """Whether the worker goes on: running out of memory may have ended it."""
        try:
            self._monty.feed_run("")
        except (RuntimeError, MontyError):
            return False
        return True

    def _explain(self, raised: MontyError) -> str:
        if isinstance(raised, MontyCrashedError):
            return self._restart(_COMPUTED if "SIGXCPU" in str(raised) else "the code crashed the interpreter")
        if not isinstance(raised, MontyRuntimeError | MontySyntaxError):
            return f"{type(raised).__name__}: {raised}"
        kind = type(raised.exception())
        if kind is TimeoutError and "time limit" in str(raised):
            return self._restart(_COMPUTED)
        if kind is RuntimeError and "suspension limit" in str(raised):
            return self._restart(_CALLED)
        if kind is MemoryError:
            why = f"MemoryError: the code used more than {MEMORY >> 20} MB"
            return why if self._alive() else self._restart(why)
        return re.sub(r'File "<python-input-\d+>"', 'File "code"', raised.display())

    def _feed(self, code: "_Code", printed: "_Printed") -> Snapshot:
        """Start code; what it asks first. It gets `apis`, with the apps that it may call, unless it has that: to pass
        all apps takes longer than some calls."""
        only_calls = self._tame and code.only_calls
        needed = self._sent | code.apps if only_calls else _ALL
        has, self._has_apis = self._has_apis and needed == self._sent, False
        inputs = {} if has else {"apis": _root(self._apps, needed)}
        self._sent = needed
        state: Snapshot = self._monty.feed_start(code.text, inputs=inputs, print_callback=printed)
        called = isinstance(state, FunctionSnapshot)  # code that does nothing is not given its inputs
        self._has_apis = only_calls and (has or called)
        return state

    def _answer(self, asked: FunctionSnapshot | NameLookupSnapshot | FutureSnapshot) -> Snapshot:
        """Answer what the code asks of the world outside; what it asks next."""
        self._questions += 1
        if self._questions > QUESTIONS:
            raise _Stop(_CALLED)
        if isinstance(asked, FutureSnapshot):
            raise _Stop("RuntimeError: the code waits for something that never comes")
        if isinstance(asked, NameLookupSnapshot):
            return asked.resume_auto()
        if asked.is_os_function:
            return asked.resume_not_handled()
        try:
            value = self._call(asked)
        except Overspent:
            raise _Stop(_WORKED) from None
        except (ReaderError, MontyError):  # the sandbox may be dead: it cannot be told
            raise
        except Exception as error:
            return asked.resume({"exception": error})
        return asked.resume({"return_value": value})

    def _call(self, asked: FunctionSnapshot) -> Any:
        """Call an API. Its arguments are looked at last: until then they are not even converted."""
        api = self._apps.api(asked)
        self._calls += 1
        if self._calls > CALLS:
            raise RuntimeError(f"429 More than {CALLS} API calls in one turn.")
        self._world.spend(_CALL_NS)
        given = self._arguments(api, asked)
        if given.positional:
            raise TypeError(f"422 {api.app}.{api.name} takes its parameters by keyword: {', '.join(api.parameters)}.")
        try:
            return self._world.call(api, given.keywords)
        except ApiError as error:
            raise _RAISES.get(error.code, ValueError)(str(error)) from None

    def _arguments(self, api: Api, asked: FunctionSnapshot) -> Arguments:
        """The arguments, converted here only if that is known to be harmless."""
        try:
            if self._tame:
                given = arguments(asked)
            else:
                state = asked.dump()
                self._world.spend(_DUMPED_NS * len(state))
                found = read(state)
                if found is None:
                    raise Overspent
                given = found
        except (TooLarge, Unreadable) as error:
            self._world.spend(_LARGE_NS)
            raise ValueError(f"422 {api.app}.{api.name}: {error}") from None
        self._world.spend(given.values * _VALUE_NS)
        return given


_COMPUTED = f"TimeoutError: the code ran for more than {SECONDS:g} s"
_WORKED = f"TimeoutError: the API calls of this turn took more than {SECONDS:g} s of work"
_COPIED = f"MemoryError: the session was copied, which took more than {MEMORY >> 20} MB"
_CALLED = "RuntimeError: the session made too many API calls"
_PRINTED = f"MemoryError: the code printed more than {FLOOD:,} characters"
_RESTARTED = "; the session was restarted and its variables are gone."


def _overran(error: MontyError) -> bool:
    """Whether a copy failed for want of memory or of computing time, and not because it is none."""
    ran_out = isinstance(error, MontyRuntimeError) and isinstance(error.exception(), MemoryError)
    return ran_out or isinstance(error, MontyCrashedError)


@dataclass(frozen=True)
class _Code:
    """A piece of code, and what is to be known of it before it runs."""

    text: str
    """As it is run."""
    shown: int | None
    """Where the expression begins whose value the text was changed to show, if it was."""
    tame: bool
    only_calls: bool
    """Whether it uses `apis` for nothing but calls."""
    apps: frozenset[str]
    """Those that it calls."""


def _read(code: str, names: frozenset[str]) -> _Code:
    # What is long is not parsed, and shall not stay in the cache.
    return _parsed(code, names) if len(code) <= LONGEST else _Code(code, None, False, False, _ALL)


@functools.lru_cache(maxsize=1024)
def _parsed(code: str, names: frozenset[str]) -> _Code:
    """Remembered, as attempts do many things alike: they read documentation, and all complete the task."""
    tree = parsed(code)
    text, shown = showing(code, tree)
    called = _ALL.intersection(_CALLED_APP.findall(code))
    return _Code(text, shown, tame(tree, names), not _BESIDES_CALLS.search(code), called)


class _Printed:
    """What a turn prints: its beginning, and how much it was. After a flood the worker is ended."""

    def __init__(self, worker: int | None) -> None:
        self.beginning, self.total = "", 0
        self._worker = worker

    def __call__(self, stream: str, text: str) -> None:
        self.beginning += text[: OUTPUT - len(self.beginning)]
        self.total += len(text)
        if self.total > FLOOD and self._worker is not None:
            os.kill(self._worker, signal.SIGKILL)
            self._worker = None


class _Apis:
    """What `apis` is."""


_APIS = _Apis()
"""One for all: a session refuses another object with the same id."""


class _App:
    """What `apis.mail` is."""


class _Apps:
    """All apps by the names that their APIs have, and the APIs that are called."""

    def __init__(self, names: Names | None) -> None:
        self.branches = {app: _Branch(app, names) for app in BY_NAME}
        self._by_id = {branch.id.int: branch for branch in self.branches.values()}
        listed = (names.listed(app) if names else BY_NAME[app].apis for app in BY_NAME)
        self.names = frozenset(BY_NAME).union(*listed)
        """The names of the apps and of their APIs."""

    def api(self, asked: FunctionSnapshot) -> Api:
        """The API that is called."""
        name = str(asked.function_name)
        called_on = asked.object_id
        if called_on is None:
            raise NameError(f"name {name[:40]!r} is not defined")
        branch = self._by_id.get(called_on.int)
        if branch is None and name == "__call__":
            raise TypeError("'_Apis' object is not callable")
        if branch is None:
            raise AttributeError(f"'_Apis' object has no attribute {name[:40]!r}")
        return branch.api(name)


class _Root(ClassInstance):
    """Serves `apis.<app>`: some of the apps come with it, the others are sent for when they are used. Ids are fixed, so
    that a forked session finds the same objects again."""

    def __init__(self, apps: _Apps, sent: Iterable[str]) -> None:
        super().__init__(_APIS, id=uuid5(_IDS, "apis"), eager_attrs=tuple(BY_NAME), lazy_attrs="all")
        self._branches = apps.branches
        self._sent = {app: self._branches[app] for app in sent}

    def get_eager_attrs(self) -> dict[str, Any]:
        return self._sent

    def lookup_lazy_attrs(self, name: str) -> Any:
        if name in self._branches:
            return self._branches[name]
        raise LookupError(f"there is no app {name[:40]!r}; the apps are {', '.join(BY_NAME)}")


class _Branch(ClassInstance):
    """Serves `apis.<app>.<api>(...)`. Most attempts use few of the apps: the APIs are made when they are first used."""

    def __init__(self, app: str, names: Names | None) -> None:
        super().__init__(_App(), id=uuid5(_IDS, app), lazy_attrs="all", allowed_methods="all")
        self._app, self._names = app, names

    @functools.cached_property
    def apis(self) -> Mapping[str, Api]:
        return self._names.apis(self._app) if self._names else BY_NAME[self._app].apis

    def lookup_lazy_attrs(self, name: str) -> Any:
        if name in self.apis:
            raise LookupError(f"{self._app}.{name} can only be called, as apis.{self._app}.{name}(...)")
        raise self._missing(name)

    def api(self, name: str) -> Api:
        api = self.apis.get(name)
        if api is None:
            raise self._missing(name)
        return api

    def _missing(self, name: str) -> LookupError:
        return LookupError(f"{self._app} has no API {name[:40]!r}; it has {', '.join(self.apis)}")


@functools.lru_cache(maxsize=64)
def _apps(names: Names | None) -> _Apps:
    """The apps in all worlds with these names."""
    return _Apps(names)


@functools.lru_cache(maxsize=256)
def _root(apps: _Apps, sent: frozenset[str]) -> _Root:
    return _Root(apps, (app for app in BY_NAME if app in sent))


def _cut(printed: _Printed, error: str) -> str:
    """Output and error within the limit. The error is kept whole as far as can be: it is what the agent must read."""
    error = error if len(error) <= OUTPUT // 2 else f"{error[: OUTPUT // 4]}\n...\n{error[-OUTPUT // 4 :]}"
    room = OUTPUT - len(error)
    output = printed.beginning
    if printed.total > room:
        least = "more than " if printed.total > FLOOD else ""  # how much more is a matter of when it was stopped
        more = min(printed.total, FLOOD) - room
        output = f"{output[:room]}\n... ({least}{more} characters more were cut; print less)\n"
    return (output + error).strip("\n")


@functools.cache
def _pool() -> Monty:
    """The worker processes, shared by all sessions of this process; they are light and started when needed."""
    if importlib.util.find_spec("opentelemetry") is None:
        sys.modules["opentelemetry.context"] = None  # type: ignore[assignment]  # monty imports it several times a turn
    pool = Monty(max_processes=4096, min_processes=1, request_timeout=2 * WALL, max_checkouts_per_worker=1000)
    pool.__enter__()
    atexit.register(pool.__exit__, None, None, None)
    return pool
