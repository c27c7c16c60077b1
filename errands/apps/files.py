"""Files: the owner's files in folders, a bin, and files that people share with each other."""

from typing import Annotated, Any

from pydantic import StringConstraints
from typing_extensions import TypedDict

from errands.api import App, Email, Id, Label, Page, PageSize, Problem, Query, Success, Text
from errands.world import World

QUOTA_KB = 200_000
TEXTS = (".txt", ".md", ".csv")

app = App(
    "files",
    "Files in folders: read, write, move and copy them, share them with people, and a bin for deleted ones.",
    schema="""
CREATE TABLE files_folders (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    path TEXT NOT NULL, UNIQUE (owner, path));
CREATE TABLE files_files (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    folder INTEGER REFERENCES files_folders(id), name TEXT NOT NULL, text TEXT NOT NULL DEFAULT '',
    kb INTEGER NOT NULL CHECK (kb > 0), changed TEXT NOT NULL, binned INTEGER NOT NULL DEFAULT 0,
    CHECK (folder IS NOT NULL OR binned = 1));
CREATE INDEX files_files_owner ON files_files(owner);
CREATE UNIQUE INDEX files_files_place ON files_files(folder, name) WHERE binned = 0;
CREATE TABLE files_shares (id INTEGER PRIMARY KEY AUTOINCREMENT,
    file INTEGER NOT NULL REFERENCES files_files(id) ON DELETE CASCADE, person INTEGER NOT NULL REFERENCES people(id),
    UNIQUE (file, person));
CREATE INDEX files_shares_person ON files_shares(person);
""",
    invariants=(
        "SELECT f.id FROM files_files f JOIN files_folders d ON d.id = f.folder WHERE d.owner <> f.owner",
        "SELECT s.id FROM files_shares s JOIN files_files f ON f.id = s.file WHERE f.owner = s.person",
        "SELECT id FROM files_folders d WHERE path LIKE '%/%' AND NOT EXISTS (SELECT 1 FROM files_folders u"
        " WHERE u.owner = d.owner AND d.path LIKE u.path || '/%')",
    ),
)

NO_FILE = Problem(404, "There is no file {id}.")
NO_FOLDER = Problem(404, "There is no folder {path!r}; see files.list_folders.")
NO_PERSON = Problem(404, "Nobody has the e-mail address {email}.")
NOT_SHARED = Problem(404, "The file is not shared with {email}.")
NAME_TAKEN = Problem(409, "The folder already has a file {name!r}.")
FOLDER_EXISTS = Problem(409, "The folder {path!r} already exists.")
FOLDER_NOT_EMPTY = Problem(409, "The folder {path!r} is not empty.")
IN_BIN = Problem(409, "The file is in the bin; restore it first.")
NOT_IN_BIN = Problem(409, "The file is not in the bin.")
FOLDER_GONE = Problem(409, "The file's folder no longer exists; say to which folder it should go.")
NOT_TEXT = Problem(409, "Only .txt, .md and .csv files have text.")
SHARED_ALREADY = Problem(409, "The file is already shared with {email}.")
YOURSELF = Problem(422, "You cannot share a file with yourself.")

Name = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=r"^[^/\n\x00]*$"), Label("file name")]
Path = Annotated[
    str, StringConstraints(max_length=120, pattern=r"^[^/\n\x00]+(/[^/\n\x00]+)*$"), Label("folder path like 'A/B'")
]


class Folder(TypedDict):
    path: str
    files: int


class Brief(TypedDict):
    id: int
    name: str
    folder: str | None
    kb: int
    changed: str


class File(Brief):
    text: str
    in_bin: bool
    owner: str
    shared_with: list[str]


class Shared(TypedDict):
    id: int
    name: str
    owner: str
    kb: int
    changed: str


class Created(TypedDict):
    file_id: int


class Usage(TypedDict):
    files: int
    kb: int
    bin_kb: int
    quota_kb: int


_BRIEF = (
    "FROM (SELECT f.id, f.name, d.path AS folder, f.kb, f.changed, f.owner, f.text, f.binned"
    " FROM files_files f LEFT JOIN files_folders d ON d.id = f.folder)"
)


@app.api()
def list_folders(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Folder]:
    """All folders, with the number of files directly in them. 'A/B' is the folder B inside A."""
    source = (
        "FROM (SELECT d.id, path, count(f.id) AS files FROM files_folders d LEFT JOIN files_files f"
        " ON f.folder = d.id AND f.binned = 0 WHERE d.owner = ? GROUP BY d.id) ORDER BY path, id"
    )
    return w.page(Folder, source, (me,), page, page_size)


