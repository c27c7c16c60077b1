"""Notes with tags."""

from typing import Annotated, Literal

from pydantic import StringConstraints
from typing_extensions import TypedDict

from errands.api import App, Id, Label, Line, Listing, New, Numbered, Problem, Query, Success, Text
from errands.database import Owned
from errands.words import read
from errands.world import World

app = App("notes", "Notes: short texts with tags, which can be pinned and archived.")

NOTES = Owned("notes", "note")
NO_TEXT = Problem(404, "The note does not contain {text!r}.")
NO_TAG = Problem(404, "The note does not have the tag {tag!r}.")
TAGGED_ALREADY = Problem(409, "The note already has the tag {tag!r}.")
TOO_LONG = Problem(422, "The note would have more than 4000 characters.")

Tag = Annotated[str, StringConstraints(max_length=30, pattern=r"^[a-z0-9-]+$"), Label("lower-case word")]


class Brief(Numbered):
    title: str
    created: str
    pinned: bool


class Full(Brief):
    archived: bool
    body: str


class Note(Full):
    tags: list[str]


class Tagged(TypedDict):
    tag: str
    notes: int


@app.api()
def search(w: World, me: int, query: Query = "", tag: Tag | None = None, archived: bool = False) -> Listing[Brief]:
    """Notes whose title or body contains the query, newest first. With a tag, only the notes that have it."""
    tagged = "(?4 IS NULL OR EXISTS (SELECT 1 FROM notes_tags WHERE note_id = n.id AND tag = ?4))"
    found = f"owner = ?1 AND archived = ?2 AND holds(title || ' ' || body, ?3) AND {tagged}"
    return Listing(f"FROM notes n WHERE {found} ORDER BY created DESC, id", me, archived, query, tag)


@app.api(NOTES.missing)
def show(w: World, me: int, note_id: Id) -> Note:
    """Show a note in full."""
    note = NOTES.show(Full, w, me, note_id)
    tags = w.all("SELECT tag FROM notes_tags WHERE note_id = ? ORDER BY tag", note_id)
    return {**note, "tags": [row["tag"] for row in tags]}


@app.api()
def create(w: World, me: int, title: Line, body: Text = "") -> New[Literal["note_id"]]:
    """Write a new note."""
    return {"note_id": w.add("notes", owner=me, title=title, body=body, created=w.moment)}


@app.api(NOTES.missing, TOO_LONG, says="Note changed.")
def append(w: World, me: int, note_id: Id, line: Line) -> None:
    """Add a line to the end of a note."""
    body = NOTES.find(w, me, note_id)["body"]
    rewrite(w, me, note_id, f"{body}\n{line}" if body else line)


@app.api(NOTES.missing, NO_TEXT, TOO_LONG, says="Note changed.")
def replace_text(w: World, me: int, note_id: Id, old: Line, new: Query) -> None:
    """Replace some text in the body of a note wherever it occurs. Replace it with an empty text to remove it."""
    body = NOTES.find(w, me, note_id)["body"]
    NO_TEXT.unless(old in body, text=old)
    rewrite(w, me, note_id, body.replace(old, new))


@app.api(NOTES.missing, says="Note changed.")
def rewrite(w: World, me: int, note_id: Id, body: Text) -> None:
    """Replace the whole body of a note."""
    TOO_LONG.when(len(body) > 4000)
    NOTES.change(w, me, note_id, body=body)


@app.api(NOTES.missing, says="Note renamed.")
def rename(w: World, me: int, note_id: Id, title: Line) -> None:
    """Give a note a new title."""
    NOTES.change(w, me, note_id, title=title)


@app.api()
def list_tags(w: World, me: int) -> Listing[Tagged]:
    """Your tags, and how many notes have each, in alphabetical order."""
    return Listing("FROM notes_counted WHERE owner = ? ORDER BY tag", me)


@app.api(NOTES.missing, TAGGED_ALREADY, says="Note tagged.")
def add_tag(w: World, me: int, note_id: Id, tag: Tag) -> None:
    """Tag a note."""
    NOTES.find(w, me, note_id)
    w.add_once(TAGGED_ALREADY(tag=tag), "notes_tags", note_id=note_id, tag=tag)


@app.api(NOTES.missing, NO_TAG, says="Tag removed.")
def remove_tag(w: World, me: int, note_id: Id, tag: Tag) -> None:
    """Remove a tag from a note."""
    NOTES.find(w, me, note_id)
    NO_TAG.unless(w.remove("notes_tags", note_id=note_id, tag=tag), tag=tag)


@app.api(NOTES.missing)
def pin(w: World, me: int, note_id: Id, pinned: bool = True) -> Success:
    """Pin a note, or unpin it."""
    NOTES.change(w, me, note_id, pinned=pinned)
    return {"message": "Note pinned." if pinned else "Note unpinned."}


@app.api(NOTES.missing)
def archive(w: World, me: int, note_id: Id, archived: bool = True) -> Success:
    """Archive a note, or take it out of the archive."""
    NOTES.change(w, me, note_id, archived=archived)
    return {"message": "Note archived." if archived else "Note taken out of the archive."}


@app.api(NOTES.missing, says="Note deleted.")
def delete(w: World, me: int, note_id: Id) -> None:
    """Delete a note."""
    NOTES.delete(w, me, note_id)


_WORDS = read("world")["notes"]


@app.filled_by
def fill(w: World) -> None:
    """The owner has many notes, a few of them archived; others have one each."""
    about = w.rng.sample(_WORDS["about"], w.rng.randrange(20, len(_WORDS["about"])))
    titles = [f"{word} {w.rng.choice(_WORDS['kinds'])}" for word in about]
    notes = [_row(w, w.owner.id, title) for title in titles]
    notes += [_row(w, person.id, w.rng.choice(titles)) for person in w.others()]
    tags = [
        (id + 1, tag) for id in range(len(titles)) for tag in w.rng.sample(_WORDS["tags"], w.rng.choice((0, 1, 1, 2)))
    ]
    w.add_all("notes", "owner, title, body, created, pinned, archived", notes)
    w.add_all("notes_tags", "note_id, tag", tags)


def _row(w: World, owner: int, title: str) -> tuple[int, str, str, str, bool, bool]:
    body = "\n".join(w.rng.sample(_WORDS["lines"], w.rng.randrange(1, 5)))
    created = w.ago(days=w.rng.randrange(1, 120), hours=w.rng.randrange(24))
    return owner, title, body, created, w.rng.random() < 0.1, w.rng.random() < 0.15
