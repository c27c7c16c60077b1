"""Rollouts: the groups of a step, whose attempts they are and where these begin.

Side rollouts go to the group of the attempts that they were made for, marked as such (`Trajectory.side`): they are
stored and counted with everything else, `Group.scored` leaves them out, and credit finds them in `Group.sides`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from longloop.algos.parts.part import Part
from longloop.protocols import How, Rollouts
from longloop.types import Group, Now, Start, StopReason, Task, Trajectory, UserError

_ROOM = 10**6
"""Starts that one call of `play` may have, so that the seeds of no two calls meet."""
_CALLS = 100
"""Calls of `play` that a step may make besides the first."""
_HOPELESS = 8
"""Attempts that must have failed to follow a recorded one before it is said that none can."""


@dataclass(frozen=True)
class Ask:
    """What a step asks for: K attempts at each of these tasks."""

    rollouts: Rollouts
    tasks: Sequence[Task]
    k: int
    seed: int
    """Of the first call of `play`."""
    max_turns: int
    now: Now

    async def play(self, starts: Sequence[Start], k: int, seed: int, **how: Unpack[How]) -> list[Group]:
        """K attempts from each start. Raises UserError where the environment lets none go on from a recorded turn.

        Single failures are failures of the environment like any other: the attempt has no reward and is left out.
        """
        asked: How = {"max_turns": self.max_turns, **how}
        groups = await self.rollouts.play(starts, k, seed, **asked) if starts else []
        led = [t for start, group in zip(starts, groups, strict=True) if start.turns for t in group.trajectories]
        failed = [t.error for t in led if t.stop is StopReason.ENV_ERROR]
        if len(failed) >= _HOPELESS and len(failed) == len(led):
            raise UserError(
                f"This method goes on from recorded turns, and the environment let none of {len(led)} attempts do so: "
                f"{failed[0]}. Give it an environment that answers equal actions equally (`longloop check` tests it), "
                "or choose a method that plays whole attempts only."
            )
        return groups

    async def further(
        self, starts: Sequence[Sequence[Start]], k: int = 1, call: int = 0, **how: Unpack[How]
    ) -> list[list[Trajectory]]:
        """For each list of starts, K attempts from each of them, besides the step's first ones."""
        everywhere = [start for some in starts for start in some]
        played = iter(await self.play(everywhere, k, apart(self.now, call), **how))
        return [[t for _ in some for t in next(played).trajectories] for some in starts]


class Attempts(Part):
    """K attempts at each task, from its beginning."""

    async def collect(self, ask: Ask) -> list[Group]:
        return await ask.play([Start(task) for task in ask.tasks], ask.k, ask.seed)

    def per_task(self, k: int) -> int:
        """Attempts that a task takes at most, side rollouts included: what `compare` counts against its budget."""
        return k


class FromStates(Attempts):
    """K attempts, and `m` side rollouts from the states that they passed. With m = 0, K attempts.

    Attempts that begin with the same turns share the rollouts from there; all share those from the first state.
    """

    m: int = 9
    every: int = 1
    """The states before every so many-th turn; which of them, changes from step to step."""
    max_states: int = 20
    """The most states of an attempt, its first ones."""
    hooks = frozenset({"replay"})

    async def collect(self, ask: Ask) -> list[Group]:
        groups = await super().collect(ask)
        starts = [self.starts(group, ask.now) if self.m else [] for group in groups]
        sides = await ask.further(starts, self.m)
        return [with_sides(group, some) for group, some in zip(groups, sides, strict=True)]

    def starts(self, group: Group, now: Now) -> list[Start]:
        """One for each of the group's states that is valued in this step."""
        found: dict[State, Start] = {}
        for trajectory in group.scored:
            turns = [turn for turn in range(len(trajectory.turns)) if (turn + now.step) % self.every == 0]
            for turn in turns[: self.max_states]:
                found.setdefault(state_before(trajectory, turn), Start(group.task, trajectory, turn))
        return list(found.values())

    def per_task(self, k: int) -> int:
        shared = k - 1 if self.every == 1 else 0
        return k + self.m * (k * self.max_states - shared)


class Resets(Attempts):
    """For a share beta of the tasks, K attempts that begin in one state of a demonstration: one before the second to
    the last action, each as likely as the others. Other tasks, and those without a demonstration that was scored and
    has two actions, are begun at their beginning."""

    beta: float = 1.0
    hooks = frozenset({"replay", "expert"})

    async def collect(self, ask: Ask) -> list[Group]:
        seeds = range(ask.seed, ask.seed + len(ask.tasks))
        reset = [chance("reset", seed, task.id) < self.beta for seed, task in zip(seeds, ask.tasks, strict=True)]
        shown = iter(await ask.rollouts.demonstrations([t for t, one in zip(ask.tasks, reset, strict=True) if one]))
        starts = [
            self.start(next(shown), seed) if one else Start(task)
            for seed, task, one in zip(seeds, ask.tasks, reset, strict=True)
        ]
        return await ask.play(starts, ask.k, ask.seed)

    def start(self, shown: Group, seed: int) -> Start:
        """A state of one of the demonstrations."""
        worth = [t for t in shown.scored if len(t.turns) > 1]
        if not worth:
            return Start(shown.task)
        one = worth[int(chance("which", seed, shown.task.id) * len(worth))]
        return Start(shown.task, one, 1 + int(chance("where", seed, shown.task.id) * (len(one.turns) - 1)))

    def per_task(self, k: int) -> int:
        return k + 1 if self.beta else k


State = tuple[bytes, ...]
"""What was read and said on the way to a state."""


def state_before(trajectory: Trajectory, turn: int) -> State:
    """The state before a turn. Attempts at a task that read and said the same are in the same state."""
    before = [ids.tobytes() for one in trajectory.turns[:turn] for ids in (one.context_ids, one.action_ids)]
    return (*before, *(one.context_ids.tobytes() for one in trajectory.turns[turn : turn + 1]))


def with_sides(group: Group, trajectories: Sequence[Trajectory]) -> Group:
    """The group with these as its side rollouts, numbered on from its attempts."""
    return group.merged_with(Group(group.task, tuple(replace(t, side=True) for t in trajectories)))


def apart(now: Now, call: int = 0) -> int:
    """The seed of a step's further calls of `play`. `Tasks.taken`, the seed of the first, is never negative."""
    return -_ROOM * (now.step * _CALLS + call + 1)


def chance(*parts: object) -> float:
    """A number in [0, 1) that follows from the parts alone."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest()) / 2**48
