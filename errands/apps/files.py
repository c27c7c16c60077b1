"""Files: the owner's files in folders, a bin, and files that people share with each other."""

from typing import Annotated, Any, Literal

from pydantic import StringConstraints
from typing_extensions import TypedDict

from errands.api import App, Email, Id, Label, Listing, New, Numbered, Problem, Query, Success, Text
from errands.database import Owned
from errands.words import read
from errands.world import NO_PERSON, World

QUOTA_KB = 200_000
TEXTS = (".txt", ".md", ".csv")

app = App(
    "files", "Files in folders: read, write, move and copy them, share them with people, and a bin for deleted ones."
)

FILES = Owned("files_files", "file")
NO_FOLDER = Problem(404, "There is no folder {path!r}; see files.list_folders.")
NOT_SHARED = Problem(404, "The file is not shared with {email}.")
NAME_TAKEN = Problem(409, "The folder already has a file called {name!r}.")
FOLDER_EXISTS = Problem(409, "The folder {path!r} already exists.")
FOLDER_NOT_EMPTY = Problem(409, "The folder {path!r} is not empty.")
IN_BIN = Problem(409, "The file is in the bin; restore it first.")
NOT_IN_BIN = Problem(409, "The file is not in the bin.")
FOLDER_GONE = Problem(409, "The folder the file was in no longer exists; say which folder to restore it to.")
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


class Brief(Numbered):
    name: str
    folder: str | None
    kb: int
    changed: str


class File(Brief):
    text: str
    in_bin: bool
    owner: str
    shared_with: list[str]


class Shared(Numbered):
    name: str
    owner: str
    kb: int
    changed: str


class Usage(TypedDict):
    files: int
    kb: int
    bin_kb: int
    quota_kb: int


@app.api()
def list_folders(w: World, me: int) -> Listing[Folder]:
    """Your folders, with the number of files directly in each. 'A/B' is the folder B inside A."""
    return Listing("FROM files_counted WHERE owner = ? ORDER BY path, id", me)


@app.api(NO_FOLDER, FOLDER_EXISTS, says="Folder created.")
def create_folder(w: World, me: int, path: Path) -> None:
    """Create a folder. The folder it is in must already exist."""
    parent = path.rpartition("/")[0]
    if parent:
        _folder(w, me, parent)
    w.add_once(FOLDER_EXISTS(path=path), "files_folders", owner=me, path=path)


@app.api(NO_FOLDER, FOLDER_NOT_EMPTY, says="Folder deleted.")
def delete_folder(w: World, me: int, path: Path) -> None:
    """Delete an empty folder."""
    folder = _folder(w, me, path)
    inside = (
        "SELECT 1 FROM files_files WHERE folder = ?1 AND binned = 0 UNION ALL"
        " SELECT 1 FROM files_folders WHERE owner = ?2 AND substr(path, 1, length(?3) + 1) = ?3 || '/'"
    )
    FOLDER_NOT_EMPTY.when(w.value(inside, folder, me, path), path=path)
    w.run("UPDATE files_files SET folder = NULL WHERE folder = ?", folder)
    w.remove("files_folders", id=folder)


@app.api(NO_FOLDER)
def list_folder(w: World, me: int, folder: Path) -> Listing[Brief]:
    """The files directly in a folder, by name."""
    _folder(w, me, folder)
    source = "FROM files_shown WHERE owner = ? AND folder = ? AND binned = 0 ORDER BY name, id"
    return Listing(source, me, folder)


@app.api()
def search(w: World, me: int, query: Query = "") -> Listing[Brief]:
    """Your files whose name or text contains the query, in all folders but not in the bin, last changed first."""
    source = (
        "FROM files_shown WHERE owner = ? AND binned = 0 AND holds(name || ' ' || text, ?) ORDER BY changed DESC, id"
    )
    return Listing(source, me, query)


