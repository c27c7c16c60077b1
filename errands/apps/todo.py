"""To-do lists and their items."""

from typing import Any, Literal

from errands.api import App, Day, Id, Line, Listing, New, Numbered, Problem, Query, Text
from errands.database import Owned
from errands.words import read
from errands.world import World

app = App("todo", "To-do lists: items with due dates and priorities, open or done.")

LISTS = Owned("todo_lists", "list")
ITEMS = Owned("todo_items", "item")
NAME_TAKEN = Problem(409, "There is already a list called {name!r}.")
STILL_OPEN = Problem(409, "The list has open items; complete, move or delete them first.")
DONE_ALREADY = Problem(409, "The item is already done.")
OPEN_ALREADY = Problem(409, "The item is already open.")

Priority = Literal["low", "normal", "high"]


class Listed(Numbered):
    name: str
    open_items: int


class Brief(Numbered):
    list_id: int
    text: str
    due: str | None
    priority: str
    done: bool


class Item(Brief):
    done_on: str | None
    note: str


@app.api()
def list_lists(w: World, me: int) -> list[Listed]:
    """Your lists, with the number of open items in each."""
    return w.rows(Listed, "FROM todo_shown WHERE owner = ? ORDER BY id", me)


@app.api(NAME_TAKEN)
def create_list(w: World, me: int, name: Line) -> New[Literal["list_id"]]:
    """Create an empty list."""
    _check_name(w, me, name)
    return {"list_id": w.add("todo_lists", owner=me, name=name)}


@app.api(LISTS.missing, NAME_TAKEN, says="List renamed.")
def rename_list(w: World, me: int, list_id: Id, name: Line) -> None:
    """Give a list a new name."""
    LISTS.find(w, me, list_id)
    _check_name(w, me, name)
    w.change("todo_lists", list_id, name=name)


@app.api(LISTS.missing, STILL_OPEN, says="List deleted.")
def delete_list(w: World, me: int, list_id: Id) -> None:
    """Delete a list that has no open items, along with its done items."""
    LISTS.find(w, me, list_id)
    STILL_OPEN.when(w.find_id("todo_items", list_id=list_id, done=0))
    w.remove("todo_lists", id=list_id)


@app.api(LISTS.missing)
def list_items(w: World, me: int, list_id: Id, done: bool = False) -> Listing[Brief]:
    """The open items of a list. With done=True, its done items."""
    LISTS.find(w, me, list_id)
    return Listing("FROM todo_items WHERE list_id = ? AND done = ? ORDER BY id", list_id, done)


@app.api()
def list_due(w: World, me: int, until: Day) -> Listing[Brief]:
    """Open items of all lists that are due by a day, overdue items included, earliest first."""
    return Listing("FROM todo_items WHERE owner = ? AND done = 0 AND due <= ? ORDER BY due, id", me, until)


@app.api()
def search(w: World, me: int, query: Query = "") -> Listing[Brief]:
    """Items of all lists, open or done, whose text contains the query."""
    return Listing("FROM todo_items WHERE owner = ? AND holds(text, ?) ORDER BY id", me, query)


@app.api(ITEMS.missing)
def show(w: World, me: int, item_id: Id) -> Item:
    """Show an item in full."""
    return ITEMS.show(Item, w, me, item_id)


@app.api(LISTS.missing)
def add(
    w: World, me: int, list_id: Id, text: Line, due: Day | None = None, priority: Priority = "normal"
) -> New[Literal["item_id"]]:
    """Add an item to a list."""
    LISTS.find(w, me, list_id)
    return {"item_id": w.add("todo_items", owner=me, list_id=list_id, text=text, due=due, priority=priority)}


@app.api(ITEMS.missing, says="Item changed.")
def update(
    w: World,
    me: int,
    item_id: Id,
    text: Line | None = None,
    due: Day | None = None,
    priority: Priority | None = None,
    note: Text | None = None,
) -> None:
    """Change an item. What you leave out stays as it is."""
    ITEMS.change(w, me, item_id, text=text, due=due, priority=priority, note=note)


@app.api(ITEMS.missing, says="Item changed.")
def clear_due(w: World, me: int, item_id: Id) -> None:
    """Remove the due date of an item."""
    ITEMS.find(w, me, item_id)
    w.run("UPDATE todo_items SET due = NULL WHERE id = ?", item_id)


@app.api(ITEMS.missing, DONE_ALREADY, says="Item done.")
def complete(w: World, me: int, item_id: Id) -> None:
    """Mark an item as done."""
    DONE_ALREADY.when(ITEMS.find(w, me, item_id)["done"])
    w.change("todo_items", item_id, done=True, done_on=w.today)


@app.api(ITEMS.missing, OPEN_ALREADY, says="Item open again.")
def reopen(w: World, me: int, item_id: Id) -> None:
    """Mark a done item as open again."""
    OPEN_ALREADY.unless(ITEMS.find(w, me, item_id)["done"])
    w.run("UPDATE todo_items SET done = 0, done_on = NULL WHERE id = ?", item_id)


@app.api(ITEMS.missing, LISTS.missing, says="Item moved.")
def move(w: World, me: int, item_id: Id, list_id: Id) -> None:
    """Move an item to another list."""
    ITEMS.find(w, me, item_id)
    LISTS.find(w, me, list_id)
    w.change("todo_items", item_id, list_id=list_id)


@app.api(ITEMS.missing, says="Item deleted.")
def delete(w: World, me: int, item_id: Id) -> None:
    """Delete an item."""
    ITEMS.delete(w, me, item_id)


def _check_name(w: World, me: int, name: str) -> None:
    NAME_TAKEN.when(w.find_id("todo_lists", owner=me, name=name), name=name)


_TEXTS: dict[str, list[str]] = read("world")["todo"]


@app.filled_by
def fill(w: World) -> None:
    """The owner has five lists, others one."""
    lists = [(w.owner.id, name) for name in w.rng.sample(list(_TEXTS), len(_TEXTS))]
    lists += [(person.id, w.rng.choice(list(_TEXTS))) for person in w.others()]
    items = []
    for id, (owner, name) in enumerate(lists, start=1):
        count = w.rng.randrange(7, 11) if owner == w.owner.id else 1
        items += [(owner, id, *_item(w, text)) for text in w.rng.sample(_TEXTS[name], count)]
    w.add_all("todo_lists", "owner, name", lists)
    w.add_all("todo_items", "owner, list_id, text, due, priority, done, done_on", items)


def _item(w: World, text: str) -> tuple[Any, ...]:
    due = w.day(w.rng.randrange(-12, 30)) if w.rng.random() < 0.6 else None
    done_on = w.day(-w.rng.randrange(30)) if w.rng.random() < 0.35 else None
    return text, due, w.rng.choice(("low", "normal", "normal", "high")), done_on is not None, done_on
