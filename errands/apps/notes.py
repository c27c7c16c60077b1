"""Notes with tags."""

from typing import Annotated

from pydantic import StringConstraints
from typing_extensions import TypedDict

from errands.api import App, Id, Label, Line, Page, PageSize, Problem, Query, Success, Text
from errands.world import World

app = App(
    "notes",
    "Notes: short texts with tags, which can be pinned and archived.",
    schema="""
CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    title TEXT NOT NULL, body TEXT NOT NULL, created TEXT NOT NULL,
    pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    archived INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)));
CREATE INDEX notes_owner ON notes(owner);
CREATE TABLE notes_tags (id INTEGER PRIMARY KEY AUTOINCREMENT,
    note_id INTEGER NOT NULL REFERENCES notes(id) ON DELETE CASCADE, tag TEXT NOT NULL, UNIQUE (note_id, tag));
""",
    invariants=("SELECT id FROM notes WHERE title = ''", "SELECT id FROM notes_tags WHERE tag != lower(tag)"),
)

NO_NOTE = Problem(404, "There is no note {id}.")
NO_TEXT = Problem(404, "The note does not contain {text!r}.")
NO_TAG = Problem(404, "The note has no tag {tag!r}.")
TAGGED_ALREADY = Problem(409, "The note already has the tag {tag!r}.")
TOO_LONG = Problem(422, "The note would have more than 4000 characters.")

Tag = Annotated[str, StringConstraints(max_length=30, pattern=r"^[a-z0-9-]+$"), Label("lower-case word")]


class Brief(TypedDict):
    id: int
    title: str
    created: str
    pinned: bool


class Note(Brief):
    archived: bool
    body: str
    tags: list[str]


class Tagged(TypedDict):
    tag: str
    notes: int


class Created(TypedDict):
    note_id: int


@app.api()
def search(
    w: World,
    me: int,
    query: Query = "",
    tag: Tag | None = None,
    archived: bool = False,
    page: Page = 0,
    page_size: PageSize = 5,
) -> list[Brief]:
    """Notes whose title or body contains the query, newest first; if a tag is given, only those with it."""
    source = "FROM notes n WHERE owner = ? AND archived = ? AND title || ' ' || body LIKE ?"
    values: tuple[object, ...] = (me, archived, f"%{query}%")
    if tag is not None:
        source += " AND EXISTS (SELECT 1 FROM notes_tags WHERE note_id = n.id AND tag = ?)"
        values += (tag,)
    return w.page(Brief, f"{source} ORDER BY created DESC, id", values, page, page_size)


@app.api(NO_NOTE)
def show(w: World, me: int, note_id: Id) -> Note:
    """One note in full."""
    _body(w, me, note_id)
    note = w.one("SELECT id, title, created, pinned, archived, body FROM notes WHERE id = ?", note_id) or {}
    tags = w.all("SELECT tag FROM notes_tags WHERE note_id = ? ORDER BY tag", note_id)
    return note | {"tags": [row["tag"] for row in tags]}  # type: ignore[return-value]


@app.api()
def create(w: World, me: int, title: Line, body: Text = "") -> Created:
    """Write a note."""
    return {"note_id": w.add("notes", owner=me, title=title, body=body, created=w.moment)}


@app.api(NO_NOTE, TOO_LONG)
def append(w: World, me: int, note_id: Id, line: Line) -> Success:
    """Add a line at the end of a note."""
    body = _body(w, me, note_id)
    return _write(w, note_id, f"{body}\n{line}" if body else line)


@app.api(NO_NOTE, NO_TEXT, TOO_LONG)
def replace_text(w: World, me: int, note_id: Id, old: Line, new: Query) -> Success:
    """Replace a piece of a note's body by another wherever it occurs; an empty one takes it out."""
    body = _body(w, me, note_id)
    if old not in body:
        raise NO_TEXT(text=old)
    return _write(w, note_id, body.replace(old, new))


@app.api(NO_NOTE)
def rewrite(w: World, me: int, note_id: Id, body: Text) -> Success:
    """Replace the whole body of a note."""
    _body(w, me, note_id)
    return _write(w, note_id, body)


@app.api(NO_NOTE)
def rename(w: World, me: int, note_id: Id, title: Line) -> Success:
    """Give a note another title."""
    _body(w, me, note_id)
    w.run("UPDATE notes SET title = ? WHERE id = ?", title, note_id)
    return {"message": "Note renamed."}


@app.api()
def list_tags(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Tagged]:
    """Your tags, and how many notes have each, in alphabetical order."""
    source = (
        "FROM (SELECT tag, count(*) AS notes FROM notes_tags t JOIN notes n ON n.id = note_id WHERE owner = ? "
        "GROUP BY tag) ORDER BY tag"
    )
    return w.page(Tagged, source, (me,), page, page_size)


