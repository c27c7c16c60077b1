"""Drills around the wallet."""

from errands.apps.wallet import transfer
from errands.drill import Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.world import World

THINGS = ("kayak", "tickets", "pizza", "flowers", "paint", "museum", "firewood", "stamps")
CIRCLES = ("family", "flatmates", "colleagues", "friends")


def _payment(w: World) -> tuple[Slots, Rows]:
    """The newest payment in a direction; the other's is as new."""
    person, me = w.rng.choice(w.others(*CIRCLES)), w.owner.id
    pair = [me, person.id]
    direction = w.rng.choice(("sent", "received"))
    payer, payee = pair if direction == "sent" else reversed(pair)
    transfer(w, payer, payee, w.rng.randrange(105, 900, 5), w.rng.choice(THINGS), w.ago(hours=w.rng.randrange(1, 20)))
    newest = "SELECT max(id) FROM wallet_transactions WHERE owner = ?"
    id = w.value(newest, me)
    label = w.rng.choice(("fun", "food", "house"))
    w.run("UPDATE wallet_transactions SET label = ? WHERE id = ?", label, id)
    return {"way": direction}, [row(w, "wallet_history", id)]


def _with(w: World) -> tuple[Slots, Rows]:
    _, [found] = _payment(w)
    return {"who": found["name"]}, [found]


def _request(w: World) -> tuple[Slots, Rows]:
    """The only open request of someone."""
    person = w.rng.choice(w.others(*CIRCLES))
    pair = {"owner": person.id, "payer": w.owner.id}
    w.run("UPDATE wallet_requests SET status = 'declined' WHERE owner = ? AND payer = ?", *pair.values())
    asked = {"amount_cents": w.rng.randrange(105, 900, 5), "note": w.rng.choice(THINGS), "status": "open"}
    id = w.add("wallet_requests", **pair, **asked, at=w.ago(w.rng.randrange(1, 40)))
    return {"who": person.name}, [row(w, "wallet_requests", id) | {"email": person.email}]


def _requests(w: World) -> tuple[Slots, Rows]:
    _request(w)
    ids = w.all("SELECT id FROM wallet_requests WHERE payer = ? AND status = 'open'", w.owner.id)
    for one in ids:  # so that there is money enough for all of them
        w.run("UPDATE wallet_requests SET amount_cents = ? WHERE id = ?", w.rng.randrange(105, 600, 5), one["id"])
    return {}, [row(w, "wallet_requests", one["id"]) for one in ids]


def _card(w: World) -> tuple[Slots, Rows]:
    id = w.value("SELECT id FROM cards WHERE person = ? AND label = 'debit'", w.owner.id)
    return {}, [row(w, "cards", id)]


def _balance(w: World) -> tuple[Slots, Rows]:
    id = w.value("SELECT id FROM wallet_accounts WHERE owner = ?", w.owner.id)
    return {}, [row(w, "wallet_accounts", id)]


def _friends(w: World) -> tuple[Slots, Rows]:
    w.run("DELETE FROM wallet_friends WHERE owner = ? AND id % 3 = ?", w.owner.id, w.rng.randrange(3))
    listed = "SELECT p.email FROM wallet_friends JOIN people p ON p.id = friend WHERE owner = ?"
    return {}, w.all(listed, w.owner.id)


def _amount(w: World, rows: Rows) -> Slots:
    return {"amount": w.rng.randrange(305, 4000, 5) / 100}


_PAYMENT = Find(
    "last-payment",
    ("the last payment that I {way}", "the newest payment I {way} in my wallet"),
    'found = wallet.list_transactions(direction="{way}", page_size=1)',
    _payment,
)
_WITH = Find(
    "payment-with",
    ("the last payment between {who} and me", "my newest payment from or to {who} in the wallet"),
    'person = contacts.search(query="{who}")\nfound = wallet.list_transactions(email=person[0]["email"], page_size=1)',
    _with,
)
REQUEST = Find(
    "request-of",
    ("the open request of {who} in my wallet", "the request by which {who} asks me for money"),
    'found = wallet.list_received_requests(status="open", page_size=20)\n'
    'found = [x for x in found if x["name"] == "{who}"]',
    _request,
)
REQUESTS = Find(
    "all-requests",
    ("all open requests for money that I got", "every request in my wallet that I have not answered"),
    'found = wallet.list_received_requests(status="open", page_size=20)\nprint([x["amount"] for x in found])',
    _requests,
    many=True,
)
_CARD = Find(
    "card",
    ("my debit card",),
    'found = owner.list_cards()\nfound = [x for x in found if x["label"] == "debit"]',
    _card,
)
_BALANCE = Find("", ("",), "", _balance)
_FRIENDS = Find(
    "all-friends",
    ("all my friends in the wallet", "everyone on the list of friends in my wallet"),
    "found = wallet.list_friends(page_size=20)\nprint(len(found))",
    _friends,
    many=True,
)

