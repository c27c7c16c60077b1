"""What came of a run: held-out success at both ends and whether it changed, in words; and what to worry about."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from longloop.analysis.outcomes import Share, wilson
from longloop.analysis.report import difference
from longloop.config import MEASURED
from longloop.stats import SUCCESS, Change, change
from longloop.viewer.attempts import Entry
from longloop.viewer.charts import number
from longloop.viewer.run_reader import Record

_PAIRS = 6
"""Tasks below which the bootstrap feigns certainty: five of five that rise are chance in one of sixteen cases."""
_MANY = 30
"""Training steps after which a run should have learned something."""
_SURE = 2.58
"""Standard errors for a stretch that was chosen because it is the best."""
_ADVICE = "Try easier tasks, demonstrations first (`longloop demos`, then `algo.name=sft`), or another model."

Line = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Held-out success in the first and the last evaluation that measure the same. They are one where there is one."""

    first: Line
    last: Line
    change: Change

    @property
    def direction(self) -> int:
        """1 and -1 where success clearly rose or fell; 0 where chance could have done it."""
        if self.first is self.last:
            return 0
        if self.change.interval and self.last["eval"].get("tasks", 0) >= _PAIRS:
            low, high = self.change.interval
            return (low > 0) - (high < 0)
        before, after = (line["eval"].get("success_interval") or (0.0, 1.0) for line in (self.first, self.last))
        return (after[0] > before[1]) - (after[1] < before[0])


def outcome(record: Record) -> Outcome | None:
    """None before the first evaluation."""
    return record.made("outcome", lambda: _outcome(record))


def _outcome(record: Record) -> Outcome | None:
    since = max((line["step"] for line in record.changes if MEASURED & line["changed"].keys()), default=0)
    found = [
        line for line in record.metrics if line["step"] >= since and (line.get("eval") or {}).get("success") is not None
    ]
    if not found:
        return None
    ends = [_by_task(record.attempts["eval"].entries(line["step"])) for line in (found[0], found[-1])]
    return Outcome(found[0], found[-1], change(SUCCESS, ends[0], ends[1] if len(found) > 1 else None, paired=True))


def sentence(record: Record) -> str:
    """What came of it, in words."""
    found = outcome(record)
    if found is None:
        return _in_training(record)
    evaluation = found.last["eval"]
    after, step = _held_out(evaluation), found.last["step"]
    moved = difference(SUCCESS, found.change)
    if found.first is found.last:
        said = f"Held-out success was {after} at step {step}"
    elif found.direction:
        verb = "rose" if found.direction > 0 else "fell"
        said = f"Held-out success {verb} from {_held_out(found.first['eval'])} to {after} by step {step}"
    else:
        when = "before training" if found.first["step"] == 0 else f"after step {found.first['step']}"
        before = _held_out(found.first["eval"])
        said = f"No clear change in held-out success: {before} {when}, {after} after step {step}"
    said += f", {moved}" if moved else ""
    tasks, attempts = evaluation.get("tasks"), evaluation.get("attempts")
    size = f" ({count(tasks, 'task')}, {count(attempts, 'attempt')} each)" if tasks else ""
    floor = evaluation.get("floor_success")
    return said + size + (f"; doing nothing scores {number(floor, True)}." if floor is not None else ".")