@app.api(FILES.missing)
def show(w: World, me: int, file_id: Id) -> File:
    """Show a file with its text: one of yours, or one that is shared with you."""
    found = _readable(w, me, file_id)
    file = w.rows(Brief, "FROM files_shown WHERE id = ?", file_id)[0]
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
def create(w: World, me: int, folder: Path, name: Name, text: Text = "") -> New[Literal["file_id"]]:
    """Create a text file (.txt, .md or .csv)."""
    place = _folder(w, me, folder)
    NOT_TEXT.unless(name.endswith(TEXTS))
    _check_free(w, place, name)
    return {
        "file_id": w.add("files_files", owner=me, folder=place, name=name, text=text, kb=_kb(text), changed=w.moment)
    }


@app.api(FILES.missing, IN_BIN, NOT_TEXT, says="Written.")
def write(w: World, me: int, file_id: Id, text: Text) -> None:
    """Replace the text of a file."""
    NOT_TEXT.unless(_live(w, me, file_id)["name"].endswith(TEXTS))
    w.change("files_files", file_id, text=text, kb=_kb(text), changed=w.moment)


@app.api(FILES.missing, IN_BIN, NOT_TEXT, says="Written.")
def append(w: World, me: int, file_id: Id, text: Text) -> None:
    """Add text to the end of a file, on a new line."""
    before = _live(w, me, file_id)["text"].rstrip("\n")
    write(w, me, file_id, f"{before}\n{text}" if before else text)


@app.api(FILES.missing, IN_BIN, NAME_TAKEN, says="Renamed.")
def rename(w: World, me: int, file_id: Id, name: Name) -> None:
    """Give a file a new name. It stays in its folder."""
    found = _live(w, me, file_id)
    if name != found["name"]:
        _check_free(w, found["folder"], name)
    w.change("files_files", file_id, name=name)


@app.api(FILES.missing, IN_BIN, NO_FOLDER, NAME_TAKEN, says="Moved.")
def move(w: World, me: int, file_id: Id, folder: Path) -> None:
    """Move a file to another folder."""
    found = _live(w, me, file_id)
    place = _folder(w, me, folder)
    if place != found["folder"]:
        _check_free(w, place, found["name"])
    w.change("files_files", file_id, folder=place)


@app.api(FILES.missing, IN_BIN, NO_FOLDER, NAME_TAKEN)
def copy(w: World, me: int, file_id: Id, folder: Path, name: Name | None = None) -> New[Literal["file_id"]]:
    """Copy a file, yours or shared with you, to one of your folders, under the same name or a new one."""
    found = _readable(w, me, file_id)
    IN_BIN.when(found["binned"])
    place = _folder(w, me, folder)
    name = name or found["name"]
    _check_free(w, place, name)
    kept = {column: found[column] for column in ("text", "kb")}
    return {"file_id": w.add("files_files", owner=me, folder=place, name=name, **kept, changed=w.moment)}


@app.api(FILES.missing, IN_BIN, says="The file is in the bin.")
def delete(w: World, me: int, file_id: Id) -> None:
    """Move a file to the bin."""
    _live(w, me, file_id)
    w.change("files_files", file_id, binned=True)


@app.api()
def list_bin(w: World, me: int) -> Listing[Brief]:
    """The files in the bin, by name, with the folder they were in."""
    return Listing("FROM files_shown WHERE owner = ? AND binned = 1 ORDER BY name, id", me)


@app.api(FILES.missing, NOT_IN_BIN, NO_FOLDER, FOLDER_GONE, NAME_TAKEN, says="Restored.")
def restore(w: World, me: int, file_id: Id, folder: Path | None = None) -> None:
    """Move a file from the bin back to the folder it was in, or to another one."""
    found = FILES.find(w, me, file_id)
    NOT_IN_BIN.unless(found["binned"])
    place = FOLDER_GONE.unless(found["folder"] if folder is None else _folder(w, me, folder))
    _check_free(w, place, found["name"])
    w.change("files_files", file_id, binned=False, folder=place)


@app.api()
def empty_bin(w: World, me: int) -> Success:
    """Delete everything in the bin for good."""
    return {"message": f"Deleted for good: {w.remove('files_files', owner=me, binned=1)} files."}


