"""The judge: compares the state an agent left with the state it should have left.

A scenario says what should happen by doing it: `Goal.do` calls the same APIs on a copy of the world. What then differs
from the start is what must differ in the agent's world, no more and no less: one test for each row that should have
been added, changed or removed, one that nothing else was and that the agent says it is done, and one for the answer.
Ids of new rows do not count, nor does the order of doing things, nor case and spacing of text.
"""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from errands.apps import find, make_world
from errands.database import Row, Table
from errands.world import World
from longloop import Outcome

Snapshot = dict[str, Table]

_LEVELS = 10
"""Of new rows that refer to new rows, as many are compared. No task has so many; an agent may make more."""
_SHOWN = 500
"""Characters of a wrong difference that a test's name tells."""


@dataclass(frozen=True)
class Difference:
    """One row that differs: by content, so that two worlds can be compared."""

    kind: str
    """added, changed or removed."""
    table: str
    key: Hashable
    """The id of a changed or removed row; nothing for an added one."""
    columns: tuple[tuple[str, Hashable], ...]
    """The content of an added row; the columns of a changed one that differ, with their new values."""

    def __str__(self) -> str:
        content = ", ".join(f"{name}={value!r}" for name, value in self.columns)
        which = "" if self.key is None else f" {self.key}"
        return f"{self.table}{which} {self.kind}: {content}" if content else f"{self.table}{which} {self.kind}"


@dataclass(frozen=True)
class Test:
    """One of a task's tests, and whether it was passed."""

    name: str
    passed: bool


class Goal:
    """What a task asks for: the words that fill its instruction, the wished-for world, and the answer.

    Made when the world is ready: it takes a copy, on which `do` then acts as the owner.
    """

    def __init__(self, world: World, **slots: Any) -> None:
        self.slots = slots
        """What the instruction says, and all that the expert may know."""
        self.answer: Any = None
        """What to answer; None when the task asks nothing."""
        self.steps: list[tuple[str, dict[str, Any]]] = []
        """What was done, for making wrong variants of it."""
        self.start = world
        self.wish = world.begin()
        self.judging = threading.Lock()
        """Attempts at a task share its goal, and a database bears one thread at a time (world.py)."""

    def do(self, api: str, **arguments: Any) -> Any:
        """Have the owner call an API in the wished-for world; what it returns."""
        self.steps.append((api, arguments))
        return act(self.wish, api, arguments)

    @functools.cached_property
    def differences(self) -> Counter[Difference]:
        """What should differ in the end."""
        return self.compare(self.wish)

    @functools.cached_property
    def tests(self) -> list[tuple[str, Difference, int]]:
        """Each difference with its name and how often it should be there, in the order of the tests."""
        return [(str(one), one, count) for one, count in sorted(self.differences.items(), key=str)]

    def rest(self) -> None:
        """Take little memory until an attempt is judged."""
        self.start.rest()
        self.wish.rest()

    def compare(self, world: World) -> Counter[Difference]:
        return differences(self.start, snapshot(world))


def act(world: World, api: str, arguments: Mapping[str, Any]) -> Any:
    """Call an API as the owner, arguments checked, no token needed."""
    found = find(api)
    token = {"access_token": ""} if found.logged_in else {}
    values = found.checked({**arguments, **token})
    if found.logged_in:
        values["me"] = world.owner.id
        del values["access_token"]
    return found.run(world, values)


def outcome(goal: Goal, world: World) -> Outcome:
    """What an attempt that reached this state is paid: the share of tests that it passed."""
    tests = judge(goal, world)
    passed = sum(test.passed for test in tests)
    told = [{"name": test.name, "passed": test.passed} for test in tests]
    return Outcome(passed / len(tests), passed == len(tests), {"tests": told})


def judge(goal: Goal, world: World) -> list[Test]:
    """The tests of a task. An agent that did nothing at all passes none of them."""
    with goal.judging:
        wanted, found = goal.differences, goal.compare(world)
    tests = []
    for name, difference, count in goal.tests:
        tests += [Test(name, found[difference] > number) for number in range(count)]
    extra = found - wanted
    answer = world.done.answer if world.done else None
    answered = goal.answer is not None and same_answer(goal.answer, answer)
    acted = bool(wanted & found) if wanted else answered
    but = [text[:_SHOWN] for text in sorted(map(str, extra))[:5]]
    if acted and world.done is None:
        but.append("it was never said that the task is done")
    tests.append(Test("nothing else differs" + (f" (but: {'; '.join(but)})" if but else ""), acted and not but))
    if goal.answer is not None:
        tests.append(Test(f"the answer is {goal.answer!r}", answered))
    return tests


