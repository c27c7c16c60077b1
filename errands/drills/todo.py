"""Drills around to-do lists."""

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.scenarios.todo import add_item, chores, owned_lists
from errands.world import World

PICK = 'lists = todo.list_lists()\nlists = [x for x in lists if x["name"] == "{where}"]\n'


def _item(w: World, done: bool = False) -> tuple[Slots, Rows]:
    """An item among others, with a due date and a note."""
    place, list_id = w.rng.choice(list(owned_lists(w).items()))
    ids = []
    for chore in chores(w, 3):
        note = w.rng.choice(("ask Kim first", "needs a van", "quick", "takes an hour", "cash only"))
        ids.append(add_item(w, list_id, chore, due=w.day(w.rng.randrange(-5, 30)), done=done, note=note))
    found = row(w, "todo_items", ids[0])
    when = w.day(-w.rng.randrange(1, 30)) if done else None
    w.run("UPDATE todo_items SET done_on = ? WHERE id = ?", when, ids[0])
    return {"chore": found["text"]}, [found | {"list": place, "done_on": when}]


def _in_list(w: World) -> tuple[Slots, Rows]:
    slots, rows = _item(w)
    return slots | {"where": rows[0]["list"]}, rows


def _open(w: World) -> tuple[Slots, Rows]:
    place, list_id = w.rng.choice(list(owned_lists(w).items()))
    for chore in chores(w, w.rng.randrange(1, 4)):
        add_item(w, list_id, chore, due=w.day(w.rng.randrange(-5, 30)))
    return {"where": place}, w.all("SELECT * FROM todo_items WHERE list_id = ? AND NOT done", list_id)


def _done(w: World) -> tuple[Slots, Rows]:
    place, list_id = w.rng.choice(list(owned_lists(w).items()))
    for chore in chores(w, w.rng.randrange(1, 4)):
        add_item(w, list_id, chore, done=True)
    return {"where": place}, w.all("SELECT * FROM todo_items WHERE list_id = ? AND done", list_id)


def _list(w: World) -> tuple[Slots, Rows]:
    slots, rows = _open(w)
    return slots, [row(w, "todo_lists", rows[0]["list_id"]) | {"open_items": len(rows)}]


ITEM = Find(
    "item",
    ("the to-do '{chore}'", "'{chore}' in my to-do lists", "my to-do item '{chore}'"),
    'found = todo.search(query="{chore}")',
    _item,
)
_DONE_ITEM = Find(
    "done-item",
    ("the to-do '{chore}'", "'{chore}' in my to-do lists", "the finished to-do '{chore}'"),
    'found = todo.search(query="{chore}")',
    lambda w: _item(w, True),
)
_IN_LIST = Find(
    "item-of-list",
    ("'{chore}' on my {where} list", "the item '{chore}' of the to-do list {where}"),
    PICK + 'found = todo.list_items(list_id=lists[0]["id"], page_size=20)\n'
    'found = [x for x in found if x["text"] == "{chore}"]',
    _in_list,
)
_OPEN = Find(
    "open-items",
    ("all open items of my {where} list", "everything that is open on the to-do list {where}"),
    PICK + 'found = todo.list_items(list_id=lists[0]["id"], page_size=20)\nprint(len(found))',
    _open,
    many=True,
)
_DONE = Find(
    "done-items",
    ("all done items of my {where} list", "everything that is ticked off on the to-do list {where}"),
    PICK + 'found = todo.list_items(list_id=lists[0]["id"], done=True, page_size=20)\nprint(len(found))',
    _done,
    many=True,
)
LIST = Find(
    "list",
    ("my {where} list", "the to-do list {where}"),
    'found = todo.list_lists()\nfound = [x for x in found if x["name"] == "{where}"]',
    _list,
)

