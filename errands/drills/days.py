"""Drills around the days of the calendar: their events, who organises these, and free times."""

from dataclasses import replace
from datetime import datetime

from errands.apps.calendar import Free, list_free_times
from errands.drill import Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.drills import calendar, events, invitations
from errands.world import World


def _full(w: World, others: int = 0) -> tuple[str, Rows]:
    """A day with events of different lengths only, in order of time; some, but not the first, are of others."""
    date, count = w.day(w.rng.randrange(30, 60)), w.rng.randrange(4, 7)
    hours, lengths = sorted(w.rng.sample(range(8, 20), count)), w.rng.sample(range(12, 30), count)
    theirs = w.rng.sample(range(1, count), others)
    ids = []
    for place, title in enumerate(w.rng.sample(calendar.TITLES, count)):
        start = f"{date} {hours[place]:02}:{w.rng.choice((10, 20, 30))}"
        if place in theirs:
            ids.append(events.hosted(w, w.rng.choice(w.others()), title, start, lengths[place]))
        else:
            ids.append(events.add_event(w, title, start, lengths[place]))
    return date, [row(w, "calendar_shown", id) for id in ids]


def _all(w: World) -> tuple[Slots, Rows]:
    date, found = _full(w, others=2)
    return {"day": date}, found


def _last(w: World) -> tuple[Slots, Rows]:
    date, found = _full(w)
    return {"day": date}, found[-1:]


def _longest(w: World) -> tuple[Slots, Rows]:
    date, found = _full(w)
    return {"day": date}, [max(found, key=lambda one: one["minutes"])]


def _late(w: World) -> tuple[Slots, Rows]:
    date, found = _full(w)
    hour = f"{w.rng.choice(found[1:])['start'][11:13]}:00"
    return {"day": date, "hour": hour}, [one for one in found if one["start"][11:] > hour]


def _own(w: World) -> tuple[Slots, Rows]:
    date, found = _full(w, others=2)
    return {"day": date}, [one | {"rest": one["owner"] != w.owner.id} for one in found]


def _foreign(w: World) -> tuple[Slots, Rows]:
    slots, found = _own(w)
    return slots, [one | {"rest": False} for one in found if one["rest"]]


def _shared(w: World) -> tuple[Slots, Rows]:
    """Events to come that someone takes part in, some of them by the owner and some not."""
    person = w.rng.choice(w.others())
    w.run("UPDATE calendar_guests SET answer = 'accepted' WHERE guest = ?", person.id)
    for place, ahead in enumerate(w.rng.sample(range(1, 28), 4)):
        title, start = w.rng.choice(calendar.TITLES), f"{w.day(ahead)} 12:50"
        if place % 2:
            events.hosted(w, person, title, start, 35)
        else:
            id = events.add_event(w, title, start, 35)
            w.add("calendar_guests", event_id=id, guest=person.id, answer="accepted")
    found = [one for one in events.coming(w) if person.name in f"{one['organiser']},{one['guests']}"]
    return {"who": person.name}, [one | {"rest": one["owner"] != w.owner.id} for one in found]


def _long(free: Free) -> int:
    """In minutes."""
    start, end = (datetime.fromisoformat(moment) for moment in (free["start"], free["end"]))
    return int((end - start).total_seconds()) // 60


def _free(w: World) -> tuple[Slots, Rows]:
    """Times that are long enough, on a day that has shorter ones too."""
    date, _ = _full(w)
    lengths = {_long(one) for one in list_free_times(w, w.owner.id, date, 5)}
    long = w.rng.choice([n for n in range(30, 180, 5) if min(lengths) < n < max(lengths)])
    return {"day": date, "long": long}, [dict(one) for one in list_free_times(w, w.owner.id, date, long)]


def _longest_free(w: World) -> tuple[Slots, Rows]:
    date, found = _full(w)
    while True:
        times = sorted(list_free_times(w, w.owner.id, date, 30), key=_long)
        if _long(times[-1]) > _long(times[-2]):
            return {"day": date}, [dict(times[-1])]
        w.run("UPDATE calendar_events SET minutes = minutes + 1 WHERE id = ?", w.rng.choice(found)["id"])


def _movable(w: World) -> tuple[Slots, Rows]:
    """The first time that is long enough for an event of another day."""
    slots, found = _free(w)
    title = w.rng.choice(("Tax lecture", "Dance class", "Pottery", "Garden tour"))
    id = events.add_event(w, title, f"{w.day(w.rng.randrange(1, 25))} 12:50", 25)
    return slots | {"event": title}, [one | {"event_id": id} for one in found[:1]]