@app.api(FILES.missing, IN_BIN, NO_PERSON, YOURSELF, SHARED_ALREADY)
def share(w: World, me: int, file_id: Id, email: Email) -> Success:
    """Let someone read and copy one of your files."""
    _live(w, me, file_id)
    person = w.person(email)
    YOURSELF.when(person == me)
    w.add_once(SHARED_ALREADY(email=email), "files_shares", file=file_id, person=person)
    return {"message": f"Shared with {w.name_of(person)}."}


@app.api(FILES.missing, NOT_SHARED, says="No longer shared.")
def unshare(w: World, me: int, file_id: Id, email: Email) -> None:
    """Stop sharing one of your files with someone."""
    FILES.find(w, me, file_id)
    NOT_SHARED.unless(w.remove("files_shares", file=file_id, person=w.person_with(email)), email=email)


@app.api()
def list_shared_with_me(w: World, me: int) -> Listing[Shared]:
    """Files of other people that are shared with you, last changed first."""
    return Listing("FROM files_shared WHERE person = ? AND binned = 0 ORDER BY changed DESC, id", me)


@app.api()
def show_usage(w: World, me: int) -> Usage:
    """How many files you have, how many KB they and the files in the bin take, and your quota."""
    sums = "count(*) AS files, coalesce(sum(kb), 0) AS kb"
    used, binned = (
        w.all(f"SELECT {sums} FROM files_files WHERE owner = ? AND binned = ?", me, binned)[0] for binned in (0, 1)
    )
    return {"files": used["files"], "kb": used["kb"], "bin_kb": binned["kb"], "quota_kb": QUOTA_KB}


def _folder(w: World, me: int, path: str) -> int:
    return NO_FOLDER.unless(w.find_id("files_folders", owner=me, path=path), path=path)


def _live(w: World, me: int, id: int) -> dict[str, Any]:
    """A file of mine that is not in the bin."""
    found = FILES.find(w, me, id)
    IN_BIN.when(found["binned"])
    return found


def _readable(w: World, me: int, id: int) -> dict[str, Any]:
    """A file of mine, or one that is shared with me."""
    shared = "SELECT f.* FROM files_files f JOIN files_shares s ON s.file = f.id WHERE f.id = ? AND s.person = ?"
    return w.one(f"{shared} AND binned = 0", id, me) or FILES.find(w, me, id)


def _check_free(w: World, folder: int, name: str) -> None:
    NAME_TAKEN.when(w.find_id("files_files", folder=folder, name=name, binned=0), name=name)


def _kb(text: str) -> int:
    return 1 + len(text) // 1000


_WORDS = read("world")["files"]
_NAMES: dict[str, list[str]] = _WORDS["names"]
"""The owner's folders, and the files in them."""


@app.filled_by
def fill(w: World) -> None:
    """The owner has all folders, two binned files and some that others share; everyone else has a file."""
    folders, files = [], []
    for person in w.people:
        mine = person is w.owner
        for path in _NAMES if mine else ("Documents",):
            folders.append((person.id, path))
            names = _NAMES[path] if mine else [w.rng.choice(_NAMES[path])]
            binned = w.rng.choice(names) if path in ("Downloads", "Photos") else ""
            files += [(person.id, len(folders), name, *_content(w, name), name == binned) for name in names]
    w.add_all("files_folders", "owner, path", folders)
    w.add_all("files_files", "owner, folder, name, text, kb, changed, binned", files)
    theirs = len(files) - len(w.others()) + 1  # everyone else's file, in the order of people
    shares = [(theirs + person.id - 2, w.owner.id) for person in w.rng.sample(w.others(), 4)]
    shares += [(1, person.id) for person in w.rng.sample(w.others(), 2)]
    w.add_all("files_shares", "file, person", shares)


def _content(w: World, name: str) -> tuple[str, int, str]:
    """Text, size and date of a file."""
    changed = w.ago(days=w.rng.randrange(1, 200), hours=w.rng.randrange(20))
    if not name.endswith(TEXTS):
        return "", w.rng.randrange(40, 4000), changed
    text = "\n".join(w.rng.sample(_WORDS["lines"], 3))
    return text, _kb(text), changed
