"""A SQLite database in memory: reading and writing, work that is counted, and connections that are used again.

What the APIs do for an agent is counted, not timed, so that the same calls are allowed on every machine:
`Database.spend` takes nominal nanoseconds from the turn's allowance, for the steps of SQLite's virtual machine, for
text searched, and for text read and written. SQLite itself refuses to let a database grow beyond `ROOM`.

A new connection has to read the schema, which takes longer than most turns. So a database that is closed leaves its
connection to the next one, with the statements that were prepared on it. What was read of a content, as long as it was
not written over, serves all databases that start from that content (`Content.answers`, `Content.tables`).
"""

import functools
import hashlib
import itertools
import marshal
import operator
import sqlite3
import threading
import typing
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from errands.api import Money, Problem

T = TypeVar("T")
Row = tuple[Any, ...]
Found = list[sqlite3.Row]

ROOM = 2**20
"""Bytes that a database may take; that of a new world takes a sixth of it."""
FULL = Problem(507, f"The apps have no room left: together they hold at most {ROOM >> 20} MB. Delete something first.")

_PAGE = 1024
_FORMAT = slice(44, 48)
"""Where a database says in which format rows are written. A connection that has not read the schema writes in the
first, and all shall write the same bytes."""
_ROW, _CHARACTER = 16 * _PAGE, 8
"""More bytes than a row and a character take, with all indexes."""
_STEPS = 5000
"""Steps of SQLite's virtual machine between two calls of the progress handler."""
_STEP_NS, _SEARCHED_NS, _MOVED_NS = 50, 1, 10
"""What a step, a character searched and a character read or written cost, in nominal nanoseconds."""
_TOGETHER = 32
"""Rows that are inserted by one statement, at most."""
_IDLE = 64
"""Connections that are kept for later."""
_FEW = 16
"""Rows that are read by their ids; for more of them, the table is."""
_ANSWERS, _ANSWER_NS = 256, 100_000
"""Answers that are kept for other attempts from the same content, and what one may have cost to be kept."""
_WRITING = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)


class Overspent(Exception):
    """The calls of a turn did more work than a turn may do."""


class _Heavy(Exception):
    """A statement takes so many steps that they must be counted exactly."""


