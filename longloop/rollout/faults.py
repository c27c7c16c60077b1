"""Counts attempts that failed for reasons that are not the agent's: sets tasks aside, and stops a hopeless run.

Such an attempt has no reward and no part in a baseline (types.StopReason), so a few of them cost a few attempts. Many
mean that something is broken, and that what is left is not what should be learned from.
"""

from collections import Counter, deque
from collections.abc import Callable

from longloop.types import StopReason, Task, Trajectory, UserError

IN_A_ROW = 8
"""Failures at a task, no attempt between them going well, after which it is set aside."""
WINDOW = 100
"""Attempts, the latest, among which failures are counted."""


class Faults:
    """`most` is the share of the latest attempts that may fail; `tell` is told of every task that is set aside."""

    def __init__(self, most: float, tell: Callable[[str], None]) -> None:
        self._most, self._tell = most, tell
        self._latest: deque[str] = deque(maxlen=WINDOW)
        self._in_a_row: Counter[str] = Counter()
        self._aside: dict[str, str] = {}

    def instead(self, task: Task, attempt: int) -> Trajectory | None:
        """What stands for an attempt at a task that was set aside; None for any other task."""
        if task.id not in self._aside:
            return None
        return Trajectory(task, attempt, (), 0.0, False, StopReason.SET_ASIDE, self._aside[task.id])

    def note(self, trajectory: Trajectory) -> Trajectory:
        """Count an attempt. Too many failures are a mistake that someone has to mend."""
        if trajectory.stop is StopReason.CANCELLED:
            return trajectory
        self._latest.append("" if trajectory.stop.scored else trajectory.error)
        if trajectory.stop.scored:
            self._in_a_row[trajectory.task.id] = 0
        elif trajectory.stop is not StopReason.SET_ASIDE:
            self._failed(trajectory)
        failures = Counter(error for error in self._latest if error)
        if failures.total() > self._most * WINDOW:
            error, times = failures.most_common(1)[0]
            raise UserError(
                f"{failures.total()} of the last {len(self._latest)} episodes failed for reasons that are not the "
                f"agent's, {times} of them with: {error}. Mend the environment (`longloop check` plays it without a "
                "model), then resume the run; or allow more with rollout.faults."
            )
        return trajectory

    def _failed(self, trajectory: Trajectory) -> None:
        task = trajectory.task.id
        self._in_a_row[task] += 1
        if self._in_a_row[task] == IN_A_ROW:
            self._aside[task] = f"set aside after {IN_A_ROW} failures in a row, the last: {trajectory.error}"
            self._tell(f"Task {task!r} is {self._aside[task]}.")
