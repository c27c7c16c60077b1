"""A world: people, their apps' data in one SQLite database, and a clock that stands still. Same seed, same bytes.

What the APIs do for an agent is counted, not timed, so that the same calls are allowed on every machine: `World.spend`
takes nominal nanoseconds from the turn's allowance, for the steps of SQLite's virtual machine, for text searched, and
for text read and written. SQLite itself refuses to let the database grow beyond `ROOM`.
"""

import functools
import hashlib
import random
import re
import sqlite3
import typing
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Protocol, TypeVar

from errands.api import NO_TOKEN, Api, ApiError, App, Money, Problem
from errands.people import Person, make_people

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE people (id INTEGER PRIMARY KEY AUTOINCREMENT, first TEXT NOT NULL, last TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE, address TEXT NOT NULL, birthday TEXT NOT NULL,
    relation TEXT NOT NULL);
CREATE TABLE accounts (id INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL,
    person INTEGER NOT NULL REFERENCES people(id), password TEXT NOT NULL, UNIQUE (app, person));
CREATE TABLE tokens (id INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, app TEXT NOT NULL,
    person INTEGER NOT NULL REFERENCES people(id), live INTEGER NOT NULL);
"""

_LETTERS = "abcdefghkmnpqrstuvwxyz23456789"

_WRITING = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)

ROOM = 2**20
"""Bytes that a world's database may take; a new one takes a fifth of it."""
FULL = Problem(507, f"The apps have no room left: together they hold at most {ROOM >> 20} MB. Delete something first.")

_PAGE = 1024
_STEPS = 1000
"""Steps of SQLite's virtual machine between two calls of the progress handler."""
_STEP_NS, _SEARCHED_NS, _MOVED_NS = 50, 1, 10
"""What a step, a character searched and a character read or written cost, in nominal nanoseconds."""

UNJUDGED = ("tokens",)
"""Tables that may differ after a task: logging in is nobody's business."""


class Overspent(Exception):
    """The calls of a turn did more work than a turn may do."""


@dataclass(frozen=True)
class Done:
    """The agent has said that it is done."""

    answer: Any = None


class Names(Protocol):
    """Other names for the APIs of the apps (disguise.py)."""

    def apis(self, app: str) -> Mapping[str, Api]: ...


