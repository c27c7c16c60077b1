"""Tree search: many attempts at one task, each of which branches off an earlier one where that looks promising.

    repeat:
        from the first turn down, take the child with the highest  Q + c sqrt(log N / (1 + n)),
            until one has fewer than two children
        take another action there, and play on to the end
        the reward counts for every state on the way

(UCB over turns: the simplified Agent Q of LOOP's appendix.) `fork()` copies the environment at every node, so that no
turn is played twice. Every attempt is an ordinary episode whose first turns repeat what was said on the way to the
node.

Q and n of a node are the mean reward and the number of the distinct attempts that went through its state. A node at
which an attempt ended, because the environment was done or a limit was reached, is never chosen. An attempt that
repeats an earlier one from beginning to end is dropped: it is not part of the group and counts for no Q.

With `puct` (MCTS-IPL) the child with the highest  Q + c p sqrt(N) / (1 + n)  is taken, p = exp(log prob of its action /
tokens^1.25), and visits are counted instead of attempts. A node at which an attempt ended is chosen like any other, and
the attempt's reward then counts once more, as does that of one that was repeated. `Trajectory.info["visits"]` says how
often an attempt was visited: the search goes where it is good, so that visits tell how sure a Q is.
"""

import asyncio
import inspect
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from longloop.envs.base import Environment
from longloop.isolation.guard import Guarded
from longloop.rollout.episode import Record, RolloutContext, run_episode
from longloop.types import (
    Group,
    Message,
    Outcome,
    Sampled,
    SamplingParams,
    Step,
    StopReason,
    Task,
    Trajectory,
    UserError,
)

_Actions = tuple[tuple[int, ...], ...]
"""The ids of the actions so far, turn by turn, which identify a state."""
_WIDTH = 2
"""Children that a node is given before the search goes deeper."""
_PATIENCE = 2
"""Episodes per child of a node, and per requested attempt of a tree, before the search gives up on a policy that
repeats itself."""


@dataclass(eq=False)
class _Node:
    opening: Sequence[Message] | Step = ()
    played: tuple[tuple[Sampled, Step], ...] = ()
    """The turns that lead here."""
    env: Any = None
    """As it is here; None at the root, where one is made, and where the environment is done."""
    over: bool = False
    """An attempt ended here: the environment was done, or the turns or the context were used up."""
    children: "list[_Node]" = field(default_factory=list)
    rewards: Sequence[float] = ()
    """Of the attempts that went through here."""
    tries: int = 0
    unstarted: list[Any] = field(default_factory=list)
    """An environment that has not been started yet."""

    @property
    def full(self) -> bool:
        """Whether it has all its children, or was tried often enough to get them."""
        return len(self.children) >= _WIDTH or self.tries >= _PATIENCE * _WIDTH

    def closed(self, puct: bool) -> bool:
        """Whether the search has nothing left to do here. With PUCT it may come again to where an attempt ended."""
        return not puct if self.over else self.full and all(child.closed(puct) for child in self.children)

    @property
    def prior(self) -> float:
        """How likely the policy is to come here from the node before, long actions less disfavored than by log p."""
        logprobs = self.played[-1][0].logprobs
        return math.exp(logprobs.sum() / len(logprobs) ** 1.25)

    def adopt(self, reached: "_Node") -> None:
        """Add a child, unless there is one with this action."""
        if not any(np.array_equal(child.played[-1][0].ids, reached.played[-1][0].ids) for child in self.children):
            self.children.append(reached)

    def best(self, explore: float, puct: bool) -> "_Node":
        """The open child with the highest upper confidence bound."""
        visits = len(self.rewards)

        def promise(child: _Node) -> float:
            tried = 1 + len(child.rewards)
            bonus = child.prior * math.sqrt(visits) / tried if puct else math.sqrt(math.log(visits) / tried)
            return fmean(child.rewards) + explore * bonus

        return max((child for child in self.children if not child.closed(puct)), key=promise)


