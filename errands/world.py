"""A world: people, their apps' data in one SQLite database, and a clock that stands still. Same seed, same bytes."""

import functools
import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Protocol

from errands.api import NO_TOKEN, Api, ApiError, App, Problem
from errands.database import Content, Database
from errands.people import Person, make_people

_SCHEMA = """
CREATE TABLE people (id INTEGER PRIMARY KEY AUTOINCREMENT, first TEXT NOT NULL, last TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL UNIQUE, address TEXT NOT NULL, birthday TEXT NOT NULL,
    relation TEXT NOT NULL);
CREATE TABLE accounts (id INTEGER PRIMARY KEY AUTOINCREMENT, app TEXT NOT NULL,
    person INTEGER NOT NULL REFERENCES people(id), password TEXT NOT NULL, UNIQUE (app, person));
"""

NO_PERSON = Problem(404, "Nobody has the e-mail address {email}.")

_LETTERS = "abcdefghkmnpqrstuvwxyz23456789"
_PASSWORD = 6
"""Letters that a password has."""
_DAY = 24 * 60
"""Minutes of a day."""
_CLOCK = {minute: f"{minute // 60:02}:{minute % 60:02}" for minute in range(0, _DAY, 5)}


@dataclass(frozen=True)
class Done:
    """The agent has said that it is done."""

    answer: Any = None


_MANY = 20
"""A population of so many for each that is drawn is not copied."""


class _Moved(dict[int, Any]):
    """Place -> what is there now, of a long population. Only what was moved is written down."""

    def __init__(self, population: Any) -> None:
        self._population = population

    def __missing__(self, place: int) -> Any:
        return self._population[place]


class Draw(random.Random):
    """Random numbers in half the time, by the same algorithms in every version of Python."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        if stop is None:
            start, stop = 0, start
        if step == 1:
            return start + int(self.random() * (stop - start))
        return start + step * int(self.random() * ((stop - start + step - 1) // step))

    def choice(self, seq: Any) -> Any:
        return seq[int(self.random() * len(seq))]

    def choices(self, population: Any, *, k: int) -> list[Any]:  # type: ignore[override]
        random, size = self.random, len(population)
        return [population[int(random() * size)] for _ in range(k)]

    def sample(self, population: Any, k: int) -> list[Any]:  # type: ignore[override]
        random, size = self.random, len(population)
        left: Any = list(population) if size < _MANY * k else _Moved(population)
        drawn = []
        for front in range(k):
            place = front + int(random() * (size - front))
            drawn.append(left[place])
            left[place] = left[front]
        return drawn


class Names(Protocol):
    """Other names for the APIs of the apps (disguise.py)."""

    def apis(self, app: str) -> Mapping[str, Api]: ...

    def listed(self, app: str) -> Iterable[str]:
        """The names of an app's APIs, as in `apis`, which takes longer."""
        ...

    def __hash__(self) -> int: ...


