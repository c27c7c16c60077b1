"""Practice with the wallet: payments, requests for money, friends and cards."""

from dataclasses import replace

from errands.apps.wallet import transfer
from errands.practice.blocks import COUNT, REPEATED, Source, alone, each, practice
from errands.practice.conditions import All, Amount, Kin, Moment, Name, Top, Value
from errands.practice.contacts import COLLECT, MAIL, PAY, REMOVE_FRIEND, amount
from errands.practice.drill import TIME, Act, Ask, Row, Slots
from errands.words import WORDS
from errands.world import World

_KINS = ("friend", "colleague", "flatmate", "mother", "sister")


def _people(w: World) -> list[int]:
    """One of each kind, in any order."""
    return w.rng.sample([w.rng.choice(w.others(kin)).id for kin in _KINS], len(_KINS))


def _paid(w: World) -> Slots:
    """New payments, for other things, in both directions."""
    me = w.owner.id
    about = w.rng.sample(WORDS["paid_for"], 2)
    for place, (other, cents) in enumerate(zip(_people(w), w.rng.sample(range(105, 290, 5), 5), strict=True)):
        payer, payee = (other, me) if place % 2 else (me, other)
        transfer(w, payer, payee, cents, about[place % 3 == 2], w.ago(w.rng.randrange(1, 60), w.rng.randrange(1, 9)))
    return {}


def _about(w: World) -> Slots:
    """Payments for one thing, in both directions, by and to people of every kind."""
    _paid(w)
    about = w.rng.choice(WORDS["paid_for"])
    for other, cents in zip(_people(w), w.rng.sample(range(105, 290, 5), 5), strict=True):
        payer, payee = w.rng.sample((w.owner.id, other), 2)
        transfer(w, payer, payee, cents, about, w.ago(w.rng.randrange(1, 60), w.rng.randrange(1, 9)))
    return {"of": about}


def _with(w: World) -> Slots:
    person = w.rng.choice(w.others("friends", "family"))
    w.run("UPDATE wallet_transactions SET label = 'old' WHERE owner = ?", w.owner.id)
    for cents, label in zip(w.rng.sample(range(105, 290, 5), 4), WORDS["labels_of_payments"], strict=False):
        note = w.rng.choice(WORDS["paid_for"])
        id = transfer(w, w.owner.id, person.id, cents, note, w.ago(w.rng.randrange(1, 60), w.rng.randrange(1, 9)))
        w.run("UPDATE wallet_transactions SET label = ? WHERE id = ?", label, id)
    return {"of": person.name, "_email": person.email}


def _requests(w: World, mine: str, theirs: str) -> list[int]:
    """Open requests of other amounts and times. The owner is `mine` in them, somebody else `theirs`."""
    ids = []
    w.run(f"UPDATE wallet_requests SET status = 'declined' WHERE {mine} = ? AND status = 'open'", w.owner.id)
    days, cents = w.rng.sample(range(2, 40), len(_KINS)), w.rng.sample(range(105, 1500, 10), len(_KINS))
    for person, ago, money in zip(_people(w), days, cents, strict=True):
        more = {"amount_cents": money, "note": w.rng.choice(WORDS["paid_for"]), "status": "open", "at": w.ago(ago)}
        ids.append(w.add("wallet_requests", **{mine: w.owner.id, theirs: person}, **more))
    return ids


def _asked(w: World) -> Slots:
    _requests(w, "payer", "owner")
    return {}


def _asking(w: World) -> Slots:
    _requests(w, "owner", "payer")
    return {}


def _numbered(w: World) -> Slots:
    return {"of": ", ".join(map(str, _requests(w, "owner", "payer")))}


def _unlabelled(w: World, row: Row) -> None:
    w.run("UPDATE wallet_transactions SET label = 'old' WHERE id = ?", row["id"])


def _valid(w: World) -> Slots:
    """No card of the owner's is expired."""
    w.run("UPDATE cards SET expires = ? WHERE person = ?", w.day(w.rng.randrange(99, 999))[:7], w.owner.id)
    return {}


def _friends(w: World) -> Slots:
    w.run("DELETE FROM wallet_friends WHERE owner = ?", w.owner.id)
    for person in {*_people(w), *_people(w)}:
        w.add("wallet_friends", owner=w.owner.id, friend=person)
    return {}


_SENT, _RECEIVED = (
    Source(way, "wallet.list_transactions", f"payment* I {way}", _paid, {"direction": f'"{way}"'}, long=True)
    for way in ("sent", "received")
)
_ABOUT = Source(
    "payments-for", "wallet.search_transactions", "my payment* for {of}", _about, {"query": '"{of}"'}, long=True
)
_WITH = Source(
    "payments-with",
    "wallet.list_transactions",
    "payment* between {of} and me",
    _with,
    {"email": "email"},
    'email = contacts.search(query="{of}")[0]["email"]\n',
)
_ASKED, _ASKING = (
    Source(name, f"wallet.list_{way}_requests", f"open money request* I {way}", fill, {"status": '"open"'})
    for name, way, fill in (("requests", "received", _asked), ("own-requests", "sent", _asking))
)
_NUMBERED = Source("numbered-requests", "wallet.show_request", "my money requests {of}", _numbered, each="request_id")
_FRIENDS = Source("friends", "wallet.list_friends", "friend* in my wallet", _friends, people=True)
_CARDS = Source("cards", "owner.list_cards", "my card*", _valid)

