"""Forks: attempts that leave others of their group where the policy was unsure."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from longloop.algos.parts.rollouts import Ask, Attempts, chance
from longloop.types import Group, Start, Trajectory

_TOKENS = 20
"""Tokens at the beginning of a turn that tell how unsure the policy was."""


class UnsureForks(Attempts):
    """ARPO's and AEPO's: some attempts from the beginning, the others of the K branch off them; see aepo.py.

    H is the mean of -log p over a turn's first 20 tokens as they were drawn: an unbiased estimate of their mean
    entropy. Branches may be left in turn, behind the turn at which they began.
    """

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
        newest, in_a_row = groups, [0] * len(groups)
        while any(len(group.trajectories) < k for group in groups):
            starts = []
            for index, (group, latest) in enumerate(zip(groups, newest, strict=True)):
                found, in_a_row[index] = self.forks(latest, ask.seed + index, in_a_row[index])
                starts.append(found[: k - len(group.trajectories)])
            if not any(starts):
                starts = [[Start(g.task)] * (k - len(g.trajectories)) for g in groups]
            before, groups = groups, await with_more(groups, starts)
            newest = [
                replace(both, trajectories=both.trajectories[len(group.trajectories) :])
                for group, both in zip(before, groups, strict=True)
            ]
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


def unsure(trajectory: Trajectory, turn: int) -> float:
    """The mean of -log p over the first tokens of a turn."""
    return float(-trajectory.turns[turn].action_logprobs[:_TOKENS].mean())


def balanced(group: Group, k: int) -> int:
    """AEPO's number of attempts from the beginning, by those there are: 1 + floor(K sigmoid((H_0 - mean H_u) / 2)), the
    mean over the turns that followed an answer of the environment."""
    played = [t for t in group.scored if len(t.turns) > 1]
    rises = [unsure(t, 0) - fmean(unsure(t, turn) for turn in range(1, len(t.turns))) for t in played]
    return min(k, 1 + int(k / (1 + math.exp(-0.5 * fmean(rises or [0.0])))))
