"""Drills around notes."""

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.world import World

TITLES = ("Attic", "Picnic", "Carnival", "Regatta", "Orchard", "Lighthouse", "Treehouse", "Workbench")
BODIES = ("red or blue", "ask the neighbour", "measure twice", "not before May", "about forty", "see the old plan")
TAGS = ("garden", "harbour", "hobby", "school", "winter", "sport")


def _add(w: World, title: str, pinned: int = 0) -> int:
    values = {"body": w.rng.choice(BODIES), "created": w.ago(w.rng.randrange(1, 90), w.rng.randrange(9))}
    return w.add("notes", owner=w.owner.id, title=title, pinned=pinned, **values)


def _titled(w: World, pinned: int = 0) -> tuple[Slots, Rows]:
    titles = w.rng.sample(TITLES, 3)
    ids = [_add(w, title, pinned) for title in titles]
    return {"note": titles[0]}, [row(w, "notes", ids[0])]


def _archived(w: World) -> tuple[Slots, Rows]:
    slots, [note] = _titled(w)
    w.run("UPDATE notes SET archived = 1 WHERE id = ?", note["id"])
    return slots, [note]


def _tagged(w: World, count: int) -> tuple[Slots, Rows]:
    topic, other = w.rng.sample(TAGS, 2)
    ids = [_add(w, title) for title in w.rng.sample(TITLES, count + 1)]
    for id in ids:
        w.add("notes_tags", note_id=id, tag=other if id == ids[-1] else topic)
    return {"topic": topic}, [row(w, "notes", id) for id in ids[:-1]]


def _with_tag(w: World, rows: Rows) -> Slots:
    """A tag that the notes have."""
    tag = w.rng.choice(("old", "urgent", "draft", "maybe"))
    for note in rows:
        w.add("notes_tags", note_id=note["id"], tag=tag)
    return {"tag": tag}


_NOTE = Find(
    "note",
    ("the note '{note}'", "my note '{note}'", "the note called '{note}'"),
    'found = notes.search(query="{note}")',
    _titled,
)
_PINNED = Find(
    "pinned-note",
    ("the note '{note}'", "my note '{note}'", "the pinned note '{note}'"),
    'found = notes.search(query="{note}")',
    lambda w: _titled(w, 1),
)
_ARCHIVED = Find(
    "archived-note",
    ("the archived note '{note}'", "the note '{note}' in my archive", "my archived note called '{note}'"),
    'found = notes.search(query="{note}", archived=True)',
    _archived,
)
_TAGGED = Find(
    "tagged-note",
    ("the note with the tag '{topic}'", "the note tagged '{topic}'", "my one note that has the tag '{topic}'"),
    'found = notes.search(tag="{topic}")',
    lambda w: _tagged(w, 1),
)
_ALL = Find(
    "tagged-notes",
    ("all notes with the tag '{topic}'", "every note tagged '{topic}'"),
    'found = notes.search(tag="{topic}", page_size=20)',
    lambda w: _tagged(w, w.rng.randrange(2, 6)),
    many=True,
)

