"""Practice with notes and their tags."""

from functools import partial

from errands.practice.blocks import COUNT, Source, alone, each, practice, switch
from errands.practice.conditions import All, Moment, Name, Number, State, Top
from errands.practice.drill import TIME, Act, Ask, Row, Slots
from errands.words import WORDS
from errands.world import World


def _write(w: World, archived: int = 0, count: int = 4) -> list[int]:
    """Notes with titles of their own, some of them pinned."""
    ids = []
    for title in w.rng.sample(WORDS["notes"], count):
        w.run("DELETE FROM notes WHERE owner = ? AND title = ?", w.owner.id, title)
        more = {"created": w.ago(w.rng.randrange(1, 120), w.rng.randrange(24)), "pinned": w.rng.randrange(2)}
        body = "\n".join(w.rng.sample(WORDS["lines"], 2))
        ids.append(w.add("notes", owner=w.owner.id, title=title, body=body, archived=archived, **more))
    return ids


def _new(w: World, archived: int) -> Slots:
    _write(w, archived)
    return {}


def _tagged(w: World) -> Slots:
    tag = w.rng.choice(WORDS["tags"])
    for note in _write(w, count=w.rng.randrange(3, 6)):
        w.add("notes_tags", note_id=note, tag=tag)
    return {"of": tag}


def _tags(w: World) -> Slots:
    """Tags that other numbers of notes have."""
    w.run("DELETE FROM notes_tags WHERE note_id IN (SELECT id FROM notes WHERE owner = ?)", w.owner.id)
    mine = [one["id"] for one in w.all("SELECT id FROM notes WHERE owner = ?", w.owner.id)]
    for tag, count in zip(w.rng.sample(WORDS["tags"], 5), w.rng.sample(range(1, 12), 5), strict=True):
        for note in w.rng.sample(mine, count):
            w.add("notes_tags", note_id=note, tag=tag)
    return {}


def _has(w: World, row: Row) -> None:
    """It has a text in which something can be replaced, and a tag that can be taken off."""
    w.run("UPDATE notes SET body = ? WHERE id = ?", "keep the old key\nask the neighbour", row["id"])
    w.run("INSERT OR IGNORE INTO notes_tags (note_id, tag) VALUES (?, 'private')", row["id"])


NOTES = Source("notes", "notes.search", "my note*", partial(_new, archived=0), long=True)
_TAGGED = Source("tagged-notes", "notes.search", "my note* tagged '{of}'", _tagged, {"tag": '"{of}"'})
_ARCHIVED = Source(
    "archived-notes", "notes.search", "my archived note*", partial(_new, archived=1), {"archived": "True"}
)
_TAGS = Source("tags", "notes.list_tags", "note tag*", _tags)

_TITLED = Name("title", "the note '{called}'|my note '{called}'", "query")
_PUT_AWAY = Name("title", "the archived note '{called}'|my archived note '{called}'", "query")
_WHEN = Moment("created", "{noun} created {than} {day}", "", "oldest {noun}")
_PINNED = State("pinned", "pinned {noun}", "unpinned {noun}")
_NEWEST = Top("newest {noun}", "created")

_PIN, _UNPIN = switch("notes.pin", "notes", "pin {it}", "unpin {it}", "unpin")
_DELETE = Act("notes.delete", "delete {it}|get rid of {it}")
_ARCHIVE = Act("notes.archive", "archive {it}|move {it} to the archive", name="archive-note")
_UNARCHIVE = Act(
    "notes.archive", "unarchive {it}|move {it} out of the archive", name="unarchive", fixed=(("archived", False),)
)
_RENAME = Act(
    "notes.rename", "rename {it} to '{title}'|change the title of {it} to '{title}'", args={"title": "new_notes"}
)
_APPEND = Act("notes.append", "add the line '{line}' to {it}", args={"line": "texts"})
_REWRITE = Act("notes.rewrite", "replace the whole text of {it} with '{body}'", args={"body": "texts"})
_REPLACE = Act(
    "notes.replace_text",
    "replace '{old}' with '{new}' in {it}",
    args={"old": ("old key", "neighbour"), "new": ("spare key", "plumber")},
    ready=_has,
)
_TAG = Act("notes.add_tag", "add the tag '{tag}' to {it}", args={"tag": "new_tags"})
_UNTAG = Act("notes.remove_tag", "remove the tag '{tag}' from {it}", args={"tag": ("private",)}, ready=_has)
_CREATE = Act(
    "notes.create",
    "create a note '{title}' with the text '{body}'",
    name="create-note",
    args={"title": "new_notes", "body": "texts"},
)
_LIST_FOR = Act("todo.create_list", "create a to-do list named after {it}", field="tag", single=True)

_ASKS = [
    Ask("body", "text", asked="What does {it} say?", show="notes.show"),
    Ask("created", "creation time", hint=TIME, asked="When was {it} created?"),
    Ask("title"),
]
_ACTS = [_PIN, _RENAME, _TAG, _DELETE, _APPEND, _ARCHIVE, _REPLACE, _UNTAG, _REWRITE, _UNPIN]

KINDS = [
    *practice(NOTES, [_TITLED], [*_ACTS, *_ASKS], 9),
    *practice(NOTES, [_NEWEST, _WHEN, _PINNED], [*_ACTS, *_ASKS, COUNT, each("title")]),
    *practice(_TAGGED, [All(), _NEWEST, _WHEN, _PINNED], [*_ACTS, *_ASKS, COUNT, each("title")]),
    *practice(_ARCHIVED, [_PUT_AWAY, _WHEN, All()], [_UNARCHIVE, *_ASKS, _DELETE, COUNT, each("title")]),
    *practice(
        _TAGS,
        [Number("notes", "{noun} used on {than} {limit} notes", "{noun} used on the most notes")],
        [Ask("tag", "name"), COUNT, each("tag", "name"), _LIST_FOR, Ask("notes", "number of notes")],
    ),
    *alone(_CREATE),
]