@app.api(NO_FOLDER, FOLDER_EXISTS)
def create_folder(w: World, me: int, path: Path) -> Success:
    """Make a folder. The folder it is in must exist."""
    parent = path.rpartition("/")[0]
    if parent:
        _folder(w, me, parent)
    if w.value("SELECT id FROM files_folders WHERE owner = ? AND path = ?", me, path) is not None:
        raise FOLDER_EXISTS(path=path)
    w.add("files_folders", owner=me, path=path)
    return {"message": "Folder made."}


@app.api(NO_FOLDER, FOLDER_NOT_EMPTY)
def delete_folder(w: World, me: int, path: Path) -> Success:
    """Delete an empty folder."""
    folder = _folder(w, me, path)
    inside = (
        "SELECT 1 FROM files_files WHERE folder = ? AND binned = 0 UNION ALL"
        " SELECT 1 FROM files_folders WHERE owner = ? AND path LIKE ? || '/%'"
    )
    if w.value(inside, folder, me, path) is not None:
        raise FOLDER_NOT_EMPTY(path=path)
    w.run("UPDATE files_files SET folder = NULL WHERE folder = ?", folder)
    w.run("DELETE FROM files_folders WHERE id = ?", folder)
    return {"message": "Folder deleted."}


@app.api(NO_FOLDER)
def list_folder(w: World, me: int, folder: Path, page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """The files directly in a folder, by name."""
    _folder(w, me, folder)
    source = f"{_BRIEF} WHERE owner = ? AND folder = ? AND binned = 0 ORDER BY name, id"
    return w.page(Brief, source, (me, folder), page, page_size)


@app.api()
def search(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Your files, in all folders, whose name or text contains the query; last changed first. Not those in the bin."""
    source = f"{_BRIEF} WHERE owner = ? AND binned = 0 AND name || ' ' || text LIKE ? ORDER BY changed DESC, id"
    return w.page(Brief, source, (me, f"%{query}%"), page, page_size)


@app.api(NO_FILE)
def show(w: World, me: int, file_id: Id) -> File:
    """One file with its text: one of yours, or one that is shared with you."""
    found = _readable(w, me, file_id)
    file = w.rows(Brief, f"{_BRIEF} WHERE id = ?", file_id)[0]
    mine = found["owner"] == me
    sql = "SELECT email FROM files_shares s JOIN people p ON p.id = person WHERE file = ? ORDER BY s.id"
    return {
        **file,
        "folder": file["folder"] if mine else None,
        "text": found["text"],
        "in_bin": bool(found["binned"]),
        "owner": w.name_of(found["owner"]),
        "shared_with": [row["email"] for row in w.all(sql, file_id)] if mine else [],
    }


@app.api(NO_FOLDER, NAME_TAKEN, NOT_TEXT)
def create(w: World, me: int, folder: Path, name: Name, text: Text = "") -> Created:
    """Make a text file (.txt, .md or .csv)."""
    place = _folder(w, me, folder)
    _check_text(name)
    _check_free(w, place, name)
    return {
        "file_id": w.add("files_files", owner=me, folder=place, name=name, text=text, kb=_kb(text), changed=w.moment)
    }


@app.api(NO_FILE, IN_BIN, NOT_TEXT)
def write(w: World, me: int, file_id: Id, text: Text) -> Success:
    """Replace the text of a file."""
    _check_text(_live(w, me, file_id)["name"])
    w.run("UPDATE files_files SET text = ?, kb = ?, changed = ? WHERE id = ?", text, _kb(text), w.moment, file_id)
    return {"message": "Written."}


@app.api(NO_FILE, IN_BIN, NOT_TEXT)
def append(w: World, me: int, file_id: Id, text: Text) -> Success:
    """Add text to a file, on a new line at its end."""
    before = _live(w, me, file_id)["text"].rstrip("\n")
    return write(w, me, file_id, f"{before}\n{text}" if before else text)


@app.api(NO_FILE, IN_BIN, NAME_TAKEN)
def rename(w: World, me: int, file_id: Id, name: Name) -> Success:
    """Give a file another name; it stays in its folder."""
    found = _live(w, me, file_id)
    if name != found["name"]:
        _check_free(w, found["folder"], name)
    w.run("UPDATE files_files SET name = ? WHERE id = ?", name, file_id)
    return {"message": "Renamed."}


@app.api(NO_FILE, IN_BIN, NO_FOLDER, NAME_TAKEN)
def move(w: World, me: int, file_id: Id, folder: Path) -> Success:
    """Move a file to another folder."""
    found = _live(w, me, file_id)
    place = _folder(w, me, folder)
    if place != found["folder"]:
        _check_free(w, place, found["name"])
    w.run("UPDATE files_files SET folder = ? WHERE id = ?", place, file_id)
    return {"message": "Moved."}


@app.api(NO_FILE, IN_BIN, NO_FOLDER, NAME_TAKEN)
def copy(w: World, me: int, file_id: Id, folder: Path, name: Name | None = None) -> Created:
    """Copy a file, yours or shared with you, to a folder of yours, under the same name or another."""
    found = _readable(w, me, file_id)
    if found["binned"]:
        raise IN_BIN()
    place = _folder(w, me, folder)
    name = name or found["name"]
    _check_free(w, place, name)
    kept = {column: found[column] for column in ("text", "kb")}
    return {"file_id": w.add("files_files", owner=me, folder=place, name=name, **kept, changed=w.moment)}


@app.api(NO_FILE, IN_BIN)
def delete(w: World, me: int, file_id: Id) -> Success:
    """Put a file into the bin."""
    _live(w, me, file_id)
    w.run("UPDATE files_files SET binned = 1 WHERE id = ?", file_id)
    return {"message": "The file is in the bin."}


@app.api()
def list_bin(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """The files in the bin, by name, with the folder they were in."""
    return w.page(Brief, f"{_BRIEF} WHERE owner = ? AND binned = 1 ORDER BY name, id", (me,), page, page_size)


@app.api(NO_FILE, NOT_IN_BIN, NO_FOLDER, FOLDER_GONE, NAME_TAKEN)
def restore(w: World, me: int, file_id: Id, folder: Path | None = None) -> Success:
    """Take a file out of the bin: back to the folder it was in, or to another one."""
    found = _find(w, me, file_id)
    if not found["binned"]:
        raise NOT_IN_BIN()
    place = found["folder"] if folder is None else _folder(w, me, folder)
    if place is None:
        raise FOLDER_GONE()
    _check_free(w, place, found["name"])
    w.run("UPDATE files_files SET binned = 0, folder = ? WHERE id = ?", place, file_id)
    return {"message": "Restored."}


@app.api()
def empty_bin(w: World, me: int) -> Success:
    """Delete everything in the bin for good."""
    count = w.run("DELETE FROM files_files WHERE owner = ? AND binned = 1", me)
    return {"message": f"Deleted for good: {count} files."}


@app.api(NO_FILE, IN_BIN, NO_PERSON, YOURSELF, SHARED_ALREADY)
def share(w: World, me: int, file_id: Id, email: Email) -> Success:
    """Let a person read and copy a file of yours."""
    _live(w, me, file_id)
    person = w.person_with(email)
    if person is None:
        raise NO_PERSON(email=email)
    if person == me:
        raise YOURSELF()
    if w.value("SELECT id FROM files_shares WHERE file = ? AND person = ?", file_id, person) is not None:
        raise SHARED_ALREADY(email=email)
    w.add("files_shares", file=file_id, person=person)
    return {"message": f"Shared with {w.name_of(person)}."}


@app.api(NO_FILE, NOT_SHARED)
def unshare(w: World, me: int, file_id: Id, email: Email) -> Success:
    """Stop sharing a file of yours with a person."""
    _find(w, me, file_id)
    if not w.run("DELETE FROM files_shares WHERE file = ? AND person = ?", file_id, w.person_with(email)):
        raise NOT_SHARED(email=email)
    return {"message": "No longer shared."}


@app.api()
def list_shared_with_me(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Shared]:
    """The files of others that are shared with you, last changed first, with the names of their owners."""
    source = (
        "FROM (SELECT f.id, name, p.first || ' ' || p.last AS owner, kb, changed FROM files_shares s"
        " JOIN files_files f ON f.id = s.file JOIN people p ON p.id = f.owner WHERE s.person = ? AND binned = 0)"
        " ORDER BY changed DESC, id"
    )
    return w.page(Shared, source, (me,), page, page_size)


@app.api()
def show_usage(w: World, me: int) -> Usage:
    """How many files there are, and how much room they, those in the bin, and all that is allowed take."""
    sums = "count(*) AS files, coalesce(sum(kb), 0) AS kb"
    used = w.all(f"SELECT {sums} FROM files_files WHERE owner = ? AND binned = 0", me)[0]
    binned = w.all(f"SELECT {sums} FROM files_files WHERE owner = ? AND binned = 1", me)[0]
    return {"files": used["files"], "kb": used["kb"], "bin_kb": binned["kb"], "quota_kb": QUOTA_KB}


def _folder(w: World, me: int, path: str) -> int:
    found: int | None = w.value("SELECT id FROM files_folders WHERE owner = ? AND path = ?", me, path)
    if found is None:
        raise NO_FOLDER(path=path)
    return found


def _find(w: World, me: int, id: int) -> dict[str, Any]:
    """A file of mine."""
    return w.owned("files_files", id, me, NO_FILE)


def _live(w: World, me: int, id: int) -> dict[str, Any]:
    """A file of mine that is not in the bin."""
    found = _find(w, me, id)
    if found["binned"]:
        raise IN_BIN()
    return found


def _readable(w: World, me: int, id: int) -> dict[str, Any]:
    """A file of mine, or one that is shared with me."""
    shared = "SELECT f.* FROM files_files f JOIN files_shares s ON s.file = f.id WHERE f.id = ? AND s.person = ?"
    return w.one(f"{shared} AND binned = 0", id, me) or _find(w, me, id)


def _check_free(w: World, folder: int, name: str) -> None:
    if w.value("SELECT id FROM files_files WHERE folder = ? AND name = ? AND binned = 0", folder, name) is not None:
        raise NAME_TAKEN(name=name)


def _check_text(name: str) -> None:
    if not name.endswith(TEXTS):
        raise NOT_TEXT()


def _kb(text: str) -> int:
    return 1 + len(text) // 1000


_FOLDERS = ("Documents", "Documents/Taxes", "Downloads", "Photos", "Recipes", "Work", "Work/Reports")
_NAMES = {
    "Documents": ("lease.pdf", "insurance.pdf", "cv.md", "packing-list.txt", "wifi.txt", "birthday-ideas.txt"),
    "Documents/Taxes": ("tax-2023.pdf", "tax-2024.pdf", "deductions.csv"),
    "Downloads": ("manual.pdf", "ticket.pdf", "setup.zip", "menu.pdf", "map.png", "invoice.pdf", "form.pdf"),
    "Photos": ("beach.jpg", "sunset.jpg", "picnic.jpg", "mountain.jpg", "garden.jpg", "cat.jpg", "bridge.jpg"),
    "Recipes": ("lasagne.txt", "pancakes.txt", "curry.txt", "tomato-soup.txt", "apple-pie.txt"),
    "Work": ("plan.md", "meeting.md", "ideas.md", "contacts.csv", "slides.pdf"),
    "Work/Reports": ("january.md", "february.md", "march.md", "quarter.pdf"),
}
_LINES = (
    *("Check this again next week.", "Two pages are still missing.", "Ask for a second opinion.", "Keep for later."),
    *("Costs less than last time.", "Start early in the morning.", "Most of it is done.", "To be read once more."),
)


@app.filled_by
def fill(w: World) -> None:
    """The owner has all folders, two binned files and some that others share; everyone else a few files."""
    for person in w.people:
        mine = person is w.owner
        for path in _FOLDERS if mine else ("Documents",):
            folder = w.add("files_folders", owner=person.id, path=path)
            names = _NAMES[path] if mine else [w.rng.choice(_NAMES[path])]
            binned = w.rng.choice(names) if path in ("Downloads", "Photos") else ""
            w.db.executemany(
                "INSERT INTO files_files (owner, folder, name, text, kb, changed, binned) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(person.id, folder, name, *_content(w, name), int(name == binned)) for name in names],
            )
    theirs = "SELECT min(id) FROM files_files WHERE owner = ?"
    for person in w.rng.sample(w.others(), 4):
        w.add("files_shares", file=w.value(theirs, person.id), person=w.owner.id)
    for person in w.rng.sample(w.others(), 2):
        w.add("files_shares", file=w.value(theirs, w.owner.id), person=person.id)


def _content(w: World, name: str) -> tuple[str, int, str]:
    """Text, size and date of a file."""
    changed = w.ago(days=w.rng.randrange(1, 200), hours=w.rng.randrange(20))
    if not name.endswith(TEXTS):
        return "", w.rng.randrange(40, 4000), changed
    text = "\n".join(w.rng.sample(_LINES, 3))
    return text, _kb(text), changed
