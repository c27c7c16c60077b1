"""Owner: who the agent works for, what they have, and the way to say that the task is done."""

from typing import Any

from typing_extensions import TypedDict

from errands.api import App, Line, Numbered, Problem
from errands.world import Done, World

app = App(
    "owner",
    "Who you work for: their profile, addresses, cards and app passwords; and completing the task.",
    login=False,
)

NO_ACCOUNT = Problem(404, "There is no app {app!r} that has accounts.")


class Profile(TypedDict):
    name: str
    email: str
    phone: str
    birthday: str


class Address(Numbered):
    label: str
    street: str


class Card(Numbered):
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
    """The name, e-mail address, phone number and birthday of your owner."""
    me = w.owner
    return {"name": me.name, "email": me.email, "phone": me.phone, "birthday": me.birthday}


@app.api()
def list_addresses(w: World) -> list[Address]:
    """The addresses of your owner: home and work."""
    return w.rows(Address, "FROM addresses WHERE person = ? ORDER BY id", w.owner.id)


@app.api()
def list_cards(w: World) -> list[Card]:
    """The payment cards of your owner. An expired card cannot be used."""
    return w.rows(Card, "FROM cards WHERE person = ? ORDER BY id", w.owner.id)


@app.api(NO_ACCOUNT)
def show_account(w: World, app: Line) -> Account:
    """The e-mail and password of your owner for an app, as its login API takes them."""
    password = w.value("SELECT password FROM accounts WHERE app = ? AND person = ?", app, w.owner.id)
    return {"email": w.owner.email, "password": NO_ACCOUNT.unless(password, app=app)}


@app.api()
def show_time(w: World) -> Now:
    """The date, the time and the day of the week."""
    return {"now": w.moment, "weekday": f"{w.now:%A}"}


@app.api(says="The task is completed.")
def complete_task(w: World, answer: Any = None) -> None:
    """Say that the task is done. If the task asks a question, give the answer: a list if there are several."""
    w.done = Done(answer)


@app.filled_by
def fill(w: World) -> None:
    """Everyone has two addresses and two cards, one of which has expired."""
    addresses, cards = [], []
    for person in w.people:
        addresses.append((person.id, "home", person.address))
        addresses.append((person.id, "work", f"{w.rng.randrange(1, 40)} Market Square"))
        for label, year in (("debit", w.now.year + 1 + w.rng.randrange(3)), ("old", w.now.year - 1)):
            number = f"{w.rng.randrange(10**4):04} {w.rng.randrange(10**4):04}"
            cards.append((person.id, label, number, f"{year}-{w.rng.randrange(1, 13):02}"))
    w.add_all("addresses", "person, label, street", addresses)
    w.add_all("cards", "person, label, number, expires", cards)


def home_address(person: int) -> int:
    """The id of a person's home address, as `fill` gives it."""
    return 2 * person - 1


def debit_card(person: int) -> int:
    """The id of a person's debit card, as `fill` gives it."""
    return 2 * person - 1
