"""How an agent behaves, counted from the attempts that a run has stored: the five behaviours that LOOP changed.

From LOOP's analysis (arXiv 2502.01600, 5.5 and A.1), for agents that write a thought and Python in every turn:

- look-ups: calls that read the documentation of one API, per attempt. Listing what there is does not count.
- crowded turns: the share of turns that open more than one Python cell. Who writes the second before the first has run
  plans without looking.
- assumptions: the words assume, assumed and assuming in what the agent writes, per attempt.
- placeholders: "dummy" in what the agent writes, per attempt: a value made up for one that should have been found.
- giving up: a turn that fails opens every API it calls; a later turn that works closes those it calls. The share of
  what was opened that is still open at the end.

A turn fails when what came back shows a traceback, an exception's name, or a line that is a code and a sentence (`404
There is no message 3.`). What came back from the last turn is not stored: that turn worked if it ended the episode, and
counts as neither otherwise. Only scored attempts are counted, and a call counts once where it is written, however often
it ran. Knows the lines of a run folder (docs/run-format.md), no tokens and no model; holds one attempt at a time.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from longloop.envs.react import code_of
from longloop.store.files import read_lines
from longloop.store.run import read_facts
from longloop.types import StopReason, UserError

FEW = 5
"""Training steps that are taken together at either end when there are no two evaluations."""
DRAWS = 2000
"""Of the bootstrap."""

_LOOKUPS = ("docs.show", "api_docs.show_api_doc")
"""In Errands and in AppWorld."""
_CALL = re.compile(r"\bapis\.(\w+)\.(\w+)\s*\(")
_CELL = re.compile(r"```[ \t]*(?:python|py)3?\b", re.IGNORECASE)
_ASSUMPTION = re.compile(r"\bassum(?:e|ed|ing)\b", re.IGNORECASE)
_PLACEHOLDER = re.compile("dummy", re.IGNORECASE)
_FAILURE = re.compile(
    r"Traceback \(most recent call last\)|^Execution failed|^\w*(?:Error|Exception):"
    r"|^4(?:0[01349]|22|29) .*[.?]$",  # a refused call whose exception was caught and printed
    re.MULTILINE,
)

Tasks = dict[str, Counter[str]]
"""Task id -> the sums over its attempts."""
Interval = tuple[float, float]


@dataclass(frozen=True)
class Behaviour:
    """A rate: one sum over another."""

    counted: str
    out_of: str
    title: str

    @property
    def share(self) -> bool:
        """Whether it is a part of a whole; otherwise it is a number per attempt."""
        return self.out_of != "attempts"

    def rate(self, sums: Counter[str]) -> float | None:
        """None when there is nothing to divide by."""
        return sums[self.counted] / sums[self.out_of] if sums[self.out_of] else None


BEHAVIOURS = (
    Behaviour("lookups", "attempts", "doc look-ups / attempt"),
    Behaviour("crowded", "turns", "turns of several cells"),
    Behaviour("assumptions", "attempts", "assumptions / attempt"),
    Behaviour("placeholders", "attempts", "placeholders / attempt"),
    Behaviour("given_up", "failed", "failed APIs given up"),
)


@dataclass(frozen=True)
class Part:
    """Some steps of a run, taken together."""

    steps: tuple[int, ...]
    tasks: Tasks

    @property
    def sums(self) -> Counter[str]:
        return _total(self.tasks.values())


@dataclass(frozen=True)
class Change:
    """A behaviour at both ends."""

    first: float | None
    last: float | None
    difference: float | None
    interval: Interval | None
    """95%, of the difference; None where it would say nothing (see `spread`)."""


@dataclass(frozen=True)
class Analysis:
    """A run's behaviours over its steps, and from one end to the other."""

    training: dict[int, Tasks]
    evaluations: dict[int, Tasks]
    evaluated: bool
    """Whether the ends are evaluations: the same tasks twice. Otherwise they are training steps."""
    first: Part
    last: Part | None
    """None when there is only one step, and nothing to compare it with."""
    changes: dict[str, Change]
    """By `Behaviour.counted`."""

    @property
    def coded(self) -> bool:
        """Whether any turn had code in it."""
        steps = [*self.training.values(), *self.evaluations.values()]
        return any(sums["coded"] for tasks in steps for sums in tasks.values())


def analyze(folder: Path) -> Analysis:
    """Count what a run has stored so far; it may still be running."""
    if not (folder / "run.json").is_file():
        raise UserError(f"{folder} is not a run folder. Name one that `longloop train` wrote, such as runs/quickstart.")
    read_facts(folder)
    training, evaluations = _read(folder / "trajectories"), _read(folder / "evaluations")
    if not training and not evaluations:
        raise UserError(f"{folder} has no scored attempts yet. Wait for its first evaluation or step.")
    evaluated = len(evaluations) > 1 or not training
    first, last = _ends(evaluations, 1) if evaluated else _ends(training, FEW)
    changes = {b.counted: _change(b, first, last, paired=evaluated) for b in BEHAVIOURS}
    return Analysis(training, evaluations, evaluated, first, last, changes)


