"""Drills in which events and reminders of the calendar are chosen by a condition."""

from errands.drill import Ask, Find, Rows, Slots, day, drills, limit, row
from errands.drills import calendar
from errands.people import Person
from errands.scenario import every
from errands.world import World


def add_event(w: World, title: str, start: str, minutes: int) -> int:
    more = {"place": w.rng.choice(calendar.PLACES), "note": w.rng.choice(calendar.REMARKS), "minutes": minutes}
    return w.add("calendar_events", owner=w.owner.id, title=title, start=start, **more)


def _series(w: World) -> tuple[str, Rows]:
    """Events to come of one title, on days and with lengths of their own, and one of another title."""
    title, other = w.rng.sample(calendar.TITLES, 2)
    count = w.rng.randrange(4, 8)
    days, lengths = w.rng.sample(range(1, 40, 2), count), w.rng.sample(range(22, 90, 5), count)
    ids = [add_event(w, title, f"{w.day(ahead)} 12:50", long) for ahead, long in zip(days, lengths, strict=True)]
    add_event(w, other, f"{w.day(2)} 12:40", 60)
    return title, [row(w, "calendar_shown", id) for id in ids]


def _long(w: World) -> tuple[Slots, Rows]:
    title, events = _series(w)
    least = limit(w, [event["minutes"] for event in events])
    return {"event": title, "limit": least}, [event for event in events if event["minutes"] > least]


def _before(w: World) -> tuple[Slots, Rows]:
    title, events = _series(w)
    end = day(w, [event["start"] for event in events])
    return {"event": title, "day": end}, [event for event in events if event["start"] < end]


def _after(w: World) -> tuple[Slots, Rows]:
    title, events = _series(w)
    start = day(w, [event["start"] for event in events])
    return {"event": title, "day": start}, [event for event in events if event["start"] > start]


def _longest(w: World) -> tuple[Slots, Rows]:
    title, events = _series(w)
    return {"event": title}, [max(events, key=lambda event: event["minutes"])]


def _final(w: World) -> tuple[Slots, Rows]:
    title, events = _series(w)
    return {"event": title}, [max(events, key=lambda event: event["start"])]


def coming(w: World) -> Rows:
    """All the owner sees and that is still to come, soonest first."""
    seen = "(owner = :me OR id IN (SELECT event_id FROM calendar_guests WHERE guest = :me AND answer = 'accepted'))"
    sql = f"SELECT * FROM calendar_shown WHERE {seen} AND start > :now ORDER BY start, id"
    return [dict(one) for one in w.db.execute(sql, {"me": w.owner.id, "now": w.moment})]


def hosted(w: World, host: Person, title: str, start: str, minutes: int, answer: str = "accepted") -> int:
    """An event of someone who invited the owner."""
    id = add_event(w, title, start, minutes)
    w.run("UPDATE calendar_events SET owner = ? WHERE id = ?", host.id, id)
    w.add("calendar_guests", event_id=id, guest=w.owner.id, answer=answer)
    return id


def _hosted(w: World) -> tuple[Slots, Rows]:
    host = w.rng.choice(w.others())
    for title in w.rng.sample(calendar.TITLES, w.rng.randrange(1, 4)):
        hosted(w, host, title, f"{w.day(w.rng.randrange(1, 20))} 13:10", w.rng.choice((20, 35, 40, 50)))
    return {"who": host.name}, [event for event in coming(w) if event["organiser"] == host.name]


def _on(w: World) -> tuple[Slots, Rows]:
    date = w.day(w.rng.randrange(2, 25))
    for number, title in enumerate(w.rng.sample(calendar.TITLES, w.rng.randrange(1, 4))):
        add_event(w, title, f"{date} {12 + number}:50", w.rng.choice((20, 35, 40)))
    return {"day": date}, [event for event in coming(w) if event["start"][:10] == date]


def _early_reminders(w: World) -> tuple[Slots, Rows]:
    """Reminders at different times before their events."""
    _, events = _series(w)
    for event, ahead in zip(events, w.rng.sample(range(6, 120, 4), len(events)), strict=True):
        w.add("calendar_reminders", owner=w.owner.id, event_id=event["id"], minutes_before=ahead)
    coming = "SELECT r.* FROM calendar_reminders r JOIN calendar_events e ON e.id = event_id WHERE start > ?"
    reminders = w.all(f"{coming} AND r.owner = ?", w.moment, w.owner.id)
    least = limit(w, [one["minutes_before"] for one in reminders])
    return {"limit": least}, [one for one in reminders if one["minutes_before"] > least]