LABEL = Act(
    "wallet.set_label",
    (
        "Label {it} '{label}'.",
        "Put the label '{label}' on {it}.",
        "{it} should have the label '{label}'.",
        "Set the label of {it} to '{label}'.",
    ),
    "label {them} '{label}'",
    key="transaction_id",
    given=pick(label=("holiday", "present", "work", "shared", "one-off")),
)
PAY = Act(
    "wallet.pay_request",
    ("Pay {it}.", "Settle {it}.", "Please pay what is asked for in {it}."),
    "pay {them}",
    key="request_id",
    name="pay",
)
_LOAD = Act(
    "wallet.add_money",
    (
        "Add {amount:.2f} to my wallet from {it}.",
        "Load my wallet with {amount:.2f}, taken from {it}.",
        "Put {amount:.2f} from {it} into the wallet.",
    ),
    "add {amount:.2f} from {them} to the wallet",
    key="card_id",
    given=_amount,
)
_WITHDRAW = Act(
    "wallet.withdraw_money",
    (
        "Withdraw {amount:.2f} from my wallet to {it}.",
        "Move {amount:.2f} out of the wallet, to {it}.",
        "I want {amount:.2f} of the money in my wallet back on {it}.",
    ),
    "withdraw {amount:.2f} from the wallet to {them}",
    key="card_id",
    given=_amount,
)
_REMOVE = Act(
    "wallet.remove_friend",
    (
        "Remove {it}; I want no friends there.",
        "Take {it} off the friends.",
        "I want nobody there any more: remove {it}.",
    ),
    "remove {them} from the friends in the wallet",
    key="email",
    field="email",
)

_AMOUNT = Ask(
    "amount",
    ("How much money is {it} about?", "What is the amount of {it}?", "Tell me the amount of {it}."),
    "tell the amount of {them}",
)
NOTE = Ask(
    "note",
    ("What is the note of {it}?", "Tell me the note of {it}.", "For what is {it}? Look at the note."),
    "tell the note of {them}",
)
NAME = Ask(
    "name",
    (
        "Who is the other person in {it}?",
        "With whom was {it}? I want the name.",
        "Tell me the name that goes with {it}.",
    ),
    "say who else took part in {them}",
)
LABELLED = Ask(
    "label",
    ("What label does {it} have?", "Tell me the label of {it}.", "How did I label {it}?"),
    "tell the label of {them}",
    show="wallet.show_transaction",
    key="transaction_id",
)
_EMAIL = Ask(
    "email",
    (
        "Which e-mail address is behind {it}?",
        "Tell me the e-mail address that belongs to {it}.",
        "I need the e-mail that {it} gives.",
    ),
    "tell the e-mail address behind {them}",
    show="wallet.show_request",
    key="request_id",
)
_HAVE = Ask(
    "balance",
    (
        "How much money do I have in the wallet?",
        "What is the balance of my wallet?",
        "Tell me how much is in my wallet.",
    ),
    "tell the balance of the wallet",
    show="wallet.show_balance",
)
SUM = Ask(
    "sum of amount",
    ("How much is it if you add up {it}?", "Add up {it} and tell me the sum.", "Tell me the total of {it}."),
    "add up {them}",
    name="total",
)
COUNT = Ask(
    "how many",
    ("Count {it}.", "Please count {it} for me.", "Tell me the number you get if you count {it}."),
    "count {them}",
)
_NUMBER = Ask(
    "number",
    ("What is the number of {it}?", "Tell me the number of {it}.", "I need the number of {it}."),
    "tell the number of {them}",
)

DRILLS = [
    *drills([_PAYMENT], [LABEL, _AMOUNT, NOTE, NAME, LABELLED]),
    *drills([_WITH], [LABEL, _AMOUNT]),
    *drills([REQUEST], [_AMOUNT, NOTE, _EMAIL]),
    *drills([REQUESTS], [PAY, SUM]),
    *drills([_CARD], [_LOAD, _WITHDRAW, _NUMBER]),
    *drills([_FRIENDS], [_REMOVE, COUNT]),
    *drills([REQUEST], [(NOTE, PAY), (_AMOUNT, PAY)]),
    *drills([_PAYMENT], [(NOTE, LABEL)]),
    *drills([_BALANCE], [_HAVE]),
]