async def grow(context: RolloutContext, task: Task, session: str, attempts: int, explore: float, puct: bool) -> Group:
    """Up to `attempts` distinct attempts; fewer when the tree is exhausted or the policy repeats itself. With PUCT, so
    many visits."""
    environment = context.make()
    if not environment.can_fork:
        raise UserError(
            f"{type(environment).__name__} has no fork(), and a search tree needs copies of an environment; "
            "docs/guides/environment.md shows it."
        )
    paid: dict[_Actions, list[float]] = defaultdict(list)
    root = _Node(unstarted=[environment], rewards=paid[()])
    branches, trajectories = list[_Branch](), list[Trajectory]()
    visits, ended = Counter[Any](), dict[_Actions, Trajectory]()
    failed = 0

    def visit(one: Trajectory, said: _Actions) -> None:
        visits[_course(one)] += 1
        for turns in range(len(said) + 1):
            paid[said[:turns]].append(one.reward)

    try:
        for number in range(_PATIENCE * attempts):
            if failed + (visits.total() if puct else len(visits)) == attempts or root.closed(puct):
                break
            node = root
            while node.full:
                node = node.best(explore, puct)
            if node.over:
                said = tuple(tuple(sampled.ids.tolist()) for sampled, _ in node.played)
                visit(ended[said], said)
                continue
            branches.append(_Branch(context, node))
            branch: Any = branches[-1]
            here = replace(context, make=partial(_same, branch), engine=branch)
            record = Record()
            record.abandoned = True  # an attempt that is cancelled finishes its environment
            one = await run_episode(here, task, len(trajectories), f"{session}/{number}", record)
            if one.stop is StopReason.CANCELLED:
                raise asyncio.CancelledError
            reached = branch.left()
            node.tries += 1
            if one.stop.scored:
                said = tuple(turn.action_key for turn in one.turns)
                if reached is not None:
                    reached.over = len(reached.played) == len(said)
                    reached.rewards = paid[said[: len(reached.played)]]
                    node.adopt(reached)
                repeated = _course(one) in visits
                if puct or not repeated:
                    visit(one, said)
                if repeated:
                    continue
                ended.setdefault(said, one)
            failed += not one.stop.scored
            trajectories.append(one)
    finally:
        for left in (branch.left() for branch in branches):
            if left is not None and left.env is not None:
                await Guarded(left.env).leave(context.limits.step_seconds)
    if puct:
        trajectories = [replace(t, info={**t.info, "visits": visits[_course(t)]}) for t in trajectories]
    return Group(task, tuple(trajectories))


def _course(attempt: Trajectory) -> tuple[Any, ...]:
    """What an attempt read and said at each turn, and its reward: equal for attempts that repeat one another."""
    return attempt.reward, *((turn.context_ids.tobytes(), turn.action_key) for turn in attempt.turns)


def _same(branch: Any) -> Any:
    return branch


class _Branch:
    """Environment and engine of one attempt: up to the node they repeat what is known, from there on they are live."""

    def __init__(self, context: RolloutContext, node: _Node) -> None:
        self._context, self._node = context, node
        self._engine = context.engine
        self._env: Environment | None = None
        self._turn = 0
        self._sampled: Sampled | None = None
        self._reached: _Node | None = None
        self._left = False

    async def ready(self) -> None:
        if self._node.env is None:
            self._env = self._node.unstarted.pop() if self._node.unstarted else self._context.make()
            await self._env.ready()

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
        return self._env.finish() if self._env is not None else Outcome(0.0, False)  # no copy, nothing to finish

    def left(self) -> _Node | None:
        """End the attempt and return its first new node, if it reached one."""
        self._left = True
        return self._reached

    @property
    def reward_range(self) -> tuple[float, float] | None:
        return self._env.reward_range if self._env is not None else None

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        if self._turn < len(self._node.played):
            return self._node.played[self._turn][0]
        self._sampled = await self._engine.sample(ids, params, session=session)
        return self._sampled

    def forget(self, session: str) -> None:
        self._engine.forget(session)

    def release(self) -> None: ...

    def _copied(self, env: Environment) -> Sequence[Message] | Step:
        self._env = env
        return self._node.opening

    def _opened(self, opening: Sequence[Message] | Step) -> Sequence[Message] | Step:
        self._node.opening = opening
        return opening

    def _stepped(self, step: Step) -> Any:
        if self._reached is not None or not isinstance(step, Step):
            return step
        copy = None if step.done else self._env.fork()  # type: ignore[union-attr]
        return self._then(copy, partial(self._reach, step))

    def _reach(self, step: Step, copy: Any) -> Step:
        assert self._sampled is not None
        if self._left and copy is not None:
            copy.finish()  # it took longer than the attempt had, and nobody will ask for it
        else:
            self._reached = _Node(self._node.opening, (*self._node.played, (self._sampled, step)), copy)
        return step

    def _then(self, answer: Any, what: Any) -> Any:
        return self._later(answer, what) if inspect.isawaitable(answer) else what(answer)

    async def _later(self, answer: Awaitable[Any], what: Any) -> Any:
        answer = what(await answer)
        return await answer if inspect.isawaitable(answer) else answer
