"""Fills worlds for practice with the contacts, and with what other apps do for them (contacts.toml)."""

from errands.people import FIRST, LAST
from errands.practice.drill import Row, Slots
from errands.scenarios.contacts import MONTHS
from errands.words import WORDS
from errands.world import World


def noted(w: World) -> Slots:
    """Every contact has a note."""
    for one in w.all("SELECT id FROM contacts WHERE owner = ?", w.owner.id):
        w.run("UPDATE contacts SET note = ? WHERE id = ?", w.rng.choice(WORDS["remarks_about_people"]), one["id"])
    return {}


def favourites(w: World) -> Slots:
    w.run("UPDATE contacts SET favourite = 0 WHERE owner = ?", w.owner.id)
    for person in w.rng.sample(w.others(), w.rng.randrange(4, 8)):
        w.run("UPDATE contacts SET favourite = 1 WHERE owner = ? AND email = ?", w.owner.id, person.email)
    return {}


def month(w: World) -> Slots:
    """A month in which some people were born, each in a year of their own."""
    month = w.rng.randrange(1, 13)
    for person, year in zip(w.rng.sample(w.others(), 4), w.rng.sample(range(1960, 2000), 4), strict=True):
        day = f"{year}-{month:02}-{w.rng.randrange(1, 29):02}"
        w.run("UPDATE contacts SET birthday = ? WHERE owner = ? AND email = ?", day, w.owner.id, person.email)
    return {"of": MONTHS[month - 1], "_month": month}


def stranger(w: World) -> str:
    """The name of someone whom nobody knows."""
    taken = {part for person in w.people for part in (person.first, person.last)}
    first, last = (w.rng.choice([name for name in names if name not in taken]) for names in (FIRST, LAST))
    return f"{first} {last}"


def address(w: World) -> str:
    """The email address of someone whom nobody knows."""
    return f"{stranger(w).replace(' ', '.').lower()}@post.org"


def number(w: World) -> str:
    return str(w.rng.randrange(2_000_000, 9_999_999))


def amount(w: World) -> float:
    return w.rng.randrange(305, 1500, 10) / 100


def reachable(w: World, row: Row) -> None:
    w.run("DELETE FROM phone_blocked WHERE number = ?", row.get("phone") or row["number"])


def blocked(w: World, row: Row) -> None:
    reachable(w, row)
    w.add("phone_blocked", owner=w.owner.id, number=row["phone"])


def unread(w: World, row: Row) -> None:
    more = {"text": w.rng.choice(WORDS["texts"]), "time": w.ago(hours=w.rng.randrange(1, 9)), "read": 0}
    w.add("phone_messages", owner=w.owner.id, number=row["phone"], incoming=1, **more)


def no_friend(w: World, row: Row) -> None:
    w.run("DELETE FROM wallet_friends WHERE owner = ? AND friend = ?", w.owner.id, w.person_with(row["email"]))


def friend(w: World, row: Row) -> None:
    no_friend(w, row)
    w.add("wallet_friends", owner=w.owner.id, friend=w.person_with(row["email"]))


def birthday(w: World) -> str:
    return f"{w.rng.randrange(1960, 2000)}-{w.rng.randrange(1, 13):02}-28"
