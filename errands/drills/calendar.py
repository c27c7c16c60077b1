"""Drills around the calendar."""

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.world import World

TITLES = (
    "Beekeeping",
    "Chess final",
    "Cheese tasting",
    "Kayak tour",
    "Museum night",
    "Opera",
    "Street fair",
    "Yard sale",
)
PLACES = ("Old Mill", "Pier 3", "Room 9", "North Gate", "Blue Hall", "Forest Inn")
REMARKS = ("bring cash", "wear boots", "ask for Kim", "second floor", "no parking", "tickets are paid")


def _add(w: World, title: str, start: str) -> int:
    more = {"place": w.rng.choice(PLACES), "note": w.rng.choice(REMARKS), "minutes": w.rng.choice((20, 35, 40, 50))}
    return w.add("calendar_events", owner=w.owner.id, title=title, start=start, **more)


def _titled(w: World) -> tuple[Slots, Rows]:
    titles = w.rng.sample(TITLES, 2)
    ids = [_add(w, title, f"{w.day(w.rng.randrange(1, 25))} 12:{w.rng.randrange(46, 59)}") for title in titles]
    return {"event": titles[0]}, [row(w, "calendar_shown", ids[0])]


def _next(w: World) -> tuple[Slots, Rows]:
    """An event to come, of which there was one before and will be another."""
    title, days = w.rng.choice(TITLES), w.rng.randrange(1, 7)
    starts = [f"{w.day(day)} 12:{w.rng.randrange(46, 59)}" for day in (days, -days, days + 7)]
    ids = [_add(w, title, start) for start in starts]
    return {"event": title}, [row(w, "calendar_shown", ids[0])]


def _with(w: World) -> tuple[Slots, Rows]:
    """An event this evening, so the next one with anybody."""
    person = w.rng.choice(w.others("friends", "colleagues", "family", "flatmates"))
    id = _add(w, w.rng.choice(TITLES), f"{w.today} {w.rng.randrange(20, 23)}:{w.rng.randrange(10, 20)}")
    w.add("calendar_guests", event_id=id, guest=person.id, answer="accepted")
    return {"who": person.name}, [row(w, "calendar_shown", id)]


def _invited(w: World) -> tuple[Slots, Rows]:
    slots, [event] = _titled(w)
    host = w.rng.choice(w.others())
    w.run("UPDATE calendar_events SET owner = ? WHERE id = ?", host.id, event["id"])
    w.add("calendar_guests", event_id=event["id"], guest=w.owner.id, answer="accepted")
    return slots, [row(w, "calendar_shown", event["id"])]


def _reminder(w: World) -> tuple[Slots, Rows]:
    slots, [event] = _titled(w)
    before = w.rng.choice((5, 20, 25, 40, 90))
    id = w.add("calendar_reminders", owner=w.owner.id, event_id=event["id"], minutes_before=before)
    return slots, [row(w, "calendar_reminders", id)]


def _reminders(w: World) -> tuple[Slots, Rows]:
    _reminder(w)
    coming = "SELECT r.* FROM calendar_reminders r JOIN calendar_events e ON e.id = event_id WHERE start > ?"
    return {}, w.all(f"{coming} AND r.owner = ?", w.moment, w.owner.id)


def _free_time(w: World) -> Slots:
    return {"start": f"{w.day(w.rng.randrange(2, 30))} {w.rng.randrange(8, 20):02}:{w.rng.choice(('05', '25', '40'))}"}


def _new_event(w: World, rows: Rows) -> Slots:
    return {"title": w.rng.choice(TITLES), "minutes": w.rng.choice((25, 50, 80, 100)), **_free_time(w)}


def _guest(w: World, rows: Rows) -> Slots:
    """Someone who is a guest of all of them, and another who is one too."""
    one, other = w.rng.sample(w.others("services", "family"), 2)
    for event in rows:
        for person in (one, other):
            w.run("DELETE FROM calendar_guests WHERE event_id = ? AND guest = ?", event["id"], person.id)
            w.add("calendar_guests", event_id=event["id"], guest=person.id, answer="accepted")
    return {"email": one.email}


