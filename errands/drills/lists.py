"""Drills in which to-do items of all lists are chosen by when they are due, items are moved, and lists deleted."""

from dataclasses import replace

from errands.drill import Act, Find, Rows, Slots, drills, row
from errands.drills import contacts, items, todo
from errands.scenario import every
from errands.scenarios.todo import add_item, chores, owned_lists
from errands.world import World

_NAMES = ("Soon", "Weekend", "Summer", "One day", "Waiting", "For two")


def _due(w: World) -> tuple[str, Rows]:
    """A day, and what is open and due until then in any list: on it, before it, and of every priority."""
    ahead = w.rng.randrange(2, 20)
    lists = list(owned_lists(w).values())
    for number, chore in enumerate(chores(w, 6)):
        due, priority = w.day(ahead - w.rng.choice((0, 1, 3)) * (number % 3)), ("low", "normal", "high")[number % 3]
        add_item(w, lists[number % 3], chore, due=w.day(ahead) if number < 3 else due, priority=priority)
    day = w.day(ahead)
    until = "SELECT * FROM todo_items WHERE owner = ? AND NOT done AND due <= ? ORDER BY due"
    return day, w.all(until, w.owner.id, day)


def _until(w: World) -> tuple[Slots, Rows]:
    day, found = _due(w)
    return {"day": day}, found


def _urgent_until(w: World) -> tuple[Slots, Rows]:
    day, found = _due(w)
    level = w.rng.choice(("low", "normal", "high"))
    return {"day": day, "level": level}, [one for one in found if one["priority"] == level]


def _listed_until(w: World) -> tuple[Slots, Rows]:
    day, found = _due(w)
    where, list_id = w.rng.choice(list(owned_lists(w).items())[:3])
    return {"day": day, "where": where}, [one | {"rest": one["list_id"] != list_id} for one in found]


def _exactly(w: World) -> tuple[Slots, Rows]:
    day, found = _due(w)
    return {"day": day}, [one for one in found if one["due"] == day]


def _first_due(w: World) -> tuple[Slots, Rows]:
    """The item that is most overdue of all."""
    chore, list_id = chores(w, 1)[0], w.rng.choice(list(owned_lists(w).values()))
    note = w.rng.choice(("ask Kim first", "needs a van", "quick", "takes an hour", "cash only"))
    return {}, [row(w, "todo_items", add_item(w, list_id, chore, due=w.day(-w.rng.randrange(20, 40)), note=note))]


def _calls(w: World) -> tuple[Slots, Rows]:
    """Items with the names of people, of whom some are of a kind."""
    kin = w.rng.choice(contacts.KINS)
    others = w.rng.sample([one for one in w.others() if one.relation != kin], 2)
    people, lists = [*w.others(kin)[:2], *others], list(owned_lists(w).values())
    w.rng.shuffle(people)
    found = []
    for person in people:
        due = w.day(w.rng.randrange(1, 30))
        id = add_item(w, w.rng.choice(lists), f"call {person.name}", due=due)
        found += [row(w, "todo_items", id)] if person.relation == kin else []
    return {"kin": kin}, found


def _finished(w: World) -> tuple[Slots, Rows]:
    """Lists on which all is done, with an item of each."""
    names, found = w.rng.sample(_NAMES, w.rng.randrange(2, 4)), []
    for name, text in zip(names, chores(w, len(names)), strict=True):
        list_id = w.add("todo_lists", owner=w.owner.id, name=name)
        add_item(w, list_id, text, done=True)
        found.append(row(w, "todo_lists", list_id) | {"list_id": list_id, "chore": text})
    return {}, found


def _finished_list(w: World) -> tuple[Slots, Rows]:
    _, found = _finished(w)
    return {"where": found[0]["name"]}, found[:1]


def _list_with(w: World) -> tuple[Slots, Rows]:
    _, found = _finished(w)
    return {"chore": found[0]["chore"]}, found[:1]


def _parted(w: World) -> tuple[Slots, Rows]:
    _, found = _finished(w)
    used = [row(w, "todo_lists", id) for id in owned_lists(w).values() if id not in [one["id"] for one in found]]
    for one in used:
        add_item(w, one["id"], chores(w, 1)[0])
    return {}, [*found, *(one | {"rest": True} for one in used)]


def _moving(find: Find) -> Find:
    """The same things, and a new list to move them to."""

    def put(w: World) -> tuple[Slots, Rows]:
        slots, rows = find.put(w)
        name = w.rng.choice(_NAMES)
        target = w.add("todo_lists", owner=w.owner.id, name=name)
        return slots | {"target": name}, [one | {"target": target} for one in rows]

    to = '\ntarget = todo.list_lists()\ntarget = [x["id"] for x in target if x["name"] == "{target}"]\n'
    return replace(find, look=f"{find.look}{to}found = [dict(x, target=target[0]) for x in found]", put=put)


