"""Rollouts: the groups of a step, whose attempts they are and where these begin.

Side rollouts go to the group of the attempts that they were made for, marked as such (`Trajectory.side`): they are
stored and counted with everything else, `Group.scored` leaves them out, and credit finds them in `Group.sides`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Unpack

from longloop.algos.parts.part import Part
from longloop.algos.parts.tasks import planning
from longloop.protocols import How, Rollouts
from longloop.types import Group, Message, Now, Start, StopReason, Task, Trajectory, UserError

_ROOM = 10**6
"""Starts that one call of `play` may have, so that the seeds of no two calls meet."""
_CALLS = 100
"""Calls of `play` that a step may make besides the first."""
_HOPELESS = 8
"""Attempts that must have failed to follow a recorded one before it is said that none can."""
_TOKENS = 20
"""Tokens at the beginning of a turn that tell how unsure the policy was."""


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

    in_time = True
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
    """For a share beta of the tasks, K attempts that begin in one state of a demonstration; see drpo.py. A task without
    a demonstration that was scored and has two actions is begun at its beginning."""

    in_time = True
    beta: float = 1.0
    hooks = frozenset({"replay", "expert"})

    async def collect(self, ask: Ask) -> list[Group]:
        tasks = dict(enumerate(ask.tasks, ask.seed))
        reset = {seed: task for seed, task in tasks.items() if chance("reset", seed, task.id) < self.beta}
        shown = dict(zip(reset, await ask.rollouts.demonstrations(list(reset.values())), strict=True))
        starts = [self.start(shown[seed], seed) if seed in shown else Start(task) for seed, task in tasks.items()]
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


class UnsureForks(Attempts):
    """ARPO's and AEPO's: some attempts from the beginning, the others of the K branch off them; see aepo.py.

    H is the mean of -log p over a turn's first 20 tokens as they were drawn: an unbiased estimate of their mean
    entropy. Branches may be left in turn, behind the turn at which they began.
    """

    in_time = True
    first: int = 8
    """Attempts from the beginning. 0 for AEPO's balance: a task's first attempt says how many, see `balanced`."""
    w: float = 0.2
    threshold: float = 0.5
    penalty: float = 0.0
    hooks = frozenset({"replay"})

    async def collect(self, ask: Ask) -> list[Group]:
        k, calls = ask.k, 0
        groups = await super().collect(replace(ask, k=min(self.first or 1, k)))

        async def with_more(groups: Sequence[Group], starts: Sequence[Sequence[Start]]) -> list[Group]:
            """The groups, each with an attempt from each of its starts."""
            nonlocal calls
            grown = await ask.further(starts, call=calls)
            calls += any(starts)
            return [g.merged_with(Group(g.task, tuple(some))) for g, some in zip(groups, grown, strict=True)]

        if not self.first:
            groups = await with_more(groups, [[Start(g.task)] * (balanced(g, k) - 1) for g in groups])
        seen, in_a_row = [0] * len(groups), [0] * len(groups)
        while any(len(group.trajectories) < k for group in groups):
            starts = []
            for index, group in enumerate(groups):
                newest = replace(group, trajectories=group.trajectories[seen[index] :])
                found, in_a_row[index] = self.forks(newest, ask.seed + index, in_a_row[index])
                starts.append(found[: k - len(group.trajectories)])
            if not any(starts):
                starts = [[Start(g.task)] * (k - len(g.trajectories)) for g in groups]
            seen = [len(group.trajectories) for group in groups]
            groups = await with_more(groups, starts)
        return [replace(g, trajectories=tuple(replace(t, replayed=0) for t in g.trajectories)) for g in groups]

    def forks(self, group: Group, seed: int, in_a_row: int = 0) -> tuple[list[Start], int]:
        """Where these attempts are left, the earliest turns first, and how many forks in a row that makes."""
        turns = [(turn, t) for t in group.scored for turn in range(t.replayed + 1, len(t.turns))]
        starts = []
        for turn, t in sorted(turns, key=lambda one: (one[0], one[1].attempt)):
            x = chance("fork", seed, group.task.id, t.attempt, turn) + self.w * (unsure(t, turn) - unsure(t, 0))
            leaves = x * max(0.0, 1 - self.penalty * in_a_row) >= self.threshold
            in_a_row = in_a_row + 1 if leaves else 0
            if leaves:
                starts.append(Start(group.task, t, turn))
        return starts, in_a_row


class Blueprints(Attempts):
    """HiMAC's: plans in one step, and in the next K attempts that follow the best of them; see himac.py.

    A plan is a record of one turn that has the reward of the attempt which followed it; that attempt is a side rollout.
    """

    plans: int = 8
    ask: str = "First plan: list the sub-goals, one a line."
    follow: str = "Follow this plan:"

    async def collect(self, ask: Ask) -> list[Group]:
        if not self.plans:
            return await super().collect(ask)
        if not planning(ask.now):
            best = {group.task.id: plan for group in ask.now.past(ask.now.step - 1) if (plan := best_plan(group))}
            return await ask.play([self.following(t, best.get(t.id)) for t in ask.tasks], ask.k, apart(ask.now))
        asked = [Start(task, preface=(Message("user", self.ask),)) for task in ask.tasks]
        planned = await ask.play(asked, self.plans, ask.seed, max_turns=1)
        plans = [[t for t in group.trajectories if t.turns] for group in planned]
        starts = [[self.following(t.task, t) for t in some] for some in plans]
        played = await ask.further(starts, temperatures=(0.0,))
        return [paid_plans(group.task, *both) for group, *both in zip(planned, plans, played, strict=True)]

    def following(self, task: Task, plan: Trajectory | None) -> Start:
        """The task with a plan, where there is one."""
        said = f"{self.follow}\n{plan.action_texts[0]}" if plan else ""
        return Start(task, preface=(Message("user", said),) if plan else ())

    def per_task(self, k: int) -> int:
        return max(k, 2 * self.plans)


class BestRefinement(Attempts):
    """K - 1 attempts, a refinement of each, and of these the best as the K-th. The others are side rollouts.

    It is put where it would stand without the critique. The policy did not draw it there: it is marked as an expert's.
    """

    max_chars: int = 2000

    async def collect(self, ask: Ask) -> list[Group]:
        groups = await super().collect(replace(ask, k=ask.k - 1))
        starts = [[Start(group.task, preface=(self.critique(t),)) for t in group.scored] for group in groups]
        refined = await ask.further(starts)
        return [self.joined(ask.rollouts, *both, ask.k) for both in zip(groups, refined, strict=True)]

    def joined(self, rollouts: Rollouts, group: Group, refined: Sequence[Trajectory], k: int) -> Group:
        """The group with the best refinement, if there is one, and with the others as side rollouts."""
        usable = [t for t in refined if t.stop.scored and t.turns]
        if not usable:
            return with_sides(group, refined)
        best = max(usable, key=lambda t: (t.success, t.reward))  # the first of equals
        answer = replace(as_if_untold(rollouts, best, group.scored[0]), attempt=k - 1)
        others = [t for t in refined if t is not best]
        return with_sides(replace(group, trajectories=(*group.trajectories, answer)), others)

    def critique(self, attempt: Trajectory) -> Message:
        """What the verifier found, in words: the verdict, and the tests that failed where it names them."""
        verdict = "It succeeded." if attempt.success else f"It failed, with a score of {attempt.reward:g}."
        tests = attempt.info.get("tests")
        named = [test for test in tests if isinstance(test, dict)] if isinstance(tests, list) else []
        failed = [str(test.get("name")) for test in named if not test.get("passed")]
        wrong = f" What was wrong: {'; '.join(failed)}." if failed else ""
        said = "\n".join(attempt.action_texts)
        said = said[max(0, len(said) - self.max_chars) :]
        return Message("user", f"An earlier attempt at this task said:\n{said}\n{verdict}{wrong} Do the task again.")

    def per_task(self, k: int) -> int:
        return 2 * (k - 1)


class FreshActions(Attempts):
    """K attempts, and what the policy would now do at `states` states of the `replay` steps before: one action each, as
    a side rollout without an environment. With states = 0, K attempts."""

    in_time = True
    replay: int = 4
    states: int = 64

    async def collect(self, ask: Ask) -> list[Group]:
        groups = await super().collect(ask)
        acted = await ask.play(self.starts(ask.now), 1, apart(ask.now), single_action=True)
        return [*groups, *(with_sides(Group(g.task, ()), g.trajectories) for g in acted if g.trajectories)]

    def starts(self, now: Now) -> list[Start]:
        """The states, each of those stored as likely as the others."""
        groups = stored_groups(self.replay, now) if self.states else []
        turns = [Start(t.task, t, turn) for group in groups for t in group.scored for turn in range(len(t.turns))]
        drawn = sorted(range(len(turns)), key=lambda n: chance("state", now.step, n))
        return [turns[n] for n in sorted(drawn[: self.states])]


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


def unsure(trajectory: Trajectory, turn: int) -> float:
    """The mean of -log p over the first tokens of a turn."""
    return float(-trajectory.turns[turn].action_logprobs[:_TOKENS].mean())


def balanced(group: Group, k: int) -> int:
    """AEPO's number of attempts from the beginning, by those there are: 1 + floor(K sigmoid((H_0 - mean H_u) / 2))."""
    played = [t for t in group.scored if len(t.turns) > 1]
    rises = [unsure(t, 0) - fmean(unsure(t, turn) for turn in range(1, len(t.turns))) for t in played]
    return min(k, 1 + int(k / (1 + math.exp(-0.5 * fmean(rises or [0.0])))))