APPEND = Act(
    "notes.append",
    ("Add the line '{line}' to {it}.", "Write '{line}' at the end of {it}.", "{it} needs one more line: '{line}'."),
    "add the line '{line}' to {them}",
    key="note_id",
    given=pick(line=("call the shop", "two are enough", "bring gloves", "paid already", "next to the door")),
)
_REWRITE = Act(
    "notes.rewrite",
    (
        "Replace all that is in {it} by '{body}'.",
        "The whole text of {it} should be '{body}'.",
        "Forget what {it} says now and write '{body}' instead.",
    ),
    "replace the whole text of {them} by '{body}'",
    key="note_id",
    given=pick(body=("done with it", "start again", "wait for spring", "nothing yet", "to be decided")),
)
_RENAME = Act(
    "notes.rename",
    (
        "Rename {it} to '{title}'.",
        "Give {it} the title '{title}'.",
        "{it} should be called '{title}' from now on.",
        "Change the title of {it} to '{title}'.",
    ),
    "rename {them} to '{title}'",
    key="note_id",
    given=pick(title=("Leftovers", "Big project", "For later", "Second try", "Collected thoughts")),
)
TAG = Act(
    "notes.add_tag",
    ("Tag {it} with '{tag}'.", "Put the tag '{tag}' on {it}.", "{it} should have the tag '{tag}'."),
    "put the tag '{tag}' on {them}",
    key="note_id",
    given=pick(tag=("important", "checked", "shared", "spring")),
)
_UNTAG = Act(
    "notes.remove_tag",
    (
        "Take the tag '{tag}' off {it}.",
        "Remove the tag '{tag}' from {it}.",
        "{it} should not have the tag '{tag}' any more.",
    ),
    "take the tag '{tag}' off {them}",
    key="note_id",
    given=_with_tag,
)
PIN = Act(
    "notes.pin",
    ("Pin {it}.", "I want {it} pinned.", "Keep {it} at the top: pin {them}."),
    "pin {them}",
    key="note_id",
)
_UNPIN = Act(
    "notes.pin",
    ("Unpin {it}.", "I do not want {it} pinned any more.", "Take the pin off {it}."),
    "unpin {them}",
    key="note_id",
    fixed=(("pinned", False),),
    name="unpin",
)
_REPLACE = Act(
    "notes.replace_text",
    (
        "In {it}, write '{new}' in place of '{old}'.",
        "Replace '{old}' by '{new}' in {it}.",
        "{it} says '{old}', but it should say '{new}'. Change that.",
    ),
    "replace '{old}' by '{new}' in {them}",
    key="note_id",
    given=lambda w, rows: {
        "old": w.rng.choice(rows[0]["body"].split()),
        "new": w.rng.choice(("perhaps", "soon", "gold")),
    },
)
DELETE = Act(
    "notes.delete",
    ("Delete {it}.", "{it} can go: delete {them}.", "Throw away {it}."),
    "delete {them}",
    key="note_id",
)
ARCHIVE = Act(
    "notes.archive",
    (
        "Archive {it}.",
        "Put {it} into the archive.",
        "I want to keep {it}, but not see {them} any more: archive {them}.",
        "Move {it} to my archive of notes.",
    ),
    "put {them} into the archive",
    key="note_id",
    name="archive-note",
)
UNARCHIVE = Act(
    "notes.archive",
    (
        "Take {it} out of the archive.",
        "I need {it} again, outside of the archive.",
        "Bring {it} back to my other notes.",
    ),
    "take {them} out of the archive",
    key="note_id",
    fixed=(("archived", False),),
    name="unarchive",
)
_CREATE = Act(
    "notes.create",
    (
        "Write a note '{title}' that says '{body}'.",
        "Make a new note with the title '{title}' and the text '{body}'.",
        "I need a note called '{title}'. Put '{body}' into it.",
    ),
    "write a note called '{title}' that says '{body}'",
    given=pick(title=TITLES, body=BODIES),
    name="create-note",
)

BODY = Ask(
    "body",
    ("What does {it} say?", "Read me {it}.", "Tell me the text of {it}."),
    "tell the text of {them}",
    show="notes.show",
    key="note_id",
)
_CREATED = Ask(
    "created",
    (
        "When did I write {it}? Answer like 2026-01-31 15:00.",
        "Tell me when {it} was created, like 2026-01-31 15:00.",
        "From when is {it}? Write it like 2026-01-31 15:00.",
    ),
    "say when {them} was created",
)
TITLE = Ask(
    "title",
    ("What is the title of {it}?", "What is {it} called?", "Tell me the title of {it}."),
    "tell the title of {them}",
)
COUNT = Ask(
    "how many",
    ("Count {it}.", "Please count {it} for me.", "Tell me the number you get if you count {it}."),
    "count {them}",
)

DRILLS = [
    *drills([_NOTE], [_REWRITE, _RENAME, TAG, _UNTAG, PIN, _REPLACE, DELETE, BODY, _CREATED]),
    *drills([_PINNED], [_UNPIN]),
    *drills([_TAGGED], [APPEND, _RENAME, DELETE, TITLE, BODY]),
    *drills([_ALL], [PIN, TAG, APPEND, DELETE, COUNT]),
    *drills([_NOTE], [(BODY, ARCHIVE)]),
    *drills([_TAGGED], [ARCHIVE]),
    *drills([_ARCHIVED], [UNARCHIVE]),
    *drills([_NOTE], [(_RENAME, PIN), (BODY, DELETE), (_REPLACE, TAG)]),
    *drills([NOTHING], [_CREATE]),
]