def snapshot(world: World) -> Snapshot:
    """Every table that counts and was written to."""
    return {table: world.table(table) for table in _written(world)}


def changed(goal: Goal, world: World) -> dict[str, str]:
    """The digest of what has become of every table that is not as it was at the start."""
    after = snapshot(world)
    with goal.judging:
        changes = {name: table.since(goal.start.table(name)) for name, table in after.items()}
    return {name: change.digest for name, change in changes.items() if change}


def same_state(one: World, other: World) -> bool:
    """Whether two worlds that began alike are alike to the last row."""
    return all(one.table(table) == other.table(table) for table in _written(one) | _written(other))


def _written(world: World) -> set[str]:
    """The tables that count and were written to."""
    return world.written & _layout().keys()


def differences(start: World, after: Snapshot) -> Counter[Difference]:
    """What differs between the start and a snapshot, by content."""
    found: Counter[Difference] = Counter()
    added = _added(start, after)
    for table, rows in after.items():
        before = start.table(table)
        change = rows.since(before)
        names, content = list(_layout()[table]), functools.partial(_content, added, table)
        for row in change.rows:
            old = before.by_id.get(row[0])
            if old is None:
                columns = tuple((name, content(name, value)) for name, value in zip(names, row, strict=True))
                found[Difference("added", table, None, columns[1:])] += 1
            else:
                pairs = zip(names, row, old, strict=True)
                columns = tuple((name, content(name, value)) for name, value, was in pairs if value != was)
                found[Difference("changed", table, row[0], columns)] += 1
        found.update(Difference("removed", table, id, ()) for id in change.removed)
    return found


def _added(start: World, after: Snapshot) -> Callable[[str], dict[int, Row]]:
    """table -> its new rows by their ids, looked for once and when they are asked for."""

    @functools.cache
    def added(table: str) -> dict[int, Row]:
        old = start.table(table).by_id
        return {id: row for id, row in after[table].by_id.items() if id not in old} if table in after else {}

    return added


def _content(added: Callable[[str], dict[int, Row]], table: str, column: str, value: Any, level: int = 0) -> Hashable:
    """What a value says. A reference to a new row says what that row does: its id is nobody's choice."""
    target = _layout()[table][column]
    if not target or value is None or value not in added(target):
        return plain(value)
    if level == _LEVELS:
        return "..."
    columns = list(zip(_layout()[target], added(target)[value], strict=True))[1:]
    return tuple((name, _content(added, target, name, part, level + 1)) for name, part in columns)


def plain(value: Any) -> Hashable:
    """A value without what does not matter: the case and spacing of text, and a full stop at its end."""
    return " ".join(value.split()).rstrip(".! ").casefold() if isinstance(value, str) else value


def same_answer(right: Any, given: Any) -> bool:
    """Whether two answers say the same: numbers to the cent, lists in any order (or written with commas)."""
    if isinstance(right, list | tuple):
        if isinstance(given, str):
            given = [part for part in given.split(",") if part.strip()]
        if not isinstance(given, list | tuple | set | frozenset):
            return len(right) == 1 and same_answer(right[0], given)
        return Counter(_said(x) for x in right) == Counter(_said(x) for x in given)
    return given is not None and not isinstance(given, bool) and _said(right) == _said(given)


def _said(answer: Any) -> Hashable:
    try:
        text = str(answer).strip()
    except (ValueError, RecursionError):  # a number of thousands of digits, a list of thousands of levels
        return "more than can be said"
    try:
        return f"{float(text):.2f}"
    except ValueError:
        return plain(text.strip("\"' "))


@functools.cache
def _layout() -> dict[str, dict[str, str]]:
    """table -> column -> the table it refers to, if any. The same in every world."""
    world = make_world("layout")
    names = world.all(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) != 'sqlite_' ORDER BY name"
    )
    layout = {}
    for table in (row["name"] for row in names):
        refers = {row["from"]: row["table"] for row in world.all(f"PRAGMA foreign_key_list({table})")}
        columns = [row["name"] for row in world.all(f"PRAGMA table_info({table})")]
        layout[table] = {column: refers.get(column, "") for column in columns}
    return layout