class World:
    """One live world. `rng` is for making it; nothing random happens once the agent is in it."""

    def __init__(
        self, seed: str, apps: Mapping[str, App], db: sqlite3.Connection, now: datetime, people: list[Person]
    ) -> None:
        self.seed, self.apps, self.db, self.now, self.people = seed, apps, db, now, people
        self.owner = people[0]
        self.rng = random.Random(f"{seed}/more")
        self.done: Done | None = None
        self.disguise: Names | None = None
        """The names that the APIs have here, if not their own."""
        self.written: set[str] = set()
        """The tables that may differ from when the world was made or loaded."""
        self.allowance: int | None = None
        """The nominal nanoseconds of work that are left; None: work is not counted."""
        db.set_authorizer(self._note_writing)
        db.set_progress_handler(self._count_steps, _STEPS)
        proxy = weakref.proxy(self)  # no collector sees into a database's functions
        db.create_function("like", 2, lambda pattern, text: proxy._like(pattern, text), deterministic=True)

    @classmethod
    def make(cls, seed: str, apps: Mapping[str, App]) -> "World":
        """A world from nothing but its seed: people first, then every app's history, in the order of the apps."""
        rng = random.Random(seed)
        day = date(2026, 1, 1) + timedelta(days=rng.randrange(60, 300))
        now = datetime(day.year, day.month, day.day, rng.randrange(8, 19), 5 * rng.randrange(12))
        people = make_people(rng, now)
        schema = "".join(app.schema for app in apps.values())
        world = cls(seed, apps, _connect(_empty(schema)), now, people)
        world.rng = rng
        world.db.execute("PRAGMA foreign_keys = OFF")  # checking what is made here would take a quarter of the time
        with world.undone_on_error():
            for person in people:
                world.add("people", **person.row())
            for app in apps.values():
                if app.login:
                    passwords = ((app.name, person.id, "".join(rng.choices(_LETTERS, k=6))) for person in people)
                    world.db.executemany("INSERT INTO accounts (app, person, password) VALUES (?, ?, ?)", passwords)
                app.fill(world)
        # Rows to come have other numbers in every world, so that none can be learnt by heart.
        gaps = [
            (rng.randrange(1, 100), row["name"]) for row in world.all("SELECT name FROM sqlite_sequence ORDER BY name")
        ]
        world.db.executemany("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?", gaps)
        world.db.execute("PRAGMA foreign_keys = ON")
        return world

    def fork(self) -> "World":
        """An independent copy."""
        copy = World.load(self.db.serialize(), self)
        copy.done, copy.written = self.done, set(self.written)
        return copy

    @classmethod
    def load(cls, image: bytes, like: "World") -> "World":
        """A world from the bytes of its database; `like` gives what is not in there."""
        world = cls(like.seed, like.apps, _connect(image), like.now, like.people)
        world.disguise = like.disguise
        return world

    # -- reading and writing, for apps and scenarios -------------------------------------------------------------------

    def add(self, table: str, **columns: Any) -> int:
        """Insert a row; its id."""
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        id = self._execute(sql, tuple(columns.values()), lambda cursor: cursor.lastrowid)
        assert id is not None
        return id

    def run(self, sql: str, *values: Any) -> int:
        """Run a statement; how many rows it changed."""
        return self._execute(sql, values, lambda cursor: cursor.rowcount)

    def change(self, table: str, id: int, **given: Any) -> None:
        """Set the columns of a row for which something was given; None leaves one as it is."""
        for column, value in given.items():
            if value is not None:
                self.run(f"UPDATE {table} SET {column} = ? WHERE id = ?", value, id)

    def all(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        rows = self._execute(sql, values, sqlite3.Cursor.fetchall)
        for row in rows if self.allowance is not None else ():
            self._spend_on_text(row)
        return [dict(row) for row in rows]

    def one(self, sql: str, *values: Any) -> dict[str, Any] | None:
        row = self._first(sql, values)
        return None if row is None else dict(row)

    def value(self, sql: str, *values: Any) -> Any:
        row = self._first(sql, values)
        return None if row is None else row[0]

    def _first(self, sql: str, values: Sequence[Any]) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._execute(sql, values, sqlite3.Cursor.fetchone)
        if row is not None:
            self._spend_on_text(row)
        return row

    def _execute(self, sql: str, values: Sequence[Any], result: Callable[[sqlite3.Cursor], T]) -> T:
        """Run a statement and take its result. Every statement of an API comes through here and is counted."""
        self._spend_on_text(values)
        try:
            return result(self.db.execute(sql, values))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise FULL() from None
            if self.allowance is not None and self.allowance < 0:
                raise Overspent from None
            raise

    def rows(self, kind: type[T], source: str, *values: Any) -> list[T]:
        """The rows of `SELECT <the fields of kind> <source>`. `source` is what follows: FROM ... WHERE ... ORDER BY."""
        columns, truths = _columns(typing.cast(Any, kind))
        found = self.all(f"SELECT {columns} {source}", *values)
        for row in found if truths else ():
            row.update({name: bool(row[name]) for name in truths})
        return typing.cast(list[T], found)

    def page(self, kind: type[T], source: str, values: Sequence[Any], page: int, page_size: int) -> list[T]:
        return self.rows(kind, f"{source} LIMIT ? OFFSET ?", *values, page_size, page * page_size)

    def owned(self, table: str, id: int, owner: int, problem: Problem) -> dict[str, Any]:
        """A row that belongs to someone; the problem if there is none, or it is somebody else's."""
        found = self.one(f"SELECT * FROM {table} WHERE id = ? AND owner = ?", id, owner)
        if found is None:
            raise problem(id=id)
        return found

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Everything inside happens, or nothing does. May be nested."""
        self.db.execute("SAVEPOINT call")
        try:
            yield
        except BaseException:
            if self.db.in_transaction:  # a full database and an interrupted statement undo everything by themselves
                self.db.execute("ROLLBACK TO call")
                self.db.execute("RELEASE call")
            raise
        self.db.execute("RELEASE call")

    # -- counting work -------------------------------------------------------------------------------------------------

    def spend(self, nanoseconds: int) -> None:
        """Take work from the allowance, if it is counted; Overspent when there is not so much left."""
        if self.allowance is not None:
            self.allowance -= nanoseconds
            if self.allowance < 0:
                raise Overspent

    def _spend_on_text(self, values: Sequence[Any]) -> None:
        if self.allowance is not None:
            self.spend(_MOVED_NS * sum(len(value) for value in values if isinstance(value, str)))

    def _count_steps(self) -> bool:
        """SQLite asks this every so many steps whether to interrupt the statement."""
        try:
            self.spend(_STEPS * _STEP_NS)
        except Overspent:
            return True
        return False

    def _like(self, pattern: str | None, text: str | None) -> bool | None:
        """LIKE as SQLite has it (case counts only beyond ASCII), but in time that is known beforehand: SQLite's own
        needs up to pattern times text."""
        if pattern is None or text is None:
            return None
        most = 8 + 2 * len(pattern) if "_" in pattern else len(pattern) // 4  # comparisons at each place, at worst
        self.spend(_SEARCHED_NS * len(text) * (1 + most))
        return _matches(_lower(pattern).split("%"), _lower(text))

    # -- people, time and tokens ---------------------------------------------------------------------------------------

    @property
    def moment(self) -> str:
        return f"{self.now:%Y-%m-%d %H:%M}"

    @property
    def today(self) -> str:
        return f"{self.now:%Y-%m-%d}"

    def day(self, offset: int) -> str:
        """The date so many days from today."""
        return f"{self.now + timedelta(days=offset):%Y-%m-%d}"

    def ago(self, days: float = 0, hours: float = 0) -> str:
        """A moment in the past, to five minutes."""
        when = self.now - timedelta(days=days, hours=hours)
        return (when - timedelta(minutes=when.minute % 5)).isoformat(" ", "minutes")

    def others(self, *relations: str) -> list[Person]:
        """The people who are not the owner: all, or those with one of the relations."""
        return [p for p in self.people[1:] if not relations or p.relation in relations or p.circle in relations]

    def person_with(self, email: str) -> int | None:
        return self.value("SELECT id FROM people WHERE email = ?", email)

    def name_of(self, person: int) -> str:
        return self.people[person - 1].name

    def log_in(self, app: str, email: str, password: str) -> str | None:
        """A new token; the person's former one for this app expires."""
        person = self.value(
            "SELECT person FROM accounts JOIN people p ON p.id = person WHERE app = ? AND email = ? AND password = ?",
            *(app, email, password),
        )
        if person is None:
            return None
        self.run("UPDATE tokens SET live = 0 WHERE app = ? AND person = ?", app, person)
        count = self.value("SELECT count(*) FROM tokens")
        digest = hashlib.blake2b(f"{self.seed}/{app}/{person}/{count}".encode(), digest_size=4).hexdigest()
        token = f"{app}-{digest}"
        self.add("tokens", token=token, app=app, person=person, live=1)
        return token

    def log_out(self, app: str, person: int) -> None:
        self.run("UPDATE tokens SET live = 0 WHERE app = ? AND person = ?", app, person)

    def bearer(self, app: str, token: str) -> int:
        """Who holds a token."""
        person = self.value("SELECT person FROM tokens WHERE app = ? AND token = ? AND live = 1", app, token)
        if person is None:
            raise NO_TOKEN()
        return person

    # -- for the session and the judge ---------------------------------------------------------------------------------

    def apis(self, app: str) -> Mapping[str, Api]:
        """An app's APIs by what the agent calls them."""
        return self.disguise.apis(app) if self.disguise else self.apps[app].apis

    def call(self, api: Api, arguments: dict[str, Any]) -> Any:
        """An API call by the agent."""
        if self.done is not None:
            raise ApiError(409, "The task is already completed; nothing more can be done.")
        return api(self, arguments)

    def inconsistencies(self) -> list[str]:
        """What must never be: a broken reference, or a broken rule of an app."""
        broken = [f"foreign key: {tuple(row)}" for row in self.db.execute("PRAGMA foreign_key_check")]
        for app in self.apps.values():
            for rule in app.invariants:
                broken += [f"{app.name}: {tuple(row)} from {rule}" for row in self.db.execute(rule)]
        return broken

    def close(self) -> None:
        self.db.close()

    def _note_writing(self, action: int, table: str | None, *_: object) -> int:
        """SQLite asks this about every statement it prepares."""
        if table is not None and action in _WRITING:
            self.written.add(table)
        return sqlite3.SQLITE_OK


@functools.cache
def _empty(schema: str) -> bytes:
    """A database with all tables and no rows."""
    db = sqlite3.connect(":memory:")
    db.execute(f"PRAGMA page_size = {_PAGE}")  # many small tables: larger pages would be mostly empty
    db.executescript(_SCHEMA + schema)
    return db.serialize()


def _connect(image: bytes) -> sqlite3.Connection:
    """A database in memory, from its bytes.

    Only one thread at a time may use it, though not always the same one. With two at once Python stops for good: one
    holds the interpreter's lock and waits for the database's, the other has that one and is asked about its statement
    (`_note_writing`), for which it needs the first.
    """
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=256)
    db.deserialize(image)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute(f"PRAGMA max_page_count = {ROOM // _PAGE}")
    return db