def count(attempt: Mapping[str, Any]) -> Counter[str]:
    """The sums of one attempt, from its stored line."""
    turns = attempt["turns"]
    sums = Counter(attempts=1, turns=len(turns), coded=0, failed=0, **{b.counted: 0 for b in BEHAVIOURS})
    unsettled: set[str] = set()
    for turn, following in zip_longest(turns, turns[1:]):
        action = turn["action"]
        called = calls(code_of(action))
        cells = len(_CELL.findall(action))
        sums["coded"] += cells > 0 or bool(called)
        sums["crowded"] += cells > 1
        sums["lookups"] += sum(api in _LOOKUPS for api in called)
        sums["assumptions"] += len(_ASSUMPTION.findall(action))
        sums["placeholders"] += len(_PLACEHOLDER.findall(action))
        if following is not None and any(_FAILURE.search(message["content"]) for message in following["context"]):
            sums["failed"] += len(set(called) - unsettled)
            unsettled.update(called)
        elif following is not None or attempt["stop"] == StopReason.FINISHED:
            unsettled.difference_update(called)
    sums["given_up"] = len(unsettled)
    return sums


def calls(code: str) -> list[str]:
    """The APIs that code calls, as app.api. In text that is not Python, what looks like a call."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the agent's escapes are its own affair
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [f"{app}.{api}" for app, api in _CALL.findall(code)]
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="apis"), attr=app), attr=api)):
                found.append(f"{app}.{api}")
    return found


def spread(behaviour: Behaviour, last: Tasks, first: Tasks | None = None, paired: bool = False) -> Interval | None:
    """The 95% interval of a rate, or of its difference to `first`: percentiles over tasks drawn with replacement.

    Paired sides are drawn together, task by task; others each by itself. None where percentiles would feign certainty:
    a side has a single task, all draws are equal (never seen, or always), or over 5% of them had nothing to divide by.
    """
    sides = [last] if first is None else [last, first]
    if paired:
        names = sorted(set().union(*sides))
        sides = [{name: side.get(name, Counter()) for name in names} for side in sides]
    if min(map(len, sides)) < 2:
        return None
    drawn = [_drawn(behaviour, list(side.values()), 0 if paired else place) for place, side in enumerate(sides)]
    values = drawn[0] if first is None else drawn[0] - drawn[1]
    values = values[~np.isnan(values)]
    if len(values) < 0.95 * DRAWS:
        return None
    low, high = map(float, np.percentile(values, [2.5, 97.5]))
    return (low, high) if high - low > 1e-9 else None


def totals(steps: Mapping[int, Tasks]) -> dict[int, Counter[str]]:
    """The sums of each step."""
    return {step: _total(tasks.values()) for step, tasks in steps.items()}


def _read(folder: Path) -> dict[int, Tasks]:
    """Each step that has scored attempts, in order, with one attempt in memory at a time."""
    steps: dict[int, Tasks] = {}
    for path in sorted(folder.glob("[0-9]*.jsonl"), key=lambda path: int(path.stem)):
        for attempt in _attempts(path):
            if StopReason(attempt["stop"]).scored:
                task = steps.setdefault(int(path.stem), {}).setdefault(attempt["task"]["id"], Counter())
                task.update(count(attempt))
    return steps


def _attempts(path: Path) -> Iterator[dict[str, Any]]:
    try:
        yield from read_lines(path)
    except ValueError:
        raise UserError(
            f"{path} is damaged: it has a whole line that is not JSON. Restore the file, or move it away to count the "
            "other steps."
        ) from None


def _ends(steps: Mapping[int, Tasks], few: int) -> tuple[Part, Part | None]:
    """The first and the last few steps, without overlap."""
    order = list(steps)
    size = max(1, min(few, len(order) // 2))
    return _part(steps, order[:size]), _part(steps, order[-size:]) if len(order) > 1 else None


def _part(steps: Mapping[int, Tasks], chosen: Sequence[int]) -> Part:
    tasks: Tasks = {}
    for step in chosen:
        for name, sums in steps[step].items():
            tasks.setdefault(name, Counter()).update(sums)
    return Part(tuple(chosen), tasks)


def _change(behaviour: Behaviour, first: Part, last: Part | None, paired: bool) -> Change:
    before = behaviour.rate(first.sums)
    after = behaviour.rate(last.sums) if last else None
    if last is None or before is None or after is None:
        return Change(before, after, None, None)
    return Change(before, after, after - before, spread(behaviour, last.tasks, first.tasks, paired))


def _drawn(behaviour: Behaviour, tasks: Sequence[Counter[str]], seed: int) -> np.ndarray:
    """The rate in each draw of as many tasks as there are; NaN where there is nothing to divide by."""
    pairs = np.array([[sums[behaviour.counted], sums[behaviour.out_of]] for sums in tasks])
    times = np.random.default_rng(seed).multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), size=DRAWS)
    counted, out_of = (times @ pairs).T
    return np.divide(counted, out_of, out=np.full(DRAWS, np.nan), where=out_of > 0)


def _total(many: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for sums in many:
        total.update(sums)
    return total
