"""Many attempts at one task as a tree: each goes on from a turn of an earlier one, where that seems worth it.

    repeat:
        from the first turn down, take the child with the highest  Q + c sqrt(log N / (1 + n)),
            until one has fewer than two children
        take another action there, and play on to the end
        the reward counts for every node on the way

(UCB over turns: the simplified Agent Q of LOOP's appendix.) An environment is copied at every node with `fork()`, so
that no turn is played twice. Every attempt is an ordinary episode: its seat says again what was said up to the node.
"""

import inspect
import math
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

from longloop.interfaces import Environment
from longloop.rollout.episode import Setting, run_episode
from longloop.rollout.guard import Guarded, ready
from longloop.types import Group, Message, Sampled, Step, Task, Trajectory, UserError

_WIDTH = 2
"""Children that a node is given before the search goes deeper."""


@dataclass(eq=False)
class _Node:
    opening: Sequence[Message] = ()
    played: tuple[tuple[Sampled, Step], ...] = ()
    """The turns that lead here."""
    env: Any = None
    """As it is here; None at the root, where one is made, and where the episode is over."""
    children: "list[_Node]" = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    tries: int = 0
    fresh: list[Any] = field(default_factory=list)
    """An environment that has not been started yet."""

    @property
    def full(self) -> bool:
        """A policy that always says the same is not asked for ever."""
        return len(self.children) >= _WIDTH or self.tries >= 2 * _WIDTH

    @property
    def closed(self) -> bool:
        """Nothing new can come of it."""
        over = bool(self.played) and self.played[-1][1].done
        return over or (self.full and all(child.closed for child in self.children))

    def best(self, explore: float) -> "_Node":
        """The open child that promises most."""
        bound = math.log(max(1, len(self.rewards)))

        def promise(child: _Node) -> float:
            return fmean(child.rewards) + explore * math.sqrt(bound / (1 + len(child.rewards)))

        return max((child for child in self.children if not child.closed), key=promise)


async def grow(setting: Setting, task: Task, session: str, attempts: int, explore: float) -> Group:
    """So many attempts at a task, or fewer when nothing new can be tried."""
    environment = setting.make()
    if not hasattr(environment, "fork"):
        raise UserError(
            f"{type(environment).__name__} has no fork(), and a search tree needs copies of an environment; "
            "docs/new-environment.md shows it."
        )
    root = _Node(fresh=[environment])
    nodes, trajectories = [root], list[Trajectory]()
    try:
        while len(trajectories) < attempts and not root.closed:
            path = [root]
            while path[-1].full:
                path.append(path[-1].best(explore))
            seat: Any = _Seat(setting, path[-1])
            here = replace(setting, make=partial(_same, seat), engine=seat)
            number = len(trajectories)
            one = await run_episode(here, task, number, f"{session}/{number}")
            trajectories.append(one)
            path[-1].tries += 1
            if seat.reached is None:
                continue
            nodes.append(seat.reached)
            if one.stop.scored:
                path.append(_among(path[-1].children, seat.reached))
                for node in path:
                    node.rewards.append(one.reward)
    finally:
        for node in nodes:
            if node.env is not None:
                await Guarded(node.env).leave(setting.limits.step_seconds)
    return Group(task, tuple(trajectories))


def _same(seat: Any) -> Any:
    return seat


def _among(children: list[_Node], reached: _Node) -> _Node:
    """The child that was reached: the one that says the same, if there is one already."""
    same = [child for child in children if child.played[-1][0].ids == reached.played[-1][0].ids]
    if same:
        return same[0]
    children.append(reached)
    return reached


class _Seat:
    """Environment and engine of one attempt: up to the node they repeat what was, from there on it is real."""

    def __init__(self, setting: Setting, node: _Node) -> None:
        self._setting, self._node = setting, node
        self._engine = setting.engine
        self._env: Environment | None = None
        self._turn = 0
        self._sampled: Sampled | None = None
        self.reached: _Node | None = None
        """The first new node."""

    async def ready(self) -> None:
        if self._node.env is None:
            self._env = self._node.fresh.pop() if self._node.fresh else self._setting.make()
            await ready(self._env)

    def start(self, task: Task) -> Any:
        if self._node.env is not None:
            return self._then(self._node.env.fork(), self._copied)
        assert self._env is not None
        return self._then(self._env.start(task), self._opened)

    def step(self, action: Message) -> Any:
        self._turn += 1
        if self._turn <= len(self._node.played):
            return self._node.played[self._turn - 1][1]
        assert self._env is not None
        return self._then(self._env.step(action), self._stepped)

    def finish(self) -> Any:
        assert self._env is not None
        return self._env.finish()

    async def sample(self, ids: Sequence[int], **options: Any) -> Sampled:
        if self._turn < len(self._node.played):
            return self._node.played[self._turn][0]
        self._sampled = await self._engine.sample(ids, **options)
        return self._sampled

    def forget(self, session: str) -> None:
        self._engine.forget(session)

    def release(self) -> None: ...

    def _copied(self, env: Environment) -> Sequence[Message]:
        self._env = env
        return self._node.opening

    def _opened(self, messages: Sequence[Message]) -> Sequence[Message]:
        self._node.opening = messages
        return messages

    def _stepped(self, step: Step) -> Any:
        if self.reached is not None or not isinstance(step, Step):
            return step
        copy = None if step.done else self._env.fork()  # type: ignore[union-attr]
        return self._then(copy, partial(self._reach, step))

    def _reach(self, step: Step, copy: Any) -> Step:
        assert self._sampled is not None
        self.reached = _Node(self._node.opening, (*self._node.played, (self._sampled, step)), copy)
        return step

    def _then(self, answer: Any, what: Any) -> Any:
        return self._later(answer, what) if inspect.isawaitable(answer) else what(answer)

    async def _later(self, answer: Awaitable[Any], what: Any) -> Any:
        answer = what(await answer)
        return await answer if inspect.isawaitable(answer) else answer