@app.api(NO_NOTE, TAGGED_ALREADY)
def add_tag(w: World, me: int, note_id: Id, tag: Tag) -> Success:
    """Tag a note."""
    _body(w, me, note_id)
    if w.value("SELECT id FROM notes_tags WHERE note_id = ? AND tag = ?", note_id, tag) is not None:
        raise TAGGED_ALREADY(tag=tag)
    w.add("notes_tags", note_id=note_id, tag=tag)
    return {"message": "Note tagged."}


@app.api(NO_NOTE, NO_TAG)
def remove_tag(w: World, me: int, note_id: Id, tag: Tag) -> Success:
    """Take a tag off a note."""
    _body(w, me, note_id)
    if not w.run("DELETE FROM notes_tags WHERE note_id = ? AND tag = ?", note_id, tag):
        raise NO_TAG(tag=tag)
    return {"message": "Tag removed."}


@app.api(NO_NOTE)
def pin(w: World, me: int, note_id: Id, pinned: bool = True) -> Success:
    """Pin a note, or no longer."""
    _body(w, me, note_id)
    w.run("UPDATE notes SET pinned = ? WHERE id = ?", pinned, note_id)
    return {"message": "Note pinned." if pinned else "Note no longer pinned."}


@app.api(NO_NOTE)
def archive(w: World, me: int, note_id: Id, archived: bool = True) -> Success:
    """Put a note into the archive, or take it out again."""
    _body(w, me, note_id)
    w.run("UPDATE notes SET archived = ? WHERE id = ?", archived, note_id)
    return {"message": "Note archived." if archived else "Note no longer archived."}


@app.api(NO_NOTE)
def delete(w: World, me: int, note_id: Id) -> Success:
    """Delete a note."""
    _body(w, me, note_id)
    w.run("DELETE FROM notes WHERE id = ?", note_id)
    return {"message": "Note deleted."}


def _body(w: World, me: int, id: int) -> str:
    """The body of someone's note."""
    return str(w.owned("notes", id, me, NO_NOTE)["body"])


def _write(w: World, id: int, body: str) -> Success:
    if len(body) > 4000:
        raise TOO_LONG()
    w.run("UPDATE notes SET body = ? WHERE id = ?", body, id)
    return {"message": "Note changed."}


_ABOUT = (
    *("Balcony", "Bike", "Birthday", "Books", "Budget", "Camping", "Car", "Cellar", "Christmas", "Cinema", "Coffee"),
    *("Flat", "French", "Guitar", "Insurance", "Kitchen", "Lamp", "Museum", "Podcast", "Recipe", "Running", "Sofa"),
    *("Tax", "Wedding", "Wifi", "Winter", "Workshop", "Yoga"),
)
_KINDS = ("ideas", "plan", "questions")
_LINES = (
    *("compare three offers", "ask at the desk", "call before noon", "price is about right", "blue, not green"),
    *("too expensive", "see page 12", "two metres wide", "check again in spring", "worked well last time"),
    *("not before Friday", "needs a new battery", "bring cash", "recommended by the neighbours", "open until six"),
)
_TAGS = ("home", "ideas", "money", "travel", "work", "family", "later")


@app.filled_by
def fill(w: World) -> None:
    """The owner has many notes, a few of them archived; others have one each."""
    titles = [f"{about} {w.rng.choice(_KINDS)}" for about in w.rng.sample(_ABOUT, w.rng.randrange(20, len(_ABOUT)))]
    notes = [_row(w, w.owner.id, title) for title in titles]
    notes += [_row(w, person.id, w.rng.choice(titles)) for person in w.others()]
    tags = [(id + 1, tag) for id in range(len(titles)) for tag in w.rng.sample(_TAGS, w.rng.choice((0, 1, 1, 2)))]
    w.db.executemany(
        "INSERT INTO notes (owner, title, body, created, pinned, archived) VALUES (?, ?, ?, ?, ?, ?)", notes
    )
    w.db.executemany("INSERT INTO notes_tags (note_id, tag) VALUES (?, ?)", tags)


def _row(w: World, owner: int, title: str) -> tuple[int, str, str, str, int, int]:
    body = "\n".join(w.rng.sample(_LINES, w.rng.randrange(1, 5)))
    created = w.ago(days=w.rng.randrange(1, 120), hours=w.rng.randrange(24))
    return owner, title, body, created, int(w.rng.random() < 0.1), int(w.rng.random() < 0.15)
