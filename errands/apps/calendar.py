"""Calendar: events, guests and reminders."""

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import (
    App,
    Day,
    Email,
    Id,
    Label,
    Line,
    Moment,
    Page,
    PageSize,
    Problem,
    Query,
    Success,
    Text,
)
from errands.world import World

app = App(
    "calendar",
    "Calendar: events, guests, invitations, free times and reminders.",
    schema="""
CREATE TABLE calendar_events (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    title TEXT NOT NULL, start TEXT NOT NULL CHECK (start GLOB '????-??-?? ??:??'),
    minutes INTEGER NOT NULL CHECK (minutes BETWEEN 5 AND 720), place TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '');
CREATE INDEX calendar_events_owner ON calendar_events(owner);
CREATE TABLE calendar_guests (id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id INTEGER NOT NULL REFERENCES calendar_events(id) ON DELETE CASCADE,
    guest INTEGER NOT NULL REFERENCES people(id),
    answer TEXT NOT NULL DEFAULT 'open' CHECK (answer IN ('open', 'accepted', 'declined')), UNIQUE (event_id, guest));
CREATE INDEX calendar_guests_guest ON calendar_guests(guest);
CREATE TABLE calendar_reminders (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    event_id INTEGER NOT NULL REFERENCES calendar_events(id) ON DELETE CASCADE,
    minutes_before INTEGER NOT NULL CHECK (minutes_before >= 0), UNIQUE (owner, event_id, minutes_before));
CREATE INDEX calendar_reminders_event ON calendar_reminders(event_id);
CREATE VIEW calendar_shown AS SELECT e.*, p.first || ' ' || p.last AS organiser,
    (SELECT group_concat(q.first || ' ' || q.last) FROM calendar_guests g JOIN people q ON q.id = g.guest
        WHERE g.event_id = e.id) AS guests
    FROM calendar_events e JOIN people p ON p.id = e.owner;
""",
    invariants=(
        "SELECT e.id FROM calendar_events e JOIN calendar_guests g ON g.event_id = e.id WHERE g.guest = e.owner",
        "SELECT id FROM calendar_events WHERE datetime(start, '+' || minutes || ' minutes') > "
        "datetime(date(start), '+1 day')",
        "SELECT r.id FROM calendar_reminders r JOIN calendar_events e ON e.id = r.event_id WHERE r.owner != e.owner "
        "AND r.owner NOT IN (SELECT guest FROM calendar_guests WHERE event_id = e.id AND answer = 'accepted')",
    ),
)

NO_EVENT = Problem(404, "There is no event {id}.")
NO_INVITATION = Problem(404, "You have no invitation to event {id}.")
NO_PERSON = Problem(404, "There is nobody with the e-mail {email}.")
NO_GUEST = Problem(404, "{email} is not a guest of event {id}.")
NO_REMINDER = Problem(404, "There is no reminder {id}.")
NOT_YOURS = Problem(403, "Only its organiser can change event {id}.")
GUEST_ALREADY = Problem(409, "{email} is already a guest or the organiser of event {id}.")
REMINDED_ALREADY = Problem(409, "There is already such a reminder.")
TOO_LATE = Problem(422, "An event must end on the day on which it starts.")

Minutes = Annotated[int, Field(ge=5, le=720), Label("5..720")]
Before = Annotated[int, Field(ge=0, le=10_080), Label("0..10080")]
Answer = Literal["open", "accepted", "declined"]

_MINE = "(owner = ? OR id IN (SELECT event_id FROM calendar_guests WHERE guest = ? AND answer = 'accepted'))"
"""Whether an event is in someone's calendar: they organise it, or have accepted it."""
_FOUND = "title || ' ' || place || ' ' || organiser || ' ' || coalesce(guests, '') LIKE ?"


class Brief(TypedDict):
    id: int
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


class Reminder(TypedDict):
    id: int
    event_id: int
    minutes_before: int


class Free(TypedDict):
    start: str
    end: str


class Created(TypedDict):
    event_id: int


class Added(TypedDict):
    reminder_id: int


@app.api()
def list_day(w: World, me: int, day: Day) -> list[Brief]:
    """The events of a day, in order of time."""
    source = f"FROM calendar_shown WHERE {_MINE} AND substr(start, 1, 10) = ? ORDER BY start, id"
    return w.rows(Brief, source, me, me, day)


