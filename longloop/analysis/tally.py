"""Sums over the attempts of a step, added up one by one: what is kept grows with tasks and kinds of failure only."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from longloop.analysis.behaviors import count
from longloop.analysis.failures import Cases, Kinds, last_error, tests
from longloop.analysis.rules import Rules
from longloop.store.trajectories import StoredTrajectory
from longloop.types import StopReason, Task


@dataclass
class Tally:
    expert: bool = False
    """Whether the attempts are an expert's, or others that the policy did not choose."""
    tasks: dict[str, Counter[str]] = field(default_factory=dict)
    """Task id -> the sums over its scored attempts: behaviors, success, reward, and of each of the judge's tests
    `tested/NAME` and `unearned/NAME`: the attempts that had it, and those that passed it and failed all the same."""
    properties: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """Task id -> property -> its values: a task may need several apps."""
    stops: Counter[str] = field(default_factory=Counter)
    """Stop reasons of all attempts, scored or not."""
    tests: Kinds = field(default_factory=dict)
    """Failures by the tests that failed."""
    errors: Kinds = field(default_factory=dict)
    """Failures by the last error; ("",) where there was none."""

    @property
    def failures(self) -> int:
        return sum(cases.count for cases in self.errors.values())

    def add(self, attempt: StoredTrajectory, attempt_id: str, rules: Rules) -> None:
        """Count an attempt; `attempt_id` is what `longloop show` calls it. A side rollout is none."""
        if attempt.side:
            return
        success = attempt.success
        self.stops[attempt.stop] += 1
        if not attempt.scored:
            return
        name = attempt.task.id
        sums = self.tasks.setdefault(name, Counter())
        sums.update(count(attempt, rules))
        sums["success"] += success
        sums["reward"] += attempt.reward  # type: ignore[assignment]  # the one sum that has fractions
        self.properties.setdefault(name, _properties(attempt.task, rules))
        judged = list(tests(attempt))
        for test in {test for test, _ in judged}:
            sums[f"tested/{test}"] += 1
            sums[f"unearned/{test}"] += not success and (test, False) not in judged
        if not success:
            wrong = tuple(sorted({test for test, passed in judged if not passed}))
            if judged:
                self.tests.setdefault(wrong, Cases()).add(1, [attempt_id])
            self.errors.setdefault((last_error(attempt, rules.failure),), Cases()).add(1, [attempt_id])


def tally(attempts: Iterable[StoredTrajectory], kind: str, step: int, rules: Rules) -> Tally:
    """The attempts of a step: the policy's own, or where it made none, the expert's."""
    own, expert = Tally(), Tally(expert=True)
    for attempt in attempts:
        attempt_id = f"{step}/{attempt.group}/{attempt.attempt}"
        (expert if attempt.expert else own).add(
            attempt, attempt_id if kind == "step" else f"{kind}/{attempt_id}", rules
        )
    tried = own.stops.total() - own.stops[StopReason.PRACTISED]
    return own if tried or not expert.stops else expert


def merged(tallies: Sequence[Tally]) -> Tally:
    """Several steps as one."""
    whole = Tally(expert=all(one.expert for one in tallies))
    for one in tallies:
        for name, sums in one.tasks.items():
            whole.tasks.setdefault(name, Counter()).update(sums)
        whole.properties |= one.properties
        whole.stops.update(one.stops)
        for kinds, more in ((whole.tests, one.tests), (whole.errors, one.errors)):
            for key, cases in more.items():
                kinds.setdefault(key, Cases()).add(cases.count, cases.attempts)
    return whole


def _properties(task: Task, rules: Rules) -> dict[str, tuple[str, ...]]:
    """What a task is broken down by. Where its data names the kind of task, that goes before `Task.scenario`, which may
    be only some tasks of that kind."""
    known = {"split": task.split, "scenario": task.scenario} | (task.data if isinstance(task.data, dict) else {})
    found = {}
    for name in rules.by:
        values = known.get(name)
        given = values if isinstance(values, list) else [values]
        if given and all(isinstance(value, str | int) and value != "" for value in given):
            found[name] = tuple(str(value)[:80] for value in given)
    return found