_HOW_MUCH = Amount("amount", "{noun} of {than} {limit}", "largest {noun}", "smallest {noun}")
_WAS = Amount("amount", "{noun} that were {than} {limit}", "", "smallest {noun}")
_FOR = replace(_HOW_MUCH, words="{noun} for {than} {limit}")
_WHEN = Moment("at", "{noun} {than} {day}", "", "oldest {noun}")
_SINCE = replace(_WHEN, bottom="")
_NUMBERED_BY = [
    Amount("amount", "{noun} that ask for {than} {limit}", "largest of {noun}", "smallest of {noun}"),
    Moment("at", "{noun} that I sent {than} {day}", "", "oldest of {noun}"),
    Kin("name", "{noun} that went to my {kin}s"),
]
_LAST = Top("last {noun}|most recent {noun}", "at")
_NOTED = Value("note", "{noun} with the note '{value}'")
_TO_KIN, _FROM_KIN, _WITH_KIN = (Kin("name", f"{{noun}} {word} my {{kin}}s") for word in ("to", "from", "involving"))

_BY = Name("name", "the open money request from {called}")
_TO = Name("name", "my open money request to {called}")

_LABEL = Act(
    "wallet.set_label",
    "label {it} '{label}'|give {it} the label '{label}'",
    args={"label": "labels_of_payments"},
    ready=_unlabelled,
)
_PAY = Act("wallet.pay_request", "pay {it}", name="pay")
_DECLINE = Act("wallet.decline_request", "decline {it}|turn down {it}", name="decline")
_WITHDRAW = Act("wallet.withdraw_request", "withdraw {it}|take back {it}", name="withdraw")
_REMIND = Act("wallet.remind", "send a reminder for {it}")
_ADD_MONEY = Act("wallet.add_money", "add {amount} to my wallet from {it}", args={"amount": amount}, single=True)
_TAKE_MONEY = Act(
    "wallet.withdraw_money", "withdraw {amount} from my wallet to {it}", args={"amount": amount}, single=True
)
_SUM = Ask("amount", "total amount", of="sum")
_ASKS = [Ask("amount"), Ask("at", "time", hint=TIME), Ask("note")]
_SENDER, _RECIPIENT = (Ask("name", f"name of the {whose}") for whose in ("sender", "recipient"))
_SENDERS, _RECIPIENTS = (
    each("name", f"name of the {whose}|names of the {whose}s", REPEATED) for whose in ("sender", "recipient")
)
_EMAIL_FROM, _EMAIL_TO = (
    Ask("email", f"email address of the {whose}", show="wallet.show_request") for whose in ("sender", "recipient")
)
_LABELLED = Ask("label", show="wallet.show_transaction")
_BALANCE = Ask(
    "balance",
    asked="What is my wallet balance?|How much money is in my wallet?|Tell me the balance of my wallet.",
    show="wallet.show_balance",
)

KINDS = [
    *practice(_SENT, [_LAST, _WAS, _WHEN, _NOTED, _TO_KIN], [_LABEL, COUNT, _SUM, _RECIPIENTS, _RECIPIENT, *_ASKS]),
    *practice(_RECEIVED, [_LAST, _WAS, _SINCE, _NOTED, _FROM_KIN], [_SENDER, *_ASKS, _LABEL, COUNT, _SUM, _SENDERS]),
    *practice(_ABOUT, [All(), _HOW_MUCH, _LAST, _WITH_KIN], [_LABEL, COUNT, _SUM, *_ASKS[:2]]),
    *practice(_WITH, [_LAST, All(), _HOW_MUCH], [_LABEL, _LABELLED, *_ASKS, COUNT, _SUM]),
    *practice(
        _ASKED,
        [All(), _FOR, _WHEN, _FROM_KIN, _BY],
        [_PAY, _DECLINE, COUNT, _SUM, _SENDERS, _SENDER, *_ASKS, _EMAIL_FROM],
    ),
    *practice(_ASKING, [All(), _FOR, _WHEN, _TO_KIN, _TO], [COUNT, _SUM, _RECIPIENTS, _RECIPIENT, *_ASKS, _EMAIL_TO]),
    *practice(_NUMBERED, [All(), *_NUMBERED_BY], [_REMIND, _WITHDRAW, COUNT, _SUM, _RECIPIENTS, _RECIPIENT, *_ASKS]),
    *practice(
        _FRIENDS,
        [All(), Kin("email", "{noun} who are {kin}s in my contacts", "email")],
        [REMOVE_FRIEND, COUNT, each("name"), COLLECT, PAY, MAIL],
    ),
    *practice(
        _CARDS,
        [Name("label", "my {called} card")],
        [_ADD_MONEY, _TAKE_MONEY, Ask("number"), Ask("expires", "expiry month", hint="Answer like 2026-01.")],
    ),
    *alone(_BALANCE),
]
