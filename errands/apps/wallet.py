"""Wallet: a balance, payments between people, requests for money, and the cards behind it."""

from collections import Counter
from typing import Literal

from typing_extensions import TypedDict

from errands.api import App, Day, Email, Id, Line, Listing, Money, New, Numbered, Problem, Query, cents
from errands.apps.owner import debit_card
from errands.database import Owned
from errands.words import read
from errands.world import NO_PERSON, World

app = App(
    "wallet", "Money: the balance, payments to and from people, requests for money, adding and withdrawing by card."
)

MYSELF = Problem(422, "This is your own e-mail address.")
TOO_LITTLE = Problem(409, "The balance of {balance} is too low.")
NO_CARD = Problem(404, "There is no card {id}.")
EXPIRED = Problem(409, "Card {id} has expired.")
TRANSACTIONS = Owned("wallet_transactions", "transaction", view="wallet_history")
NO_REQUEST = Problem(404, "There is no request {id}.")
NOT_OPEN = Problem(409, "The request is {status}.")
REMINDED = Problem(409, "A reminder was already sent today.")
IS_FRIEND = Problem(409, "{email} is already one of your friends.")
NO_FRIEND = Problem(404, "{email} is not one of your friends.")

Direction = Literal["sent", "received"]
Status = Literal["open", "paid", "declined", "withdrawn"]


class Balance(TypedDict):
    balance: float


class Brief(Numbered):
    name: str
    direction: str
    amount: Money
    note: str
    at: str


class Transaction(Brief):
    email: str | None
    label: str


class Asked(Numbered):
    name: str
    amount: Money
    note: str
    status: str
    at: str


class Request(Asked):
    email: str
    reminded: str | None


class Friend(TypedDict):
    name: str
    email: str


@app.api()
def show_balance(w: World, me: int) -> Balance:
    """Your balance."""
    return {"balance": _balance(w, me) / 100}


@app.api()
def list_transactions(
    w: World, me: int, email: Email | None = None, direction: Direction | None = None, since: Day | None = None
) -> Listing[Brief]:
    """Your transactions, newest first. You can ask for those with one person, in one direction, or since a day."""
    source = (
        "FROM wallet_history WHERE owner = ?1 AND (?2 IS NULL OR email = ?2) AND (?3 IS NULL OR direction = ?3) "
        "AND at >= ?4 ORDER BY at DESC, id DESC"
    )
    return Listing(source, me, email, direction, since or "")


@app.api()
def search_transactions(w: World, me: int, query: Query) -> Listing[Brief]:
    """Your transactions whose note or label contains the query, newest first."""
    source = "FROM wallet_history WHERE owner = ? AND holds(note || ' ' || label, ?) ORDER BY at DESC, id DESC"
    return Listing(source, me, query)


@app.api(TRANSACTIONS.missing)
def show_transaction(w: World, me: int, transaction_id: Id) -> Transaction:
    """Show a transaction in full."""
    return TRANSACTIONS.show(Transaction, w, me, transaction_id)


@app.api(TRANSACTIONS.missing, says="Label set.")
def set_label(w: World, me: int, transaction_id: Id, label: Line) -> None:
    """Label a transaction. The label replaces the one it has, and only you see it."""
    TRANSACTIONS.change(w, me, transaction_id, label=label)


@app.api(NO_PERSON, MYSELF, TOO_LITTLE)
def send(w: World, me: int, email: Email, amount: Money, note: Line) -> New[Literal["transaction_id"]]:
    """Send money to someone."""
    return {"transaction_id": transfer(w, me, _person(w, me, email), cents(amount), note, w.moment)}


@app.api(NO_PERSON, MYSELF)
def request(w: World, me: int, email: Email, amount: Money, note: Line) -> New[Literal["request_id"]]:
    """Ask someone for money."""
    payer = _person(w, me, email)
    values = {"amount_cents": cents(amount), "note": note, "status": "open", "at": w.moment}
    return {"request_id": w.add("wallet_requests", owner=me, payer=payer, **values)}


@app.api()
def list_received_requests(w: World, me: int, status: Status | None = None) -> Listing[Asked]:
    """Requests from others that you should pay, newest first. `name` is who asks."""
    return Listing(_requests("payer", "owner"), me, status)


@app.api()
def list_sent_requests(w: World, me: int, status: Status | None = None) -> Listing[Asked]:
    """Requests you sent, newest first. `name` is who should pay."""
    return Listing(_requests("owner", "payer"), me, status)


