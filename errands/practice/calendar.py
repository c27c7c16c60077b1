"""Fills worlds for practice with events, invitations, guests and reminders (calendar.toml)."""

from errands.people import Person
from errands.practice.drill import Row, Slots
from errands.words import WORDS
from errands.world import World


def _event(w: World, title: str, start: str, host: Person | None = None, answer: str = "open") -> int:
    """An event of the owner's, or one that somebody has invited the owner to."""
    more = {"place": w.rng.choice(WORDS["places"]), "note": w.rng.choice(WORDS["remarks_on_events"])}
    owner = (host or w.owner).id
    minutes = w.rng.randrange(22, 120)
    event = w.add("calendar_events", owner=owner, title=title, start=start, minutes=minutes, **more)
    if host:
        w.add("calendar_guests", event_id=event, guest=w.owner.id, answer=answer)
    return event


def series(w: World) -> Slots:
    """Events to come of one title, on days of their own."""
    title = w.rng.choice(WORDS["events"])
    w.run("DELETE FROM calendar_events WHERE owner = ? AND title = ?", w.owner.id, title)
    for ahead in w.rng.sample(range(1, 40, 2), w.rng.randrange(3, 6)):
        _event(w, title, f"{w.day(ahead)} 12:{w.rng.randrange(46, 59)}")
    return {"of": title}


def day(w: World) -> Slots:
    day = w.day(w.rng.randrange(2, 25))
    for hour, title in zip((9, 12, 14, 19), w.rng.sample(WORDS["events"], 4), strict=True):
        _event(w, title, f"{day} {hour:02}:{w.rng.randrange(10, 40)}")
    return {"of": day}


def invited(w: World, answer: str) -> Slots:
    """Somebody, and one each of three relations, has invited the owner."""
    hosts = [w.rng.choice(w.others(kin)) for kin in ("friend", "colleague", "flatmate", "family")]
    days = w.rng.sample(range(1, 40, 2), len(hosts))
    for host, ahead, title in zip(hosts, days, w.rng.sample(WORDS["events"], len(hosts)), strict=True):
        _event(w, title, f"{w.day(ahead)} 12:{w.rng.randrange(46, 59)}", host, answer)
    return {}


def busy(w: World) -> Slots:
    """A day with several events, and events of others."""
    day(w)
    return invited(w, "accepted")


def guests(w: World) -> Slots:
    title = w.rng.choice(WORDS["events"])
    w.run("DELETE FROM calendar_events WHERE title = ?", title)
    event = _event(w, title, f"{w.day(w.rng.randrange(2, 30))} 12:50")
    kins = ("friend", "colleague", "flatmate", "family")
    for kin, answer in zip(kins, w.rng.sample(("accepted", "declined", "open", "accepted"), 4), strict=True):
        w.add("calendar_guests", event_id=event, guest=w.rng.choice(w.others(kin)).id, answer=answer)
    return {"of": title, "_event": event}


def reminders(w: World) -> Slots:
    w.run("DELETE FROM calendar_reminders WHERE owner = ?", w.owner.id)
    for minutes, title in zip(w.rng.sample(range(6, 120, 4), 5), w.rng.sample(WORDS["events"], 5), strict=True):
        event = _event(w, title, f"{w.day(w.rng.randrange(1, 30))} 12:50")
        w.add("calendar_reminders", owner=w.owner.id, event_id=event, minutes_before=minutes)
    return {}


def uninvited(w: World, row: Row) -> None:
    w.run("DELETE FROM calendar_guests WHERE event_id = ?", row["id"])


def with_guest(w: World, row: Row) -> None:
    """Everyone who offers a service is a guest of it."""
    uninvited(w, row)
    for person in w.others("services"):
        w.add("calendar_guests", event_id=row["id"], guest=person.id, answer="accepted")


def start(w: World) -> str:
    return f"{w.day(w.rng.randrange(2, 30))} {w.rng.randrange(8, 20):02}:{w.rng.choice(('05', '25', '40'))}"
