"""Drills in which payments, requests and friends of the wallet are chosen by a condition."""

from errands.apps.wallet import transfer
from errands.drill import Act, Find, Rows, Slots, day, drills, limit, row
from errands.drills import wallet
from errands.scenario import every
from errands.world import World

KINS = ("flatmate", "colleague", "friend")


def _sent(w: World) -> Rows:
    ids = w.all("SELECT id FROM wallet_transactions WHERE owner = ? AND direction = 'sent'", w.owner.id)
    return [row(w, "wallet_history", one["id"]) for one in ids]


def _large(w: World) -> tuple[Slots, Rows]:
    payments = _sent(w)
    least = limit(w, [one["amount"] for one in payments])
    return {"limit": least}, [one for one in payments if one["amount"] > least]


def _late(w: World) -> tuple[Slots, Rows]:
    payments = _sent(w)
    start = day(w, [one["at"] for one in payments])
    return {"day": start}, [one for one in payments if one["at"] > start]


def _noted(w: World) -> tuple[Slots, Rows]:
    """Some new payments with a note, to anyone."""
    about, other = w.rng.sample(wallet.THINGS, 2)
    for note in [about] * w.rng.randrange(2, 5) + [other]:
        payee, cents = w.rng.choice(w.others(*wallet.CIRCLES)), w.rng.randrange(105, 290, 5)
        transfer(w, w.owner.id, payee.id, cents, note, w.ago(hours=w.rng.randrange(1, 20)))
    return {"about": about}, [one for one in _sent(w) if one["note"] == about]


def _smallest(w: World) -> tuple[Slots, Rows]:
    person, cents = w.rng.choice(w.others(*wallet.CIRCLES)), w.rng.randrange(105, 290, 5)
    transfer(w, w.owner.id, person.id, cents, w.rng.choice(wallet.THINGS), w.ago(w.rng.randrange(3, 100)))
    return {}, [min(_sent(w), key=lambda one: one["amount"])]


def _asked(w: World) -> Rows:
    """The open requests that the owner got, at other amounts and times, in the order of the amounts."""
    w.run("UPDATE wallet_requests SET status = 'declined' WHERE payer = ? AND status = 'open'", w.owner.id)
    count = w.rng.randrange(5, 9)
    askers = [w.others(kin)[0] for kin in KINS]
    askers += w.rng.sample([one for one in w.others(*wallet.CIRCLES) if one not in askers], count - 3)
    w.rng.shuffle(askers)
    days, cents = w.rng.sample(range(1, 40), count), sorted(w.rng.sample(range(105, 1000, 10), count))
    found = []
    for asker, amount, ago in zip(askers, cents, days, strict=True):
        asked = {"amount_cents": amount, "note": w.rng.choice(wallet.THINGS), "status": "open", "at": w.ago(ago)}
        id = w.add("wallet_requests", owner=asker.id, payer=w.owner.id, **asked)
        found.append(
            row(w, "wallet_requests", id) | {"name": asker.name, "email": asker.email, "relation": asker.relation}
        )
    return found


def _small_requests(w: World) -> tuple[Slots, Rows]:
    requests = _asked(w)
    most = limit(w, [one["amount"] for one in requests])
    return {"limit": most}, [one for one in requests if one["amount"] < most]


