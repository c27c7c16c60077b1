"""Practice with to-do lists and their items."""

from dataclasses import replace
from functools import partial

from errands.practice.blocks import COUNT, Sets, Source, alone, each, practice
from errands.practice.conditions import All, Moment, Name, Number, State, Top, Value
from errands.practice.drill import DAY, Act, Ask, Row, Slots
from errands.words import WORDS
from errands.world import World

_LEVELS = ("low", "normal", "high")


def _lists(w: World) -> list[Row]:
    return w.all("SELECT * FROM todo_lists WHERE owner = ? ORDER BY id", w.owner.id)


def _add(w: World, done: int = 0, place: int | None = None) -> None:
    """Items with texts of their own, of every priority, all of them due on days of their own."""
    for chore, due in zip(w.rng.sample(WORDS["chores"], 5), w.rng.sample(range(-9, 30), 5), strict=True):
        w.run("DELETE FROM todo_items WHERE owner = ? AND text = ?", w.owner.id, chore)
        more = {"due": w.day(due), "priority": w.rng.choice(_LEVELS), "note": w.rng.choice(WORDS["remarks_on_items"])}
        list_id = place or w.rng.choice(_lists(w))["id"]
        day = w.day(-w.rng.randrange(1, 30)) if done else None
        w.add("todo_items", owner=w.owner.id, list_id=list_id, text=chore, done=done, done_on=day, **more)


def _some(w: World) -> Slots:
    w.run("DELETE FROM todo_items WHERE owner = ? AND due IS NULL", w.owner.id)
    _add(w)
    return {}


def _aimed(w: World) -> Slots:
    """A list to which things on other lists may go."""
    target = w.rng.choice(_lists(w))
    return _some(w) | {"target": target["name"], "_there": target["id"]}


def _listed(w: World, done: int, dated: bool = False, aimed: bool = False) -> Slots:
    """Puts items on a list; with `dated`, none there is without a date. With `aimed` another list is meant, too."""
    where, other = w.rng.sample(_lists(w), 2)
    if dated:
        w.run("DELETE FROM todo_items WHERE list_id = ? AND due IS NULL", where["id"])
    _add(w, done, where["id"])
    target = {"target": other["name"], "_there": other["id"]} if aimed else {}
    return {"of": where["name"], "_here": where["id"], **target}


def _until(w: World) -> Slots:
    w.run("DELETE FROM todo_items WHERE owner = ? AND due < ?", w.owner.id, w.day(-5))
    _add(w)
    return {"of": w.day(w.rng.randrange(3, 12))}


def _counted(w: World) -> Slots:
    """Lists with other numbers of open items, one of them with none."""
    empty = w.rng.randrange(1, 5)
    for place, (one, count) in enumerate(zip(_lists(w), w.rng.sample(range(1, 7), 5), strict=True)):
        w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE list_id = ? AND NOT done", w.day(-1), one["id"])
        items = w.all("SELECT id FROM todo_items WHERE list_id = ?", one["id"])
        for item in w.rng.sample(items, count) if place != empty else ():
            w.run("UPDATE todo_items SET done = 0, done_on = NULL WHERE id = ?", item["id"])
    return {}


def _later(w: World) -> str:
    return w.day(w.rng.randrange(31, 60))


def _finished(w: World, row: Row) -> None:
    w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE list_id = ? AND NOT done", w.day(-1), row["id"])


def _undone(w: World, row: Row) -> None:
    w.run("UPDATE todo_items SET done = 0, done_on = NULL WHERE id = ?", row["id"])


def _done(w: World, row: Row) -> None:
    w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE id = ?", w.day(-1), row["id"])


def _elsewhere(w: World, row: Row) -> None:
    """Not on the list to which it is to go."""
    others = [one["id"] for one in _lists(w) if one["id"] != row["there"]]
    w.run(
        "UPDATE todo_items SET list_id = ? WHERE id = ? AND list_id = ?", w.rng.choice(others), row["id"], row["there"]
    )


_PICK = 'lists = todo.list_lists()\nhere = [x["id"] for x in lists if x["name"] == "{of}"][0]\n'
_HERE = {"list_id": "here"}
_OPEN = Source("items", "todo.list_items", "open item* on my {of} list", partial(_listed, done=0), _HERE, _PICK)
_DATED = replace(_OPEN, name="dated", fill=partial(_listed, done=0, dated=True))
_DONE = Source(
    "ticked",
    "todo.list_items",
    "completed item* on my {of} list",
    partial(_listed, done=1),
    _HERE | {"done": "True"},
    _PICK,
)
_THERE = 'there = [x["id"] for x in lists if x["name"] == "{target}"][0]\n'
_MOVABLE = replace(_OPEN, name="movable", fill=partial(_listed, done=0, aimed=True), before=_PICK + _THERE)
_ANY = Source("any", "todo.search", "item* on my to-do lists", _some, long=True)
_ANYWHERE = replace(_ANY, name="anywhere", fill=_aimed, before="lists = todo.list_lists()\n" + _THERE)
_DUE = Source("due", "todo.list_due", "my open to-do* due by {of}", _until, {"until": '"{of}"'}, long=True)
_LISTS = Source("lists", "todo.list_lists", "my to-do list*", _counted)