_ALL_DUE = every("found", 'todo.list_due(until="{day}")') + "\n"
_UNTIL = Find(
    "items-due-until",
    (
        "everything in my to-do lists that is open and due on {day} or earlier",
        "all open items of all my to-do lists that are due by {day}",
    ),
    _ALL_DUE + 'print([x["text"] for x in found])',
    _until,
    many=True,
)
_URGENT_UNTIL = Find(
    "urgent-items-due-until",
    (
        "everything of {level} priority in my to-do lists that is open and due on {day} or earlier",
        "all open items of {level} priority, from any to-do list, that are due by {day}",
    ),
    _ALL_DUE + 'found = [x for x in found if x["priority"] == "{level}"]',
    _urgent_until,
    many=True,
    keep="those whose `priority` is {level}",
)
_LISTED_UNTIL = Find(
    "items-of-list-due-until",
    (
        "whatever is due by {day} and still open on my {where} list",
        "all open items of the to-do list {where} that are due on {day} or earlier",
    ),
    todo.PICK + _ALL_DUE + 'found = [x for x in found if x["list_id"] == lists[0]["id"]]',
    _listed_until,
    many=True,
    keep="those whose `list_id` is that of {where}",
)
_LISTED_AND_OTHERS = replace(
    _LISTED_UNTIL,
    name="items-due-until-by-list",
    look=todo.PICK + every("seen", 'todo.list_due(until="{day}")') + "\n"
    'found = [x for x in seen if x["list_id"] == lists[0]["id"]]\n'
    'rest = [x for x in seen if x["list_id"] != lists[0]["id"]]',
    rest="all that is due by the same day and open on my other lists",
)
_EXACTLY = Find(
    "items-due-on",
    (
        "everything in my to-do lists that is open and due exactly on {day}",
        "all open items of all my to-do lists with {day} as the due date",
    ),
    _ALL_DUE + 'found = [x for x in found if x["due"] == "{day}"]',
    _exactly,
    many=True,
    keep="those whose `due` is {day}",
)
_FIRST_DUE = Find(
    "most-overdue-item",
    ("the open item with the earliest due date in my to-do lists", "the most overdue item in my to-do lists"),
    'found = todo.list_due(until="2100-01-01", page_size=1)',
    _first_due,
)
_CALLS = Find(
    "calls-to-relation",
    (
        "all items 'call ...' in my to-do lists with the name of a {kin} of mine",
        "every item 'call ...' of my to-do lists for which the one to call is my {kin}",
    ),
    'people = contacts.search(query="{kin}", page_size=20)\n'
    'texts = ["call " + x["name"] for x in people if x["relation"] == "{kin}"]\n'
    'found = todo.search(query="call ", page_size=20)\nfound = [x for x in found if x["text"] in texts]',
    _calls,
    many=True,
    keep="those whose `text` has the name of a contact whose `relation` is {kin}",
)
_FINISHED_LIST = Find(
    "finished-list",
    ("my {where} list", "the to-do list {where}"),
    todo.LIST.look,
    _finished_list,
)
_LIST_WITH = Find(
    "list-with-item",
    ("the to-do list that has the item '{chore}'", "that list in my to-do app on which there is '{chore}'"),
    'found = todo.search(query="{chore}")',
    _list_with,
)
_FINISHED = Find(
    "finished-lists",
    ("all my to-do lists on which nothing is open", "every to-do list without open items"),
    'found = todo.list_lists()\nfound = [x for x in found if x["open_items"] == 0]',
    _parted,
    many=True,
    keep="those whose `open_items` are 0",
)
_FINISHED_AND_OTHERS = replace(
    _FINISHED,
    name="finished-and-other-lists",
    look='seen = todo.list_lists()\nfound = [x for x in seen if x["open_items"] == 0]\n'
    'rest = [x for x in seen if x["open_items"] > 0]',
    rest="all the other to-do lists",
)


_MOVE = Act(
    "todo.move",
    (
        "Move {it} to my list {target}.",
        "{it} should be on the list {target} instead. Move {them}.",
        "The right list for {it} is {target}: move {them} there.",
        "I want {it} on another list, {target}: move {them} there.",
    ),
    "move {them} to the list {target}",
    key="item_id",
    also=(("list_id", "target"),),
)
_DELETE_LIST = Act(
    "todo.delete_list",
    (
        "Delete {it}.",
        "{it} can go: delete {them}.",
        "All is done there, so delete {it}.",
        "Remove {it} altogether.",
    ),
    "delete {them}",
    key="list_id",
)

DRILLS = [
    *drills([_UNTIL], [todo.COUNT, todo.NOTE]),
    *drills([_URGENT_UNTIL], [todo.COMPLETE]),
    *drills([_LISTED_UNTIL], [todo.CLEAR]),
    *drills([_LISTED_AND_OTHERS], [(todo.COMPLETE, replace(todo.NOTE, rest=True))]),
    *drills([_EXACTLY], [(todo.COUNT, todo.CLEAR)]),
    *drills([_FIRST_DUE], [(todo.REMARK, todo.COMPLETE)]),
    *drills([_CALLS], [todo.COMPLETE]),
    *drills([_moving(todo.ITEM), _moving(items.LAST), _moving(_CALLS)], [_MOVE]),
    *drills([_moving(items.UNDATED)], [(todo.COUNT, _MOVE)]),
    *drills([_moving(items.BEFORE_AND_AFTER)], [(_MOVE, replace(todo.DELETE, rest=True))]),
    *drills([_FINISHED_LIST, _FINISHED], [_DELETE_LIST]),
    *drills([_LIST_WITH], [replace(_DELETE_LIST, field="list_id")]),
    *drills([_FINISHED_AND_OTHERS], [(_DELETE_LIST, replace(items.CHECK, rest=True))]),
]