class Database:
    """Tables in memory. They are bytes until they are used."""

    def __init__(self, schema: str, content: "Content | None") -> None:
        """Without content it must first be filled."""
        self.schema = schema
        self.written: set[str] = set()
        """The tables that may differ from when it was made."""
        self._tables: dict[str, Table] = {}
        """Those that were written to, as they were last read."""
        self._stale: dict[str, set[int] | None] = {}
        """Those that were written to, with the ids of the rows that may differ since they were read; None: any."""
        self.allowance: int | None = None
        """The nominal nanoseconds of work that are left; None: work is not counted."""
        self._connections = _connections(schema)
        self._connection: _Connection | None = None
        self._content = content
        """What it had when it was opened."""
        self._changes = 0
        """The connection's count of changes then."""
        self._begun: bool | None = None
        """Whether the function called by `atomically` has begun to write; None: there is none."""
        self._exactly = False
        """Whether the steps of small statements are counted too."""
        self._ticks = 0
        """Calls of the progress handler for the statement under way."""
        self._size = 0
        """Bytes that it may have at most; 0 once SQLite knows the limit."""

    @property
    def db(self) -> sqlite3.Connection:
        if self._connection is None:
            assert self._content is not None, "the database is closed"
            image = self._content.image()
            self._connection = self._connections.open(image, self)
            self._changes, self._size = self._connection.total_changes, len(image)
        return self._connection

    @property
    def content(self) -> "Content":
        """What it has now."""
        assert self._content is not None, "the database is closed"
        if self._connection is None or self._connection.total_changes == self._changes:
            return self._content
        return self._content.changed(self._connection.serialize())

    def rest(self) -> None:
        """Take little memory until the next use."""
        self._content = self.content
        self._tables, self._stale = {}, {}
        self._disconnect()

    def close(self) -> None:
        self._disconnect()
        self._content = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connections.put_back(self._connection)
            self._connection = None

    # -- reading and writing -------------------------------------------------------------------------------------------

    def add(self, table: str, **columns: Any) -> int:
        """Insert a row; its id."""
        names = ", ".join(columns)
        marks = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"
        id = self._write(sql, tuple(columns.values()), lambda cursor: cursor.lastrowid, table)
        assert id is not None
        self._touch(table, id)
        return id

    def add_once(self, twice: Exception, table: str, **columns: Any) -> int:
        """Insert a row; its id. Raises `twice` if there is one with these values."""
        if self.find_id(table, **columns) is not None:
            raise twice
        return self.add(table, **columns)

    def add_all(self, table: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert many rows, in `filling`. Several with each statement, as SQLite looks up the next id for each, and
        always a power of two, so that worlds of all sizes have the same few statements."""
        start, size = 0, _TOGETHER
        while left := len(rows) - start:
            while size > left:
                size //= 2
            values = itertools.chain.from_iterable(rows[start : start + size])
            self.db.execute(_insertion(table, columns, size), list(values))
            start += size

    def run(self, sql: str, *values: Any) -> int:
        """Run a statement; how many rows it changed."""
        return self._write(sql, values, lambda cursor: cursor.rowcount)

    def change(self, table: str, id: int, **given: Any) -> None:
        """Set the columns of a row for which something was given; None leaves one as it is."""
        given = {column: value for column, value in given.items() if value is not None}
        if given:
            columns = ", ".join(f"{column} = ?" for column in given)
            sql = f"UPDATE {table} SET {columns} WHERE id = ?"
            self._write(sql, (*given.values(), id), lambda cursor: cursor.rowcount, table)
            self._touch(table, id)

    def remove(self, table: str, **columns: Any) -> int:
        """Delete the rows with these values; how many there were."""
        sql, of = f"DELETE FROM {table} WHERE {_equal(columns)}", table if "id" in columns else ""
        removed = self._write(sql, tuple(columns.values()), lambda cursor: cursor.rowcount, of)
        self._touch(of, columns.get("id"))
        return removed

    def find_id(self, table: str, **columns: Any) -> int | None:
        """The id of the first row with these values, if there is one."""
        found: int | None = self.value(f"SELECT id FROM {table} WHERE {_equal(columns)}", *columns.values())
        return found

    def all(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in self._read(sql, values, sqlite3.Cursor.fetchall)]

    def one(self, sql: str, *values: Any) -> dict[str, Any] | None:
        found = self._read(sql, values, _fetch_first)
        return dict(found[0]) if found else None

    def value(self, sql: str, *values: Any) -> Any:
        found = self._read(sql, values, _fetch_first)
        return found[0][0] if found else None

    def rows(self, kind: type[T], source: str, *values: Any) -> list[T]:
        """The rows of `SELECT <the fields of kind> <source>`. `source` is what follows: FROM ... WHERE ... ORDER BY."""
        columns, truths = _columns(typing.cast(Any, kind))
        found = self.all(f"SELECT {columns} {source}", *values)
        for row in found if truths else ():
            row.update({name: bool(row[name]) for name in truths})
        return typing.cast(list[T], found)

    def table(self, name: str) -> "Table":
        """All that a table has. Only what may have been written to is read again: at best, some rows by their ids."""
        assert self._content is not None, "the database is closed"
        shared = self._content.tables
        if name not in self._stale:
            if name not in shared:
                shared[name] = self._whole(name)
            return shared[name]
        ids, known = self._stale[name], self._tables.get(name) or shared.get(name)
        if ids is None or known is None or len(ids) > _FEW:
            known = self._whole(name)
        elif ids:
            rows = self.db.cursor()
            rows.row_factory = None
            sql = f"SELECT * FROM {name} WHERE id = ?"
            known = known.with_rows({id: rows.execute(sql, (id,)).fetchone() for id in ids})
        self._tables[name], self._stale[name] = known, set()
        return known

    def _whole(self, name: str) -> "Table":
        rows = self.db.cursor()
        rows.row_factory = None
        return Table(rows.execute(f"SELECT * FROM {name} ORDER BY id").fetchall())

    def _read(self, sql: str, values: tuple[Any, ...], fetch: Callable[[sqlite3.Cursor], Found]) -> Found:
        """What a statement finds. Attempts at a task ask much alike: what one was answered from tables that are as they
        were at the start is kept for the others, with what it cost."""
        if self.allowance is None or self._exactly:
            return self._fetched(sql, values, fetch)
        assert self._content is not None, "the database is closed"
        answers, question = self._content.answers, (sql, fetch, values, *map(type, values))
        if not self.written.isdisjoint(self._connections.tables(sql, len(values)).read):
            return self._fetched(sql, values, fetch)
        if question in answers:
            found, cost = answers[question]
            self.spend(cost)
            return found
        allowance = self.allowance
        found = self._fetched(sql, values, fetch)
        cost = allowance - self.allowance
        if cost <= _ANSWER_NS and len(answers) < _ANSWERS:
            answers[question] = found, cost
        return found

    def _fetched(self, sql: str, values: tuple[Any, ...], fetch: Callable[[sqlite3.Cursor], Found]) -> Found:
        found = self._execute(sql, values, fetch)
        self._spend_on_text(itertools.chain.from_iterable(found))
        return found

    def _write(self, sql: str, values: Sequence[Any], result: Callable[[sqlite3.Cursor], T], by_id: str = "") -> T:
        """Run a statement that writes. Of the table `by_id`, it writes to rows of which the caller knows the ids."""
        if self._begun is False:
            self.db.execute("SAVEPOINT call")
            self._begun = True
        for table in self._connections.tables(sql, len(values)).written:
            self.written.add(table)
            self._stale[table] = self._stale.get(table, set()) if table == by_id else None
        if self._size:
            self._check_size(values)
        return self._execute(sql, values, result)

    def _touch(self, table: str, id: int | None) -> None:
        """A row is no more what it was when its table was read."""
        stale = self._stale.get(table)
        if stale is not None and id is not None:
            stale.add(id)

    def _check_size(self, values: Sequence[Any]) -> None:
        """Tell SQLite the limit as soon as it could be reached: SQLite has to read the schema for that."""
        text = sum([len(value) for value in values if isinstance(value, str)])
        self._size += _ROW + _CHARACTER * text
        if self._size > ROOM:
            self.db.execute(f"PRAGMA max_page_count = {ROOM // _PAGE}")
            self._size = 0

    def _execute(self, sql: str, values: Sequence[Any], result: Callable[[sqlite3.Cursor], T]) -> T:
        """Run a statement and take its result. Every statement of an API comes through here and is counted."""
        self._spend_on_text(values)
        self._ticks = 0
        try:
            return result(self.db.execute(f"{sql} -- {next(_NUMBERS)}" if self._exactly else sql, values))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise FULL() from None
            if self.allowance is not None and self.allowance < 0:
                raise Overspent from None
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise _Heavy from None
            raise

    @contextmanager
    def filling(self) -> Iterator[None]:
        """Fill a new database. One at a time."""
        with _FILLING:
            self._connection = filler = _filler(self.schema)
            filler.execute("BEGIN")
            try:
                yield
                image = bytearray(filler.serialize())
                image[_FORMAT] = (1).to_bytes(4, "big")
                self._content = Content(bytes(image))
            finally:
                filler.execute("ROLLBACK")
                self._connection = None

    # -- all or nothing ------------------------------------------------------------------------------------------------

    def atomically(self, function: Callable[..., T], values: Mapping[str, Any]) -> T:
        """Call a function of this database, which may write. If it fails, it has written nothing."""
        allowance = self.allowance
        try:
            return self._call(function, values)
        except _Heavy:
            self.allowance, self._exactly = allowance, True
            try:
                return self._call(function, values)
            finally:
                self._exactly = False

    def _call(self, function: Callable[..., T], values: Mapping[str, Any]) -> T:
        self._begun = False  # many functions only read, and need no savepoint
        try:
            result = function(self, **values)
            if self._begun:
                self.db.execute("RELEASE call")
            return result
        except BaseException:
            if self._begun:
                self._undo()
            raise
        finally:
            self._begun = None

    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Everything inside happens, or nothing does. May be nested."""
        self.db.execute("SAVEPOINT call")
        try:
            yield
        except BaseException:
            self._undo()
            raise
        self.db.execute("RELEASE call")

    def _undo(self) -> None:
        self._stale = dict.fromkeys(self._stale)
        if self.db.in_transaction:  # a full database and an interrupted statement undo everything by themselves
            self.db.execute("ROLLBACK TO call")
            self.db.execute("RELEASE call")

    # -- counting work -------------------------------------------------------------------------------------------------

    def spend(self, nanoseconds: int) -> None:
        """Take work from the allowance, if it is counted; Overspent when there is not so much left."""
        if self.allowance is not None:
            self.allowance -= nanoseconds
            if self.allowance < 0:
                raise Overspent

    def _spend_on_text(self, values: Iterable[Any]) -> None:
        if self.allowance is not None:
            self.spend(_MOVED_NS * sum([len(value) for value in values if type(value) is str]))

    def count_steps(self) -> bool:
        """Whether to interrupt the statement: SQLite asks this every `_STEPS` steps.

        It goes on counting where it stopped when the statement was last run, so the first tick may come at any time. A
        statement with one tick costs nothing. At the second it is interrupted, and the function that it is part of is
        called again with new statements, whose steps are counted from the first.
        """
        if self.allowance is None:
            return False
        self._ticks += 1
        if not self._exactly:
            return self._ticks > 1
        self.allowance -= _STEPS * _STEP_NS * {1: 0, 2: 2}.get(self._ticks, 1)
        return self.allowance < 0

    def holds(self, text: str, query: str) -> bool:
        """Whether a text contains another one. Case counts only beyond ASCII, as everywhere in SQLite."""
        self.spend(_SEARCHED_NS * len(text) * (1 + len(query) // 4))
        return _lower(query) in _lower(text)


@dataclass(frozen=True)
class Table:
    """What a table had when it was read."""

    rows: list[Row]
    """In the order of their ids, which come first."""
    _compared: "list[tuple[Table, Change]]" = field(default_factory=list, compare=False, repr=False)
    """With which other it was compared last, and how it differs."""

    @functools.cached_property
    def by_id(self) -> dict[int, Row]:
        return {row[0]: row for row in self.rows}

    def with_rows(self, rows: dict[int, Row | None]) -> "Table":
        """What it is with other rows in the place of those with these ids; None: there is none any more."""
        changed = self.by_id | rows
        return Table(sorted((row for row in changed.values() if row is not None), key=operator.itemgetter(0)))

    def since(self, before: "Table") -> "Change":
        """What has become of it. Remembered, as it is asked again in every turn until the table is written to."""
        for other, change in self._compared:
            if other is before:
                return change
        was = before.by_id.get
        rows = [row for row in self.rows if (old := was(row[0])) is not row and old != row]
        change = Change(rows, sorted(before.by_id.keys() - self.by_id.keys()))
        self._compared[:] = [(before, change)]
        return change


@dataclass(frozen=True)
class Change:
    """How a table differs from what it was."""

    rows: list[Row]
    """Those that were added or changed, in the order of their ids."""
    removed: list[int]
    """The ids of those that are gone."""

    def __bool__(self) -> bool:
        return bool(self.rows or self.removed)

    @functools.cached_property
    def digest(self) -> str:
        """The same for the same change, in every process."""
        # Version 2 of the format writes equal values as equal bytes; later ones refer to objects that occur twice.
        return hashlib.blake2b(marshal.dumps((self.rows, self.removed), 2), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Content:
    """All that a database has. Those of a world's tasks are nearly alike: they share one's bytes."""

    base: bytes
    pages: tuple[tuple[int, bytes], ...] = ()
    """Where others stand in the place of the base's, or after it."""
    answers: dict[Hashable, tuple[Found, int]] = field(default_factory=dict, compare=False, repr=False)
    """What was found in it, and what that cost, by statement and values."""
    tables: dict[str, Table] = field(default_factory=dict, compare=False, repr=False)
    """Those that were read as a whole."""

    def image(self) -> bytes:
        """As SQLite has it."""
        parts, end = [], 0
        for start, page in self.pages:
            parts += [self.base[end:start], page]
            end = start + _PAGE
        return b"".join([*parts, self.base[end:]])

    def changed(self, image: bytes) -> "Content":
        """What has become of it."""
        # Slices of bytes, though they are copies: to compare memoryviews takes a hundred times as long.
        differ = (at for at in range(0, len(image), _PAGE) if self.base[at : at + _PAGE] != image[at : at + _PAGE])
        return Content(self.base, tuple((at, image[at : at + _PAGE]) for at in differ))


class Owned:
    """The rows of a table that belong to people: nobody gets at a row that is someone else's."""

    def __init__(self, table: str, noun: str, view: str = "") -> None:
        self.missing = Problem(404, f"There is no {noun} {{id}}.")
        """There is no such row, or it is someone else's."""
        self._table, self._view = table, view or table

    def find(self, db: Database, owner: int, id: int) -> dict[str, Any]:
        return self.missing.unless(db.one(f"SELECT * FROM {self._table} WHERE id = ? AND owner = ?", id, owner), id=id)

    def show(self, kind: type[T], db: Database, owner: int, id: int) -> T:
        """The fields of a kind of result."""
        found = db.rows(kind, f"FROM {self._view} WHERE id = ? AND owner = ?", id, owner)
        return self.missing.unless(found, id=id)[0]

    def change(self, db: Database, owner: int, id: int, **given: Any) -> None:
        """Set the columns for which something was given."""
        self.find(db, owner, id)
        db.change(self._table, id, **given)

    def delete(self, db: Database, owner: int, id: int) -> None:
        self.missing.unless(db.remove(self._table, id=id, owner=owner), id=id)


_NUMBERS = itertools.count()


class _Connection(sqlite3.Connection):
    """A connection, and the database that uses it."""

    used_by: "_User"


class _User:
    """What SQLite calls back. (No collector sees into a connection's callbacks: they must not hold on to it.)"""

    database: Any = None

    def holds(self, text: str, query: str) -> bool:
        return bool(self.database.holds(text, query))

    def count_steps(self) -> bool:
        return bool(self.database.count_steps())


@dataclass(frozen=True)
class Tables:
    """The tables that a statement reads, and those it writes to."""

    read: set[str]
    written: set[str]


class _Connections:
    """Connections to databases of one schema, used one after another by many.

    Only one thread at a time may use a connection, though not always the same one. With two at once Python stops for
    good: one holds the interpreter's lock and waits for the database's, the other has that one and is called back
    (`_User`), for which it needs the first.
    """

    def __init__(self, schema: str) -> None:
        self._idle: list[_Connection] = []
        self._noted = Tables(set(), set())
        self._explaining = threading.Lock()
        self._explains = self._connect()
        self._explains.executescript(schema)
        self._explains.set_authorizer(self._note)
        self.tables = functools.cache(self._tables)

    def open(self, image: bytes, database: Database) -> _Connection:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        connection.used_by.database = weakref.proxy(database)
        connection.deserialize(image)
        # SQLite takes a database that it has not read for a new one, and would empty it when a savepoint is undone.
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection

    def put_back(self, connection: _Connection) -> None:
        if len(self._idle) < _IDLE and not connection.in_transaction:
            self._idle.append(connection)
        else:
            connection.close()

    def _connect(self) -> _Connection:
        connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256, factory=_Connection
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.used_by = user = _User()
        connection.set_progress_handler(user.count_steps, _STEPS)
        connection.create_function("holds", 2, user.holds, deterministic=True)
        return connection

    def _tables(self, sql: str, values: int) -> Tables:
        """The tables that a statement with so many values reads and writes, by itself or by cascade."""
        with self._explaining:
            self._noted = noted = Tables(set(), set())
            self._explains.execute(f"EXPLAIN {sql}", (None,) * values)
            return noted

    def _note(self, action: int, table: str | None, *_: object) -> int:
        """SQLite asks this about every statement it prepares."""
        if table is not None and action in _WRITING:
            self._noted.written.add(table)
        elif table is not None and action == sqlite3.SQLITE_READ:
            self._noted.read.add(table)
        return sqlite3.SQLITE_OK


@functools.cache
def _connections(schema: str) -> _Connections:
    return _Connections(schema)


_FILLING = threading.Lock()


@functools.cache
def _filler(schema: str) -> _Connection:
    """A connection to a database with all tables and no rows. It checks neither foreign keys, which takes a quarter of
    the time, nor what a table allows in a column: the tests do."""
    db = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, cached_statements=1024, factory=_Connection
    )
    db.row_factory = sqlite3.Row
    db.execute(f"PRAGMA page_size = {_PAGE}")  # many small tables: larger pages would be mostly empty
    db.execute("PRAGMA secure_delete = ON")  # nothing of what was there before shall be in a new image
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.executescript(schema)
    return db


@functools.cache
def _insertion(table: str, columns: str, rows: int) -> str:
    row = ", ".join("?" * len(columns.split(", ")))
    return f"INSERT INTO {table} ({columns}) VALUES {', '.join([f'({row})'] * rows)}"


def _fetch_first(cursor: sqlite3.Cursor) -> Found:
    return cursor.fetchmany(1)


def _equal(columns: Iterable[str]) -> str:
    return " AND ".join(f"{column} = ?" for column in columns)


def _lower(text: str) -> str:
    """ASCII letters in lower case, all others as they are."""
    return text.lower() if text.isascii() else text.encode().lower().decode()


@functools.cache
def _columns(kind: Any) -> tuple[str, list[str]]:
    """A result's fields as columns, and those that are true or false. Money is kept in cents, truth as 1 and 0."""
    hints = typing.get_type_hints(kind, include_extras=True)
    columns = [f"{name}_cents / 100.0 AS {name}" if hint is Money else name for name, hint in hints.items()]
    return ", ".join(columns), [name for name, hint in hints.items() if hint is bool]