_SERIES = 'found = calendar.search(query="{event}", page_size=20)\n'
_LONG = Find(
    "long-events",
    (
        "all '{event}' events in my calendar that take more than {limit} minutes",
        "every '{event}' in my calendar that is longer than {limit} minutes",
        "the '{event}' events of over {limit} minutes in my calendar",
    ),
    _SERIES + 'found = [x for x in found if x["minutes"] > {limit}]\nprint([x["minutes"] for x in found])',
    _long,
    many=True,
    keep="those whose `minutes` are above {limit}",
)
_BEFORE = Find(
    "events-before",
    ("all '{event}' events in my calendar before {day}", "every '{event}' in my calendar that is earlier than {day}"),
    _SERIES + 'found = [x for x in found if x["start"][:10] < "{day}"]\nprint([x["start"] for x in found])',
    _before,
    many=True,
    keep="those whose `start` is before {day}",
)
_AFTER = Find(
    "events-after",
    ("all '{event}' events in my calendar after {day}", "every '{event}' in my calendar that is later than {day}"),
    _SERIES + 'found = [x for x in found if x["start"][:10] > "{day}"]\nprint([x["start"] for x in found])',
    _after,
    many=True,
    keep="those whose `start` is after {day}",
)
_LONGEST = Find(
    "longest-event",
    ("the longest '{event}' in my calendar", "the '{event}' in my calendar that takes the most minutes"),
    _SERIES + 'found = [max(found, key=lambda x: x["minutes"])]',
    _longest,
    keep="the one with the most `minutes`",
)
_FINAL = Find(
    "final-event",
    ("the very last '{event}' in my calendar", "the '{event}' in my calendar after which there is no other"),
    _SERIES + 'found = [max(found, key=lambda x: x["start"])]',
    _final,
    keep="the one with the latest `start`",
)
_ALL_COMING = every("found", "calendar.list_upcoming()")
_HOSTED = Find(
    "events-hosted-by",
    ("all events to come that {who} organises", "whatever is still to come in my calendar with {who} as organiser"),
    _ALL_COMING + '\nfound = [x for x in found if x["organiser"] == "{who}"]\nprint([x["title"] for x in found])',
    _hosted,
    many=True,
    keep="those whose `organiser` is {who}",
)
_ON = Find(
    "events-on",
    ("all events to come on {day} in my calendar", "whatever my calendar has for {day}"),
    _ALL_COMING + '\nfound = [x for x in found if x["start"][:10] == "{day}"]',
    _on,
    many=True,
    keep="those whose `start` is on {day}",
)
_EARLY = Find(
    "early-reminders",
    (
        "all my reminders that come more than {limit} minutes before the event",
        "every reminder in my calendar that is over {limit} minutes ahead",
    ),
    every("found", "calendar.list_reminders()")
    + '\nfound = [x for x in found if x["minutes_before"] > {limit}]\nprint([x["minutes_before"] for x in found])',
    _early_reminders,
    many=True,
    keep="those whose `minutes_before` are above {limit}",
)

COUNT = Ask(
    "how many",
    ("Count {it}.", "Please count {it} for me.", "Tell me the number you get if you count {it}."),
    "count {them}",
)
TOGETHER = Ask(
    "sum of minutes",
    ("How many minutes are {it} together?", "Add up the minutes of {it}.", "Tell me the minutes of {it} in all."),
    "add up the minutes of {them}",
    name="minutes",
)

DRILLS = [
    *drills([_LONG], [calendar.REMARK]),
    *drills([_BEFORE], [calendar.RENAME]),
    *drills([_AFTER], [calendar.INVITE, calendar.CANCEL]),
    *drills([_LONG], [calendar.UNINVITE]),
    *drills([_LONGEST], [calendar.START]),
    *drills([_FINAL], [calendar.PLACE]),
    *drills([_HOSTED], [COUNT]),
    *drills([_ON], [TOGETHER]),
    *drills([_EARLY], [calendar.REMOVE]),
]
