"""To-do lists and their items."""

from typing import Any, Literal

from typing_extensions import TypedDict

from errands.api import App, Day, Id, Line, Page, PageSize, Problem, Query, Success, Text
from errands.world import World

app = App(
    "todo",
    "To-do lists: items with due dates and priorities, open or done.",
    schema="""
CREATE TABLE todo_lists (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    name TEXT NOT NULL, UNIQUE (owner, name));
CREATE TABLE todo_items (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    list_id INTEGER NOT NULL REFERENCES todo_lists(id) ON DELETE CASCADE, text TEXT NOT NULL, due TEXT,
    priority TEXT NOT NULL CHECK (priority IN ('low', 'normal', 'high')),
    done INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1)), done_on TEXT, note TEXT NOT NULL DEFAULT '');
CREATE INDEX todo_items_owner ON todo_items(owner);
CREATE INDEX todo_items_list ON todo_items(list_id);
""",
    invariants=(
        "SELECT i.id FROM todo_items i JOIN todo_lists l ON l.id = i.list_id WHERE i.owner != l.owner",
        "SELECT id FROM todo_items WHERE done != (done_on IS NOT NULL)",
    ),
)

NO_LIST = Problem(404, "There is no list {id}.")
NO_ITEM = Problem(404, "There is no item {id}.")
NAME_TAKEN = Problem(409, "There is already a list {name!r}.")
STILL_OPEN = Problem(409, "The list has open items; complete, move or delete them first.")
DONE_ALREADY = Problem(409, "The item is already done.")
OPEN_ALREADY = Problem(409, "The item is already open.")

Priority = Literal["low", "normal", "high"]


class Listed(TypedDict):
    id: int
    name: str
    open_items: int


class Brief(TypedDict):
    id: int
    list_id: int
    text: str
    due: str | None
    priority: str
    done: bool


class Item(Brief):
    done_on: str | None
    note: str


class ListCreated(TypedDict):
    list_id: int


class Added(TypedDict):
    item_id: int


@app.api()
def list_lists(w: World, me: int) -> list[Listed]:
    """Your lists, with the number of open items in each."""
    source = (
        "FROM (SELECT l.id, name, (SELECT count(*) FROM todo_items WHERE list_id = l.id AND done = 0) AS open_items "
        "FROM todo_lists l WHERE owner = ?) ORDER BY id"
    )
    return w.rows(Listed, source, me)


@app.api(NAME_TAKEN)
def create_list(w: World, me: int, name: Line) -> ListCreated:
    """Make a new, empty list."""
    _check_name(w, me, name)
    return {"list_id": w.add("todo_lists", owner=me, name=name)}


@app.api(NO_LIST, NAME_TAKEN)
def rename_list(w: World, me: int, list_id: Id, name: Line) -> Success:
    """Give a list another name."""
    _check_list(w, me, list_id)
    _check_name(w, me, name)
    w.run("UPDATE todo_lists SET name = ? WHERE id = ?", name, list_id)
    return {"message": "List renamed."}


@app.api(NO_LIST, STILL_OPEN)
def delete_list(w: World, me: int, list_id: Id) -> Success:
    """Delete a list without open items; its done items go with it."""
    _check_list(w, me, list_id)
    if w.value("SELECT id FROM todo_items WHERE list_id = ? AND done = 0", list_id) is not None:
        raise STILL_OPEN()
    w.run("DELETE FROM todo_lists WHERE id = ?", list_id)
    return {"message": "List deleted."}


@app.api(NO_LIST)
def list_items(
    w: World, me: int, list_id: Id, done: bool = False, page: Page = 0, page_size: PageSize = 5
) -> list[Brief]:
    """The open items of a list, or the done ones."""
    _check_list(w, me, list_id)
    source = "FROM todo_items WHERE list_id = ? AND done = ? ORDER BY id"
    return w.page(Brief, source, (list_id, done), page, page_size)


