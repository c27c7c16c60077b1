"""Interrupts, or at least names, code of an environment that blocks the event loop.

An `async def` that sleeps, computes or waits without `await` stops every attempt, and no asyncio deadline can fire
meanwhile. So a thread keeps watch. When the time is over, it sends the main thread a signal, whose handler raises
`Blocked` inside the environment's code: that attempt fails, the others go on. If no signal gets through (a call into a
C library), a line on stderr says what blocks, and where.
"""

import signal
import sys
import threading
import time
import types
from collections.abc import Awaitable, Generator
from typing import Any

from longloop.envs.user_code import running_at

_SIGNAL = signal.SIGRTMIN + 9 if hasattr(signal, "SIGRTMIN") else None
"""A signal that nobody else uses: SIGALRM and SIGUSR1 may be the environment's."""
_LOOKS = 0.1
"""Seconds between two looks."""
_GRACE = 2.0
"""Seconds that an interrupted call has to end before a line on stderr names it."""


class Blocked(BaseException):
    """Raised inside the environment's code. Not an Exception, so that the environment does not catch it by accident."""


class Span:
    """A context manager around code of `env` that runs in the event loop's thread.

    After `seconds` the code is interrupted, or with `interrupt=False` only named on stderr.
    """

    def __init__(self, what: str, env: Any, seconds: float, *, interrupt: bool = True) -> None:
        self.what, self.env, self.seconds, self.interrupt = what, env, seconds, interrupt
        self.told = False

    def __enter__(self) -> None:
        _keep_watch()
        self.began = time.monotonic()
        self._thread = threading.get_ident()
        self._outer = _spans.get(self._thread)
        _spans[self._thread] = self

    def __exit__(self, *_: object) -> None:
        if self._outer is None:
            _spans.pop(self._thread, None)
        else:
            _spans[self._thread] = self._outer

    @property
    def overdue(self) -> float:
        """Seconds since it should have ended."""
        return time.monotonic() - self.began - self.seconds


@types.coroutine
def unblocked(awaitable: Awaitable[Any], what: str, env: Any, seconds: float) -> Generator[Any, Any, Any]:
    """Await something of which no part may run longer than `seconds` without awaiting."""

    async def whole() -> Any:
        return await awaitable

    inner = whole()
    proceed, value = inner.send, None
    while True:
        try:
            with Span(what, env, seconds):
                waits_for = proceed(value)
        except StopIteration as end:
            return end.value
        try:
            proceed, value = inner.send, (yield waits_for)
        except BaseException as error:
            proceed, value = inner.throw, error


_spans: dict[int, Span] = {}
"""The span that each thread is in."""
_watching = False


def _keep_watch() -> None:
    """Start the thread once. Install the handler on the first call from the main thread, unless the signal is taken."""
    global _watching
    main = threading.current_thread() is threading.main_thread()
    if _SIGNAL is not None and main and signal.getsignal(_SIGNAL) is signal.SIG_DFL:
        signal.signal(_SIGNAL, _interrupt)
    if not _watching:
        _watching = True
        threading.Thread(target=_watch, name="longloop-watchdog", daemon=True).start()


def _interrupt(signum: int, frame: Any) -> None:
    """Run in the main thread, wherever it is now. Code that ended in time is left alone."""
    span = _spans.get(threading.get_ident())
    if span is not None and span.interrupt and span.overdue > 0:
        raise Blocked


def _watch() -> None:
    while True:
        time.sleep(_LOOKS)
        for thread, span in list(_spans.items()):
            if (overdue := span.overdue) <= 0:
                continue
            in_main = thread == threading.main_thread().ident
            if span.interrupt and in_main and _SIGNAL is not None and signal.getsignal(_SIGNAL) is _interrupt:
                signal.pthread_kill(thread, _SIGNAL)
            if not span.told and (overdue > _GRACE or not span.interrupt):
                span.told = True
                _tell(span, sys._current_frames().get(thread))


def _tell(span: Span, frame: Any) -> None:
    where = running_at(frame, span.env)
    print(
        f"longloop: {span.what} of {_name(span.env)} has blocked everything else for "
        f"{time.monotonic() - span.began:.0f} s" + (f" at {where}" if where else "") + " and cannot be interrupted. "
        "Wait, or press Ctrl-C twice; env.isolation=process would put it into a process that can be killed.",
        file=sys.stderr,
        flush=True,
    )


def _name(env: Any) -> str:
    return env.__name__ if isinstance(env, type) else type(env).__name__
