"""Contacts: the owner's address book."""

from typing import Annotated, Literal

from pydantic import Field

from errands.api import App, Day, Email, Id, Label, Line, Listing, New, Numbered, Phone, Query, Text
from errands.database import Owned
from errands.world import World

app = App("contacts", "The address book: people with their e-mail addresses, phone numbers, relations and birthdays.")

CONTACTS = Owned("contacts", "contact")

Family = Literal["mother", "father", "sister", "brother"]
Relation = Literal[Family, "flatmate", "manager", "colleague", "friend", "dentist", "landlord", "other"]
Month = Annotated[int, Field(ge=1, le=12), Label("1..12")]


class Brief(Numbered):
    name: str
    email: str
    phone: str
    relation: str


class Contact(Brief):
    birthday: str
    address: str
    note: str
    favourite: bool


class Birthday(Numbered):
    name: str
    relation: str
    birthday: str


@app.api()
def search(w: World, me: int, query: Query = "") -> Listing[Brief]:
    """Contacts whose name, e-mail, phone or relation contains the query. An empty query finds all."""
    text = "name || ' ' || email || ' ' || phone || ' ' || relation"
    return Listing(f"FROM contacts WHERE owner = ? AND holds({text}, ?) ORDER BY id", me, query)


@app.api(CONTACTS.missing)
def show(w: World, me: int, contact_id: Id) -> Contact:
    """Show a contact in full."""
    return CONTACTS.show(Contact, w, me, contact_id)


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
) -> New[Literal["contact_id"]]:
    """Add a contact."""
    values = {"name": name, "email": email, "phone": phone, "relation": relation}
    return {"contact_id": w.add("contacts", owner=me, **values, birthday=birthday, address=address)}


@app.api(CONTACTS.missing, says="Contact changed.")
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
) -> None:
    """Change a contact. What you leave out stays as it is."""
    given = {"name": name, "email": email, "phone": phone, "relation": relation, "birthday": birthday}
    CONTACTS.change(w, me, contact_id, **given, address=address)


@app.api(CONTACTS.missing, says="Note written.")
def set_note(w: World, me: int, contact_id: Id, note: Text) -> None:
    """Write a note about a contact. It replaces the note that is there."""
    CONTACTS.change(w, me, contact_id, note=note)


@app.api(CONTACTS.missing, says="Contact changed.")
def set_favourite(w: World, me: int, contact_id: Id, favourite: bool = True) -> None:
    """Add a contact to your favourites, or remove it from them."""
    CONTACTS.change(w, me, contact_id, favourite=favourite)


@app.api()
def list_favourites(w: World, me: int) -> list[Brief]:
    """Your favourite contacts."""
    return w.rows(Brief, "FROM contacts WHERE owner = ? AND favourite = 1 ORDER BY id", me)


@app.api()
def list_birthdays(w: World, me: int, month: Month) -> Listing[Birthday]:
    """Contacts with a birthday in a month, earliest day first."""
    source = "FROM contacts WHERE owner = ? AND substr(birthday, 6, 2) = ? ORDER BY substr(birthday, 9), id"
    return Listing(source, me, f"{month:02}")


@app.api(CONTACTS.missing, says="Contact deleted.")
def delete(w: World, me: int, contact_id: Id) -> None:
    """Delete a contact."""
    CONTACTS.delete(w, me, contact_id)


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
    w.add_all("contacts", "owner, name, email, phone, relation, birthday, address, favourite", rows)
