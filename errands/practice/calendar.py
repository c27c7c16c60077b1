"""Practice with the calendar: events, invitations, guests and reminders."""

from dataclasses import replace
from functools import partial

from errands.people import Person
from errands.practice.blocks import COUNT, Source, alone, each, practice
from errands.practice.conditions import All, Amount, Kin, Moment, Top, Value
from errands.practice.contacts import MAIL
from errands.practice.drill import TIME, Act, Ask, Row, Slots
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


def _series(w: World) -> Slots:
    """Events to come of one title, on days of their own."""
    title = w.rng.choice(WORDS["events"])
    w.run("DELETE FROM calendar_events WHERE owner = ? AND title = ?", w.owner.id, title)
    for ahead in w.rng.sample(range(1, 40, 2), w.rng.randrange(3, 6)):
        _event(w, title, f"{w.day(ahead)} 12:{w.rng.randrange(46, 59)}")
    return {"of": title}


def _day(w: World) -> Slots:
    day = w.day(w.rng.randrange(2, 25))
    for hour, title in zip((9, 12, 14, 19), w.rng.sample(WORDS["events"], 4), strict=True):
        _event(w, title, f"{day} {hour:02}:{w.rng.randrange(10, 40)}")
    return {"of": day}


def _invited(w: World, answer: str) -> Slots:
    """Somebody, and one each of three relations, has invited the owner."""
    hosts = [w.rng.choice(w.others(kin)) for kin in ("friend", "colleague", "flatmate", "family")]
    days = w.rng.sample(range(1, 40, 2), len(hosts))
    for host, ahead, title in zip(hosts, days, w.rng.sample(WORDS["events"], len(hosts)), strict=True):
        _event(w, title, f"{w.day(ahead)} 12:{w.rng.randrange(46, 59)}", host, answer)
    return {}


def _busy(w: World) -> Slots:
    """A day with several events, and events of others."""
    _day(w)
    return _invited(w, "accepted")


def _guests(w: World) -> Slots:
    title = w.rng.choice(WORDS["events"])
    w.run("DELETE FROM calendar_events WHERE title = ?", title)
    event = _event(w, title, f"{w.day(w.rng.randrange(2, 30))} 12:50")
    kins = ("friend", "colleague", "flatmate", "family")
    for kin, answer in zip(kins, w.rng.sample(("accepted", "declined", "open", "accepted"), 4), strict=True):
        w.add("calendar_guests", event_id=event, guest=w.rng.choice(w.others(kin)).id, answer=answer)
    return {"of": title, "_event": event}


def _reminders(w: World) -> Slots:
    w.run("DELETE FROM calendar_reminders WHERE owner = ?", w.owner.id)
    for minutes, title in zip(w.rng.sample(range(6, 120, 4), 5), w.rng.sample(WORDS["events"], 5), strict=True):
        event = _event(w, title, f"{w.day(w.rng.randrange(1, 30))} 12:50")
        w.add("calendar_reminders", owner=w.owner.id, event_id=event, minutes_before=minutes)
    return {}


def _uninvited(w: World, row: Row) -> None:
    w.run("DELETE FROM calendar_guests WHERE event_id = ?", row["id"])


def _with_guest(w: World, row: Row) -> None:
    """Everyone who offers a service is a guest of it."""
    _uninvited(w, row)
    for person in w.others("services"):
        w.add("calendar_guests", event_id=row["id"], guest=person.id, answer="accepted")


def _service(w: World) -> str:
    return w.rng.choice(w.others("services")).email


def _start(w: World) -> str:
    return f"{w.day(w.rng.randrange(2, 30))} {w.rng.randrange(8, 20):02}:{w.rng.choice(('05', '25', '40'))}"


_SERIES = Source("events", "calendar.search", "'{of}' event* in my calendar", _series, {"query": '"{of}"'})
_COMING = replace(_SERIES, name="coming", api="calendar.list_upcoming")
_ALL = Source("all-coming", "calendar.list_upcoming", "my upcoming event*", _busy, long=True)
_DAY = Source("day", "calendar.list_day", "my event* on {of}", _day, {"day": '"{of}"'})
_OPEN = Source("invitations", "calendar.list_invitations", "my open invitation*", partial(_invited, answer="open"))
_ACCEPTED = Source(
    "accepted",
    "calendar.list_invitations",
    "my accepted invitation*",
    partial(_invited, answer="accepted"),
    {"answer": '"accepted"'},
)
_GUESTS = Source(
    "guests",
    "calendar.list_guests",
    "guest* of '{of}'",
    _guests,
    {"event_id": "event"},
    'event = calendar.search(query="{of}")[0]["id"]\n',
    people=True,
)
_REMINDERS = Source("reminders", "calendar.list_reminders", "reminder* in my calendar", _reminders)
_FREE = Source("free", "calendar.list_free_times", "free time* in my calendar on {of}", _day, {"day": '"{of}"'})