@app.api()
def list_upcoming(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Events still to come whose title, place or people contain the query, soonest first."""
    source = f"FROM calendar_shown WHERE {_MINE} AND {_FOUND} AND start > ? ORDER BY start, id"
    return w.page(Brief, source, (me, me, f"%{query}%", w.moment), page, page_size)


@app.api()
def search(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Events, past and to come, whose title, place or people contain the query, earliest first."""
    source = f"FROM calendar_shown WHERE {_MINE} AND {_FOUND} ORDER BY start, id"
    return w.page(Brief, source, (me, me, f"%{query}%"), page, page_size)


@app.api(NO_EVENT)
def show(w: World, me: int, event_id: Id) -> Event:
    """One event in full. You see your events and those you are invited to."""
    _seen(w, me, event_id)
    return w.rows(Event, "FROM calendar_shown WHERE id = ?", event_id)[0]


@app.api(TOO_LATE)
def create(w: World, me: int, title: Line, start: Moment, minutes: Minutes = 60, place: Query = "") -> Created:
    """Put an event into the calendar."""
    _check_end(start, minutes)
    return {"event_id": w.add("calendar_events", owner=me, title=title, start=start, minutes=minutes, place=place)}


@app.api(NO_EVENT, NOT_YOURS, TOO_LATE)
def update(
    w: World,
    me: int,
    event_id: Id,
    title: Line | None = None,
    start: Moment | None = None,
    minutes: Minutes | None = None,
    place: Query | None = None,
    note: Text | None = None,
) -> Success:
    """Change or move an event; what is not given stays as it is."""
    _organised(w, me, event_id)
    w.change("calendar_events", event_id, title=title, start=start, minutes=minutes, place=place, note=note)
    event = w.rows(Brief, "FROM calendar_shown WHERE id = ?", event_id)[0]
    _check_end(event["start"], event["minutes"])
    return {"message": "Event changed."}


@app.api(NO_EVENT, NOT_YOURS)
def cancel(w: World, me: int, event_id: Id) -> Success:
    """Cancel an event: it disappears from everyone's calendar."""
    _organised(w, me, event_id)
    w.run("DELETE FROM calendar_events WHERE id = ?", event_id)
    return {"message": "Event cancelled."}


@app.api(NO_EVENT)
def list_guests(w: World, me: int, event_id: Id, page: Page = 0, page_size: PageSize = 5) -> list[Guest]:
    """The guests of an event and what they answered."""
    _seen(w, me, event_id)
    source = (
        "FROM (SELECT g.id, first || ' ' || last AS name, email, answer FROM calendar_guests g "
        "JOIN people p ON p.id = guest WHERE event_id = ?) ORDER BY id"
    )
    return w.page(Guest, source, (event_id,), page, page_size)


@app.api(NO_EVENT, NOT_YOURS, NO_PERSON, GUEST_ALREADY)
def invite(w: World, me: int, event_id: Id, email: Email) -> Success:
    """Invite someone to an event of yours."""
    _organised(w, me, event_id)
    guest = w.person_with(email)
    if guest is None:
        raise NO_PERSON(email=email)
    if guest == me or _answer(w, guest, event_id) is not None:
        raise GUEST_ALREADY(email=email, id=event_id)
    w.add("calendar_guests", event_id=event_id, guest=guest)
    return {"message": "Guest invited."}


@app.api(NO_EVENT, NOT_YOURS, NO_GUEST)
def remove_guest(w: World, me: int, event_id: Id, email: Email) -> Success:
    """Take someone off the guests of an event of yours."""
    _organised(w, me, event_id)
    guest = w.person_with(email)
    if not w.run("DELETE FROM calendar_guests WHERE event_id = ? AND guest = ?", event_id, guest):
        raise NO_GUEST(email=email, id=event_id)
    w.run("DELETE FROM calendar_reminders WHERE event_id = ? AND owner = ?", event_id, guest)
    return {"message": "Guest removed."}


@app.api()
def list_invitations(
    w: World, me: int, answer: Answer = "open", page: Page = 0, page_size: PageSize = 5
) -> list[Brief]:
    """Events of others you are invited to: those you have not answered, or accepted, or declined; earliest first."""
    source = (
        "FROM calendar_shown WHERE id IN (SELECT event_id FROM calendar_guests WHERE guest = ? AND answer = ?) "
        "ORDER BY start, id"
    )
    return w.page(Brief, source, (me, answer), page, page_size)


@app.api(NO_INVITATION)
def accept(w: World, me: int, event_id: Id) -> Success:
    """Accept an invitation: the event is in your calendar."""
    _reply(w, me, event_id, "accepted")
    return {"message": "Invitation accepted."}


@app.api(NO_INVITATION)
def decline(w: World, me: int, event_id: Id) -> Success:
    """Decline an invitation, also one accepted before: the event is not in your calendar."""
    _reply(w, me, event_id, "declined")
    w.run("DELETE FROM calendar_reminders WHERE event_id = ? AND owner = ?", event_id, me)
    return {"message": "Invitation declined."}


@app.api()
def list_free_times(w: World, me: int, day: Day, minutes: Minutes = 30) -> list[Free]:
    """The times of a day, from 08:00 to 20:00, in which you have no event for at least so many minutes."""
    free: list[Free] = []
    begin, close = f"{day} 08:00", f"{day} 20:00"
    taken = [(event["start"], _end(event["start"], event["minutes"])) for event in list_day(w, me, day)]
    for start, end in [*taken, (close, close)]:
        if begin < close and _end(begin, minutes) <= min(start, close):
            free.append({"start": begin, "end": min(start, close)})
        begin = max(begin, end)
    return free


@app.api()
def list_reminders(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Reminder]:
    """Your reminders of events still to come, in the order of the events."""
    source = (
        "FROM (SELECT r.*, start FROM calendar_reminders r JOIN calendar_events e ON e.id = event_id "
        "WHERE r.owner = ? AND start > ?) ORDER BY start, id"
    )
    return w.page(Reminder, source, (me, w.moment), page, page_size)


@app.api(NO_EVENT, REMINDED_ALREADY)
def add_reminder(w: World, me: int, event_id: Id, minutes_before: Before = 30) -> Added:
    """Be reminded of an event in your calendar, so many minutes before it starts."""
    if w.value(f"SELECT id FROM calendar_events WHERE {_MINE} AND id = ?", me, me, event_id) is None:
        raise NO_EVENT(id=event_id)
    same = "SELECT id FROM calendar_reminders WHERE owner = ? AND event_id = ? AND minutes_before = ?"
    if w.value(same, me, event_id, minutes_before) is not None:
        raise REMINDED_ALREADY()
    return {
        "reminder_id": w.add("calendar_reminders", owner=me, event_id=event_id, minutes_before=minutes_before),
    }


@app.api(NO_REMINDER)
def remove_reminder(w: World, me: int, reminder_id: Id) -> Success:
    """Remove a reminder."""
    w.owned("calendar_reminders", reminder_id, me, NO_REMINDER)
    w.run("DELETE FROM calendar_reminders WHERE id = ?", reminder_id)
    return {"message": "Reminder removed."}


def _answer(w: World, person: int, event: int) -> str | None:
    return w.value("SELECT answer FROM calendar_guests WHERE event_id = ? AND guest = ?", event, person)


def _reply(w: World, me: int, event: int, answer: str) -> None:
    if not w.run("UPDATE calendar_guests SET answer = ? WHERE event_id = ? AND guest = ?", answer, event, me):
        raise NO_INVITATION(id=event)


def _seen(w: World, me: int, event: int) -> int:
    """Who organises an event that someone organises or is invited to."""
    organiser: int | None = w.value("SELECT owner FROM calendar_events WHERE id = ?", event)
    if organiser is None or (organiser != me and _answer(w, me, event) is None):
        raise NO_EVENT(id=event)
    return organiser


def _organised(w: World, me: int, event: int) -> None:
    if _seen(w, me, event) != me:
        raise NOT_YOURS(id=event)


def _end(start: str, minutes: int) -> str:
    return f"{datetime.strptime(start, '%Y-%m-%d %H:%M') + timedelta(minutes=minutes):%Y-%m-%d %H:%M}"


def _check_end(start: str, minutes: int) -> None:
    """Midnight is still the same day."""
    hour, minute = int(start[11:13]), int(start[14:])
    if 60 * hour + minute + minutes > 24 * 60:
        raise TOO_LATE()


_KINDS = (
    ("colleagues", ("Team meeting", "Project review", "Planning", "Status call", "Lunch with {}", "Talk with {}")),
    ("friends", ("Coffee with {}", "Cinema with {}", "Climbing with {}", "Dinner with {}", "Board games")),
    ("family", ("Dinner with {}", "Call with {}", "Family lunch", "Walk with {}")),
    ("flatmates", ("Flat meeting", "Cooking with {}", "Cleaning day")),
    ("alone", ("Gym", "Yoga class", "Haircut", "Bike repair", "Language course", "Piano lesson", "Library")),
)
_PLACES = ("Cafe Luna", "Room 2", "Room 5", "Town Hall", "City Park", "at home", "Harbour Grill", "")
_TIMES = ("08:30", "10:00", "11:30", "13:30", "15:00", "17:00", "18:30")
"""When events of the base world start; they last at most 75 minutes, so that none overlap."""


@app.filled_by
def fill(w: World) -> None:
    """The owner has a history and plans, some of them by invitation; everyone has plans of their own."""
    rng, circles = w.rng, [(w.others(circle), titles) for circle, titles in _KINDS]
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
        place = rng.choice(_PLACES) if met else ""
        events.append((id, organiser.id, title, f"{w.day(day)} {_TIMES[time]}", rng.choice((30, 45, 60, 75)), place))
        guests += [(id, guest.id, unsure if rng.random() < 0.3 else "accepted") for guest in others]
        if organiser is w.owner and rng.random() < 0.4:
            reminders.append((organiser.id, id, rng.choice((10, 15, 30, 60))))
    for person in w.others():
        events.append((len(events) + 1, person.id, "Gym", f"{w.day(person.id)} 19:00", 60, ""))
    w.db.executemany(
        "INSERT INTO calendar_events (id, owner, title, start, minutes, place) VALUES (?, ?, ?, ?, ?, ?)", events
    )
    w.db.executemany("INSERT INTO calendar_guests (event_id, guest, answer) VALUES (?, ?, ?)", guests)
    w.db.executemany("INSERT INTO calendar_reminders (owner, event_id, minutes_before) VALUES (?, ?, ?)", reminders)