@app.api()
def list_due(w: World, me: int, until: Day, page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Open items of all lists that are due until a day, also overdue ones, earliest first."""
    source = "FROM todo_items WHERE owner = ? AND done = 0 AND due <= ? ORDER BY due, id"
    return w.page(Brief, source, (me, until), page, page_size)


@app.api()
def search(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Items of all lists, open or done, whose text contains the query."""
    source = "FROM todo_items WHERE owner = ? AND text LIKE ? ORDER BY id"
    return w.page(Brief, source, (me, f"%{query}%"), page, page_size)


@app.api(NO_ITEM)
def show(w: World, me: int, item_id: Id) -> Item:
    """One item in full."""
    _done(w, me, item_id)
    return w.rows(Item, "FROM todo_items WHERE id = ?", item_id)[0]


@app.api(NO_LIST)
def add(w: World, me: int, list_id: Id, text: Line, due: Day | None = None, priority: Priority = "normal") -> Added:
    """Add an item to a list."""
    _check_list(w, me, list_id)
    return {"item_id": w.add("todo_items", owner=me, list_id=list_id, text=text, due=due, priority=priority)}


@app.api(NO_ITEM)
def update(
    w: World,
    me: int,
    item_id: Id,
    text: Line | None = None,
    due: Day | None = None,
    priority: Priority | None = None,
    note: Text | None = None,
) -> Success:
    """Change an item; what is not given stays as it is."""
    _done(w, me, item_id)
    w.change("todo_items", item_id, text=text, due=due, priority=priority, note=note)
    return {"message": "Item changed."}


@app.api(NO_ITEM)
def clear_due(w: World, me: int, item_id: Id) -> Success:
    """Take the due date off an item."""
    _done(w, me, item_id)
    w.run("UPDATE todo_items SET due = NULL WHERE id = ?", item_id)
    return {"message": "Item changed."}


@app.api(NO_ITEM, DONE_ALREADY)
def complete(w: World, me: int, item_id: Id) -> Success:
    """Tick off an item: it is done."""
    if _done(w, me, item_id):
        raise DONE_ALREADY()
    w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE id = ?", w.today, item_id)
    return {"message": "Item done."}


@app.api(NO_ITEM, OPEN_ALREADY)
def reopen(w: World, me: int, item_id: Id) -> Success:
    """Make a done item open again."""
    if not _done(w, me, item_id):
        raise OPEN_ALREADY()
    w.run("UPDATE todo_items SET done = 0, done_on = NULL WHERE id = ?", item_id)
    return {"message": "Item open again."}


@app.api(NO_ITEM, NO_LIST)
def move(w: World, me: int, item_id: Id, list_id: Id) -> Success:
    """Move an item to another list."""
    _done(w, me, item_id)
    _check_list(w, me, list_id)
    w.run("UPDATE todo_items SET list_id = ? WHERE id = ?", list_id, item_id)
    return {"message": "Item moved."}


@app.api(NO_ITEM)
def delete(w: World, me: int, item_id: Id) -> Success:
    """Delete an item."""
    _done(w, me, item_id)
    w.run("DELETE FROM todo_items WHERE id = ?", item_id)
    return {"message": "Item deleted."}


def _check_list(w: World, me: int, id: int) -> None:
    w.owned("todo_lists", id, me, NO_LIST)


def _check_name(w: World, me: int, name: str) -> None:
    if w.value("SELECT id FROM todo_lists WHERE owner = ? AND name = ?", me, name) is not None:
        raise NAME_TAKEN(name=name)


def _done(w: World, me: int, id: int) -> bool:
    """Whether someone's item is done."""
    return bool(w.owned("todo_items", id, me, NO_ITEM)["done"])


_POOLS = {
    "Groceries": (
        *("milk", "eggs", "bread", "butter", "rice", "apples", "onions", "cheese", "pasta", "tomatoes", "coffee"),
        *("salt", "yoghurt", "carrots", "flour", "honey"),
    ),
    "Home": (
        *("fix the tap", "clean the windows", "change the bulb", "oil the door", "sort the cellar", "paint the shelf"),
        *("vacuum the stairs", "wash the curtains", "hang the mirror", "defrost the freezer", "descale the kettle"),
    ),
    "Work": (
        *("send the report", "book a room", "read the draft", "update the slides", "order toner", "clean up the inbox"),
        *("write the summary", "review the budget", "plan the week", "test the form", "file the receipts"),
    ),
    "Garden": (
        *("water the roses", "mow the lawn", "cut the hedge", "plant herbs", "sweep the path", "repair the fence"),
        *("rake the leaves", "buy seeds", "turn the compost", "clean the pond"),
    ),
    "Errands": (
        *(
            "pick up the parcel",
            "return the shoes",
            "get new keys",
            "buy stamps",
            "collect the suit",
            "take back books",
        ),
        *("renew the pass", "drop off glass", "buy a gift", "get cash"),
    ),
}


@app.filled_by
def fill(w: World) -> None:
    """The owner has five lists, others one."""
    rows = []
    for name in w.rng.sample(list(_POOLS), len(_POOLS)):
        list_id = w.add("todo_lists", owner=w.owner.id, name=name)
        rows += [_row(w, w.owner.id, list_id, text) for text in w.rng.sample(_POOLS[name], w.rng.randrange(7, 11))]
    for person in w.others():
        name = w.rng.choice(list(_POOLS))
        list_id = w.add("todo_lists", owner=person.id, name=name)
        rows.append(_row(w, person.id, list_id, w.rng.choice(_POOLS[name])))
    w.db.executemany(
        "INSERT INTO todo_items (owner, list_id, text, due, priority, done, done_on) VALUES (?, ?, ?, ?, ?, ?, ?)", rows
    )


def _row(w: World, owner: int, list_id: int, text: str) -> tuple[Any, ...]:
    due = w.day(w.rng.randrange(-12, 30)) if w.rng.random() < 0.6 else None
    done_on = w.day(-w.rng.randrange(30)) if w.rng.random() < 0.35 else None
    priority = w.rng.choice(("low", "normal", "normal", "high"))
    return owner, list_id, text, due, priority, int(done_on is not None), done_on