_EVENT = Find(
    "event",
    ("the event '{event}' in my calendar", "'{event}' in my calendar", "my calendar event '{event}'"),
    'found = calendar.search(query="{event}")',
    _titled,
)
_NEXT = Find(
    "next-event",
    ("the next '{event}' in my calendar", "the '{event}' that comes next in my calendar"),
    'found = calendar.list_upcoming(query="{event}", page_size=1)',
    _next,
)
_MEETING = Find(
    "next-event-with",
    ("my next event with {who}", "the next event in my calendar that {who} is part of"),
    'found = calendar.list_upcoming(query="{who}", page_size=1)',
    _with,
)
_INVITATION = Find(
    "event-of-others",
    ("the event '{event}' that I am invited to", "'{event}', to which I was invited"),
    'found = calendar.search(query="{event}")',
    _invited,
)
_REMINDER = Find(
    "reminder",
    ("my reminder for '{event}'", "the reminder that I have for '{event}' in the calendar"),
    'event = calendar.search(query="{event}")\nfound = calendar.list_reminders(page_size=20)\n'
    'found = [x for x in found if x["event_id"] == event[0]["id"]]',
    _reminder,
)
_REMINDERS = Find(
    "all-reminders",
    ("all reminders for events to come", "every reminder in my calendar for what is still to come"),
    "found = calendar.list_reminders(page_size=20)\nprint(len(found))",
    _reminders,
    many=True,
)

RENAME = Act(
    "calendar.update",
    (
        "Rename {it} to '{title}'.",
        "Give {it} the title '{title}'.",
        "{it} should be called '{title}'.",
        "Change the title of {it} to '{title}'.",
    ),
    "rename {them} to '{title}'",
    key="event_id",
    given=pick(title=("Surprise", "Do not miss", "Big day", "Training", "Rehearsal")),
    name="rename",
)
_LENGTHEN = Act(
    "calendar.update",
    (
        "{it} will take {minutes} minutes. Change that.",
        "Make {it} {minutes} minutes long.",
        "Set the length of {it} to {minutes} minutes.",
    ),
    "make {them} {minutes} minutes long",
    key="event_id",
    given=pick(minutes=(15, 25, 55, 70, 85)),
    name="lengthen",
)
_RELOCATE = Act(
    "calendar.update",
    (
        "{it} takes place at '{place}' now. Change the place.",
        "Set the place of {it} to '{place}'.",
        "The new place of {it} is '{place}'.",
    ),
    "set the place of {them} to '{place}'",
    key="event_id",
    given=pick(place=("Harbour 7", "Tower Room", "Long Bridge", "Castle Yard")),
    name="relocate",
)
REMARK = Act(
    "calendar.update",
    (
        "Write the note '{note}' into {it}.",
        "Note '{note}' on {it}.",
        "{it} should have the note '{note}'.",
    ),
    "write the note '{note}' into {them}",
    key="event_id",
    given=pick(note=("buy flowers", "take the camera", "print the map", "eat before", "leave early")),
    name="remark",
)
INVITE = Act(
    "calendar.invite",
    (
        "Invite {email} to {it}.",
        "Add {email} to the guests of {it}.",
        "{email} should be a guest of {it}: invite them.",
    ),
    "invite {email} to {them}",
    key="event_id",
    given=lambda w, rows: {"email": w.rng.choice(w.others("services")).email},
)
_CREATE = Act(
    "calendar.create",
    (
        "Put '{title}' into my calendar on {start}, for {minutes} minutes.",
        "Make an event '{title}' that starts on {start} and takes {minutes} minutes.",
        "I have '{title}' on {start}. It lasts {minutes} minutes; add it to my calendar.",
        "New in my calendar: '{title}', {start}, {minutes} minutes.",
    ),
    "put '{title}' into the calendar on {start} for {minutes} minutes",
    given=_new_event,
    name="create-event",
)
REMOVE = Act(
    "calendar.remove_reminder",
    ("Remove {it}.", "{it} can go: take {them} away.", "Delete {it}."),
    "remove {them}",
    key="reminder_id",
    name="remove",
)
CANCEL = Act(
    "calendar.cancel",
    (
        "Cancel {it}.",
        "{it} will not take place: cancel {them}.",
        "Call off {it}.",
        "I want {it} cancelled.",
    ),
    "cancel {them}",
    key="event_id",
)
REMIND = Act(
    "calendar.add_reminder",
    (
        "Remind me {minutes_before} minutes ahead of {it}.",
        "Set a reminder for {it}, {minutes_before} minutes before the start.",
        "Add a reminder to {it}, {minutes_before} minutes before the start.",
        "For {it}, I want to be reminded {minutes_before} minutes before the start.",
    ),
    "add a reminder for {them}, {minutes_before} minutes before the start",
    key="event_id",
    given=pick(minutes_before=(5, 20, 25, 45, 90)),
)
DECLINE = Act(
    "calendar.decline",
    (
        "Decline {it}.",
        "I cannot come, so decline {it}.",
        "Say no to {it}.",
        "Turn down {it}.",
    ),
    "decline {them}",
    key="event_id",
)
UNINVITE = Act(
    "calendar.remove_guest",
    (
        "Take {email} off the guests of {it}.",
        "Strike {email} off the guests of {it}.",
        "Remove {email} from the guests of {it}.",
        "Uninvite {email} from {it}.",
    ),
    "take {email} off the guests of {them}",
    key="event_id",
    given=_guest,
    name="uninvite",
)

