"""What came of a run: held-out success at both ends and whether it changed, in words; and what to worry about."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from shlex import quote
from statistics import fmean
from typing import Any

from longloop.analysis.outcomes import Share
from longloop.analysis.report import difference, over
from longloop.stats import SUCCESS, Change, PairedChange, change, disjoint, paired_change, wilson_interval
from longloop.store.metrics import Evaluation, when
from longloop.store.run_reader import RunReader
from longloop.store.trajectories import IndexEntry
from longloop.viewer.charts import number
from longloop.viewer.curves import trained

_MANY = 30
"""Training steps after which a run should have learned something."""
_SURE = 0.99
"""Confidence for a window that was chosen because it is the best."""
_ADVICE = "Try easier tasks, demonstrations first (`longloop demos`, then `algo.name=sft`), or another model."

Line = dict[str, Any]
Rates = frozenset[tuple[str, float]]
"""Tasks and their success."""


@dataclass(frozen=True)
class Outcome:
    """Held-out success in the first and the last evaluation that compare."""

    steps: tuple[int, int]
    """After which they were made; one step twice where there is a single evaluation."""
    first: Evaluation
    last: Evaluation
    change: Change
    test: PairedChange | None
    """Of the same change, as `longloop train` prints it; None where no task was scored both times."""

    @property
    def single(self) -> bool:
        return self.steps[0] == self.steps[1]

    @property
    def direction(self) -> int:
        """1 and -1 where success clearly rose or fell; 0 where chance could have done it."""
        if self.single:
            return 0
        if self.test is not None:
            return {"better": 1, "worse": -1}.get(self.test.verdict, 0)
        before, after = self.first.success_interval, self.last.success_interval
        return (after[0] > before[1]) - (after[1] < before[0])


def outcome(run: RunReader) -> Outcome | None:
    """None before the first evaluation."""
    return run.derived("outcome", lambda: _outcome(run))


def _outcome(run: RunReader) -> Outcome | None:
    found = run.comparable_evaluations
    if not found:
        return None
    steps = min(found), max(found)
    first, last = (_by_task(run.stored["eval"].entries(step)) for step in steps)
    changed = change(SUCCESS, first, last if len(found) > 1 else None, paired=True)
    rates = [frozenset((task, sums["success"] / sums["attempts"]) for task, sums in x.items()) for x in (first, last)]
    test = _tested(*rates) if len(found) > 1 else None
    return Outcome(steps, found[steps[0]], found[steps[1]], changed, test)


@lru_cache(maxsize=1000)
def _tested(first: Rates, last: Rates) -> PairedChange | None:
    """The test takes a tenth of a second, and a run that grows is looked at again and again."""
    return paired_change(dict(first), dict(last))


def sentence(run: RunReader) -> str:
    """The outcome in a sentence."""
    found = outcome(run)
    if found is None:
        return _in_training(run)
    before, after, (begin, end) = _held_out(found.first), _held_out(found.last), found.steps
    moved = difference(SUCCESS, found.change)
    if found.single:
        said = f"Held-out success was {after} {when(end)}"
    elif found.direction:
        verb = "rose" if found.direction > 0 else "fell"
        said = f"Held-out success {verb} from {before} to {after} by step {end}"
    else:
        said = f"No clear change in held-out success: {before} {when(begin)}, {after} after step {end}"
    said += f", {moved}{over(found.change)}" if moved else ""
    size = f"({count(found.last.tasks, 'task')}, {count(found.last.attempts, 'attempt')} each)"
    return f"{said} {size}; doing nothing scores {number(found.last.floor_success, True)}."


def _in_training(run: RunReader) -> str:
    lines = _trained(run)
    if not lines:
        return "Nothing was measured yet."
    if run.demonstrated:
        share = number(_success(lines).success, True)
        return f"Nothing was measured of the agent: of the demonstrations that it imitates, {share} succeed."
    if len(lines) == 1:
        return f"Success in training was {number(_success(lines).success, True)} in step {lines[0]['step']}."
    few = max(1, min(5, len(lines) // 2))
    first, last = _success(lines[:few]), _success(lines[-few:])
    over = "the first and last steps" if few == 1 else f"the first and last {few} steps"
    ends = f"{number(first.success, True)} to {number(last.success, True)} (mean of {over})"
    if disjoint(first.interval, last.interval):
        return f"Success in training went from {ends}."
    return f"No clear change in training success: {ends}."


def worries(run: RunReader) -> list[str]:
    """What a person should look at first."""
    return list(run.derived("worries", lambda: tuple(_worries(run))))


def _worries(run: RunReader) -> Iterator[str]:
    steps = [line for line in run.metrics if line.get("attempts")]
    if run.too_new:
        yield "A later longloop wrote this run; upgrade, or some of it may be shown wrongly."
    if run.status == "killed" and run.trains:
        yield f"The process was killed. Continue with: longloop train --resume {quote(str(run.folder))}"
    guarded = [line["step"] for line in steps if line.get("guard")]
    if guarded:
        yield f"A guard skipped updates in {len(guarded)} of {len(steps)} steps, last in step {guarded[-1]}."
    collapsed = list(_collapsed(run))
    yield from collapsed
    yield from _entropy(run)
    idle = list(_without_updates(steps))
    yield from idle or ([] if collapsed else _unchanged(run))
    late = steps[-10:]
    equal = sum(line.get("equal_groups", 0) for line in late)
    groups = sum(line.get("groups", 0) for line in late)
    imitates = not any((line.get("update") or {}).get("kl") is not None for line in steps)
    if groups and equal / groups > 0.8 and not imitates:
        yield f"Of the last {groups} groups, {equal} had attempts that were all paid alike: little to learn from."
    for stop, meaning in (
        ("env_error", "met an error of the environment"),
        ("timeout", "overran a deadline"),
        ("set_aside", "were not made, because the environment had failed at their tasks too often"),
    ):
        lost = sum((line.get("stops") or {}).get(stop, 0) for line in steps)
        if lost:
            yield f"{lost:,} attempts {meaning}."


def _collapsed(run: RunReader) -> Iterator[str]:
    """Success that fell to half of its best or less, and not by chance."""
    advice = "Look at KL, entropy and gradient norm from there on; a lower `algo.lr` often helps."
    measured = run.comparable_evaluations
    if measured:
        best = max(measured, key=lambda step: measured[step].success)
        top, now = measured[best], measured[max(measured)]
        if now.success <= top.success / 2 and now.success_interval[1] < top.success_interval[0]:
            yield f"Held-out success collapsed: {_held_out(top)} {when(best)}, {_held_out(now)} now. {advice}"
            return
    lines = [] if run.demonstrated else _trained(run)
    size = max(3, len(lines) // 20)
    windows = [lines[start : start + size] for start in range(0, len(lines) - size + 1, max(1, size // 2))]
    if len(windows) < 2:
        return
    window = max(windows, key=lambda window: _success(window).success)
    high, low = _success(window, _SURE), _success(lines[-size:], _SURE)
    if low.success <= high.success / 2 and disjoint(high.interval, low.interval):
        yield (
            f"Success in training collapsed: {number(high.success, True)} in steps {window[0]['step']} to "
            f"{window[-1]['step']}, {number(low.success, True)} in the last {size}. {advice}"
        )


def _entropy(run: RunReader) -> Iterator[str]:
    """Entropy that grew out of bounds, or vanished before the tasks were learned."""
    found = [
        (line["update"]["entropy"], line.get("success") or 0.0)
        for line in run.metrics
        if isinstance((line.get("update") or {}).get("entropy"), int | float)
    ]
    if len(found) < 6 or run.demonstrated:
        return
    size = max(3, len(found) // 20)
    (first, before), (last, success) = (
        tuple(map(fmean, zip(*part, strict=True))) for part in (found[:size], found[-size:])
    )
    ends = f"from {number(first)} to {number(last)} nats per token"
    if last - first > 0.5 and last > (4 if success > before else 2) * first:
        yield f"Entropy exploded, {ends}: the agent acts ever more at random. A lower `algo.lr` often helps."
    if success < 0.9 and last < first and (last < 0.1 * first or last < 0.01):
        yield (
            f"Entropy collapsed, {ends}: attempts at a task come out nearly alike, and what is not tried is not "
            "learned. Try a lower `algo.lr`, or a higher `rollout.temperature`."
        )


def _without_updates(steps: Sequence[Line]) -> Iterator[str]:
    """Steps that changed nothing in the model."""
    known = [line for line in steps if "updates" in line]
    idle = sum(not line["updates"] for line in known)
    if len(known) < 3 or idle < len(known) / 2:
        return
    said = f"{idle} of {len(known)} steps made no update"
    if idle == len(known):
        said = f"Nothing was learned: none of {len(known)} steps made an update"
    if any(line.get("success") for line in known):
        yield f"{said}: all attempts at a task were paid alike, or a guard refused them."
    else:
        yield f"{said}. The agent never succeeded. {_ADVICE}"


def _unchanged(run: RunReader) -> Iterator[str]:
    """Many steps without a clear change in success."""
    lines = _trained(run)
    if len(lines) < _MANY:
        return
    found = outcome(run)
    if found is not None and (found.direction or found.last.success >= 0.95):
        return
    size = max(5, len(lines) // 10)
    first, last = _success(lines[:size]), _success(lines[-size:])
    said = []
    if not run.demonstrated:
        if disjoint(first.interval, last.interval) or last.success >= 0.95:
            return
        said.append(f"{number(first.success, True)} to {number(last.success, True)} in training")
    if found is not None and not found.single:
        before, after = (number(round(one.success, 3), True) for one in (found.first, found.last))
        said.append(f"{before} to {after} held out")
    if not said:
        return
    never = not run.demonstrated and not any(line["success"] for line in lines)
    advice = _ADVICE if never else "Try a higher `algo.lr`, more tasks or attempts a step, or easier tasks."
    yield f"After {len(lines)} steps success has not clearly changed ({', '.join(said)}). {advice}"


def _trained(run: RunReader) -> list[Line]:
    return [line for line in run.metrics if trained(line) is not None]


def _success(lines: Sequence[Line], confidence: float = 0.95) -> Share:
    """Success in some training steps. Groups are the trials of its interval: attempts in one are not independent."""
    share = fmean(line["success"] for line in lines)
    groups = sum(line.get("groups") or 1 for line in lines)
    attempts = sum(line.get("attempts") or 0 for line in lines)
    return Share(share, attempts, groups, wilson_interval(share, groups, confidence))


def _by_task(entries: Sequence[IndexEntry]) -> dict[str, Counter[str]]:
    sums: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.scored:
            sums.setdefault(entry.task, Counter()).update(attempts=1, success=int(entry.success))
    return sums


def _held_out(found: Evaluation) -> str:
    low, high = (number(end, True) for end in found.success_interval)
    return f"{number(round(found.success, 3), True)} [{low}, {high}]"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
