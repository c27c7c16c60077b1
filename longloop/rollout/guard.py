"""Calling an environment: one call at a time, under a deadline, and with every way of failing turned into a Fault."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

from longloop.envs.check import expect
from longloop.interfaces import Environment, Player
from longloop.types import StopReason


class Fault(Exception):
    """The environment failed: why, and in what words."""

    def __init__(self, stop: StopReason, text: str) -> None:
        super().__init__(text)
        self.stop = stop


class Guarded:
    """An environment behind its deadline. A call that is given up goes on in its thread; no other begins beside it.

    An expert fails in the same ways, and is called in the same way.
    """

    def __init__(self, env: Environment | Player) -> None:
        self._env: Any = env
        self._inside = threading.Lock()

    async def ready(self) -> None:
        """Wait for what it needs before its time begins to count: a free worker, where it lives in one."""
        await ready(self._env)

    async def call(self, method: str, arguments: tuple[Any, ...], seconds: float) -> Any:
        """A method's answer. A plain function runs in a thread, so that it, too, has a deadline."""
        function = getattr(self._env, method)
        this = asyncio.current_task()
        assert this is not None
        try:
            async with asyncio.timeout(seconds) as deadline:
                plain = not inspect.iscoroutinefunction(function)
                answer = await (_in_thread(self._alone, function, *arguments) if plain else function(*arguments))
                return expect(method, await answer if inspect.isawaitable(answer) else answer)
        except TimeoutError as error:
            if deadline.expired():
                raise Fault(StopReason.TIMEOUT, f"{method}() took longer than {seconds:g} s") from None
            raise Fault(StopReason.ENV_ERROR, f"{method}() raised TimeoutError: {error}") from error
        except asyncio.CancelledError as error:
            if this.cancelling():
                raise  # someone cancelled this episode; otherwise the environment raised it on its own
            raise Fault(StopReason.ENV_ERROR, f"{method}() raised CancelledError: {error}") from error
        except (Exception, SystemExit) as error:
            raise Fault(StopReason.ENV_ERROR, f"{method}() raised {type(error).__name__}: {error}") from error

    async def leave(self, seconds: float) -> None:
        """Let it finish, though its verdict does not count. Nobody waits for a call that was given up: it does."""
        if self._inside.locked() and not inspect.iscoroutinefunction(self._env.finish):
            threading.Thread(target=self._finish, daemon=True).start()
            return
        with contextlib.suppress(Fault):
            await self.call("finish", (), seconds)

    def _finish(self) -> None:
        with contextlib.suppress(BaseException):
            self._alone(self._env.finish)

    def _alone(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._inside:
            return function(*arguments)


async def ready(env: Any) -> None:
    if hasattr(env, "ready"):
        await env.ready()


async def _in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Like asyncio.to_thread, but a call that never returns cannot keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(put: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            put(value)

    def work() -> None:
        try:
            put, value = future.set_result, function(*arguments)
        except StopIteration as error:
            put, value = future.set_exception, RuntimeError(f"StopIteration: {error}")  # a future cannot hold that one
        except BaseException as error:
            put, value = future.set_exception, error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, put, value)

    threading.Thread(target=work, daemon=True).start()
    return await future
