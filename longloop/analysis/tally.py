"""What the attempts of a step come to, added up one by one. What is kept grows with tasks and kinds of failure only."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longloop.analysis.behaviours import count
from longloop.analysis.failures import Cases, Kinds, last_error, tests
from longloop.analysis.rules import Rules
from longloop.types import StopReason

SCORED = frozenset(str(reason) for reason in StopReason if reason.scored)


@dataclass
class Tally:
    expert: bool = False
    """Whether the attempts are an expert's, or others that the policy did not choose."""
    tasks: dict[str, Counter[str]] = field(default_factory=dict)
    """Task id -> the sums over its scored attempts: behaviours, success, reward, and of each of the judge's tests
    `tested/NAME` and `unearned/NAME`, the attempts that had it, and that passed it and failed."""
    properties: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """Task id -> property -> its values: a task may need several apps."""
    stops: Counter[str] = field(default_factory=Counter)
    """Of all attempts, scored or not."""
    tests: Kinds = field(default_factory=dict)
    """Failures by the tests that failed."""
    errors: Kinds = field(default_factory=dict)
    """Failures by the last error; ("",) where there was none."""

    @property
    def failures(self) -> int:
        return sum(cases.count for cases in self.errors.values())

    def add(self, attempt: Mapping[str, Any], place: str, rules: Rules) -> None:
        """Count a stored line; `place` is what `longloop show` calls it."""
        stop, success = str(attempt.get("stop", StopReason.FINISHED)), bool(attempt.get("success"))
        self.stops[stop] += 1
        if stop not in SCORED:
            return
        task = attempt.get("task") or {}
        name = str(task.get("id", ""))
        sums = self.tasks.setdefault(name, Counter())
        sums.update(count(attempt, rules))
        sums["success"] += success
        sums["reward"] += attempt.get("reward") or 0.0  # type: ignore[assignment]  # the one sum that has fractions
        self.properties.setdefault(name, _properties(task, rules))
        judged = list(tests(attempt))
        for test in {test for test, _ in judged}:
            sums[f"tested/{test}"] += 1
            sums[f"unearned/{test}"] += not success and (test, False) not in judged
        if not success:
            wrong = tuple(sorted({test for test, passed in judged if not passed}))
            if judged:
                self.tests.setdefault(wrong, Cases()).add(1, [place])
            self.errors.setdefault((last_error(attempt, rules.failure),), Cases()).add(1, [place])


def tally(lines: Iterable[Mapping[str, Any]], kind: str, step: int, rules: Rules) -> Tally:
    """The attempts of a step: the policy's own, or where it made none, the expert's."""
    own, expert = Tally(), Tally(expert=True)
    for line in lines:
        place = f"{step}/{int(line.get('group', 0))}/{int(line.get('attempt', 0))}"
        (expert if line.get("expert") else own).add(line, place if kind == "step" else f"{kind}/{place}", rules)
    tried = own.stops.total() - own.stops[StopReason.PRACTISED]
    return own if tried or not expert.stops else expert


def together(tallies: Sequence[Tally]) -> Tally:
    """Several steps as one."""
    whole = Tally(expert=all(one.expert for one in tallies))
    for one in tallies:
        for name, sums in one.tasks.items():
            whole.tasks.setdefault(name, Counter()).update(sums)
        whole.properties |= one.properties
        whole.stops.update(one.stops)
        for kinds, more in ((whole.tests, one.tests), (whole.errors, one.errors)):
            for key, cases in more.items():
                kinds.setdefault(key, Cases()).add(cases.count, cases.places)
    return whole


def _properties(task: Mapping[str, Any], rules: Rules) -> dict[str, tuple[str, ...]]:
    """What a task is broken down by. Its data has the kind where its scenario is only some tasks of that kind."""
    data = task.get("data")
    known = {"split": task.get("split"), "scenario": task.get("scenario")} | (data if isinstance(data, dict) else {})
    found = {}
    for name in rules.by:
        values = known.get(name)
        given = values if isinstance(values, list) else [values]
        if given and all(isinstance(value, str | int) and value != "" for value in given):
            found[name] = tuple(str(value)[:80] for value in given)
    return found