CLEAR = Act(
    "todo.clear_due",
    (
        "{it} should have no due date.",
        "Take the due date off {it}.",
        "There is no hurry with {it}: remove the due date.",
        "I do not want a due date on {it}.",
    ),
    "take the due date off {them}",
    key="item_id",
)
COMPLETE = Act(
    "todo.complete",
    ("Tick off {it}.", "Mark {it} as done.", "{it}: done! Tick {them} off."),
    "tick {them} off",
    key="item_id",
)
_REOPEN = Act(
    "todo.reopen",
    (
        "I ticked off {it} too early. Make {them} open again.",
        "Reopen {it}.",
        "{it} must be done again: set {them} back to open.",
    ),
    "reopen {them}",
    key="item_id",
)
DELETE = Act(
    "todo.delete",
    ("Delete {it}.", "Remove {it} altogether.", "{it} can go: delete {them}."),
    "delete {them}",
    key="item_id",
)
_PRIORITY = Act(
    "todo.update",
    (
        "Set the priority of {it} to {priority}.",
        "Give {it} {priority} priority.",
        "{it} should have the priority '{priority}'.",
    ),
    "set the priority of {them} to {priority}",
    key="item_id",
    given=pick(priority=("low", "high")),
    name="prioritise",
)
NOTE = Act(
    "todo.update",
    ("Write the note '{note}' to {it}.", "Put the note '{note}' on {it}.", "{it} should have the note '{note}'."),
    "write the note '{note}' to {them}",
    key="item_id",
    given=pick(note=("see the manual", "after lunch", "with Alex", "left drawer", "bring tape")),
    name="note",
)
_REWORD = Act(
    "todo.update",
    ("Change the text of {it} to '{text}'.", "{it} should read '{text}'.", "Reword {it}: '{text}'."),
    "change the text of {them} to '{text}'",
    key="item_id",
    given=pick(text=("give it away", "ask for help", "look for a better one", "take photos")),
    name="reword",
)
RENAME = Act(
    "todo.rename_list",
    ("Rename {it} to '{name}'.", "{it} should be called '{name}'.", "Give {it} the name '{name}'."),
    "rename {them} to '{name}'",
    key="list_id",
    given=pick(name=("Someday", "This year", "Small things", "Outside", "With friends")),
    name="rename",
)
_ADD_DUE = Act(
    "todo.add",
    (
        "Put '{text}' on {it}, due on {due}.",
        "Add '{text}' to {it}. It must be done by {due}.",
        "{it} should have a new item '{text}' that is due on {due}.",
    ),
    "add '{text}' to {them}, due on {due}",
    key="list_id",
    given=lambda w, rows: {"text": chores(w, 1)[0], "due": w.day(w.rng.randrange(1, 40))},
    name="add-with-date",
)
_ADD_URGENT = Act(
    "todo.add",
    (
        "Put '{text}' on {it} with {priority} priority.",
        "Add '{text}' to {it}, priority {priority}.",
        "{it} should get the item '{text}' of {priority} priority.",
    ),
    "add '{text}' with {priority} priority to {them}",
    key="list_id",
    given=lambda w, rows: {"text": chores(w, 1)[0], "priority": w.rng.choice(("low", "high"))},
    name="add-with-priority",
)
_CREATE = Act(
    "todo.create_list",
    (
        "Make a new to-do list '{name}'.",
        "I need a to-do list called '{name}'.",
        "Create the empty to-do list '{name}'.",
    ),
    "make a to-do list called '{name}'",
    given=pick(name=("Balcony", "Wedding", "Trip to Oslo", "Books", "New flat", "Charity")),
)

_DUE = Ask(
    "due",
    (
        "When is {it} due? Answer like 2026-01-31.",
        "Until when do I have to do {it}? Write it like 2026-01-31.",
        "Tell me the due date of {it}, like 2026-01-31.",
    ),
    "say when {them} is due",
)
REMARK = Ask(
    "note",
    ("What is the note on {it}?", "Tell me what I noted on {it}.", "{it} has a note. What does it say?"),
    "tell the note on {them}",
    show="todo.show",
    key="item_id",
)
_DONE_ON = Ask(
    "done_on",
    (
        "When did I tick off {it}? Answer like 2026-01-31.",
        "On which day was {it} done? Write it like 2026-01-31.",
        "Tell me the day on which I did {it}, like 2026-01-31.",
    ),
    "say when {them} was done",
    show="todo.show",
    key="item_id",
)
_LEFT = Ask(
    "open_items",
    (
        "How many items are open on {it}?",
        "Tell me the number of open items on {it}.",
        "How much is left on {it}? Count.",
    ),
    "say how many items are open on {them}",
)
COUNT = Ask(
    "how many", ("Count {it}.", "Please count {it}.", "Tell me the number you get if you count {it}."), "count {them}"
)

DRILLS = [
    *drills([ITEM], [CLEAR, DELETE, _DUE, REMARK]),
    *drills([_DONE_ITEM], [_REOPEN, _DONE_ON]),
    *drills([_IN_LIST], [_PRIORITY, NOTE, _REWORD, COMPLETE, _DUE]),
    *drills([LIST], [RENAME, _ADD_DUE, _ADD_URGENT, _LEFT]),
    *drills([_OPEN], [COMPLETE, CLEAR, _PRIORITY, DELETE]),
    *drills([_DONE], [_REOPEN, DELETE, COUNT]),
    *drills([ITEM], [(_DUE, DELETE), (CLEAR, COMPLETE)]),
    *drills([LIST], [(RENAME, _ADD_DUE)]),
    *drills([NOTHING], [_CREATE]),
]
