"""Fills worlds for practice with calls, voicemails, text messages and conversations (phone.toml)."""

from errands.practice.conditions import KINS
from errands.practice.contacts import number
from errands.practice.drill import Row, Slots
from errands.words import WORDS
from errands.world import World


def _someone(w: World) -> str:
    return w.rng.choice(w.others(w.rng.choice(KINS))).phone


def _time(w: World) -> str:
    return w.ago(w.rng.randrange(1, 50), w.rng.randrange(1, 20))


def calls(w: World) -> Slots:
    """Calls with people of every relation, of other lengths."""
    kind = w.rng.choice(("incoming", "outgoing"))
    for minutes in w.rng.sample(range(2, 60), 4):
        w.add("phone_calls", owner=w.owner.id, number=_someone(w), kind=kind, time=_time(w), minutes=minutes)
    return {"of": kind}


def missed(w: World) -> Slots:
    """Calls that nobody answered."""
    for _ in range(4):
        w.add("phone_calls", owner=w.owner.id, number=_someone(w), kind="missed", time=_time(w), minutes=0)
    return {}


def voicemails(w: World) -> Slots:
    for said in w.rng.sample(WORDS["said"], 4):
        more = {"time": _time(w), "seconds": w.rng.randrange(5, 90)}
        w.add("phone_voicemails", owner=w.owner.id, number=_someone(w), text=said, **more)
    return {}


def _text(w: World, number: str, text: str) -> None:
    more = {"text": text, "time": _time(w), "read": w.rng.randrange(2)}
    w.add("phone_messages", owner=w.owner.id, number=number, incoming=1, **more)


def texts(w: World) -> Slots:
    for text in w.rng.sample(WORDS["said"], 4):
        _text(w, _someone(w), text)
    return {}


def conversation(w: World) -> Slots:
    person = w.rng.choice(w.others())
    for text in w.rng.sample(WORDS["said"], 4):
        _text(w, person.phone, text)
    return {"of": person.phone}


def blocked(w: World) -> Slots:
    for person in w.rng.sample(w.others(), w.rng.randrange(2, 5)):
        w.run("INSERT OR IGNORE INTO phone_blocked (owner, number) VALUES (?, ?)", w.owner.id, person.phone)
    return {}


def strange_and_blocked(w: World) -> str:
    strange = number(w)
    w.add("phone_blocked", owner=w.owner.id, number=strange)
    return strange


def unread(w: World, row: Row) -> None:
    mine = "WHERE owner = ? AND number = ?"
    w.run(f"UPDATE phone_messages SET incoming = 1, read = 0 {mine}", w.owner.id, row["number"])
