"""Calls to an environment: one at a time, each with a deadline, every way of failing turned into a Fault."""

import asyncio
import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longloop.envs.base import Environment, Player, declare_as
from longloop.envs.contract import ContractError, NoExpert, expect, failure
from longloop.envs.play import answered
from longloop.envs.user_code import raised_at, running_at
from longloop.isolation.watchdog import Blocked, Span, unblocked
from longloop.types import Fault, Message, Outcome, Step, StopReason, Task, UserError


class Guarded:
    """An environment, or a player, whose calls have deadlines. A call that timed out goes on in its thread, and no
    other begins before it ends."""

    def __init__(self, env: Environment | Player) -> None:
        self._env: Any = env
        self._inside = threading.Lock()
        self._thread = 0
        """The thread that runs the current call, or ran the last."""

    @property
    def busy(self) -> bool:
        """Whether a plain function still runs, such as one that timed out."""
        return self._inside.locked()

    async def ready(self) -> None:
        """Wait for what the environment needs before its time begins to count."""
        await self._env.ready()

    async def call(self, method: str, arguments: tuple[Any, ...], seconds: float) -> Any:
        """Return a method's answer. A plain function runs in a thread, so that its deadline holds as well."""
        function = getattr(self._env, method)
        this = asyncio.current_task()
        assert this is not None
        try:
            async with asyncio.timeout(seconds) as deadline:
                plain = not inspect.iscoroutinefunction(function)
                answer = await _in_thread(self._alone, function, *arguments) if plain else function(*arguments)
                if inspect.isawaitable(answer):
                    answer = await unblocked(answer, f"{method}()", self._env, seconds)
                return expect(method, answer, self._env.reward_range if method == "finish" else None)
        except Fault:
            raise  # from an environment inside this one
        except ContractError as error:
            raise Fault(StopReason.ENV_ERROR, str(error)) from error
        except Blocked as error:
            raise Fault(
                StopReason.TIMEOUT,
                f"{method}() blocked every other attempt for {seconds:g} s ({raised_at(error, self._env, code=True)}); "
                "await what takes long, or write def instead of async def, which runs it in a thread",
            ) from None
        except TimeoutError as error:
            if deadline.expired():
                raise Fault(StopReason.TIMEOUT, self._too_long(method, seconds, error)) from None
            raise Fault(StopReason.ENV_ERROR, failure(method, error, self._env)) from error
        except asyncio.CancelledError as error:
            if this.cancelling():
                raise  # someone cancelled this episode; otherwise the environment raised it on its own
            raise Fault(StopReason.ENV_ERROR, failure(method, error, self._env)) from error
        except NoExpert:  # no fault of the environment's
            raise
        except (Exception, SystemExit) as error:
            raise Fault(StopReason.ENV_ERROR, failure(method, error, self._env)) from error

    async def leave(self, seconds: float) -> dict[str, Any]:
        """Call finish() for cleanup and discard its verdict; of its notes, `output` is returned. If a timed-out call is
        still running, finish() runs after it in a background thread."""
        if self.busy and not inspect.iscoroutinefunction(self._env.finish):
            threading.Thread(target=self._finish, daemon=True).start()
            return {}
        try:
            outcome = await self.call("finish", (), seconds)
        except Fault:
            return {}
        return {key: value for key, value in outcome.info.items() if key == "output"}

    def _finish(self) -> None:
        with contextlib.suppress(BaseException):
            self._alone(self._env.finish)

    def _alone(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._inside:
            self._thread = threading.get_ident()
            return function(*arguments)

    def _too_long(self, method: str, seconds: float, error: TimeoutError) -> str:
        """Say which line the call had reached: a thread is still there, a coroutine was cancelled there."""
        if self.busy:
            where = running_at(sys._current_frames().get(self._thread), self._env)
        else:
            cancelled = error.__cause__ or error.__context__  # early releases of Python 3.11 set only the second
            where = raised_at(cancelled, self._env, code=True) if cancelled else ""
        said = f"{method}() took longer than {seconds:g} s" + (f" ({where})" if where else "")
        return f"{said}; it must answer within rollout.step_seconds"


class Watched(Environment):
    """An environment for players without a model, called as training calls it: with deadlines, plain methods in
    threads, and every failure a Fault. Its players are called in the same way."""

    def __init__(self, make: Callable[[], Environment], seconds: float) -> None:
        try:
            self.env = make()
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise Fault(StopReason.ENV_ERROR, failure("the constructor", error)) from error
        declare_as(self, self.env)
        self._guarded, self._seconds = Guarded(self.env), seconds

    async def ready(self) -> None:
        await self._guarded.ready()

    async def start(self, task: Task) -> Sequence[Message] | Step:
        await self.ready()
        return await self._guarded.call("start", (task,), self._seconds)

    async def step(self, action: Message) -> Step:
        return await self._guarded.call("step", (action,), self._seconds)

    async def finish(self) -> Outcome:
        if self._guarded.busy:  # a call timed out: there is no verdict, and nobody waits for it to end
            await self.leave()
            return Outcome(0.0, False)
        return await self._guarded.call("finish", (), self._seconds)

    async def leave(self) -> None:
        """Clean up after a fault."""
        await self._guarded.leave(self._seconds)

    def expert(self, task: Task) -> "WatchedPlayer | None":
        player = self._player("expert", self.env.expert, task)
        return None if player is None else WatchedPlayer(player, self._seconds)

    async def baselines(self, task: Task) -> "Mapping[str, WatchedPlayer]":
        players = await answered(self._player("baselines", self.env.baselines, task))
        return {name: WatchedPlayer(player, self._seconds) for name, player in players.items()}

    def _player(self, name: str, method: Callable[[Task], Any], task: Task) -> Any:
        """Ask for those who play a task. This has no deadline; a line on stderr says when it takes long."""
        try:
            with Span(f"{name}()", self.env, self._seconds, interrupt=False):
                return method(task)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise Fault(StopReason.ENV_ERROR, failure(name, error, self.env)) from error


class WatchedPlayer:
    """A player with a deadline for every action."""

    def __init__(self, player: Player, seconds: float) -> None:
        self._guarded, self._seconds = Guarded(player), seconds

    async def act(self, messages: Sequence[Message]) -> str:
        return await self._guarded.call("act", (messages,), self._seconds)


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
