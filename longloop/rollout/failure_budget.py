"""Counts attempts that failed through no fault of the agent: sets tasks aside, and stops a hopeless run.

Such an attempt has no reward and no part in a baseline (types.StopReason), so a few of them cost little. Many mean that
something is broken and that the remaining attempts are not representative.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from longloop.types import Group, StopReason, Task, Trajectory, UserError

IN_A_ROW = 8
"""Failures at a task, no attempt between them going well, after which it is set aside."""
WINDOW = 100
"""Attempts, the latest, among which failures are counted."""


class Faults:
    """`most` is the share of the latest attempts that may fail; `tell` is told of every task that is set aside.

    An attempt counts twice. As soon as it ends, towards the share: a hopeless run stops at once. And with its whole
    collection, in the order of tasks and attempts, towards setting its task aside: which tasks are set aside, and when,
    must not depend on who ended first.
    """

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

    def seen(self, trajectory: Trajectory) -> Trajectory:
        """Count an attempt that has ended. Too many failures are a mistake that someone has to mend."""
        if trajectory.stop is StopReason.CANCELLED:
            return trajectory
        self._latest.append("" if trajectory.stop.scored else trajectory.error)
        failures = Counter(error for error in self._latest if error)
        if failures.total() > self._most * WINDOW:
            error, times = failures.most_common(1)[0]
            raise UserError(
                f"{failures.total()} of the last {len(self._latest)} episodes failed for reasons that are not the "
                f"agent's, {times} of them with: {error}. Mend the environment (`longloop check` plays it without a "
                "model), then resume the run; or allow more with rollout.max_failure_share."
            )
        return trajectory

    def settle(self, groups: Iterable[Group]) -> None:
        """Set aside the tasks that have failed too often in a row."""
        for trajectory in (t for group in groups for t in group.trajectories):
            if trajectory.stop.scored:
                self._in_a_row.pop(trajectory.task.id, None)
            elif trajectory.stop in (StopReason.ENV_ERROR, StopReason.TIMEOUT):
                self._failed(trajectory)

    def state(self) -> dict[str, dict[str, Any]]:
        """What a checkpoint keeps."""
        return {"in_a_row": dict(self._in_a_row), "aside": dict(self._aside)}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        self._in_a_row, self._aside = Counter(state["in_a_row"]), dict(state["aside"])

    def _failed(self, trajectory: Trajectory) -> None:
        task = trajectory.task.id
        self._in_a_row[task] += 1
        if self._in_a_row[task] == IN_A_ROW:
            self._aside[task] = f"set aside after {IN_A_ROW} failures in a row, the last: {trajectory.error}"
            self._tell(f"Task {task!r} is {self._aside[task]}.")
