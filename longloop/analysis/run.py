"""A whole run: its steps counted one after the other, and what changed between its ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longloop.analysis import unearned
from longloop.analysis.behaviors import behaviors
from longloop.analysis.outcomes import Line, Share, breakdown, share
from longloop.analysis.rules import Rules, declared, rules
from longloop.analysis.tally import Tally, merged, tally
from longloop.analysis.unearned import Rise, Test
from longloop.stats import REWARD, SUCCESS, Change, Rate, change
from longloop.store.run_reader import load_run
from longloop.types import UserError

FEW = 5
"""Training steps that make up either end when there are no two evaluations."""

Steps = Mapping[int, Tally]
"""The steps that have scored attempts, in order."""


@dataclass(frozen=True)
class Part:
    """Some steps of a run, taken together."""

    steps: tuple[int, ...]
    tally: Tally

    @property
    def success(self) -> Share:
        found = share(self.tally)
        assert found is not None, "a part has scored attempts"
        return found


@dataclass(frozen=True)
class Analysis:
    rules: Rules
    training: Steps
    evaluations: Steps
    """All of them, also those from before what is measured was changed: they do not compare, and are only drawn."""
    since: int
    """The step from which on evaluations compare (`RunReader.measured_since`)."""
    evaluated: bool
    """Whether the ends are evaluations: the same tasks twice. Otherwise they are training steps."""
    first: Part
    last: Part | None
    """None when there is only one step, and nothing to compare it with."""
    changes: dict[str, Change]
    """From the first part to the last, by `Rate.counted`: success, reward, behaviors."""
    by: dict[str, list[Line]]
    """Success by property of the task."""
    rises: list[Rise]
    tests: list[Test]

    @property
    def parts(self) -> list[Part]:
        return [self.first, *([self.last] if self.last else [])]

    @property
    def coded(self) -> bool:
        """Whether any turn had code in it."""
        steps = [*self.training.values(), *self.evaluations.values()]
        return any(sums["coded"] for tally in steps for sums in tally.tasks.values())

    @property
    def partial(self) -> bool:
        """Whether any attempt that failed was paid."""
        steps = [*self.training.values(), *self.evaluations.values()]
        return any(abs(s["reward"] - s["success"]) > 1e-9 for tally in steps for s in tally.tasks.values())

    @property
    def behaviors(self) -> tuple[Rate, ...]:
        """Those that this agent can show: some are about code."""
        return tuple(rate for rate in behaviors(self.rules) if self.coded or not rate.code)


def analyze(folder: Path, patterns: Path | None = None) -> Analysis:
    """Count what a run has stored so far; it may still be running. One attempt is in memory at a time."""
    run = load_run(folder)
    wanted = rules(declared(run), patterns)
    steps: dict[str, dict[int, Tally]] = {}
    try:
        for kind, stored in run.stored.items():
            steps[kind] = {
                step: tally(stored.stored(step, skip_damaged=False), kind, step, wanted) for step in stored.steps()
            }
    except ValueError as error:
        raise UserError(
            f"{error}, so the file is damaged. Restore it, or move it away to count the other steps."
        ) from None
    return analysis(steps["step"], steps["eval"], wanted, str(folder), run.measured_since)


def analysis(training: Steps, evaluations: Steps, rules: Rules, name: str, since: int = 0) -> Analysis:
    """What the counted steps say. `name` is the run's, for messages; evaluations compare from step `since` on."""
    training, evaluations = _tried(training), _tried(evaluations)
    if not training and not evaluations:
        raise UserError(f"{name} has no scored attempts yet. Wait for its first evaluation or step.")
    own = any(not tally.expert for tally in training.values())
    compared = {step: tally for step, tally in evaluations.items() if step >= since}
    compared = compared or dict(list(evaluations.items())[-1:])
    evaluated = len(compared) > 1 or (bool(compared) and not own)
    first, last = _ends(compared, 1) if evaluated else _ends(training, FEW)
    ends = [first.tally, *([last.tally] if last else [])]
    found, tests = unearned.find(training, compared)
    return Analysis(
        rules,
        training,
        evaluations,
        since,
        evaluated,
        first,
        last,
        changes={
            rate.counted: change(rate, first.tally.tasks, last.tally.tasks if last else None, paired=evaluated)
            for rate in (SUCCESS, REWARD, *behaviors(rules))
        },
        by=breakdown(merged(ends), first.tally, last.tally if last else None),
        rises=found,
        tests=tests,
    )


def _tried(steps: Steps) -> Steps:
    return {step: steps[step] for step in sorted(steps) if steps[step].tasks}


def _ends(steps: Steps, few: int) -> tuple[Part, Part | None]:
    """The first and the last few steps, without overlap."""
    order = list(steps)
    size = max(1, min(few, len(order) // 2))
    return _part(steps, order[:size]), _part(steps, order[-size:]) if len(order) > 1 else None


def _part(steps: Steps, chosen: Sequence[int]) -> Part:
    return Part(tuple(chosen), merged([steps[step] for step in chosen]))
