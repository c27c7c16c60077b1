"""Drills in which people are chosen by a condition on their contacts."""

from errands.drill import Ask, Find, Rows, Slots, drills
from errands.drills import contacts
from errands.people import STREETS
from errands.world import World


def book(w: World) -> Rows:
    """All contacts, each born in another year, in a street of their own choice."""
    found = w.all("SELECT * FROM contacts WHERE owner = ? ORDER BY id", w.owner.id)
    for one, year in zip(found, w.rng.sample(range(1950, 2005), len(found)), strict=True):
        w.run("UPDATE contacts SET birthday = ? WHERE id = ?", f"{year}{one['birthday'][4:]}", one["id"])
    return w.all("SELECT * FROM contacts WHERE owner = ? ORDER BY birthday", w.owner.id)


def _older(w: World) -> tuple[Slots, Rows]:
    found = book(w)
    years = [int(one["birthday"][:4]) for one in found]
    year = w.rng.choice([n for n in range(years[0] + 1, years[-1]) if n not in years])
    return {"year": year}, [one for one in found if one["birthday"] < str(year)]


def _neighbours(w: World) -> tuple[Slots, Rows]:
    street = w.rng.choice(STREETS)
    for one in w.rng.sample(book(w), 2):
        address = f"{w.rng.randrange(1, 90)} {street}"
        w.run("UPDATE contacts SET address = ? WHERE id = ?", address, one["id"])
    found = w.all("SELECT * FROM contacts WHERE owner = ?", w.owner.id)
    return {"street": street}, [one for one in found if street in one["address"]]


def _either(w: World) -> tuple[Slots, Rows]:
    kins = w.rng.sample(contacts.KINS, 2)
    return {"kin": kins[0], "other": kins[1]}, [one for one in book(w) if one["relation"] in kins]


def _oldest_kin(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(contacts.KINS)
    return {"kin": kin}, [one for one in book(w) if one["relation"] == kin][:1]


def _youngest(w: World) -> tuple[Slots, Rows]:
    return {}, book(w)[-1:]


IN_FULL = 'found = contacts.search(page_size=20)\nfound = [contacts.show(contact_id=x["id"]) for x in found]\n'
_OLDER = Find(
    "of-those-born-before",
    (
        "everyone in my address book who was born before {year}",
        "everybody I have as a contact and who was born before {year}",
    ),
    IN_FULL + 'found = [x for x in found if x["birthday"] < "{year}"]\nprint([x["name"] for x in found])',
    _older,
    many=True,
    keep="those whose `birthday` is before {year}",
)
NEIGHBOURS = Find(
    "of-those-in-street",
    ("all contacts who live in {street}", "everyone in my contacts with an address in {street}"),
    IN_FULL + 'found = [x for x in found if "{street}" in x["address"]]\nprint([x["name"] for x in found])',
    _neighbours,
    many=True,
    keep="those whose `address` has {street} in it",
)
EITHER = Find(
    "of-two-relations",
    ("every {kin} and every {other} of mine", "all contacts who are my {kin} or my {other}"),
    'found = contacts.search(page_size=20)\nfound = [x for x in found if x["relation"] in ("{kin}", "{other}")]\n'
    'print([x["name"] for x in found])',
    _either,
    many=True,
    keep="those whose `relation` is {kin} or {other}",
)
OLDEST_KIN = Find(
    "of-the-oldest",
    ("the oldest {kin} of mine", "that {kin} of mine who was born first"),
    'found = contacts.search(query="{kin}", page_size=20)\nfound = [x for x in found if x["relation"] == "{kin}"]\n'
    'found = [contacts.show(contact_id=x["id"]) for x in found]\nfound = [min(found, key=lambda x: x["birthday"])]',
    _oldest_kin,
    person=True,
    keep="those whose `relation` is {kin}, and of them the one with the earliest `birthday`",
)
_YOUNGEST = Find(
    "of-the-youngest",
    ("the youngest of all my contacts", "whoever was born last in my contacts"),
    IN_FULL + 'found = [max(found, key=lambda x: x["birthday"])]',
    _youngest,
    person=True,
    keep="the one with the latest `birthday`",
)

COUNT = Ask(
    "how many",
    ("Count {it}.", "Please count {it} for me.", "Tell me the number you get if you count {it}."),
    "count {them}",
)
DRILLS = [
    *drills([_OLDER], [contacts.NOTE, COUNT]),
    *drills([NEIGHBOURS], [contacts.TEXT]),
    *drills([EITHER], [contacts.TEXT, contacts.REQUEST]),
    *drills([OLDEST_KIN], [contacts.CALL]),
    *drills([_YOUNGEST], [contacts.MAIL]),
]
