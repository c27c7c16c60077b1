"""Drills in which requests for money are declined, withdrawn or followed by a reminder."""

from dataclasses import replace

from errands.drill import Act, Find, Rows, Slots, drills, limit, row
from errands.drills import contacts, notes, payments, wallet
from errands.world import World


def _sent(w: World) -> Rows:
    """The open requests of the owner, at other amounts and times, to people of every kind, of whom some owe nothing."""
    w.run("UPDATE wallet_requests SET status = 'paid' WHERE owner = ? AND status = 'open'", w.owner.id)
    payers = [w.others(kin)[0] for kin in payments.KINS]
    payers += w.rng.sample([one for one in w.others(*wallet.CIRCLES) if one not in payers], w.rng.randrange(1, 4))
    w.rng.shuffle(payers)
    days, cents = w.rng.sample(range(2, 40), len(payers)), w.rng.sample(range(105, 3000, 10), len(payers))
    found = []
    for number, (payer, amount, ago) in enumerate(zip(payers, cents, days, strict=True)):
        asked = {"amount_cents": amount, "note": w.rng.choice(wallet.THINGS), "status": "open", "at": w.ago(ago)}
        reminded = w.day(-1) if number in (0, 2) else None
        id = w.add("wallet_requests", owner=w.owner.id, payer=payer.id, reminded=reminded, **asked)
        known = {"name": payer.name, "email": payer.email, "phone": payer.phone, "relation": payer.relation}
        found.append(row(w, "wallet_requests", id) | known)
    return found


def _large_sent(w: World) -> tuple[Slots, Rows]:
    requests = _sent(w)
    least = limit(w, [one["amount"] for one in requests])
    return {"limit": least}, [one for one in requests if one["amount"] > least]


