"""Calendar: events, guests and reminders."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import App, Day, Email, Id, Label, Line, Listing, Moment, New, Numbered, Problem, Query, Text
from errands.database import Owned
from errands.words import read
from errands.world import NO_PERSON, World

app = App("calendar", "Calendar: events, guests, invitations, free times and reminders.")

NO_EVENT = Problem(404, "There is no event {id}.")
NO_INVITATION = Problem(404, "You have no invitation to event {id}.")
NO_GUEST = Problem(404, "{email} is not a guest of event {id}.")
REMINDERS = Owned("calendar_reminders", "reminder")
NOT_YOURS = Problem(403, "Only the organiser of event {id} can change it.")
GUEST_ALREADY = Problem(409, "{email} is already a guest or the organiser of event {id}.")
REMINDED_ALREADY = Problem(409, "There already is such a reminder.")
TOO_LATE = Problem(422, "An event must end on the day it starts.")

Minutes = Annotated[int, Field(ge=5, le=720), Label("5..720")]
Before = Annotated[int, Field(ge=0, le=10_080), Label("0..10080")]
Answer = Literal["open", "accepted", "declined"]

_MINE = "(owner = ? OR id IN (SELECT event_id FROM calendar_guests WHERE guest = ? AND answer = 'accepted'))"
"""Whether an event is in someone's calendar: they organise it, or have accepted it."""
_FOUND = "holds(title || ' ' || place || ' ' || organiser || ' ' || coalesce(guests, ''), ?)"


class Brief(Numbered):
    title: str
    start: str
    minutes: int
    organiser: str


class Event(Brief):
    place: str
    note: str


class Guest(TypedDict):
    name: str
    email: str
    answer: Answer


class Reminder(Numbered):
    event_id: int
    minutes_before: int


class Free(TypedDict):
    start: str
    end: str


@app.api()
def list_day(w: World, me: int, day: Day) -> list[Brief]:
    """The events of a day, earliest first."""
    source = f"FROM calendar_shown WHERE {_MINE} AND substr(start, 1, 10) = ? ORDER BY start, id"
    return w.rows(Brief, source, me, me, day)


@app.api()
def list_upcoming(w: World, me: int, query: Query = "") -> Listing[Brief]:
    """Upcoming events whose title, place or people contain the query, soonest first."""
    source = f"FROM calendar_shown WHERE {_MINE} AND {_FOUND} AND start > ? ORDER BY start, id"
    return Listing(source, me, me, query, w.moment)


@app.api()
def search(w: World, me: int, query: Query = "") -> Listing[Brief]:
    """Past and upcoming events whose title, place or people contain the query, earliest first."""
    source = f"FROM calendar_shown WHERE {_MINE} AND {_FOUND} ORDER BY start, id"
    return Listing(source, me, me, query)


@app.api(NO_EVENT)
def show(w: World, me: int, event_id: Id) -> Event:
    """Show an event in full: one of yours, or one you are invited to."""
    _seen(w, me, event_id)
    return w.rows(Event, "FROM calendar_shown WHERE id = ?", event_id)[0]


@app.api(TOO_LATE)
def create(
    w: World, me: int, title: Line, start: Moment, minutes: Minutes = 60, place: Query = ""
) -> New[Literal["event_id"]]:
    """Add an event to your calendar."""
    _check_end(start, minutes)
    return {"event_id": w.add("calendar_events", owner=me, title=title, start=start, minutes=minutes, place=place)}


@app.api(NO_EVENT, NOT_YOURS, TOO_LATE, says="Event changed.")
def update(
    w: World,
    me: int,
    event_id: Id,
    title: Line | None = None,
    start: Moment | None = None,
    minutes: Minutes | None = None,
    place: Query | None = None,
    note: Text | None = None,
) -> None:
    """Change or move an event. What you leave out stays as it is."""
    _organised(w, me, event_id)
    w.change("calendar_events", event_id, title=title, start=start, minutes=minutes, place=place, note=note)
    event = w.rows(Brief, "FROM calendar_shown WHERE id = ?", event_id)[0]
    _check_end(event["start"], event["minutes"])