_TEXT = Name("text", "the to-do '{called}'|the item '{called}' on my to-do lists", "query")
_ON_IT = Name("text", "'{called}' on my {of} list|the item '{called}' on my to-do list {of}")
_LISTED = Name("name", "my {called} list|my to-do list {called}")
_PRIORITY = Value("priority", "{noun} with {value} priority")
_WHEN = Moment("due", "{noun} due {than} {day}", "{noun} with the latest due date", "{noun} with the earliest due date")
_DONE_OR_NOT = State("done", "{noun} that are already done", "{noun} that are still open")
_NO_DATE = State("due", "", "{noun} without a due date")
_SIZE = Number("open_items", "{noun} with {than} {limit} open items", "{noun} with the most open items")
_EMPTY = State("open_items", "", "{noun} without open items")

_COMPLETE = Act("todo.complete", "mark {it} as done|check off {it}", ready=_undone)
_REOPEN = Act("todo.reopen", "reopen {it}|mark {it} as not done")
_REOPEN_ONE = replace(_REOPEN, ready=_done)
_MOVE = Act("todo.move", "move {it} to my {target} list", known=(("list_id", "there"),))
_MOVE_HERE = replace(_MOVE, ready=_elsewhere)
_DELETE = Act("todo.delete", "delete {it}|remove {it} completely")
_CLEAR = Act("todo.clear_due", "remove the due date of {it}|clear the due date of {it}")
_CHANGES = [
    Act("todo.update", phrases, name=name, args={slot: source}, ready=Sets("todo_items", slot, start))
    for name, slot, source, start, phrases in (
        ("prioritise", "priority", ("low", "high"), "normal", "set the priority of {it} to {priority}"),
        ("remark", "note", "new_remarks_on_items", "", "set the note of {it} to '{note}'"),
    )
]
_SCHEDULE = Act("todo.update", "set the due date of {it} to {due}", name="schedule", args={"due": _later})
_REWORD = Act(
    "todo.update", "change the text of {it} to '{text}'", name="reword", args={"text": "new_chores"}, single=True
)
_RENAME = Act("todo.rename_list", "rename {it} to '{name}'", name="rename", args={"name": "new_lists"}, single=True)
_DELETE_LIST = Act("todo.delete_list", "delete {it}")
_DELETE_DONE = replace(_DELETE_LIST, ready=_finished, single=True)
_ADD = Act(
    "todo.add",
    "put '{text}' on {it}, due on {due}|add '{text}' to {it}, due on {due}",
    args={"text": "new_chores", "due": _later},
)
_ADD_URGENT = Act(
    "todo.add",
    "add '{text}' with {priority} priority to {it}",
    name="add-with-priority",
    args={"text": "new_chores", "priority": ("low", "high")},
)
_CREATE = Act("todo.create_list", "create a new to-do list called '{name}'", args={"name": "new_lists"})
_NOTE_FOR = Act("notes.create", "create an empty note named after {it}", name="note", field="name", single=True)

_ASKS = [
    Ask("due", "due date", hint=DAY, asked="When is {it} due?"),
    Ask("note", show="todo.show"),
    Ask("priority"),
    Ask("text"),
]
_DONE_ON = Ask("done_on", "completion date", hint=DAY, show="todo.show")
_MANY = [COUNT, each("text")]
_ACTS = [_COMPLETE, *_CHANGES, _DELETE, _SCHEDULE, _REWORD]

KINDS = [
    *practice(_ANY, [_TEXT], [_CLEAR, _REOPEN_ONE, *_ACTS, *_ASKS], 12),
    *practice(_ANY, [_PRIORITY, Moment("due", _WHEN.words), _DONE_OR_NOT], [_CLEAR, _DELETE, *_MANY, *_ASKS]),
    *practice(_ANYWHERE, [_TEXT, _PRIORITY], [_MOVE_HERE]),
    *practice(_OPEN, [_ON_IT, _PRIORITY, _NO_DATE, All()], [*_ACTS, *_ASKS, *_MANY]),
    *practice(_MOVABLE, [_ON_IT, _PRIORITY, _NO_DATE, All()], [_MOVE]),
    *practice(_DATED, [_WHEN], [_CLEAR, *_ACTS, *_ASKS, *_MANY]),
    *practice(_DONE, [_ON_IT, _PRIORITY, All()], [_REOPEN, _DELETE, *_MANY, _DONE_ON]),
    *practice(
        _DUE, [All(), _PRIORITY, Top("{noun} with the earliest due date", "due")], [_CLEAR, *_ACTS, *_ASKS, *_MANY]
    ),
    *practice(
        _LISTS,
        [_LISTED, _SIZE, _EMPTY],
        [_RENAME, _ADD, _ADD_URGENT, Ask("open_items", "number of open items"), COUNT, each("name"), _NOTE_FOR],
    ),
    *practice(_LISTS, [_LISTED], [_DELETE_DONE]),
    *practice(_LISTS, [_EMPTY], [_DELETE_LIST]),
    *alone(_CREATE),
]