def _in_training(record: Record) -> str:
    trained = _trained(record)
    if not trained:
        return "Nothing was measured yet."
    if record.demonstrated:
        share = number(_success(trained).success, True)
        return f"Nothing was measured of the agent: of the demonstrations that it imitates, {share} succeed."
    few = max(1, min(5, len(trained) // 2))
    first, last = _success(trained[:few]), _success(trained[-few:])
    over = "the first and last steps" if few == 1 else f"the first and last {few} steps"
    ends = f"{number(first.success, True)} to {number(last.success, True)} (mean of {over})"
    if _apart(first, last):
        return f"Success in training went from {ends}."
    return f"No clear change in training success: {ends}."


def worries(record: Record) -> list[str]:
    """What a person should look at first."""
    return list(record.made("worries", lambda: tuple(_worries(record))))


def _worries(record: Record) -> Iterator[str]:
    steps = [line for line in record.metrics if line.get("attempts")]
    if record.too_new:
        yield "A later longloop wrote this run; upgrade, or some of it may be shown wrongly."
    if record.status == "killed":
        yield f"The process was killed. Continue with: longloop train --resume {record.folder}"
    guarded = [line["step"] for line in steps if line.get("guard")]
    if guarded:
        yield f"A guard skipped updates in {len(guarded)} of {len(steps)} steps, last in step {guarded[-1]}."
    collapsed = list(_collapsed(record))
    yield from collapsed
    yield from _entropy(record)
    idle = list(_without_updates(steps))
    yield from idle or ([] if collapsed else _unchanged(record))
    late = steps[-10:]
    equal = sum(line.get("equal_groups", 0) for line in late)
    groups = sum(line.get("groups", 0) for line in late)
    imitates = not any((line.get("update") or {}).get("kl") is not None for line in steps)
    if groups and equal / groups > 0.8 and not imitates:
        yield f"Of the last {groups} groups, {equal} had attempts that were all paid alike: little to learn from."
    for stop, meaning in (("env_error", "met an error of the environment"), ("timeout", "overran a deadline")):
        lost = sum((line.get("stops") or {}).get(stop, 0) for line in steps)
        if lost:
            yield f"{lost:,} attempts {meaning}."


def _collapsed(record: Record) -> Iterator[str]:
    """Success at half of its best or less, and not by chance."""
    advice = "Look at KL, entropy and gradient norm from there on; a lower `algo.lr` often helps."
    measured = [line for line in record.metrics if (line.get("eval") or {}).get("success_interval")]
    if measured:
        best = max(measured, key=lambda line: line["eval"]["success"])
        top, now = best["eval"], measured[-1]["eval"]
        if now["success"] <= top["success"] / 2 and now["success_interval"][1] < top["success_interval"][0]:
            yield f"Held-out success collapsed: {_held_out(top)} at step {best['step']}, {_held_out(now)} now. {advice}"
            return
    trained = [] if record.demonstrated else _trained(record)
    size = max(3, len(trained) // 20)
    windows = [trained[start : start + size] for start in range(0, len(trained) - size + 1, max(1, size // 2))]
    if len(windows) < 2:
        return
    window = max(windows, key=lambda window: _success(window).success)
    high, low = _success(window, _SURE), _success(trained[-size:], _SURE)
    if low.success <= high.success / 2 and _apart(high, low):
        yield (
            f"Success in training collapsed: {number(high.success, True)} in steps {window[0]['step']} to "
            f"{window[-1]['step']}, {number(low.success, True)} in the last {size}. {advice}"
        )


def _entropy(record: Record) -> Iterator[str]:
    """Entropy that grew out of bounds, or vanished before the tasks were learned."""
    found = [
        (line["update"]["entropy"], line.get("success") or 0.0)
        for line in record.metrics
        if isinstance((line.get("update") or {}).get("entropy"), int | float)
    ]
    if len(found) < 6 or record.demonstrated:
        return
    size = max(3, len(found) // 20)
    (first, before), (last, success) = (
        tuple(map(fmean, zip(*part, strict=True))) for part in (found[:size], found[-size:])
    )
    ends = f"from {number(first)} to {number(last)} nats per token"
    if last - first > 0.5 and last > (4 if success > before else 2) * first:
        yield f"Entropy exploded, {ends}: the agent acts ever more at random. A lower `algo.lr` often helps."
    if success < 0.9 and (last < 0.1 * first or last < 0.01):
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


def _unchanged(record: Record) -> Iterator[str]:
    """Many steps, and success that is what it was, as far as one can tell."""
    trained = _trained(record)
    if len(trained) < _MANY:
        return
    found = outcome(record)
    if found is not None and (found.direction or found.last["eval"]["success"] >= 0.95):
        return
    size = max(5, len(trained) // 10)
    first, last = _success(trained[:size]), _success(trained[-size:])
    said = []
    if not record.demonstrated:
        if _apart(first, last) or last.success >= 0.95:
            return
        said.append(f"{number(first.success, True)} to {number(last.success, True)} in training")
    if found is not None and found.first is not found.last:
        before, after = (number(round(line["eval"]["success"], 3), True) for line in (found.first, found.last))
        said.append(f"{before} to {after} held out")
    if not said:
        return
    never = not record.demonstrated and not any(line["success"] for line in trained)
    advice = _ADVICE if never else "Try a higher `algo.lr`, more tasks or attempts a step, or easier tasks."
    yield f"After {len(trained)} steps success has not clearly changed ({', '.join(said)}). {advice}"


def _trained(record: Record) -> list[Line]:
    return [line for line in record.metrics if line.get("success") is not None]


def _success(lines: Sequence[Line], z: float = 1.96) -> Share:
    """In some training steps, within so many standard errors. Groups are the trials: attempts in one are not
    independent."""
    share = fmean(line["success"] for line in lines)
    groups = sum(line.get("groups") or 1 for line in lines)
    return Share(share, sum(line.get("attempts") or 0 for line in lines), groups, wilson(share, groups, z))


def _apart(one: Share, other: Share) -> bool:
    return one.interval[0] > other.interval[1] or one.interval[1] < other.interval[0]


def _by_task(entries: Sequence[Entry]) -> dict[str, Counter[str]]:
    sums: dict[str, Counter[str]] = {}
    for entry in entries:
        if entry.scored:
            sums.setdefault(entry.task, Counter()).update(attempts=1, success=int(entry.success))
    return sums


def _held_out(evaluation: Line) -> str:
    interval = evaluation.get("success_interval")
    ends = f" [{number(interval[0], True)}, {number(interval[1], True)}]" if interval else ""
    return number(round(evaluation["success"], 3), True) + ends


def count(number: Any, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