def _requests_of(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(KINS)
    return {"kin": kin}, [one for one in _asked(w) if one["relation"] == kin]


def _kin_friends(w: World) -> tuple[Slots, Rows]:
    """Of each relation there is at least one among the friends in the wallet."""
    kin = w.rng.choice(KINS)
    for other in (w.others(one)[0] for one in KINS):
        w.run("INSERT OR IGNORE INTO wallet_friends (owner, friend) VALUES (?, ?)", w.owner.id, other.id)
    friends = w.all("SELECT friend FROM wallet_friends WHERE owner = ?", w.owner.id)
    people = [w.people[one["friend"] - 1] for one in friends]
    return {"kin": kin}, [{"name": one.name, "email": one.email} for one in people if one.relation == kin]


def _about(w: World) -> tuple[str, Rows]:
    """Payments with a note in both directions, one of them with someone of each kind, and one with another note."""
    about, other = w.rng.sample(wallet.THINGS, 2)
    people = [w.others(kin)[0] for kin in KINS]
    people += w.rng.sample(w.others(*wallet.CIRCLES), w.rng.randrange(2, 5))
    hours, cents = w.rng.sample(range(2, 90), len(people)), w.rng.sample(range(105, 900, 5), len(people))
    for number, person in enumerate(people):
        pair = (w.owner.id, person.id) if number % 2 else (person.id, w.owner.id)
        transfer(w, *pair, cents[number], about, w.ago(hours=hours[number]))
    transfer(w, w.owner.id, people[0].id, w.rng.randrange(105, 900, 5), other, w.ago(hours=1))
    mine = "SELECT id FROM wallet_history WHERE owner = ? AND note = ? ORDER BY at DESC"
    return about, [row(w, "wallet_history", one["id"]) for one in w.all(mine, w.owner.id, about)]


def _all_about(w: World) -> tuple[Slots, Rows]:
    about, found = _about(w)
    return {"about": about}, found


def _last_about(w: World) -> tuple[Slots, Rows]:
    about, found = _about(w)
    label = w.rng.choice(("fun", "food", "house"))
    w.run("UPDATE wallet_transactions SET label = ? WHERE id = ?", label, found[0]["id"])
    return {"about": about}, [found[0] | {"label": label}]


def _way_about(w: World) -> tuple[Slots, Rows]:
    about, found = _about(w)
    way = w.rng.choice(("sent", "received"))
    return {"about": about, "way": way}, [one for one in found if one["direction"] == way]


def _large_about(w: World) -> tuple[Slots, Rows]:
    about, found = _about(w)
    least = limit(w, [one["amount"] for one in found])
    return {"about": about, "limit": least}, [one for one in found if one["amount"] > least]


def _kin_about(w: World) -> tuple[Slots, Rows]:
    about, found = _about(w)
    kin = w.rng.choice(KINS)
    names = [one.name for one in w.others(kin)]
    return {"about": about, "kin": kin}, [one for one in found if one["name"] in names]


_ALL_SENT = every("found", 'wallet.list_transactions(direction="sent")')
_LARGE = Find(
    "large-payments",
    (
        "all payments above {limit} that I sent",
        "every payment in my wallet by which I sent more than {limit}",
        "the payments of over {limit} that I made in the wallet",
    ),
    _ALL_SENT + '\nfound = [x for x in found if x["amount"] > {limit}]\nprint([x["amount"] for x in found])',
    _large,
    many=True,
    keep="those whose `amount` is above {limit}",
)
_LATE = Find(
    "payments-after",
    ("all payments that I sent after {day}", "every payment in my wallet that I made later than {day}"),
    _ALL_SENT + '\nfound = [x for x in found if x["at"][:10] > "{day}"]\nprint([x["at"] for x in found])',
    _late,
    many=True,
    keep="those whose `at` is after {day}",
)
_NOTED = Find(
    "payments-for",
    ("all payments with the note '{about}' that I sent", "every payment of mine for '{about}' in the wallet"),
    _ALL_SENT + '\nfound = [x for x in found if x["note"] == "{about}"]\nprint([x["amount"] for x in found])',
    _noted,
    many=True,
    keep="those whose `note` is '{about}'",
)
_SMALLEST = Find(
    "smallest-payment",
    ("the smallest payment that I sent", "the payment in my wallet by which I sent the least"),
    _ALL_SENT + '\nfound = [min(found, key=lambda x: x["amount"])]',
    _smallest,
    keep="the one with the lowest `amount`",
)
_ALL_ASKED = 'found = wallet.list_received_requests(status="open", page_size=20)\n'
SMALL_REQUESTS = Find(
    "small-requests",
    (
        "all open requests below {limit} in my wallet",
        "those open requests for money that ask me for less than {limit}",
        "the requests under {limit} in my wallet that are still open",
    ),
    _ALL_ASKED + 'found = [x for x in found if x["amount"] < {limit}]\nprint([x["amount"] for x in found])',
    _small_requests,
    many=True,
    keep="those whose `amount` is below {limit}",
)
REQUESTS_OF = Find(
    "requests-of-relation",
    ("all open requests in my wallet by a {kin} of mine", "every open request for money from someone who is my {kin}"),
    _ALL_ASKED + 'people = contacts.search(query="{kin}", page_size=20)\n'
    'names = [x["name"] for x in people if x["relation"] == "{kin}"]\n'
    'found = [x for x in found if x["name"] in names]',
    _requests_of,
    many=True,
    keep="those whose `name` is of a contact whose `relation` is {kin}",
)
_LARGEST_REQUEST = Find(
    "largest-request",
    ("the largest open request in my wallet", "the open request that asks me for the most money"),
    _ALL_ASKED + 'found = [max(found, key=lambda x: x["amount"])]',
    lambda w: ({}, _asked(w)[-1:]),
    keep="the one with the highest `amount`",
)
OLDEST_REQUEST = Find(
    "oldest-request",
    ("the oldest open request in my wallet", "the request that has been open for longest in my wallet"),
    _ALL_ASKED + 'found = [min(found, key=lambda x: x["at"])]',
    lambda w: ({}, [min(_asked(w), key=lambda one: one["at"])]),
    keep="the one with the earliest `at`",
)
_KIN_FRIENDS = Find(
    "friends-of-relation",
    (
        "all friends in my wallet who are a {kin} according to my contacts",
        "everyone among the wallet's friends whom my contacts call a {kin}",
    ),
    'found = wallet.list_friends(page_size=20)\npeople = contacts.search(query="{kin}", page_size=20)\n'
    'emails = [x["email"] for x in people if x["relation"] == "{kin}"]\n'
    'found = [x for x in found if x["email"] in emails]',
    _kin_friends,
    many=True,
    keep="those whose `email` is of a contact whose `relation` is {kin}",
)

_FIND_ABOUT = every("found", 'wallet.search_transactions(query="{about}")') + "\n"
_ALL_ABOUT = Find(
    "payments-about",
    (
        "all payments with the note '{about}' in my wallet",
        "every payment in either direction about '{about}' in the wallet",
    ),
    _FIND_ABOUT + 'print([x["amount"] for x in found])',
    _all_about,
    many=True,
)
_LAST_ABOUT = Find(
    "last-payment-about",
    ("the last payment with the note '{about}' in my wallet", "the wallet's newest payment about '{about}'"),
    'found = wallet.search_transactions(query="{about}", page_size=1)',
    _last_about,
)
_WAY_ABOUT = Find(
    "payments-about-one-way",
    (
        "all payments with the note '{about}' that I {way}",
        "every payment about '{about}' in my wallet that I {way}",
    ),
    _FIND_ABOUT + 'found = [x for x in found if x["direction"] == "{way}"]',
    _way_about,
    many=True,
    keep="those whose `direction` is {way}",
)
_LARGE_ABOUT = Find(
    "large-payments-about",
    (
        "all payments above {limit} with the note '{about}' in either direction",
        "every payment of more than {limit} about '{about}' that I sent or received",
    ),
    _FIND_ABOUT + 'found = [x for x in found if x["amount"] > {limit}]',
    _large_about,
    many=True,
    keep="those whose `amount` is above {limit}",
)
_KIN_ABOUT = Find(
    "payments-about-with-relation",
    (
        "all payments with the note '{about}' between a {kin} of mine and me",
        "every payment about '{about}' in my wallet from or to someone who is my {kin}",
    ),
    _FIND_ABOUT + 'people = contacts.search(query="{kin}", page_size=20)\n'
    'names = [x["name"] for x in people if x["relation"] == "{kin}"]\n'
    'found = [x for x in found if x["name"] in names]',
    _kin_about,
    many=True,
    keep="those whose `name` is of a contact whose `relation` is {kin}",
)


_DROP = Act(
    "wallet.remove_friend",
    ("Remove {it} from the friends there.", "Take {it} off the list of friends.", "Keep the others, but remove {it}."),
    "remove {them} from the friends in the wallet",
    key="email",
    field="email",
    name="drop",
)
_COLLECT = Act(
    "wallet.request",
    (
        "Ask {it} for {amount:.2f} each, with the note '{note}'.",
        "Request {amount:.2f} from {it}; the note is '{note}'.",
        "I want {amount:.2f} with the note '{note}' from {it}: make the requests.",
    ),
    "ask {them} for {amount:.2f} with the note '{note}'",
    key="email",
    field="email",
    given=lambda w, rows: {"amount": w.rng.randrange(305, 4000, 5) / 100, "note": w.rng.choice(wallet.THINGS)},
    name="collect-from",
)

DRILLS = [
    *drills([_LARGE], [wallet.LABEL, wallet.SUM]),
    *drills([_LATE], [wallet.COUNT]),
    *drills([_NOTED], [wallet.SUM]),
    *drills([_SMALLEST], [wallet.NAME]),
    *drills([SMALL_REQUESTS], [wallet.SUM]),
    *drills([REQUESTS_OF], [wallet.PAY]),
    *drills([_LARGEST_REQUEST], [wallet.NOTE]),
    *drills([OLDEST_REQUEST], [wallet.PAY]),
    *drills([_KIN_FRIENDS], [_DROP, _COLLECT]),
    *drills([_ALL_ABOUT], [wallet.LABEL]),
    *drills([_LAST_ABOUT], [wallet.LABELLED]),
    *drills([_WAY_ABOUT, _KIN_ABOUT], [wallet.SUM]),
    *drills([_LARGE_ABOUT], [(wallet.COUNT, wallet.LABEL)]),
]
