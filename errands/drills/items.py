"""Drills in which to-do items and lists are chosen by a condition."""

from dataclasses import replace

from errands.drill import Act, Find, Rows, Slots, day, drills, pick, row
from errands.drills import todo
from errands.scenario import every
from errands.scenarios.todo import add_item, chores, owned_lists
from errands.world import World


def _items(w: World) -> tuple[str, Rows]:
    """The open items of a list, some due on days of their own, some not at all, of every priority."""
    place, list_id = w.rng.choice(list(owned_lists(w).items()))
    days = w.rng.sample(range(-10, 40, 2), 5)
    for number, chore in enumerate(chores(w, w.rng.randrange(5, 8))):
        due = w.day(days[number]) if number < 4 else None
        add_item(w, list_id, chore, due=due, priority=("low", "normal", "high")[number % 3])
    return place, w.all("SELECT * FROM todo_items WHERE list_id = ? AND NOT done", list_id)


def _before(w: World) -> tuple[Slots, Rows]:
    place, items = _items(w)
    end = day(w, [item["due"] for item in items if item["due"]])
    return {"where": place, "day": end}, [item | {"rest": not item["due"] or item["due"] > end} for item in items]


def _after(w: World) -> tuple[Slots, Rows]:
    place, items = _items(w)
    start = day(w, [item["due"] for item in items if item["due"]])
    return {"where": place, "day": start}, [item for item in items if item["due"] and item["due"] > start]


def _undated(w: World) -> tuple[Slots, Rows]:
    place, items = _items(w)
    return {"where": place}, [item for item in items if not item["due"]]


def _urgent(w: World) -> tuple[Slots, Rows]:
    place, items = _items(w)
    level = w.rng.choice(("low", "normal", "high"))
    return {"where": place, "level": level}, [item for item in items if item["priority"] == level]


def _first(w: World) -> tuple[Slots, Rows]:
    place, list_id = w.rng.choice(list(owned_lists(w).items()))
    days = [-w.rng.randrange(20, 40), *w.rng.sample(range(30, 60), 2)]
    ids = [add_item(w, list_id, chore, due=w.day(ahead)) for chore, ahead in zip(chores(w, 3), days, strict=True)]
    return {"where": place}, [row(w, "todo_items", ids[0])]


def _last(w: World) -> tuple[Slots, Rows]:
    place, list_id = w.rng.choice(list(owned_lists(w).items()))
    days = sorted(w.rng.sample(range(31, 90), 3))
    ids = [add_item(w, list_id, chore, due=w.day(ahead)) for chore, ahead in zip(chores(w, 3), days, strict=True)]
    return {"where": place}, [row(w, "todo_items", ids[-1])]


def _everywhere(w: World) -> tuple[Slots, Rows]:
    _items(w)
    level = w.rng.choice(("low", "high"))
    mine = "SELECT * FROM todo_items WHERE owner = ? AND NOT done AND priority = ?"
    return {"level": level}, w.all(mine, w.owner.id, level)


def _fullest(w: World) -> tuple[Slots, Rows]:
    """A list with more open items than any other."""
    list_id = w.rng.choice(list(owned_lists(w).values()))
    for chore in chores(w, 11):
        add_item(w, list_id, chore)
    return {}, [row(w, "todo_lists", list_id)]


def _long_lists(w: World) -> tuple[Slots, Rows]:
    counted = "SELECT l.*, (SELECT count(*) FROM todo_items WHERE list_id = l.id AND NOT done) AS open_items"
    _fullest(w)
    lists = w.all(f"{counted} FROM todo_lists l WHERE owner = ?", w.owner.id)
    least = w.rng.choice(sorted({one["open_items"] for one in lists})[:-1])
    return {"limit": least}, [one for one in lists if one["open_items"] > least]