def paid_plans(task: Task, plans: Sequence[Trajectory], played: Sequence[Trajectory]) -> Group:
    """Plans with what the attempts that followed them were paid, and these as side rollouts."""
    paid = [
        replace(plan, reward=t.reward, success=t.success, stop=t.stop, error=t.error, info=t.info, unread=())
        for plan, t in zip(plans, played, strict=True)
    ]
    return with_sides(Group(task, tuple(paid)), played)


def best_plan(group: Group) -> Trajectory | None:
    return max(sorted(group.scored, key=lambda t: t.attempt), key=lambda t: t.reward, default=None)


def as_if_untold(rollouts: Rollouts, refined: Trajectory, attempt: Trajectory) -> Trajectory:
    """A refinement with the opening of a plain attempt at the task. What the environment answered stays as it was.

    Where a later turn rewrote history, the ids that it read contain the critique, and all are made anew.
    """
    first, opening = refined.turns[0], attempt.turns[0]
    first = replace(first, context=opening.context, context_ids=opening.context_ids)
    answer = replace(refined, turns=(first, *refined.turns[1:]), expert=True)
    return rollouts.retokenize(answer) if any(turn.restarts_context for turn in answer.turns[1:]) else answer


def stored_groups(replay: int, now: Now) -> list[Group]:
    """The groups of the `replay` steps before this one."""
    return [group for step in range(max(1, now.step - replay), now.step) for group in now.past(step)]
