"""Drills around the tags of notes and how often they are used."""

from errands.drill import Ask, Find, Rows, Slots, drills, limit, row
from errands.drills import notes
from errands.scenario import every
from errands.world import World


def _tags(w: World) -> Rows:
    used = "SELECT tag, count(*) AS notes FROM notes_tags t JOIN notes n ON n.id = note_id WHERE owner = ?"
    return w.all(f"{used} GROUP BY tag ORDER BY tag", w.owner.id)


def _tag(w: World, tag: str, count: int) -> Rows:
    """So many notes outside of the archive get a tag that no other has."""
    there = "SELECT * FROM notes WHERE owner = ? AND NOT archived AND id NOT IN (SELECT note_id FROM notes_tags"
    some = w.rng.sample(w.all(f"{there} WHERE tag = ?)", w.owner.id, tag), count)
    for note in some:
        w.add("notes_tags", note_id=note["id"], tag=tag)
    return [row(w, "notes", note["id"]) for note in some]


def _named(w: World) -> tuple[Slots, Rows]:
    first, second = w.rng.sample(notes.TAGS, 2)
    for tag, count in zip((first, second), w.rng.sample(range(2, 9), 2), strict=True):
        _tag(w, tag, count)
    return {"topic": first}, [one for one in _tags(w) if one["tag"] == first]


def _common(w: World) -> tuple[Slots, Rows]:
    """The notes with the tag that most have."""
    most = max(one["notes"] for one in _tags(w))
    return {}, _tag(w, w.rng.choice(notes.TAGS), most + 1)


def _most(w: World) -> tuple[Slots, Rows]:
    used = _tags(w)
    one, most = w.rng.choice(used), max(one["notes"] for one in used)
    _tag(w, one["tag"], most + 1 - one["notes"])
    return {}, [one | {"notes": most + 1}]


def _rare(w: World) -> tuple[Slots, Rows]:
    """The note with the only tag that no other has."""
    for one in _tags(w):
        if one["notes"] == 1:
            _tag(w, one["tag"], 1)
    return {}, _tag(w, w.rng.choice(notes.TAGS), 1)


def _frequent(w: World) -> tuple[Slots, Rows]:
    for tag, count in zip(w.rng.sample(notes.TAGS, 3), (1, 4, 8), strict=True):
        _tag(w, tag, count)
    found = _tags(w)
    least = limit(w, [one["notes"] + 0.5 for one in found])
    return {"limit": least}, [one for one in found if one["notes"] > least]


_EVERY_TAG = every("found", "notes.list_tags()") + "\n"
_MOST = 'found = [max(found, key=lambda x: x["notes"])]'
_FEWEST = 'found = [min(found, key=lambda x: x["notes"])]'
_WITH = '\ntag = found[0]["tag"]\nfound = notes.search(tag=tag, page_size=20)\nprint([x["title"] for x in found])'
_NAMED = Find(
    "tag",
    ("the tag '{topic}'", "my tag '{topic}'"),
    _EVERY_TAG + 'found = [x for x in found if x["tag"] == "{topic}"]',
    _named,
    keep="the one whose `tag` is {topic}",
)
_COMMONEST = Find(
    "commonest-tag",
    ("the tag that most of my notes have", "the most used of all tags in my notes"),
    _EVERY_TAG + _MOST,
    _most,
    keep="the one with the most `notes`",
)
_FREQUENT = Find(
    "frequent-tags",
    ("all tags that more than {limit} of my notes have", "every tag that is on more than {limit} notes"),
    _EVERY_TAG + 'found = [x for x in found if x["notes"] > {limit}]',
    _frequent,
    many=True,
    keep="those whose `notes` are above {limit}",
)
_COMMON = Find(
    "notes-with-commonest-tag",
    ("all notes with the tag that I use most", "every note that has the most used of my tags"),
    _EVERY_TAG + _MOST + _WITH,
    _common,
    many=True,
    keep="the tag with the most `notes`",
)
_RARE = Find(
    "note-with-rarest-tag",
    ("the note with the tag that I used only once", "the one note that has the rarest of my tags"),
    _EVERY_TAG + _FEWEST + _WITH,
    _rare,
    keep="the tag with the fewest `notes`",
)

_USES = Ask(
    "notes",
    (
        "How many notes have {it}?",
        "On how many notes do I use {it}?",
        "Tell me the number of notes with {it}.",
    ),
    "say how many notes have {them}",
)
_NAME = Ask(
    "tag",
    ("What is {it}?", "Which tag is {it}?", "Tell me {it}."),
    "name {them}",
)

DRILLS = [
    *drills([_NAMED], [_USES]),
    *drills([_COMMONEST], [_NAME]),
    *drills([_FREQUENT], [notes.COUNT]),
    *drills([_COMMON], [notes.APPEND]),
    *drills([_RARE], [notes.ARCHIVE, (notes.BODY, notes.TAG)]),
]
