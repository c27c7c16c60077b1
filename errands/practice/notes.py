"""Fills worlds for practice with notes and their tags (notes.toml)."""

from errands.practice.drill import Row, Slots
from errands.words import WORDS
from errands.world import World


def _write(w: World, archived: int = 0, count: int = 4) -> list[int]:
    """Notes with titles of their own, some of them pinned. No other is in the archive: whoever says "my notes" may mean
    those as well."""
    ids = []
    w.run("UPDATE notes SET archived = 0 WHERE owner = ?", w.owner.id)
    for title in w.rng.sample(WORDS["notes"], count):
        w.run("DELETE FROM notes WHERE owner = ? AND title = ?", w.owner.id, title)
        more = {"created": w.ago(w.rng.randrange(1, 120), w.rng.randrange(24)), "pinned": w.rng.randrange(2)}
        body = "\n".join(w.rng.sample(WORDS["lines"], 2))
        ids.append(w.add("notes", owner=w.owner.id, title=title, body=body, archived=archived, **more))
    return ids


def new(w: World, archived: int) -> Slots:
    _write(w, archived)
    return {}


def tagged(w: World) -> Slots:
    tag = w.rng.choice(WORDS["tags"])
    for note in _write(w, count=w.rng.randrange(3, 6)):
        w.add("notes_tags", note_id=note, tag=tag)
    return {"of": tag}


def tags(w: World) -> Slots:
    """Tags that other numbers of notes have."""
    w.run("DELETE FROM notes_tags WHERE note_id IN (SELECT id FROM notes WHERE owner = ?)", w.owner.id)
    mine = [one["id"] for one in w.all("SELECT id FROM notes WHERE owner = ?", w.owner.id)]
    for tag, count in zip(w.rng.sample(WORDS["tags"], 5), w.rng.sample(range(1, 12), 5), strict=True):
        for note in w.rng.sample(mine, count):
            w.add("notes_tags", note_id=note, tag=tag)
    return {}


def has(w: World, row: Row) -> None:
    """It has a text in which something can be replaced, and a tag that can be taken off."""
    w.run("UPDATE notes SET body = ? WHERE id = ?", "keep the old key\nask the neighbour", row["id"])
    w.run("INSERT OR IGNORE INTO notes_tags (note_id, tag) VALUES (?, 'private')", row["id"])
