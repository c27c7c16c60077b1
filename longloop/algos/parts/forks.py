"""Forks: attempts that leave others of their group where the policy was unsure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from longloop.algos.parts.rollouts import Attempts, apart, chance, play_on
from longloop.protocols import Rollouts
from longloop.types import Group, Now, Start, Task, Trajectory

_TOKENS = 20
"""Tokens at the beginning of a turn that tell how unsure the policy was."""


@dataclass(frozen=True)
class UnsureForks(Attempts):
    """ARPO's: some attempts from the beginning, the others of the K branch off them. With `first` >= K, none does.

    An attempt is left before turn u if  x + w (H_u - H_0) >= threshold,  x uniform, drawn for attempt and turn. H is
    the mean of -log p over a turn's first 20 tokens as they were drawn: an unbiased estimate of their mean entropy.
    Branches may be left in turn, behind the turn at which they began. Places that stay free are filled from the
    beginning. The turns that attempts share are trained on with each of them.
    """

    first: int = 8
    w: float = 0.2
    threshold: float = 0.5

    hooks: ClassVar[frozenset[str]] = frozenset({"replay"})

    async def collect(
        self, rollouts: Rollouts, tasks: Sequence[Task], k: int, seed: int, max_turns: int, now: Now
    ) -> list[Group]:
        groups = await super().collect(rollouts, tasks, min(self.first, k), seed, max_turns, now)
        newest, call = groups, 0
        while any(len(group.trajectories) < k for group in groups):
            starts = [
                self.forks(latest, seed + index)[: k - len(group.trajectories)]
                for index, (group, latest) in enumerate(zip(groups, newest, strict=True))
            ]
            if not any(starts):
                starts = [[Start(g.task)] * (k - len(g.trajectories)) for g in groups]
            everywhere = [start for some in starts for start in some]
            played = iter(await play_on(rollouts, everywhere, 1, apart(now, call), max_turns))
            grown, call = [[t for _ in some for t in next(played).trajectories] for some in starts], call + 1
            more = [
                group.merged_with(Group(group.task, tuple(some))) for group, some in zip(groups, grown, strict=True)
            ]
            newest = [
                replace(both, trajectories=both.trajectories[len(group.trajectories) :])
                for group, both in zip(groups, more, strict=True)
            ]
            groups = more
        return [replace(g, trajectories=tuple(replace(t, replayed=0) for t in g.trajectories)) for g in groups]

    def forks(self, group: Group, seed: int) -> list[Start]:
        """Where these attempts are left: the earliest turns first."""
        found = [
            (turn, t.attempt, Start(group.task, t, turn))
            for t in group.scored
            for turn in range(t.replayed + 1, len(t.turns))
            if chance("fork", seed, group.task.id, t.attempt, turn) + self.w * (unsure(t, turn) - unsure(t, 0))
            >= self.threshold
        ]
        return [start for *_, start in sorted(found, key=lambda one: one[:2])]


def unsure(trajectory: Trajectory, turn: int) -> float:
    """The mean of -log p over the first tokens of a turn."""
    return float(-trajectory.turns[turn].action_logprobs[:_TOKENS].mean())