START = Ask(
    "start",
    (
        "When does {it} start? Answer like 2026-01-31 15:00.",
        "Tell me date and time of {it}, like 2026-01-31 15:00.",
        "What is the start of {it}? Write it like 2026-01-31 15:00.",
    ),
    "say when {them} starts",
)
_MINUTES = Ask(
    "minutes",
    ("How many minutes does {it} take?", "How long is {it}, in minutes?", "Tell me the length of {it} in minutes."),
    "say how many minutes {them} takes",
)
TITLE = Ask(
    "title",
    ("What is the title of {it}?", "What is {it} called?", "Tell me the title of {it}."),
    "tell the title of {them}",
)
_HOST = Ask(
    "organiser",
    ("Who organises {it}?", "Tell me the name of the organiser of {it}.", "Whose event is {it}?"),
    "say who organises {them}",
)
PLACE = Ask(
    "place",
    ("Where does {it} take place?", "What is the place of {it}?", "Tell me the place of {it}."),
    "say where {them} takes place",
    show="calendar.show",
    key="event_id",
)
_READ = Ask(
    "note",
    ("What is noted on {it}?", "Tell me the note of {it}.", "Which note does {it} have?"),
    "tell the note of {them}",
    show="calendar.show",
    key="event_id",
)
_BEFORE = Ask(
    "minutes_before",
    (
        "How many minutes ahead is {it}?",
        "Tell me how many minutes before the event {it} comes.",
        "{it}: how many minutes before the start is that?",
    ),
    "say how many minutes before the event {them} comes",
)

DRILLS = [
    *drills([_EVENT], [RENAME, _LENGTHEN, _RELOCATE, INVITE, _MINUTES, PLACE, _READ]),
    *drills([_NEXT], [REMARK, _LENGTHEN, START, PLACE]),
    *drills([_MEETING], [RENAME, _RELOCATE, TITLE, _READ]),
    *drills([_INVITATION], [_HOST, PLACE]),
    *drills([_REMINDER], [REMOVE, _BEFORE]),
    *drills([_REMINDERS], [REMOVE]),
    *drills([_EVENT], [UNINVITE, (_READ, CANCEL)]),
    *drills([_NEXT], [CANCEL, REMIND]),
    *drills([_MEETING], [(PLACE, REMIND)]),
    *drills([_INVITATION], [DECLINE]),
    *drills([_EVENT], [(RENAME, INVITE), (PLACE, INVITE)]),
    *drills([NOTHING], [_CREATE]),
]