class World(Database):
    """One live world. `rng` is for making it; nothing random happens once the agent is in it."""

    def __init__(
        self,
        seed: str,
        apps: Mapping[str, App],
        schema: str,
        content: Content | None,
        now: datetime,
        people: list[Person],
    ) -> None:
        super().__init__(schema, content)
        self.seed, self.apps, self.now, self.people = seed, apps, now, people
        self.owner = people[0]
        self.done: Done | None = None
        self.disguise: Names | None = None
        """The names that the APIs have here, if not their own."""
        self.tokens: dict[tuple[str, int], str] = {}
        """(app, person) -> the token that is valid. Logging in is nobody's business: it is not in the database."""
        self.logins = 0

    @functools.cached_property
    def rng(self) -> random.Random:
        return random.Random(f"{self.seed}/more")

    @classmethod
    def make(cls, seed: str, apps: Mapping[str, App]) -> "World":
        """A world from nothing but its seed: people first, then every app's history, in the order of the apps."""
        rng = Draw(seed)
        day = date(2026, 1, 1) + timedelta(days=rng.randrange(60, 300))
        now = datetime(day.year, day.month, day.day, rng.randrange(8, 19), 5 * rng.randrange(12))
        people = make_people(rng, now)
        schema = _schema(tuple(app.schema for app in apps.values()))
        world = cls(seed, apps, schema, None, now, people)
        world.rng = rng
        with world.filling():
            world._fill()
        return world

    def _fill(self) -> None:
        people = [tuple(person.row().values()) for person in self.people]
        self.add_all("people", ", ".join(self.owner.row()), people)
        for app in self.apps.values():
            if app.login:
                letters = "".join(self.rng.choices(_LETTERS, k=_PASSWORD * len(self.people)))
                passwords = [letters[start : start + _PASSWORD] for start in range(0, len(letters), _PASSWORD)]
                accounts = [(app.name, p.id, password) for p, password in zip(self.people, passwords, strict=True)]
                self.add_all("accounts", "app, person, password", accounts)
            app.fill(self)
        # Rows to come have other numbers in every world, so that none can be learnt by heart.
        places = self.db.execute("SELECT rowid FROM sqlite_sequence ORDER BY name").fetchall()
        gaps = [(self.rng.randrange(1, 100), place) for (place,) in places]
        self.db.executemany("UPDATE sqlite_sequence SET seq = seq + ? WHERE rowid = ?", gaps)

    def fork(self) -> "World":
        """An independent copy."""
        copy = self.begin()
        copy.done, copy.written = self.done, set(self.written)
        copy.tokens, copy.logins = dict(self.tokens), self.logins
        return copy

    def begin(self) -> "World":
        """A copy for a new attempt: nobody is logged in, and what is written counts from here."""
        copy = World(self.seed, self.apps, self.schema, self.content, self.now, self.people)
        copy.disguise = self.disguise
        return copy

    # -- people, time and tokens ---------------------------------------------------------------------------------------

    @functools.cached_property
    def _minute(self) -> int:
        """Now, in minutes since the calendar began."""
        return self.now.toordinal() * _DAY + self.now.hour * 60 + self.now.minute

    @property
    def moment(self) -> str:
        return self.now.isoformat(" ", "minutes")

    @property
    def today(self) -> str:
        return self.now.date().isoformat()

    def day(self, offset: int) -> str:
        """The date so many days from today."""
        return _written_day(self._minute // _DAY + offset)

    def ago(self, days: float = 0, hours: float = 0) -> str:
        """A moment in the past, to five minutes."""
        day, minute = divmod(int((self._minute - _DAY * days - 60 * hours) // 5) * 5, _DAY)
        return f"{_written_day(day)} {_CLOCK[minute]}"

    def others(self, *relations: str) -> list[Person]:
        """The people who are not the owner: all, or those with one of the relations."""
        return [p for p in self.people[1:] if not relations or p.relation in relations or p.circle in relations]

    def person_with(self, email: str) -> int | None:
        return next((person.id for person in self.people if person.email == email), None)

    def person(self, email: str) -> int:
        """Who has an e-mail address."""
        found = self.person_with(email)
        if found is None:
            raise NO_PERSON(email=email)
        return found

    def name_of(self, person: int) -> str:
        return self.people[person - 1].name

    def log_in(self, app: str, email: str, password: str) -> str | None:
        """A new token; the person's former one for this app expires."""
        person = self.person_with(email)
        if self.value("SELECT password FROM accounts WHERE app = ? AND person = ?", app, person) != password:
            return None
        assert person is not None
        digest = hashlib.blake2b(f"{self.seed}/{app}/{person}/{self.logins}".encode(), digest_size=4).hexdigest()
        self.logins += 1
        self.tokens[app, person] = token = f"{app}-{digest}"
        return token

    def log_out(self, app: str, person: int) -> None:
        del self.tokens[app, person]

    def bearer(self, app: str, token: str) -> int:
        """Who holds a token."""
        for (valid_for, person), valid in self.tokens.items():
            if valid == token and valid_for == app:
                return person
        raise NO_TOKEN()

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


@functools.lru_cache(maxsize=4096)
def _written_day(number: int) -> str:
    """The date of a day, counted since the calendar began."""
    return date.fromordinal(number).isoformat()


@functools.cache
def _schema(apps: tuple[str, ...]) -> str:
    return _SCHEMA + "".join(apps)
