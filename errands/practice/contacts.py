"""Practice with the contacts, and with what other apps do for someone in them."""

from functools import partial
from typing import Any

from errands.people import FIRST, LAST
from errands.practice.blocks import COUNT, Source, alone, each, practice, switch
from errands.practice.conditions import KINS, All, Moment, Name, Value
from errands.practice.drill import DAY, Act, Ask, Row, Slots
from errands.scenarios.contacts import MONTHS
from errands.words import WORDS
from errands.world import World


def _noted(w: World) -> Slots:
    """Every contact has a note."""
    for one in w.all("SELECT id FROM contacts WHERE owner = ?", w.owner.id):
        w.run("UPDATE contacts SET note = ? WHERE id = ?", w.rng.choice(WORDS["remarks_about_people"]), one["id"])
    return {}


def _favourites(w: World) -> Slots:
    w.run("UPDATE contacts SET favourite = 0 WHERE owner = ?", w.owner.id)
    for person in w.rng.sample(w.others(), w.rng.randrange(4, 8)):
        w.run("UPDATE contacts SET favourite = 1 WHERE owner = ? AND email = ?", w.owner.id, person.email)
    return {}


def _month(w: World) -> Slots:
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


def _blocked(w: World, row: Row) -> None:
    reachable(w, row)
    w.add("phone_blocked", owner=w.owner.id, number=row["phone"])


def _unread(w: World, row: Row) -> None:
    more = {"text": w.rng.choice(WORDS["texts"]), "time": w.ago(hours=w.rng.randrange(1, 9)), "read": 0}
    w.add("phone_messages", owner=w.owner.id, number=row["phone"], incoming=1, **more)


def _no_friend(w: World, row: Row) -> None:
    w.run("DELETE FROM wallet_friends WHERE owner = ? AND friend = ?", w.owner.id, w.person_with(row["email"]))


def _friend(w: World, row: Row) -> None:
    _no_friend(w, row)
    w.add("wallet_friends", owner=w.owner.id, friend=w.person_with(row["email"]))


def _birthday(w: World) -> str:
    return f"{w.rng.randrange(1960, 2000)}-{w.rng.randrange(1, 13):02}-28"


CONTACTS = Source("contacts", "contacts.search", "my contact*", _noted, people=True)
FAVOURITES = Source("favourites", "contacts.list_favourites", "my favourite contact*", _favourites, people=True)
BIRTHDAYS = Source(
    "birthdays",
    "contacts.list_birthdays",
    "my contact* with a birthday in {of}",
    _month,
    {"month": "month"},
    f'months = "{" ".join(MONTHS)}".split()\nmonth = months.index("{{of}}") + 1\n',
    people=True,
)
WHO = Name("name", "{called}", "query")
MY = Name("relation", "my {called}", "query")
KIN = Value("relation", "all my {value}s|all my contacts who are {value}s", KINS)
AMONG = Value("relation", "{noun} who are {value}s", KINS)

_BY_PHONE, _BY_MAIL = partial(Act, field="phone", ready=reachable), partial(Act, field="email")
_LETTER = {"subject": "titles_of_mails", "body": "texts"}
_MONEY: dict[str, Any] = {"amount": amount, "note": "paid_for"}
CALL = _BY_PHONE("phone.start_call", "call {it}|give {it} a call")
TEXT = _BY_PHONE("phone.send_message", "text {it} '{text}'|send {it} the text '{text}'", args={"text": "texts"})
_BLOCK = _BY_PHONE("phone.block", "block {it} on my phone")
_UNBLOCK = _BY_PHONE("phone.unblock", "unblock {it} on my phone", ready=_blocked)
_READ = _BY_PHONE("phone.mark_read", "mark the text messages from {it} as read", name="read-texts", ready=_unread)
_FORGET = _BY_PHONE("phone.delete_conversation", "delete all my text messages with {it}", ready=_unread)
MAIL = _BY_MAIL(
    "mail.send", "send {it} an email with the subject '{subject}' and the text '{body}'", name="mail", args=_LETTER
)
DRAFT = _BY_MAIL(
    "mail.create_draft", "draft an email to {it} with the subject '{subject}' and the text '{body}'", args=_LETTER
)
PAY = _BY_MAIL("wallet.send", "pay {it} {amount} with the note '{note}'", name="pay", args=_MONEY)
COLLECT = _BY_MAIL(
    "wallet.request",
    "send {it} a money request for {amount}, with the note '{note}'",
    name="request-money",
    args=_MONEY,
)
ADD_FRIEND = _BY_MAIL("wallet.add_friend", "add {it} to my friends in the wallet", ready=_no_friend)
REMOVE_FRIEND = _BY_MAIL("wallet.remove_friend", "remove {it} from my friends in the wallet", ready=_friend)
_DELETE = Act("contacts.delete", "delete {it} from my contacts|remove {it} from my address book")
_NOTE = Act("contacts.set_note", "set the contact note for {it} to '{note}'", args={"note": "new_remarks_about_people"})
_FAVOUR, _UNFAVOUR = switch(
    "contacts.set_favourite",
    "contacts",
    "add {it} to the favourites in my contacts",
    "remove {it} from the favourites in my contacts",
    "unfavour",
)
_NEW = [
    Act("contacts.update", wish, name=f"new-{slot}", args={slot: source}, single=True)
    for slot, source, wish in (
        ("phone", number, "change the phone number of {it} to {phone} in my contacts"),
        ("email", address, "change the email address of {it} to {email} in my contacts"),
        ("birthday", _birthday, "set the birthday of {it} to {birthday} in my contacts"),
        ("address", "streets", "change the address of {it} to '{address}' in my contacts"),
    )
]
_ADD = Act(
    "contacts.add",
    "add {name} to my contacts, with the email address {email} and the phone number {phone}"
    "|create a contact for {name}: email {email}, phone {phone}",
    name="add-contact",
    args={"name": stranger, "email": address, "phone": number},
)
_ASKS = [
    Ask("birthday", hint=DAY, show="contacts.show", asked="When was {it} born?"),
    Ask("address", show="contacts.show", asked="Where does {it} live?"),
    Ask("note", "contact note", show="contacts.show", asked="What does the contact note for {it} say?"),
    Ask("email", "email address"),
    Ask("phone", "phone number"),
]
_ABROAD = [TEXT, CALL, MAIL, DRAFT, PAY, COLLECT, ADD_FRIEND, REMOVE_FRIEND, _READ, _FORGET, _BLOCK, _UNBLOCK]

KINDS = [
    *practice(CONTACTS, [WHO, MY], [*_NEW, *_ASKS, _DELETE, _NOTE, _FAVOUR, _UNFAVOUR], 7),
    *practice(CONTACTS, [WHO, MY, KIN], _ABROAD, 9),
    *practice(CONTACTS, [KIN], [_FAVOUR, _UNFAVOUR, _DELETE, _NOTE, each("name"), each("phone", "phone number")]),
    *practice(FAVOURITES, [All(), AMONG], [_UNFAVOUR, _NOTE, COUNT, each("name")]),
    *practice(FAVOURITES, [All(), AMONG], _ABROAD),
    *practice(
        BIRTHDAYS,
        [
            All(),
            Moment("birthday", "{noun} who were born {than} {day}", "youngest of {noun}", "oldest of {noun}"),
            AMONG,
        ],
        [_NOTE, _FAVOUR, COUNT, each("name"), Ask("name"), Ask("birthday", hint=DAY)],
    ),
    *alone(_ADD),
]
