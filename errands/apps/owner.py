"""Owner: who the agent works for, what they have, and the way to say that the task is done."""

from typing import Any

from typing_extensions import TypedDict

from errands.api import App, Line, Problem
from errands.world import Done, World

app = App(
    "owner",
    "Who you work for: their profile, addresses, cards and app passwords; and completing the task.",
    schema="""
CREATE TABLE addresses (id INTEGER PRIMARY KEY AUTOINCREMENT,
    person INTEGER NOT NULL REFERENCES people(id), label TEXT NOT NULL,
    street TEXT NOT NULL, UNIQUE (person, label));
CREATE TABLE cards (id INTEGER PRIMARY KEY AUTOINCREMENT,
    person INTEGER NOT NULL REFERENCES people(id), label TEXT NOT NULL,
    number TEXT NOT NULL, expires TEXT NOT NULL, UNIQUE (person, label));
""",
    login=False,
)

NO_ACCOUNT = Problem(404, "There is no app {app!r} with an account.")


class Profile(TypedDict):
    name: str
    email: str
    phone: str
    birthday: str


class Address(TypedDict):
    id: int
    label: str
    street: str


class Card(TypedDict):
    id: int
    label: str
    number: str
    expires: str


class Account(TypedDict):
    email: str
    password: str


class Now(TypedDict):
    now: str
    weekday: str


@app.api()
def show_profile(w: World) -> Profile:
    """Name, e-mail address, phone number and birthday of your owner."""
    me = w.owner
    return {"name": me.name, "email": me.email, "phone": me.phone, "birthday": me.birthday}


@app.api()
def list_addresses(w: World) -> list[Address]:
    """The addresses of your owner: home, work."""
    return w.rows(Address, "FROM addresses WHERE person = ? ORDER BY id", w.owner.id)


@app.api()
def list_cards(w: World) -> list[Card]:
    """The payment cards of your owner. An expired card cannot be used."""
    return w.rows(Card, "FROM cards WHERE person = ? ORDER BY id", w.owner.id)


@app.api(NO_ACCOUNT)
def show_account(w: World, app: Line) -> Account:
    """Your owner's e-mail and password for an app: what its login API takes."""
    password = w.value("SELECT password FROM accounts WHERE app = ? AND person = ?", app, w.owner.id)
    if password is None:
        raise NO_ACCOUNT(app=app)
    return {"email": w.owner.email, "password": password}


@app.api()
def show_time(w: World) -> Now:
    """What time it is, and the day of the week."""
    return {"now": w.moment, "weekday": f"{w.now:%A}"}


class Completed(TypedDict):
    message: str


@app.api()
def complete_task(w: World, answer: Any = None) -> Completed:
    """Say that the task is done. Give the answer if the task asks a question; a list for several things."""
    w.done = Done(answer)
    return {"message": "The task is completed."}


@app.filled_by
def fill(w: World) -> None:
    for person in w.people:
        w.add("addresses", person=person.id, label="home", street=person.address)
        w.add("addresses", person=person.id, label="work", street=f"{w.rng.randrange(1, 40)} Market Square")
        for label, year in (("debit", w.now.year + 1 + w.rng.randrange(3)), ("old", w.now.year - 1)):
            number = f"{w.rng.randrange(10**4):04} {w.rng.randrange(10**4):04}"
            w.add("cards", person=person.id, label=label, number=number, expires=f"{year}-{w.rng.randrange(1, 13):02}")