@app.api(NO_EVENT, NOT_YOURS, says="Event cancelled.")
def cancel(w: World, me: int, event_id: Id) -> None:
    """Cancel an event. It disappears from everyone's calendar."""
    _organised(w, me, event_id)
    w.remove("calendar_events", id=event_id)


@app.api(NO_EVENT)
def list_guests(w: World, me: int, event_id: Id) -> Listing[Guest]:
    """The guests of an event, and their answers."""
    _seen(w, me, event_id)
    return Listing("FROM calendar_invited WHERE event_id = ? ORDER BY id", event_id)


@app.api(NO_EVENT, NOT_YOURS, NO_PERSON, GUEST_ALREADY, says="Guest invited.")
def invite(w: World, me: int, event_id: Id, email: Email) -> None:
    """Invite someone to one of your events."""
    _organised(w, me, event_id)
    guest = w.person(email)
    GUEST_ALREADY.when(guest == me or _answer(w, guest, event_id) is not None, email=email, id=event_id)
    w.add("calendar_guests", event_id=event_id, guest=guest)


@app.api(NO_EVENT, NOT_YOURS, NO_GUEST, says="Guest removed.")
def remove_guest(w: World, me: int, event_id: Id, email: Email) -> None:
    """Remove a guest from one of your events."""
    _organised(w, me, event_id)
    guest = w.person_with(email)
    NO_GUEST.unless(w.remove("calendar_guests", event_id=event_id, guest=guest), email=email, id=event_id)
    w.remove("calendar_reminders", event_id=event_id, owner=guest)


@app.api()
def list_invitations(w: World, me: int, answer: Answer = "open") -> Listing[Brief]:
    """Events of other people you are invited to, earliest first: those you have not answered, or those you have
    accepted or declined."""
    invited = "SELECT event_id FROM calendar_guests WHERE guest = ? AND answer = ?"
    return Listing(f"FROM calendar_shown WHERE id IN ({invited}) ORDER BY start, id", me, answer)


@app.api(NO_INVITATION, says="Invitation accepted.")
def accept(w: World, me: int, event_id: Id) -> None:
    """Accept an invitation. The event is then in your calendar."""
    _reply(w, me, event_id, "accepted")


@app.api(NO_INVITATION, says="Invitation declined.")
def decline(w: World, me: int, event_id: Id) -> None:
    """Decline an invitation, even one you had accepted. The event is then not in your calendar."""
    _reply(w, me, event_id, "declined")
    w.remove("calendar_reminders", event_id=event_id, owner=me)


@app.api()
def list_free_times(w: World, me: int, day: Day, minutes: Minutes = 30) -> list[Free]:
    """The times of a day, between 08:00 and 20:00, when you are free for at least so many minutes."""
    free: list[Free] = []
    begin, close = f"{day} 08:00", f"{day} 20:00"
    taken = [(event["start"], _end(event["start"], event["minutes"])) for event in list_day(w, me, day)]
    for start, end in [*taken, (close, close)]:
        if begin < close and _end(begin, minutes) <= min(start, close):
            free.append({"start": begin, "end": min(start, close)})
        begin = max(begin, end)
    return free


@app.api()
def list_reminders(w: World, me: int) -> Listing[Reminder]:
    """Your reminders of upcoming events, soonest event first."""
    return Listing("FROM calendar_reminded WHERE owner = ? AND start > ? ORDER BY start, id", me, w.moment)


@app.api(NO_EVENT, REMINDED_ALREADY)
def add_reminder(w: World, me: int, event_id: Id, minutes_before: Before = 30) -> New[Literal["reminder_id"]]:
    """Set a reminder of an event in your calendar, so many minutes before it starts."""
    NO_EVENT.unless(w.value(f"SELECT id FROM calendar_events WHERE {_MINE} AND id = ?", me, me, event_id), id=event_id)
    reminder = {"owner": me, "event_id": event_id, "minutes_before": minutes_before}
    return {"reminder_id": w.add_once(REMINDED_ALREADY(), "calendar_reminders", **reminder)}


