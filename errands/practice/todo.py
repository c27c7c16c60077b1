"""Fills worlds for practice with to-do lists and their items (todo.toml)."""

from errands.practice.drill import Row, Slots
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


def some(w: World) -> Slots:
    w.run("DELETE FROM todo_items WHERE owner = ? AND due IS NULL", w.owner.id)
    _add(w)
    return {}


def aimed(w: World) -> Slots:
    """A list to which things on other lists may go."""
    target = w.rng.choice(_lists(w))
    return some(w) | {"target": target["name"], "_there": target["id"]}


def listed(w: World, done: int, dated: bool = False, aimed: bool = False) -> Slots:
    """Puts items on a list; with `dated`, none there is without a date. With `aimed` another list is meant, too."""
    where, other = w.rng.sample(_lists(w), 2)
    if dated:
        w.run("DELETE FROM todo_items WHERE list_id = ? AND due IS NULL", where["id"])
    _add(w, done, where["id"])
    target = {"target": other["name"], "_there": other["id"]} if aimed else {}
    return {"of": where["name"], "_here": where["id"], **target}


def until(w: World) -> Slots:
    w.run("DELETE FROM todo_items WHERE owner = ? AND due < ?", w.owner.id, w.day(-5))
    _add(w)
    return {"of": w.day(w.rng.randrange(3, 12))}


def counted(w: World) -> Slots:
    """Lists with other numbers of open items, one of them with none."""
    empty = w.rng.randrange(1, 5)
    for place, (one, count) in enumerate(zip(_lists(w), w.rng.sample(range(1, 7), 5), strict=True)):
        w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE list_id = ? AND NOT done", w.day(-1), one["id"])
        items = w.all("SELECT id FROM todo_items WHERE list_id = ?", one["id"])
        for item in w.rng.sample(items, count) if place != empty else ():
            w.run("UPDATE todo_items SET done = 0, done_on = NULL WHERE id = ?", item["id"])
    return {}


def later(w: World) -> str:
    return w.day(w.rng.randrange(31, 60))


def finished(w: World, row: Row) -> None:
    w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE list_id = ? AND NOT done", w.day(-1), row["id"])


def undone(w: World, row: Row) -> None:
    w.run("UPDATE todo_items SET done = 0, done_on = NULL WHERE id = ?", row["id"])


def done(w: World, row: Row) -> None:
    w.run("UPDATE todo_items SET done = 1, done_on = ? WHERE id = ?", w.day(-1), row["id"])


def noted(w: World, row: Row) -> None:
    note = w.rng.choice(WORDS["remarks_on_items"])
    w.run("UPDATE todo_items SET note = ? WHERE id = ? AND note = ''", note, row["id"])


def elsewhere(w: World, row: Row) -> None:
    """Not on the list to which it is to go."""
    others = [one["id"] for one in _lists(w) if one["id"] != row["there"]]
    w.run(
        "UPDATE todo_items SET list_id = ? WHERE id = ? AND list_id = ?", w.rng.choice(others), row["id"], row["there"]
    )