@app.api(NO_REQUEST)
def show_request(w: World, me: int, request_id: Id) -> Request:
    """Show a request in full, sent or received."""
    names = "SELECT r.*, first || ' ' || last AS name, email FROM wallet_requests r JOIN people p"
    source = f"FROM ({names} ON p.id = owner + payer - ?1) WHERE id = ?2 AND ?1 IN (owner, payer)"
    return NO_REQUEST.unless(w.rows(Request, source, me, request_id), id=request_id)[0]


@app.api(NO_REQUEST, NOT_OPEN, TOO_LITTLE)
def pay_request(w: World, me: int, request_id: Id) -> New[Literal["transaction_id"]]:
    """Pay a request that someone sent you."""
    asker = _close(w, "payer", me, request_id, "paid")
    found = w.one("SELECT amount_cents, note FROM wallet_requests WHERE id = ?", request_id)
    assert found is not None
    return {"transaction_id": transfer(w, me, asker, found["amount_cents"], found["note"], w.moment)}


@app.api(NO_REQUEST, NOT_OPEN, says="Request declined.")
def decline_request(w: World, me: int, request_id: Id) -> None:
    """Decline a request that someone sent you."""
    _close(w, "payer", me, request_id, "declined")


@app.api(NO_REQUEST, NOT_OPEN, says="Request withdrawn.")
def withdraw_request(w: World, me: int, request_id: Id) -> None:
    """Withdraw a request that you sent."""
    _close(w, "owner", me, request_id, "withdrawn")


@app.api(NO_REQUEST, NOT_OPEN, REMINDED, says="Reminder sent.")
def remind(w: World, me: int, request_id: Id) -> None:
    """Remind someone of an open request that you sent, at most once a day."""
    _open(w, "owner", me, request_id)
    sql = "UPDATE wallet_requests SET reminded = ?1 WHERE id = ?2 AND reminded IS NOT ?1"
    REMINDED.unless(w.run(sql, w.today, request_id))


@app.api(NO_CARD, EXPIRED)
def add_money(w: World, me: int, card_id: Id, amount: Money) -> New[Literal["transaction_id"]]:
    """Add money from one of your cards (see owner.list_cards)."""
    return {"transaction_id": _by_card(w, me, card_id, "received", cents(amount))}


@app.api(NO_CARD, EXPIRED, TOO_LITTLE)
def withdraw_money(w: World, me: int, card_id: Id, amount: Money) -> New[Literal["transaction_id"]]:
    """Withdraw money to one of your cards (see owner.list_cards)."""
    return {"transaction_id": _by_card(w, me, card_id, "sent", cents(amount))}


@app.api()
def list_friends(w: World, me: int) -> Listing[Friend]:
    """Your friends in the wallet, by name."""
    return Listing("FROM wallet_known WHERE owner = ? ORDER BY name, id", me)


@app.api(NO_PERSON, MYSELF, IS_FRIEND, says="Friend added.")
def add_friend(w: World, me: int, email: Email) -> None:
    """Add someone to your friends."""
    friend = _person(w, me, email)
    added = w.run("INSERT OR IGNORE INTO wallet_friends (owner, friend) VALUES (?, ?)", me, friend)
    IS_FRIEND.unless(added, email=email)


@app.api(NO_FRIEND, says="Friend removed.")
def remove_friend(w: World, me: int, email: Email) -> None:
    """Remove someone from your friends."""
    NO_FRIEND.unless(w.remove("wallet_friends", owner=me, friend=w.person_with(email)), email=email)


def transfer(w: World, payer: int, payee: int, amount_cents: int, note: str, at: str) -> int:
    """Move money from one person to another; the id of the payer's transaction."""
    _move(w, payer, -amount_cents)
    _move(w, payee, amount_cents)
    values = {"amount_cents": amount_cents, "note": note, "at": at}
    transaction = w.add("wallet_transactions", owner=payer, person=payee, direction="sent", **values)
    w.add("wallet_transactions", owner=payee, person=payer, direction="received", **values)
    return transaction


def _by_card(w: World, me: int, card: int, direction: Direction, amount_cents: int) -> int:
    expires = NO_CARD.unless(w.value("SELECT expires FROM cards WHERE id = ? AND person = ?", card, me), id=card)
    EXPIRED.when(expires < w.today[:7], id=card)
    _move(w, me, amount_cents if direction == "received" else -amount_cents)
    values = {"amount_cents": amount_cents, "note": "by card", "at": w.moment}
    return w.add("wallet_transactions", owner=me, card=card, direction=direction, **values)