_ALL_OPEN = todo.PICK + 'found = todo.list_items(list_id=lists[0]["id"], page_size=20)\n'
_BEFORE = Find(
    "items-due-before",
    (
        "all open items of my {where} list that are due before {day}",
        "everything on the to-do list {where} that I must do earlier than {day}",
        "whatever is open on my {where} list with a due date before {day}",
    ),
    _ALL_OPEN + 'found = [x for x in found if x["due"] and x["due"] < "{day}"]',
    _before,
    many=True,
    keep="those that have a `due` and whose `due` is before {day}",
)
BEFORE_AND_AFTER = replace(
    _BEFORE,
    name="items-due-before-and-others",
    look=todo.PICK + 'seen = todo.list_items(list_id=lists[0]["id"], page_size=20)\n'
    'found = [x for x in seen if x["due"] and x["due"] < "{day}"]\n'
    'rest = [x for x in seen if not x["due"] or x["due"] >= "{day}"]',
    rest="the other open items of that list",
)
_AFTER = Find(
    "items-due-after",
    (
        "all open items of my {where} list that are due after {day}",
        "everything on the to-do list {where} that is due later than {day}",
    ),
    _ALL_OPEN + 'found = [x for x in found if x["due"] and x["due"] > "{day}"]',
    _after,
    many=True,
    keep="those that have a `due` and whose `due` is after {day}",
)
UNDATED = Find(
    "items-without-date",
    (
        "all open items of my {where} list without a due date",
        "everything that is open on the to-do list {where} and has no due date",
    ),
    _ALL_OPEN + 'found = [x for x in found if not x["due"]]',
    _undated,
    many=True,
    keep="those that have no `due`",
)
_URGENT = Find(
    "items-of-priority",
    (
        "all open items of {level} priority on my {where} list",
        "everything that is open on the to-do list {where} and has {level} priority",
    ),
    _ALL_OPEN + 'found = [x for x in found if x["priority"] == "{level}"]',
    _urgent,
    many=True,
    keep="those whose `priority` is {level}",
)
_DATED = _ALL_OPEN + 'found = [x for x in found if x["due"]]\n'
_FIRST = Find(
    "item-due-first",
    ("the open item of my {where} list that is due first", "the most overdue item on the to-do list {where}"),
    _DATED + 'found = [min(found, key=lambda x: x["due"])]',
    _first,
    keep="those that have a `due`, and of them the one with the earliest `due`",
)
LAST = Find(
    "item-due-last",
    ("the open item of my {where} list that is due last", "the item on the to-do list {where} with the last due date"),
    _DATED + 'found = [max(found, key=lambda x: x["due"])]',
    _last,
    keep="those that have a `due`, and of them the one with the latest `due`",
)
_EVERYWHERE = Find(
    "open-items-anywhere",
    ("all open items of {level} priority in my to-do lists", "everything of {level} priority that I still have to do"),
    every("found", "todo.search()")
    + '\nfound = [x for x in found if not x["done"] and x["priority"] == "{level}"]\nprint([x["text"] for x in found])',
    _everywhere,
    many=True,
    keep="those that are not `done` and whose `priority` is {level}",
)
_FULLEST = Find(
    "fullest-list",
    ("the to-do list with the most open items", "that of my to-do lists on which most is open"),
    'found = todo.list_lists()\nfound = [max(found, key=lambda x: x["open_items"])]',
    _fullest,
    keep="the one with the most `open_items`",
)
_LONG_LISTS = Find(
    "long-lists",
    ("all my to-do lists with more than {limit} open items", "every to-do list on which over {limit} items are open"),
    'found = todo.list_lists()\nfound = [x for x in found if x["open_items"] > {limit}]',
    _long_lists,
    many=True,
    keep="those whose `open_items` are more than {limit}",
)

CHECK = Act(
    "todo.add",
    ("Put '{text}' on {it}.", "Add the item '{text}' to {it}.", "{it} should get the new item '{text}'."),
    "add '{text}' to {them}",
    key="list_id",
    given=pick(text=("tidy up this list", "ask who can help", "throw out what is old", "start with the first")),
    name="add",
)

DRILLS = [
    *drills([_BEFORE], [todo.COMPLETE]),
    *drills([BEFORE_AND_AFTER], [(todo.COMPLETE, replace(todo.NOTE, rest=True))]),
    *drills([_AFTER], [todo.CLEAR]),
    *drills([UNDATED], [todo.DELETE]),
    *drills([_URGENT], [todo.NOTE]),
    *drills([_FIRST], [todo.COMPLETE]),
    *drills([LAST], [todo.DELETE]),
    *drills([_EVERYWHERE], [todo.COUNT]),
    *drills([_FULLEST], [todo.RENAME]),
    *drills([_LONG_LISTS], [CHECK]),
]