_DAY = 'found = calendar.list_day(day="{day}")\n'
_SEEN = 'me = owner.show_profile()["name"]\nseen = calendar.list_day(day="{day}")\n'
_ALL = Find(
    "events-of-day",
    ("all events of {day} in my calendar", "all events that my calendar has on {day}"),
    _DAY + 'print([x["title"] for x in found])',
    _all,
    many=True,
)
_FIRST = Find(
    "first-event-of-day",
    ("my first event on {day}", "the earliest event of {day} in my calendar"),
    'found = calendar.list_day(day="{day}")[:1]',
    _all,
)
_LAST = Find(
    "last-event-of-day",
    ("my last event on {day}", "the latest event of {day} in my calendar"),
    'found = calendar.list_day(day="{day}")[-1:]',
    _last,
)
_LONGEST = Find(
    "longest-event-of-day",
    ("my longest event on {day}", "the event of {day} in my calendar that takes the most minutes"),
    _DAY + 'found = [max(found, key=lambda x: x["minutes"])]',
    _longest,
    keep="the one with the most `minutes`",
)
_LATE = Find(
    "late-events-of-day",
    ("all events in my calendar that start after {hour} on {day}", "every event of mine on {day} from {hour} on"),
    _DAY + 'found = [x for x in found if x["start"][11:] > "{hour}"]\nprint([x["start"] for x in found])',
    _late,
    many=True,
    keep="those whose `start` is after {hour}",
)
_OWN = Find(
    "own-events-of-day",
    ("all events of {day} that I organise", "all events on {day} in my calendar of which I am the organiser"),
    _SEEN + 'found = [x for x in seen if x["organiser"] == me]\nrest = [x for x in seen if x["organiser"] != me]\n'
    'print([x["title"] for x in found])',
    _own,
    many=True,
    keep="those whose `organiser` is my owner",
    rest="the other events of that day",
)
_FOREIGN = Find(
    "events-of-day-by-others",
    ("all events of {day} in my calendar that others organise", "every event on {day} in my calendar that is not mine"),
    _SEEN + 'found = [x for x in seen if x["organiser"] != me]\nprint([x["title"] for x in found])',
    _foreign,
    many=True,
    keep="those whose `organiser` is not my owner",
)
_SHARED = Find(
    "own-events-with",
    (
        "all events to come with {who} in my calendar that I organise",
        "every event still to come in my calendar that {who} is part of and that I organise",
    ),
    'me = owner.show_profile()["name"]\nseen = calendar.list_upcoming(query="{who}", page_size=20)\n'
    'found = [x for x in seen if x["organiser"] == me]\nrest = [x for x in seen if x["organiser"] != me]\n'
    'print([x["title"] for x in found])',
    _shared,
    many=True,
    keep="those whose `organiser` is my owner",
    rest="the other events to come with {who} in my calendar",
)
_FREE = Find(
    "free-time",
    (
        "the first free time of at least {long} minutes between 08:00 and 20:00 on {day}",
        "the earliest time between 08:00 and 20:00 on {day} in which my calendar is free for at least {long} minutes",
    ),
    'found = calendar.list_free_times(day="{day}", minutes={long})',
    _free,
)
_ALL_FREE = replace(
    _FREE,
    name="free-times",
    it=(
        "all free times of at least {long} minutes between 08:00 and 20:00 on {day}",
        "the times between 08:00 and 20:00 on {day} in which my calendar is free for at least {long} minutes",
    ),
    many=True,
)
_LONGEST_FREE = Find(
    "longest-free-time",
    (
        "the longest free time between 08:00 and 20:00 on {day}",
        "the longest time between 08:00 and 20:00 on {day} in which there is nothing in my calendar",
    ),
    "def length(x):\n    hours = int(x['end'][11:13]) - int(x['start'][11:13])\n"
    "    return 60 * hours + int(x['end'][14:]) - int(x['start'][14:])\n"
    'found = calendar.list_free_times(day="{day}")\nfound = [max(found, key=length)]',
    _longest_free,
    keep="the one with the most minutes from `start` to `end`",
)
_MOVABLE = replace(
    _FREE,
    name="event-to-free-time",
    look='event = calendar.search(query="{event}")\nfound = calendar.list_free_times(day="{day}", minutes={long})\n'
    'found = [dict(x, event_id=event[0]["id"]) for x in found]',
    put=_movable,
)

_CREATE = Act(
    "calendar.create",
    (
        "Put '{title}' into my calendar at the start of {it}, for {minutes} minutes.",
        "I need {minutes} minutes for '{title}'. Make an event of it at the start of {it}.",
        "At the beginning of {it}, add the event '{title}' of {minutes} minutes.",
    ),
    "put '{title}' into the calendar at its start, for {minutes} minutes",
    key="start",
    field="start",
    given=pick(title=calendar.TITLES, minutes=(15, 20, 25, 30)),
)
_MOVE = Act(
    "calendar.update",
    (
        "Move my event '{event}' to the start of {it}.",
        "'{event}' in my calendar should begin at the start of {it}.",
        "Let '{event}' in my calendar start when {it} begins.",
    ),
    "move '{event}' to its start",
    key="start",
    field="start",
    also=(("event_id", "event_id"),),
    name="move",
)
_BEGIN = Ask(
    "start",
    (
        "When does {it} start? Answer like 2026-01-31 15:00.",
        "What is the start of {it}? Write it like 2026-01-31 15:00.",
        "Tell me the beginning of {it}, like 2026-01-31 15:00.",
    ),
    "say when {them} starts",
)
_END = Ask(
    "end",
    (
        "When does {it} end? Answer like 2026-01-31 15:00.",
        "What is the end of {it}? Write it like 2026-01-31 15:00.",
        "Tell me until when {it} lasts, like 2026-01-31 15:00.",
    ),
    "say when {them} ends",
)

DRILLS = [
    *drills([_ALL], [events.TOGETHER, calendar.REMIND]),
    *drills([_FIRST], [calendar.PLACE]),
    *drills([_LAST], [(calendar.TITLE, calendar.CANCEL)]),
    *drills([_LONGEST], [calendar.UNINVITE]),
    *drills([_LATE], [calendar.CANCEL]),
    *drills([_OWN], [(calendar.CANCEL, invitations.DECLINE_REST)]),
    *drills([_FOREIGN], [calendar.DECLINE]),
    *drills([_SHARED], [events.COUNT, (calendar.REMIND, invitations.DECLINE_REST)]),
    *drills([_FREE], [_CREATE, _END]),
    *drills([_ALL_FREE], [events.COUNT]),
    *drills([_LONGEST_FREE], [_BEGIN]),
    *drills([_MOVABLE], [_MOVE]),
]