def _lower(text: str) -> str:
    """ASCII letters in lower case, all others as they are."""
    return text.lower() if text.isascii() else text.encode().lower().decode()


def _matches(parts: Sequence[str], text: str) -> bool:
    """Whether a text is these parts in this order, with anything between them. `_` in a part is any character."""
    if len(parts) == 1:
        return len(parts[0]) == len(text) and _find(parts[0], text, 0, len(text)) == 0
    first, *middle, last = parts
    place, end = len(first), len(text) - len(last)
    if end < place or _find(first, text, 0, place) < 0 or _find(last, text, end, len(text)) < 0:
        return False
    for part in middle:
        found = _find(part, text, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def _find(part: str, text: str, start: int, end: int) -> int:
    """Where a part first is between two places of a text; -1 if it is not there."""
    if "_" not in part:
        return text.find(part, start, end)
    pattern = "".join("." if character == "_" else re.escape(character) for character in part)
    found = re.compile(pattern, re.DOTALL).search(text, start, end)
    return -1 if found is None else found.start()


@functools.cache
def _columns(kind: Any) -> tuple[str, list[str]]:
    """A result's fields as columns, and those that are true or false. Money is kept in cents, truth as 1 and 0."""
    hints = typing.get_type_hints(kind, include_extras=True)
    columns = [f"{name}_cents / 100.0 AS {name}" if hint is Money else name for name, hint in hints.items()]
    return ", ".join(columns), [name for name, hint in hints.items() if hint is bool]