def _move(w: World, person: int, amount_cents: int) -> None:
    sql = "UPDATE wallet_accounts SET balance_cents = balance_cents + ?1 WHERE owner = ?2 AND balance_cents + ?1 >= 0"
    if not w.run(sql, amount_cents, person):
        raise TOO_LITTLE(balance=_balance(w, person) / 100)


def _balance(w: World, person: int) -> int:
    return int(w.value("SELECT balance_cents FROM wallet_accounts WHERE owner = ?", person))


def _person(w: World, me: int, email: str) -> int:
    person = w.person(email)
    MYSELF.when(person == me)
    return person


def _requests(mine: str, theirs: str) -> str:
    return (
        f"FROM (SELECT r.*, first || ' ' || last AS name FROM wallet_requests r JOIN people p ON p.id = {theirs} "
        f"WHERE {mine} = ?1 AND (?2 IS NULL OR status = ?2)) ORDER BY at DESC, id DESC"
    )


def _open(w: World, mine: str, me: int, id: int) -> int:
    """Check that a request is mine (as its owner or payer) and open; who is its owner."""
    found = w.one(f"SELECT owner, status FROM wallet_requests WHERE id = ? AND {mine} = ?", id, me)
    found = NO_REQUEST.unless(found, id=id)
    NOT_OPEN.when(found["status"] != "open", status=found["status"])
    return int(found["owner"])


def _close(w: World, mine: str, me: int, id: int, status: Status) -> int:
    owner = _open(w, mine, me, id)
    w.change("wallet_requests", id, status=status)
    return owner


_NOTES: list[str] = read("world")["wallet"]
_ASKED = ("open", "paid", "open", "declined", "open", "withdrawn", "paid")


@app.filled_by
def fill(w: World) -> None:
    """Payments of the last months; enough money was added before them that no balance was ever below zero."""
    rng, me = w.rng, w.owner.id
    known = [person.id for person in w.others("family", "flatmates", "colleagues", "friends")]
    moves: list[tuple[int, int, int, str, str]] = []
    requests: list[tuple[int, int, int, str, str, str]] = []
    for days in rng.sample(range(2, 130), 28):
        moves.append((*_either_way(rng.random() < 0.6, me, rng.choice(known)), *_some(w, days)))
    for days, status in zip(rng.sample(range(2, 60), 2 * len(_ASKED)), 2 * _ASKED, strict=True):
        asker, payer = _either_way(len(requests) < len(_ASKED), me, rng.choice(known))
        requests.append((asker, payer, *_some(w, days), status))
        if status == "paid":
            moves.append((payer, asker, *requests[-1][2:5]))
    for person in known[::2]:
        payer, payee = _either_way(rng.random() < 0.5, person, known[known.index(person) - 1])
        moves.append((payer, payee, *_some(w, rng.randrange(2, 130))))
        requests.append((payee, payer, *_some(w, rng.randrange(2, 60)), "open"))
    _write(w, sorted(moves, key=lambda move: (move[4], move)), sorted(requests, key=lambda asked: (asked[4], asked)))
    friends = [(me, friend) for friend in rng.sample(known, 11)] + [(person, me) for person in known[::2]]
    w.add_all("wallet_friends", "owner, friend", friends)


def _either_way(forth: bool, one: int, other: int) -> tuple[int, int]:
    return (one, other) if forth else (other, one)


def _some(w: World, days: int) -> tuple[int, str, str]:
    """An amount, a note and a moment."""
    return w.rng.randrange(300, 6000, 10), w.rng.choice(_NOTES), w.ago(days, hours=w.rng.random() * 9)


def _write(
    w: World, moves: list[tuple[int, int, int, str, str]], requests: list[tuple[int, int, int, str, str, str]]
) -> None:
    start = w.ago(131)
    rows: list[tuple[int, int | None, int | None, str, int, str, str]] = []
    sent, received = Counter[int](), Counter[int]()
    for payer, payee, amount, note, at in moves:
        rows.append((payer, payee, None, "sent", amount, note, at))
        rows.append((payee, payer, None, "received", amount, note, at))
        sent[payer] += amount
        received[payee] += amount
    accounts = []
    for me in (person.id for person in w.people):
        rest = 100 * w.rng.randrange(60, 300)
        accounts.append((me, rest + received[me]))
        rows.append((me, None, debit_card(me), "received", rest + sent[me], "by card", start))
    w.add_all("wallet_accounts", "owner, balance_cents", accounts)
    w.add_all("wallet_transactions", "owner, person, card, direction, amount_cents, note, at", rows)
    w.add_all("wallet_requests", "owner, payer, amount_cents, note, at, status", requests)
