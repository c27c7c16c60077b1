"""Drills in which notes are chosen by a condition."""

from dataclasses import replace

from errands.drill import Find, Rows, Slots, day, drills, row
from errands.drills import notes
from errands.scenario import every
from errands.world import World


def _notes(w: World) -> Rows:
    """All notes that are not archived, newest first."""
    mine = "SELECT * FROM notes WHERE owner = ? AND NOT archived"
    return w.all(f"{mine} ORDER BY created DESC, id DESC", w.owner.id)


def _with_topic(w: World) -> tuple[str, Rows]:
    """Notes with a tag, written on days of their own, every other one pinned; newest first."""
    topic, ids = w.rng.choice(notes.TAGS), []
    titles = w.rng.sample(notes.TITLES, w.rng.randrange(4, 8))
    ago = sorted(w.rng.sample(range(1, 120, 2), len(titles)))
    for place, (title, days) in enumerate(zip(titles, ago, strict=True)):
        more = {"body": w.rng.choice(notes.BODIES), "created": w.ago(days), "pinned": place % 2}
        ids.append(w.add("notes", owner=w.owner.id, title=title, **more))
        w.add("notes_tags", note_id=ids[-1], tag=topic)
    return topic, [row(w, "notes", id) for id in ids]


def _old(w: World) -> tuple[Slots, Rows]:
    notes = _notes(w)
    end = day(w, [note["created"] for note in notes])
    return {"day": end}, [note for note in notes if note["created"] < end]


def _new(w: World) -> tuple[Slots, Rows]:
    topic, notes = _with_topic(w)
    start = day(w, [note["created"] for note in notes])
    return {"topic": topic, "day": start}, [note | {"rest": note["created"] < start} for note in notes]


def _pinned(w: World) -> tuple[Slots, Rows]:
    _with_topic(w)
    return {}, [note for note in _notes(w) if note["pinned"]]


def _loose(w: World) -> tuple[Slots, Rows]:
    topic, notes = _with_topic(w)
    return {"topic": topic}, [note for note in notes if not note["pinned"]]


def _archived_old(w: World) -> tuple[Slots, Rows]:
    _, found = _with_topic(w)
    for note in found:
        w.run("UPDATE notes SET archived = 1 WHERE id = ?", note["id"])
    archived = w.all("SELECT * FROM notes WHERE owner = ? AND archived", w.owner.id)
    end = day(w, [note["created"] for note in archived])
    return {"day": end}, [note for note in archived if note["created"] < end]


def _oldest(w: World) -> tuple[Slots, Rows]:
    topic, notes = _with_topic(w)
    return {"topic": topic}, notes[-1:]


def _oldest_pinned(w: World) -> tuple[Slots, Rows]:
    _with_topic(w)
    ids = []
    for pinned, days, title in zip(
        (1, 0), (w.rng.randrange(130, 180), 190), w.rng.sample(notes.TITLES, 2), strict=True
    ):
        more = {"body": w.rng.choice(notes.BODIES), "created": w.ago(days), "pinned": pinned}
        ids.append(w.add("notes", owner=w.owner.id, title=title, **more))
    return {}, [row(w, "notes", ids[0])]


_EVERY_NOTE = every("found", "notes.search()")
_TOPICAL = 'found = notes.search(tag="{topic}", page_size=20)\n'
_OLD = Find(
    "notes-before",
    (
        "all notes that I wrote before {day}",
        "every note of mine from before {day}",
        "whatever note is older than {day}",
    ),
    _EVERY_NOTE + '\nfound = [x for x in found if x["created"][:10] < "{day}"]\nprint([x["created"] for x in found])',
    _old,
    many=True,
    keep="those whose `created` is before {day}",
)
_NEW = Find(
    "tagged-notes-after",
    ("all notes tagged '{topic}' that I wrote after {day}", "every note with tag '{topic}' that is newer than {day}"),
    _TOPICAL + 'found = [x for x in found if x["created"][:10] > "{day}"]',
    _new,
    many=True,
    keep="those whose `created` is after {day}",
)
_NEW_AND_OLD = replace(
    _NEW,
    name="tagged-notes-after-and-before",
    look='seen = notes.search(tag="{topic}", page_size=20)\nfound = [x for x in seen if x["created"][:10] > "{day}"]\n'
    'rest = [x for x in seen if x["created"][:10] <= "{day}"]',
    rest="the other notes with that tag",
)
_PINNED_ALL = Find(
    "pinned-notes",
    ("all pinned notes", "every note of mine that is pinned"),
    _EVERY_NOTE + '\nfound = [x for x in found if x["pinned"]]\nprint([x["title"] for x in found])',
    _pinned,
    many=True,
    keep="those that are `pinned`",
)
_LOOSE = Find(
    "unpinned-notes",
    ("all unpinned notes with the tag '{topic}'", "every note tagged '{topic}' that has no pin"),
    _TOPICAL + 'found = [x for x in found if not x["pinned"]]',
    _loose,
    many=True,
    keep="those that are not `pinned`",
)
_ARCHIVED_OLD = Find(
    "archived-notes-before",
    ("all archived notes from before {day}", "every note in my archive that I wrote before {day}"),
    every("found", "notes.search(archived=True)")
    + '\nfound = [x for x in found if x["created"][:10] < "{day}"]\nprint([x["created"] for x in found])',
    _archived_old,
    many=True,
    keep="those whose `created` is before {day}",
)
_OLDEST = Find(
    "oldest-tagged-note",
    ("the oldest note with the tag '{topic}'", "the note I wrote first of those tagged '{topic}'"),
    _TOPICAL + 'found = [min(found, key=lambda x: x["created"])]',
    _oldest,
    keep="the one with the earliest `created`",
)
_OLDEST_PINNED = Find(
    "oldest-pinned-note",
    ("the oldest of my pinned notes", "the note that I wrote first of all that are pinned"),
    _EVERY_NOTE + '\nfound = [x for x in found if x["pinned"]]\nfound = [min(found, key=lambda x: x["created"])]',
    _oldest_pinned,
    keep="those that are `pinned`, and of them the one with the earliest `created`",
)

DRILLS = [
    *drills([_OLD], [notes.DELETE, notes.ARCHIVE]),
    *drills([_NEW], [notes.TAG]),
    *drills(
        [_NEW_AND_OLD], [(notes.TAG, replace(notes.DELETE, rest=True)), (notes.PIN, replace(notes.ARCHIVE, rest=True))]
    ),
    *drills([_PINNED_ALL], [notes.COUNT]),
    *drills([_LOOSE], [notes.DELETE]),
    *drills([_ARCHIVED_OLD], [notes.UNARCHIVE]),
    *drills([_OLDEST], [notes.BODY]),
    *drills([_OLDEST_PINNED], [notes.TITLE]),
]
