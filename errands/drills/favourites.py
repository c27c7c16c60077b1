"""Drills around favourite contacts, and around what the owner's profile says."""

from dataclasses import replace

from errands.drill import Act, Find, Rows, Slots, drills
from errands.drills import cards, contacts
from errands.people import STREETS
from errands.world import World


def _favourites(w: World) -> Rows:
    """The favourites, of whom there are some, one of each larger group at least; oldest first."""
    book = cards.book(w)
    chosen = w.rng.sample(book, w.rng.randrange(2, 5))
    chosen += [w.rng.choice([one for one in book if one["relation"] == kin]) for kin in contacts.KINS]
    ids = {one["id"] for one in chosen}
    for one in book:
        w.run("UPDATE contacts SET favourite = ? WHERE id = ?", one["id"] in ids, one["id"])
    return [one for one in book if one["id"] in ids]


def _all(w: World) -> tuple[Slots, Rows]:
    return {}, _favourites(w)


def _kins(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(contacts.KINS)
    return {"kin": kin}, [one | {"rest": one["relation"] != kin} for one in _favourites(w)]


def _in_street(w: World) -> tuple[Slots, Rows]:
    found, street = _favourites(w), w.rng.choice(STREETS)
    for place, one in enumerate(found):
        one["address"] = f"{w.rng.randrange(1, 90)} {street if place % 2 else 'Quay Street'}"
        w.run("UPDATE contacts SET address = ? WHERE id = ?", one["address"], one["id"])
    return {"street": street}, [one for one in found if street in one["address"]]


def _same_month(w: World) -> tuple[Slots, Rows]:
    """Contacts born in the month of the owner, as are some; one is not."""
    month, book = w.owner.birthday[5:7], cards.book(w)
    other, *some = w.rng.sample(book, w.rng.randrange(2, 5))
    for one in some:
        w.run("UPDATE contacts SET birthday = ? WHERE id = ?", f"{one['birthday'][:5]}{month}-17", one["id"])
    another = f"{int(month) % 12 + 1:02}"
    w.run("UPDATE contacts SET birthday = ? WHERE id = ?", f"{other['birthday'][:5]}{another}-17", other["id"])
    born = "SELECT * FROM contacts WHERE owner = ? AND substr(birthday, 6, 2) = ?"
    return {}, w.all(born, w.owner.id, month)


def _set(favourite: int, w: World, rows: Rows) -> Slots:
    for one in rows:
        w.run("UPDATE contacts SET favourite = ? WHERE id = ?", favourite, one["id"])
    return {}


_LIST = "found = contacts.list_favourites()\n"
_IN_FULL = _LIST + 'found = [contacts.show(contact_id=x["id"]) for x in found]\n'
_NAMES = '\nprint([x["name"] for x in found])'
_ALL = Find(
    "of-favourites",
    ("all favourites in my contacts", "everyone who is a favourite in my contacts", "each of my favourite contacts"),
    _LIST.strip() + _NAMES,
    _all,
    many=True,
)
_KINS = Find(
    "of-favourites-of-relation",
    ("every {kin} of mine who is a favourite contact", "each favourite in my contacts who is my {kin}"),
    'seen = contacts.list_favourites()\nfound = [x for x in seen if x["relation"] == "{kin}"]\n'
    'rest = [x for x in seen if x["relation"] != "{kin}"]' + _NAMES,
    _kins,
    many=True,
    keep="those whose `relation` is {kin}",
    rest="the other favourites",
)
_IN_STREET = Find(
    "of-favourites-in-street",
    ("each of my favourite contacts who lives in {street}", "every favourite contact with an address in {street}"),
    _IN_FULL + 'found = [x for x in found if "{street}" in x["address"]]' + _NAMES,
    _in_street,
    many=True,
    keep="those whose `address` has {street} in it",
)
_OLDEST = Find(
    "of-the-oldest-favourite",
    ("the oldest of my favourite contacts", "whoever was born first of my favourite contacts"),
    _IN_FULL + 'found = [min(found, key=lambda x: x["birthday"])]',
    _all,
    person=True,
    keep="the one with the earliest `birthday`",
)
_SAME_MONTH = Find(
    "of-those-born-in-my-month",
    (
        "every contact whose birthday is in the same month as mine",
        "everyone in my contacts with a birthday in the same month as mine",
    ),
    'month = owner.show_profile()["birthday"][5:7]\n'
    + cards.IN_FULL
    + 'found = [x for x in found if x["birthday"][5:7] == month]'
    + _NAMES,
    _same_month,
    many=True,
    keep="those whose `birthday` is in the same month as my owner's",
)
_ME = Find(
    "to-myself",
    ("my own e-mail address", "the e-mail address in my profile"),
    "found = [owner.show_profile()]",
    lambda w: ({}, [{"email": w.owner.email}]),
)

_FAVOUR = Act(
    "contacts.set_favourite",
    (
        "Add {it} to the favourites in my contacts.",
        "{it} should be among the favourites in my contacts.",
        "Put {it} on the list of favourites in my contacts.",
        "I want {it} among my favourite contacts.",
    ),
    "add {them} to the favourites in the contacts",
    key="contact_id",
    given=lambda w, rows: _set(0, w, rows),
    name="favour",
)
_FORGO = Act(
    "contacts.set_favourite",
    (
        "In my contacts, change {it} from a favourite to an ordinary contact.",
        "Take the favourite mark off {it} in my contacts.",
        "Unmark {it} as a favourite in my contacts.",
    ),
    "make {them} no longer a favourite in the contacts",
    key="contact_id",
    given=lambda w, rows: _set(1, w, rows),
    fixed=(("favourite", False),),
    name="forgo",
)

DRILLS = [
    *drills([contacts.NAMED], [(contacts.BORN, _FAVOUR)]),
    *drills([contacts.KIN], [_FAVOUR, (_FAVOUR, contacts.NOTE)]),
    *drills([contacts.KINS_ALL], [_FORGO]),
    *drills([cards.NEIGHBOURS], [_FAVOUR]),
    *drills([_ALL], [contacts.TEXT, contacts.BEFRIEND, cards.COUNT]),
    *drills([_KINS], [contacts.REQUEST, (contacts.TEXT, replace(contacts.NOTE, rest=True))]),
    *drills([_IN_STREET], [contacts.PAY]),
    *drills([_OLDEST], [contacts.CALL]),
    *drills([_SAME_MONTH], [_FAVOUR]),
    *drills([_ME], [contacts.MAIL]),
]
