"""Contacts: the owner's address book."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import (
    App,
    Day,
    Email,
    Id,
    Label,
    Line,
    Page,
    PageSize,
    Phone,
    Problem,
    Query,
    Success,
    Text,
)
from errands.world import World

app = App(
    "contacts",
    "The address book: people with their e-mail addresses, phone numbers, relations and birthdays.",
    schema="""
CREATE TABLE contacts (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    name TEXT NOT NULL, email TEXT NOT NULL, phone TEXT NOT NULL, relation TEXT NOT NULL, birthday TEXT NOT NULL,
    address TEXT NOT NULL, note TEXT NOT NULL DEFAULT '', favourite INTEGER NOT NULL DEFAULT 0);
CREATE INDEX contacts_owner ON contacts(owner);
""",
)

NO_CONTACT = Problem(404, "There is no contact {id}.")

Relation = Literal[
    "mother",
    "father",
    "sister",
    "brother",
    "flatmate",
    "manager",
    "colleague",
    "friend",
    "dentist",
    "landlord",
    "other",
]
Month = Annotated[int, Field(ge=1, le=12), Label("1..12")]


class Brief(TypedDict):
    id: int
    name: str
    email: str
    phone: str
    relation: str


class Contact(Brief):
    birthday: str
    address: str
    note: str
    favourite: bool


class Birthday(TypedDict):
    id: int
    name: str
    relation: str
    birthday: str


class Added(TypedDict):
    contact_id: int


@app.api()
def search(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Contacts whose name, e-mail, phone or relation contains the query; all of them when it is empty."""
    source = (
        "FROM contacts WHERE owner = ? AND name || ' ' || email || ' ' || phone || ' ' || relation LIKE ? ORDER BY id"
    )
    return w.page(Brief, source, (me, f"%{query}%"), page, page_size)


@app.api(NO_CONTACT)
def show(w: World, me: int, contact_id: Id) -> Contact:
    """One contact in full."""
    _find(w, me, contact_id)
    return w.rows(Contact, "FROM contacts WHERE id = ?", contact_id)[0]


@app.api()
def add(
    w: World,
    me: int,
    name: Line,
    email: Email,
    phone: Phone,
    relation: Relation = "other",
    birthday: Day = "1990-01-01",
    address: Line = "unknown",
) -> Added:
    """Add a contact."""
    values = {"name": name, "email": email, "phone": phone, "relation": relation}
    return {"contact_id": w.add("contacts", owner=me, **values, birthday=birthday, address=address)}


@app.api(NO_CONTACT)
def update(
    w: World,
    me: int,
    contact_id: Id,
    name: Line | None = None,
    email: Email | None = None,
    phone: Phone | None = None,
    relation: Relation | None = None,
    birthday: Day | None = None,
    address: Line | None = None,
) -> Success:
    """Change a contact; what is not given stays as it is."""
    _find(w, me, contact_id)
    given = {"name": name, "email": email, "phone": phone, "relation": relation, "birthday": birthday}
    w.change("contacts", contact_id, **given, address=address)
    return {"message": "Contact changed."}


@app.api(NO_CONTACT)
def set_note(w: World, me: int, contact_id: Id, note: Text) -> Success:
    """Write a note about a contact, in place of the one there is."""
    _find(w, me, contact_id)
    w.run("UPDATE contacts SET note = ? WHERE id = ?", note, contact_id)
    return {"message": "Note written."}


@app.api(NO_CONTACT)
def set_favourite(w: World, me: int, contact_id: Id, favourite: bool = True) -> Success:
    """Make a contact a favourite, or no longer."""
    _find(w, me, contact_id)
    w.run("UPDATE contacts SET favourite = ? WHERE id = ?", favourite, contact_id)
    return {"message": "Contact changed."}


@app.api()
def list_favourites(w: World, me: int) -> list[Brief]:
    """The favourite contacts."""
    return w.rows(Brief, "FROM contacts WHERE owner = ? AND favourite = 1 ORDER BY id", me)


@app.api()
def list_birthdays(w: World, me: int, month: Month, page: Page = 0, page_size: PageSize = 5) -> list[Birthday]:
    """The contacts with a birthday in a month, earliest day first."""
    source = "FROM contacts WHERE owner = ? AND substr(birthday, 6, 2) = ? ORDER BY substr(birthday, 9), id"
    return w.page(Birthday, source, (me, f"{month:02}"), page, page_size)


@app.api(NO_CONTACT)
def delete(w: World, me: int, contact_id: Id) -> Success:
    """Delete a contact."""
    _find(w, me, contact_id)
    w.run("DELETE FROM contacts WHERE id = ?", contact_id)
    return {"message": "Contact deleted."}


def _find(w: World, me: int, id: int) -> None:
    w.owned("contacts", id, me, NO_CONTACT)


@app.filled_by
def fill(w: World) -> None:
    """Everyone is in the owner's book, in an order of its own; others have a few people in theirs."""
    rows = []
    for person in w.people:
        mine = person is w.owner
        known = [p for p in w.people if p is not person]
        for p in w.rng.sample(known, len(known) if mine else 3):
            relation, favourite = p.relation if mine else "other", mine and w.rng.random() < 0.2
            rows.append((person.id, p.name, p.email, p.phone, relation, p.birthday, p.address, favourite))
    columns = "owner, name, email, phone, relation, birthday, address, favourite"
    w.db.executemany(f"INSERT INTO contacts ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