_LENGTH = Amount("minutes", "{noun} that last {than} {limit} minutes", "longest {noun}", "shortest {noun}")
_LONGEST = replace(_LENGTH, bottom="")
_WHEN = Moment("start", "{noun} that start {than} {day}", "last {noun}")
_FOR = Moment("start", "{noun} to events {than} {day}")
_NEXT = Top("next {noun}", "start")
_FIRST = Top("first {noun}", "start")
_HOST = Value("organiser", "{noun} organised by {value}")
_KIN = Kin("organiser", "{noun} organised by my {kin}s")
_BY, _BY_KIN = Value("organiser", "{noun} from {value}"), Kin("organiser", "{noun} from my {kin}s")
_TO_LONG = Amount("minutes", "{noun} to events of {than} {limit} minutes")

_CHANGES = [
    Act("calendar.update", phrases, name=name, args={slot: source})
    for name, slot, source, phrases in (
        ("rename", "title", "new_events", "rename {it} to '{title}'|change the title of {it} to '{title}'"),
        ("lengthen", "minutes", (15, 25, 55, 70, 85), "set the length of {it} to {minutes} minutes"),
        ("relocate", "place", "new_places", "set the place of {it} to '{place}'|move {it} to the place '{place}'"),
        ("remark", "note", "new_remarks_on_events", "set the note of {it} to '{note}'"),
    )
]
_CANCEL = Act("calendar.cancel", "cancel {it}|call off {it}")
_INVITE = Act("calendar.invite", "invite {email} to {it}", args={"email": _service}, ready=_uninvited)
_UNINVITE = Act(
    "calendar.remove_guest",
    "remove {email} from the guest list of {it}",
    name="uninvite",
    args={"email": _service},
    ready=_with_guest,
)
_REMIND = Act(
    "calendar.add_reminder",
    "add a reminder to {it}, {minutes_before} minutes before the start",
    args={"minutes_before": (5, 20, 25, 45, 90)},
)
_ACCEPT = Act("calendar.accept", "accept {it}|say yes to {it}")
_DECLINE = Act("calendar.decline", "decline {it}|say no to {it}")
_REMOVE = Act("calendar.remove_reminder", "remove {it}|delete {it}", name="remove")
_STRIKE = Act(
    "calendar.remove_guest",
    "remove {it} from the guest list",
    name="strike",
    field="email",
    key="email",
    known=(("event_id", "event"),),
)
_CREATE = Act(
    "calendar.create",
    "put '{title}' in my calendar on {start}, for {minutes} minutes",
    name="create-event",
    args={"title": "events", "start": _start, "minutes": (25, 50, 80, 100)},
)
_START = Ask("start", "start time", hint=TIME, asked="When does {it} start?")
_ASKS = [
    _START,
    Ask("place", asked="Where does {it} take place?", show="calendar.show"),
    Ask("note", show="calendar.show"),
    Ask("minutes", "length in minutes"),
]
_TITLES = [Ask("title"), COUNT, each("title")]
_INVITATIONS = [
    Ask("organiser", "name of the organiser", asked="Who is {it} from?"),
    Ask("title", "event title"),
    COUNT,
    each("title", "event title"),
]

KINDS = [
    *practice(_SERIES, [_LENGTH, _WHEN, All()], [*_CHANGES, _CANCEL, COUNT, _INVITE, _UNINVITE, _REMIND, *_ASKS]),
    *practice(_COMING, [_NEXT], [*_CHANGES, _CANCEL, _INVITE, _REMIND, *_ASKS], 6),
    *practice(
        _ALL, [Top("the next event in my calendar", "start"), _HOST, _KIN, _LONGEST], [*_TITLES, _REMIND, _START]
    ),
    *practice(_DAY, [_FIRST, All(), _LENGTH], [*_TITLES, *_ASKS, _REMIND]),
    *practice(
        _OPEN,
        [_FOR, _BY, _BY_KIN, _TO_LONG, Top("the open invitation with the earliest start", "start")],
        [_ACCEPT, _DECLINE, *_INVITATIONS],
    ),
    *practice(_ACCEPTED, [_FOR, _BY, _BY_KIN, All()], [_DECLINE, *_INVITATIONS]),
    *practice(
        _GUESTS,
        [All(), Value("answer", "{noun} whose answer is '{value}'"), Kin("email", "{noun} who are my {kin}s", "email")],
        [_STRIKE, COUNT, MAIL, each("name")],
    ),
    *practice(
        _REMINDERS,
        [
            All(),
            Amount(
                "minutes_before",
                "{noun} set {than} {limit} minutes before the start",
                "{noun} with the longest lead time",
            ),
        ],
        [_REMOVE, COUNT, Ask("minutes_before", "lead time in minutes")],
    ),
    *practice(
        _FREE, [_FIRST, All()], [_START, Ask("end", "end time", hint=TIME), COUNT, each("start", "start time")], 1
    ),
    *alone(_CREATE),
]
