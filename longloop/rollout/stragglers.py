"""Which attempts of a collection are stragglers: those that say much more, in tokens, than nearly all others.

Length is the number of sampled tokens. The cutoff is twice the smallest length within which a fraction
`straggler_cutoff` of all attempts ended, among them `min_scored` scored ones of each task (or all of its attempts).
Twice, because the longest of a step's attempts are mostly failures; without them, a method learns from successes alone.
The clock has no part in it: equal seeds abandon equal attempts, on a busy machine and on an idle one.

The cutoff is known before all attempts have ended. It is computed over those that have, and can only fall when another
one ends. So an attempt that has grown beyond the cutoff so far is beyond the final one, and can be cancelled at once.
"""

import math
from collections import Counter

from longloop.types import StopReason, Trajectory

STRAGGLER = "abandoned as a straggler"
"""The error of an attempt that was given up."""


_SLACK = 2
"""How many times as long as nearly all others a straggler is."""


class Stragglers:
    """The rule for one collection of `k` attempts at each of `tasks` tasks."""

    def __init__(self, tasks: int, k: int, straggler_cutoff: float, min_scored: int) -> None:
        self.cutoff: float = math.inf
        """Attempts with more sampled tokens than this are abandoned."""
        self._tasks, self._k, self._min_scored = tasks, k, min(min_scored, k)
        self._wanted = math.ceil(straggler_cutoff * tasks * k)
        self._ended: list[tuple[int, int, bool]] = []

    def end(self, task: int, trajectory: Trajectory) -> None:
        """Take note of an attempt that has ended by itself."""
        self._ended.append((trajectory.action_tokens, task, trajectory.stop.scored))
        self.cutoff = _SLACK * self._smallest()

    def judge(self, trajectory: Trajectory) -> Trajectory:
        """An attempt as the rule leaves it: whole, or abandoned with the turns it had up to the cutoff."""
        if trajectory.action_tokens <= self.cutoff and trajectory.stop is not StopReason.CANCELLED:
            return trajectory
        return abandoned(trajectory, self._turns_kept(trajectory))

    def _turns_kept(self, trajectory: Trajectory) -> int:
        tokens = 0
        for number, turn in enumerate(trajectory.turns):
            tokens += len(turn.action_ids)
            if tokens > self.cutoff:
                return number
        return len(trajectory.turns)

    def _smallest(self) -> float:
        """The smallest length that satisfies the rule with what has ended so far, infinite if there is none yet."""
        if len(self._ended) < self._wanted:
            return math.inf
        ended, scored = Counter[int](), Counter[int]()
        satisfied = set[int]()
        for count, (tokens, task, is_scored) in enumerate(sorted(self._ended), start=1):
            ended[task] += 1
            scored[task] += is_scored
            if scored[task] >= self._min_scored or ended[task] == self._k:
                satisfied.add(task)
            if count >= self._wanted and len(satisfied) == self._tasks:
                return tokens
        return math.inf


def abandoned(trajectory: Trajectory, turns: int) -> Trajectory:
    """The attempt without its verdict, and with only its first turns."""
    kept = trajectory.turns[:turns]
    return Trajectory(trajectory.task, trajectory.attempt, kept, 0.0, False, StopReason.CANCELLED, STRAGGLER)