def _sent_to(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(payments.KINS)
    return {"kin": kin}, [one for one in _sent(w) if one["relation"] == kin]


def numbers(rows: Rows) -> str:
    """The ids of things, as an instruction says them."""
    return ", ".join(str(one["id"]) for one in rows)


def _numbered(w: World) -> tuple[Slots, Rows]:
    found = w.rng.choice(_sent(w))
    return {"number": found["id"]}, [found]


def _large_of(w: World) -> tuple[Slots, Rows]:
    requests = _sent(w)
    least = limit(w, [one["amount"] for one in requests])
    return {"numbers": numbers(requests), "limit": least}, [one | {"rest": one["amount"] < least} for one in requests]


def _unreminded(w: World) -> tuple[Slots, Rows]:
    requests = _sent(w)
    return {"numbers": numbers(requests)}, [one for one in requests if not one["reminded"]]


def _smallest_of(w: World) -> tuple[Slots, Rows]:
    requests = _sent(w)
    return {"numbers": numbers(requests)}, [min(requests, key=lambda one: one["amount"])]


def _kin_of(w: World) -> tuple[Slots, Rows]:
    requests, kin = _sent(w), w.rng.choice(payments.KINS)
    return {"numbers": numbers(requests), "kin": kin}, [one for one in requests if one["relation"] == kin]


def noted(w: World, thing: dict[str, object]) -> Slots:
    """A note with the id of a thing."""
    title = w.rng.choice(notes.TITLES)
    w.add("notes", owner=w.owner.id, title=title, body=str(thing["id"]), created=w.ago(1))
    return {"title": title}


def _noted(w: World) -> tuple[Slots, Rows]:
    found = w.rng.choice(_sent(w))
    return noted(w, found), [found]


_SMALL_REQUESTS = replace(
    payments.SMALL_REQUESTS,
    it=(
        "all open requests below {limit} that I got in the wallet",
        "those open requests for money that ask me for less than {limit}",
    ),
)
_REQUESTS_OF = replace(
    payments.REQUESTS_OF,
    it=(
        "all open requests in my wallet that I got from a {kin} of mine",
        "every open request by which someone who is my {kin} asks me for money",
    ),
)
_OLDEST_REQUEST = replace(
    payments.OLDEST_REQUEST,
    it=("the oldest open request that I got in the wallet", "the open request that has asked me for money longest"),
)
_ALL_SENT = 'found = wallet.list_sent_requests(status="open", page_size=20)\n'
_SENT = Find(
    "sent-requests",
    ("all open requests for money that I sent", "every request in my wallet that others have not answered yet"),
    _ALL_SENT + 'print([x["amount"] for x in found])',
    lambda w: ({}, _sent(w)),
    many=True,
)
_LARGE_SENT = Find(
    "large-sent-requests",
    (
        "all open requests above {limit} that I sent in the wallet",
        "those requests of mine for more than {limit} that are still open in the wallet",
    ),
    _ALL_SENT + 'found = [x for x in found if x["amount"] > {limit}]',
    _large_sent,
    many=True,
    keep="those whose `amount` is above {limit}",
)
_OLDEST_SENT = Find(
    "oldest-sent-request",
    (
        "the oldest open request that I sent in the wallet",
        "the open request of mine in the wallet that has waited longest",
    ),
    _ALL_SENT + 'found = [min(found, key=lambda x: x["at"])]',
    lambda w: ({}, [min(_sent(w), key=lambda one: one["at"])]),
    keep="the one with the earliest `at`",
)
_SENT_TO = Find(
    "sent-requests-to-relation",
    (
        "all open requests in my wallet that I sent to a {kin} of mine",
        "all open requests in the wallet by which I ask a {kin} of mine for money",
    ),
    _ALL_SENT + 'people = contacts.search(query="{kin}", page_size=20)\n'
    'names = [x["name"] for x in people if x["relation"] == "{kin}"]\n'
    'found = [x for x in found if x["name"] in names]',
    _sent_to,
    many=True,
    keep="those whose `name` is of a contact whose `relation` is {kin}",
)
_DEBTORS = Find(
    "of-those-who-owe",
    (
        "everyone in my contacts whom an open request of mine in the wallet asks for more than {limit}",
        "all contacts who have not answered my request for over {limit} in the wallet",
    ),
    'requests = wallet.list_sent_requests(status="open", page_size=20)\n'
    'names = [x["name"] for x in requests if x["amount"] > {limit}]\n'
    'people = contacts.search(page_size=20)\nfound = [x for x in people if x["name"] in names]\n'
    "print(names)",
    _large_sent,
    many=True,
    keep="those whose `name` is in an open request with an `amount` above {limit}",
)
_FIRST_DEBTOR = Find(
    "of-whom-i-asked-first",
    ("the person whom my oldest open request in the wallet asks for money",),
    _ALL_SENT + 'found = [min(found, key=lambda x: x["at"])]\nfound = contacts.search(query=found[0]["name"])',
    lambda w: ({}, [min(_sent(w), key=lambda one: one["at"])]),
    person=True,
    keep="the one with the earliest `at` and look up its `name`",
)
_NUMBERED = Find(
    "numbered-request",
    ("my request {number} in the wallet", "the wallet's request with the number {number}"),
    "found = [wallet.show_request(request_id={number})]",
    _numbered,
)
_SHOW_ALL = "found = [wallet.show_request(request_id=x) for x in [{numbers}]]\n"
_LARGE_OF = Find(
    "large-numbered-requests",
    (
        "those of my requests {numbers} in the wallet that are about more than {limit}",
        "whichever of the requests {numbers} in my wallet is above {limit}",
    ),
    _SHOW_ALL + 'found = [x for x in found if x["amount"] > {limit}]',
    _large_of,
    many=True,
    keep="those whose `amount` is above {limit}",
)
_LARGE_AND_SMALL = replace(
    _LARGE_OF,
    name="large-and-small-requests",
    look="seen = [wallet.show_request(request_id=x) for x in [{numbers}]]\n"
    'found = [x for x in seen if x["amount"] > {limit}]\nrest = [x for x in seen if x["amount"] <= {limit}]',
    rest="the other ones of these requests",
)
_UNREMINDED = Find(
    "unreminded-requests",
    (
        "those of my requests {numbers} in the wallet for which there was no reminder yet",
        "whichever of the wallet's requests {numbers} I never sent a reminder for",
    ),
    _SHOW_ALL + 'found = [x for x in found if not x["reminded"]]',
    _unreminded,
    many=True,
    keep="those that were never `reminded`",
)
_SMALLEST_OF = Find(
    "smallest-numbered-request",
    (
        "the one of my requests {numbers} in the wallet that is about the least money",
        "the smallest of my requests {numbers} in the wallet",
    ),
    _SHOW_ALL + 'found = [min(found, key=lambda x: x["amount"])]',
    _smallest_of,
    keep="the one with the lowest `amount`",
)
_KIN_OF = Find(
    "numbered-requests-to-relation",
    (
        "those of my requests {numbers} in the wallet that went to a {kin} of mine",
        "whichever of the wallet's requests {numbers} asks someone who is my {kin}",
    ),
    _SHOW_ALL + 'people = contacts.search(query="{kin}", page_size=20)\n'
    'emails = [x["email"] for x in people if x["relation"] == "{kin}"]\n'
    'found = [x for x in found if x["email"] in emails]',
    _kin_of,
    many=True,
    keep="those whose `email` is of a contact whose `relation` is {kin}",
)
_NOTED = Find(
    "request-in-note",
    (
        "my request in the wallet whose number is in my note '{title}'",
        "the wallet's request with the number that my note '{title}' has",
    ),
    'found = notes.search(query="{title}")\nfound = notes.show(note_id=found[0]["id"])\n'
    'number = int(found["body"])\nfound = [wallet.show_request(request_id=number)]',
    _noted,
)
_DECLINE = Act(
    "wallet.decline_request",
    (
        "Decline {it}.",
        "Decline {it}; I do not want to pay.",
        "Say no to {it}: I will not pay.",
        "Turn down {it}.",
    ),
    "decline {them}",
    key="request_id",
    name="decline",
)
_REMIND = Act(
    "wallet.remind",
    (
        "Send a reminder for {it}.",
        "Nobody has paid yet for {it}. Send a reminder.",
        "I am still waiting for the money of {it}: send a reminder.",
        "Remind whoever should pay {it}.",
    ),
    "send a reminder for {them}",
    key="request_id",
)
_WITHDRAW = Act(
    "wallet.withdraw_request",
    (
        "Withdraw {it}.",
        "I do not need the money any more: withdraw {it}.",
        "Take back {it}.",
        "Nobody should pay for {it} any more. Withdraw {them}.",
    ),
    "withdraw {them}",
    key="request_id",
    name="withdraw",
)
_ANEW = Act(
    "wallet.request",
    (
        "Ask whoever should pay {it} for {amount:.2f} more, with the note '{note}'.",
        "Request another {amount:.2f} with the note '{note}' from whoever should pay {it}.",
        "The person behind {it} should also pay {amount:.2f}: request that, with the note '{note}'.",
    ),
    "request {amount:.2f} from the same person, with the note '{note}'",
    key="email",
    field="email",
    given=lambda w, rows: {"amount": w.rng.randrange(305, 4000, 5) / 100, "note": w.rng.choice(wallet.THINGS)},
    name="ask-anew",
)

DRILLS = [
    *drills([wallet.REQUEST], [(wallet.NOTE, _DECLINE)]),
    *drills([wallet.REQUESTS, _SMALL_REQUESTS, _REQUESTS_OF], [_DECLINE]),
    *drills([_OLDEST_REQUEST], [(wallet.NAME, _DECLINE)]),
    *drills([_SENT, _SENT_TO], [wallet.SUM]),
    *drills([_LARGE_SENT], [wallet.COUNT]),
    *drills([_OLDEST_SENT], [wallet.NAME]),
    *drills([_DEBTORS], [contacts.TEXT]),
    *drills([_FIRST_DEBTOR], [contacts.CALL]),
    *drills([_NUMBERED], [_REMIND, (_WITHDRAW, _ANEW)]),
    *drills([_LARGE_OF], [(wallet.SUM, _WITHDRAW)]),
    *drills([_LARGE_AND_SMALL], [(_REMIND, replace(_WITHDRAW, rest=True))]),
    *drills([_UNREMINDED, _KIN_OF], [_REMIND]),
    *drills([_SMALLEST_OF, _NOTED], [_WITHDRAW]),
]
