"""Practice with the wallet: payments, requests for money, friends and cards."""

from functools import partial

from errands.apps.wallet import transfer
from errands.practice.blocks import COUNT, All, Amount, Kin, Moment, Name, Source, Top, Value, alone, each, practice
from errands.practice.contacts import COLLECT, MAIL, PAY, REMOVE_FRIEND, amount
from errands.practice.drill import Act, Ask, Row, Slots
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


def _asked(w: World, mine: str, theirs: str, numbered: bool = False) -> Slots:
    """Open requests of other amounts and times. The owner is `mine` in them, somebody else `theirs`."""
    ids = []
    w.run(f"UPDATE wallet_requests SET status = 'declined' WHERE {mine} = ? AND status = 'open'", w.owner.id)
    days, cents = w.rng.sample(range(2, 40), len(_KINS)), w.rng.sample(range(105, 1500, 10), len(_KINS))
    for person, ago, money in zip(_people(w), days, cents, strict=True):
        more = {"amount_cents": money, "note": w.rng.choice(WORDS["paid_for"]), "status": "open", "at": w.ago(ago)}
        ids.append(w.add("wallet_requests", **{mine: w.owner.id, theirs: person}, **more))
    return {"of": ", ".join(map(str, ids))} if numbered else {}


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


_SENT = Source("sent", "wallet.list_transactions", "payment* that I sent", _paid, {"direction": '"sent"'}, long=True)
_RECEIVED = Source(
    "received", "wallet.list_transactions", "payment* that I got", _paid, {"direction": '"received"'}, long=True
)
_ABOUT = Source(
    "payments-for", "wallet.search_transactions", "payment* for {of}", _about, {"query": '"{of}"'}, long=True
)
_WITH = Source(
    "payments-with",
    "wallet.list_transactions",
    "payment* between {of} and me",
    _with,
    {"email": "email"},
    'email = contacts.search(query="{of}")[0]["email"]\n',
)
_OPEN = {"status": '"open"'}
_ASKED = Source(
    "requests",
    "wallet.list_received_requests",
    "open request* for money that I got",
    partial(_asked, mine="payer", theirs="owner"),
    _OPEN,
)
_ASKING = Source(
    "own-requests",
    "wallet.list_sent_requests",
    "open request* for money that I sent",
    partial(_asked, mine="owner", theirs="payer"),
    _OPEN,
)
_NUMBERED = Source(
    "numbered-requests",
    "wallet.show_request",
    "request* for money (of the numbers {of}) that I sent",
    partial(_asked, mine="owner", theirs="payer", numbered=True),
    each="request_id",
)
_FRIENDS = Source("friends", "wallet.list_friends", "friend* in my wallet", _friends, people=True)
_CARDS = Source("cards", "owner.list_cards", "card* of mine", _valid)

_HOW_MUCH = Amount("amount", "{noun} of {than} {limit}", "largest {noun}", "smallest {noun}")
_SMALL = Amount("amount", "{noun} of {than} {limit}", "", "smallest {noun}")
_WHEN = Moment("at", "{noun} from {than} {day}", "", "oldest {noun}")
_SINCE = Moment("at", "{noun} from {than} {day}")
_LAST = Top("last {noun}|most recent {noun}")
_NOTED = Value("note", "{noun} with the note '{value}'")
_KIN = Kin("name", "{noun} by or to a {kin} of mine")

_BY = Name("name", "the open request for money by {called}")
_TO = Name("name", "my open request for money to {called}")

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
_SUM = Ask("amount", of="sum", asked="How much is it if you add up {it}?")
_ASKS = [
    Ask("name", asked="Who is the other person in {it}?"),
    Ask("amount", asked="How much money is {it} about?"),
    Ask("at", "time", form="2026-01-31 15:00"),
    Ask("note"),
]
_LABELLED = Ask("label", show="wallet.show_transaction")
_MANY = [COUNT, _SUM, each("name")]
_EMAIL = Ask("email", "e-mail address", show="wallet.show_request")

KINDS = [
    *practice(_SENT, [_LAST, _SMALL, _WHEN, _NOTED, _KIN], [_LABEL, *_MANY, *_ASKS]),
    *practice(_RECEIVED, [_LAST, _SMALL, _SINCE, _NOTED, _KIN], [*_ASKS, _LABEL, *_MANY]),
    *practice(_ABOUT, [All(), _HOW_MUCH, _LAST, _KIN], [_LABEL, *_MANY, *_ASKS[:3]]),
    *practice(_WITH, [_LAST, All(), _HOW_MUCH], [_LABEL, _LABELLED, *_ASKS[1:], COUNT, _SUM]),
    *practice(
        _ASKED,
        [All(), _HOW_MUCH, _WHEN, _KIN, _BY],
        [_PAY, _DECLINE, *_MANY, *_ASKS, _EMAIL],
    ),
    *practice(_ASKING, [All(), _HOW_MUCH, _WHEN, _KIN, _TO], [*_MANY, *_ASKS, _EMAIL]),
    *practice(_NUMBERED, [All(), _HOW_MUCH, _WHEN, _KIN], [_REMIND, _WITHDRAW, *_MANY, *_ASKS]),
    *practice(
        _FRIENDS,
        [All(), Kin("email", "{noun} from among my {kin}s", "email")],
        [REMOVE_FRIEND, COUNT, each("name"), COLLECT, PAY, MAIL],
    ),
    *practice(
        _CARDS,
        [Name("label", "my {called} card")],
        [_ADD_MONEY, _TAKE_MONEY, Ask("number"), Ask("expires", "month in which it expires", form="2026-01")],
    ),
    *alone(
        Ask(
            "balance",
            asked="What is the balance of my wallet?|How much money is in my wallet?|Tell me the balance of my wallet.",
            show="wallet.show_balance",
            key="",
        )
    ),
]
