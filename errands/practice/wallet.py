"""Fills worlds for practice with payments, requests for money, friends and cards (wallet.toml)."""

from errands.apps.wallet import transfer
from errands.practice.drill import Row, Slots
from errands.words import WORDS
from errands.world import World

_KINS = ("friend", "colleague", "flatmate", "mother", "sister")


def _people(w: World) -> list[int]:
    """One of each kind, in any order."""
    return w.rng.sample([w.rng.choice(w.others(kin)).id for kin in _KINS], len(_KINS))


def paid(w: World) -> Slots:
    """New payments, for other things, in both directions."""
    me = w.owner.id
    about = w.rng.sample(WORDS["paid_for"], 2)
    for place, (other, cents) in enumerate(zip(_people(w), w.rng.sample(range(105, 290, 5), 5), strict=True)):
        payer, payee = (other, me) if place % 2 else (me, other)
        transfer(w, payer, payee, cents, about[place % 3 == 2], w.ago(w.rng.randrange(1, 60), w.rng.randrange(1, 9)))
    return {}


def about(w: World) -> Slots:
    """Payments for one thing, in both directions, by and to people of every kind."""
    paid(w)
    about = w.rng.choice(WORDS["paid_for"])
    for other, cents in zip(_people(w), w.rng.sample(range(105, 290, 5), 5), strict=True):
        payer, payee = w.rng.sample((w.owner.id, other), 2)
        transfer(w, payer, payee, cents, about, w.ago(w.rng.randrange(1, 60), w.rng.randrange(1, 9)))
    return {"of": about}


def with_someone(w: World) -> Slots:
    person = w.rng.choice(w.others("friends", "family"))
    w.run("UPDATE wallet_transactions SET label = 'old' WHERE owner = ?", w.owner.id)
    for cents, label in zip(w.rng.sample(range(105, 290, 5), 4), WORDS["labels_of_payments"], strict=False):
        note = w.rng.choice(WORDS["paid_for"])
        id = transfer(w, w.owner.id, person.id, cents, note, w.ago(w.rng.randrange(1, 60), w.rng.randrange(1, 9)))
        w.run("UPDATE wallet_transactions SET label = ? WHERE id = ?", label, id)
    return {"of": person.name, "_email": person.email}


def requests(w: World, mine: str, theirs: str, numbered: bool = False) -> Slots:
    """Open requests of other amounts and times. The owner is `mine` in them, somebody else `theirs`."""
    ids = []
    w.run(f"UPDATE wallet_requests SET status = 'declined' WHERE {mine} = ? AND status = 'open'", w.owner.id)
    days, cents = w.rng.sample(range(2, 40), len(_KINS)), w.rng.sample(range(105, 1500, 10), len(_KINS))
    for person, ago, money in zip(_people(w), days, cents, strict=True):
        more = {"amount_cents": money, "note": w.rng.choice(WORDS["paid_for"]), "status": "open", "at": w.ago(ago)}
        ids.append(w.add("wallet_requests", **{mine: w.owner.id, theirs: person}, **more))
    return {"of": ", ".join(map(str, ids))} if numbered else {}


def unlabelled(w: World, row: Row) -> None:
    w.run("UPDATE wallet_transactions SET label = 'old' WHERE id = ?", row["id"])


def valid(w: World) -> Slots:
    """No card of the owner's is expired."""
    w.run("UPDATE cards SET expires = ? WHERE person = ?", w.day(w.rng.randrange(99, 999))[:7], w.owner.id)
    return {}


def friends(w: World) -> Slots:
    w.run("DELETE FROM wallet_friends WHERE owner = ?", w.owner.id)
    for person in {*_people(w), *_people(w)}:
        w.add("wallet_friends", owner=w.owner.id, friend=person)
    return {}