@app.api(REMINDERS.missing, says="Reminder removed.")
def remove_reminder(w: World, me: int, reminder_id: Id) -> None:
    """Remove a reminder."""
    REMINDERS.delete(w, me, reminder_id)


def _answer(w: World, person: int, event: int) -> str | None:
    return w.value("SELECT answer FROM calendar_guests WHERE event_id = ? AND guest = ?", event, person)


def _reply(w: World, me: int, event: int, answer: str) -> None:
    sql = "UPDATE calendar_guests SET answer = ? WHERE event_id = ? AND guest = ?"
    NO_INVITATION.unless(w.run(sql, answer, event, me), id=event)


def _seen(w: World, me: int, event: int) -> int:
    """Who organises an event that someone organises or is invited to."""
    organiser: int | None = w.value("SELECT owner FROM calendar_events WHERE id = ?", event)
    if organiser is None or (organiser != me and _answer(w, me, event) is None):
        raise NO_EVENT(id=event)
    return organiser


def _organised(w: World, me: int, event: int) -> None:
    NOT_YOURS.when(_seen(w, me, event) != me, id=event)


def _end(start: str, minutes: int) -> str:
    return f"{datetime.strptime(start, '%Y-%m-%d %H:%M') + timedelta(minutes=minutes):%Y-%m-%d %H:%M}"


def _check_end(start: str, minutes: int) -> None:
    """Midnight is still the same day."""
    hour, minute = int(start[11:13]), int(start[14:])
    TOO_LATE.when(60 * hour + minute + minutes > 24 * 60)


_WORDS = read("world")["calendar"]
_TIMES = ("08:30", "10:00", "11:30", "13:30", "15:00", "17:00", "18:30")
"""When events of the base world start; they last at most 75 minutes, so that none overlap."""


@app.filled_by
def fill(w: World) -> None:
    """The owner has a history and plans, some of them by invitation; everyone has plans of their own."""
    rng, circles = w.rng, [(w.others(circle), titles) for circle, titles in _WORDS["titles"].items()]
    past, coming = range(-45 * len(_TIMES), 0), range(len(_TIMES), 29 * len(_TIMES))
    slots = rng.sample(past, rng.randrange(16, 24)) + rng.sample(coming, rng.randrange(22, 30))
    events: list[tuple[int, int, str, str, int, str]] = []
    guests: list[tuple[int, int, str]] = []
    reminders: list[tuple[int, int, int]] = []
    for id, slot in enumerate(slots, start=1):
        day, time = divmod(slot, len(_TIMES))
        unsure = "declined" if day < 0 else "open"
        known, titles = rng.choice(circles)
        title = rng.choice(titles)
        met = rng.sample(known, 1 if "{}" in title else min(len(known), 2))
        organiser, others = w.owner, met
        if met and id % 4 == 0:
            organiser, others = met[0], [w.owner, *met[1:]]
        title = title.format(others[0].first) if met else title
        place = rng.choice(_WORDS["places"]) if met else ""
        events.append((id, organiser.id, title, f"{w.day(day)} {_TIMES[time]}", rng.choice((30, 45, 60, 75)), place))
        guests += [(id, guest.id, unsure if rng.random() < 0.3 else "accepted") for guest in others]
        if organiser is w.owner and rng.random() < 0.4:
            reminders.append((organiser.id, id, rng.choice((10, 15, 30, 60))))
    for person in w.others():
        events.append((len(events) + 1, person.id, "Gym", f"{w.day(person.id)} 19:00", 60, ""))
    w.add_all("calendar_events", "id, owner, title, start, minutes, place", events)
    w.add_all("calendar_guests", "event_id, guest, answer", guests)
    w.add_all("calendar_reminders", "owner, event_id, minutes_before", reminders)
