"""Drills around invitations to events of others: those open, accepted or declined."""

from dataclasses import replace

from errands.drill import Act, Find, Rows, Slots, day, drills, limit
from errands.drills import calendar, events
from errands.people import ALONE, Person
from errands.world import World


def _invitations(w: World, hosts: list[Person], answer: str = "open") -> Rows:
    """All invitations with an answer; some are new, with titles, days and lengths of their own; earliest first."""
    titles = w.rng.sample(calendar.TITLES, w.rng.randrange(3, 6))
    days, lengths = w.rng.sample(range(1, 40, 2), len(titles)), w.rng.sample(range(22, 90, 5), len(titles))
    for place, title in enumerate(titles):
        host = hosts[place % len(hosts)]
        events.hosted(w, host, title, f"{w.day(days[place])} 12:50", lengths[place], answer)
    there = "id IN (SELECT event_id FROM calendar_guests WHERE guest = ? AND answer = ?)"
    return w.all(f"SELECT * FROM calendar_shown WHERE {there} ORDER BY start, id", w.owner.id, answer)


def _some(w: World, answer: str = "open") -> Rows:
    return _invitations(w, w.rng.sample(w.others(), 3), answer)


def _titled(w: World, answer: str = "open") -> tuple[Slots, Rows]:
    found = w.rng.choice([one for one in _some(w, answer) if one["title"] in calendar.TITLES])
    return {"event": found["title"]}, [found]


def _first(w: World) -> tuple[Slots, Rows]:
    return {}, _some(w)


def _longest(w: World) -> tuple[Slots, Rows]:
    found = w.rng.choice(_some(w)) | {"minutes": w.rng.randrange(100, 140)}
    w.run("UPDATE calendar_events SET minutes = ? WHERE id = ?", found["minutes"], found["id"])
    return {}, [found]


def _long(w: World) -> tuple[Slots, Rows]:
    found = _some(w)
    least = limit(w, [one["minutes"] for one in found])
    return {"limit": least}, [one | {"rest": one["minutes"] <= least} for one in found]


def _before(w: World) -> tuple[Slots, Rows]:
    found = _some(w)
    end = day(w, [one["start"] for one in found])
    return {"day": end}, [one | {"rest": one["start"] > end} for one in found]


def _agreed(w: World) -> tuple[Slots, Rows]:
    found = _some(w, "accepted")
    start = day(w, [one["start"] for one in found if one["start"] > w.moment])
    return {"day": start}, [one for one in found if one["start"] > start]


def _by(w: World) -> tuple[Slots, Rows]:
    host, *others = w.rng.sample(w.others(), 3)
    found = _invitations(w, [host, *others])
    return {"who": host.name}, [one for one in found if one["organiser"] == host.name]


def _by_kin(w: World) -> tuple[Slots, Rows]:
    host, *others = w.rng.sample(w.others(*ALONE), 3)
    found = _invitations(w, [host, *others])
    return {"kin": host.relation}, [one for one in found if one["organiser"] == host.name]


def _by_favourites(w: World) -> tuple[Slots, Rows]:
    people = w.rng.sample(w.others(), 4)
    for person, favourite in zip(people, (1, 0, 1, 0), strict=True):
        mine = "UPDATE contacts SET favourite = ? WHERE owner = ? AND email = ?"
        w.run(mine, favourite, w.owner.id, person.email)
    rows = w.all("SELECT name FROM contacts WHERE owner = ? AND favourite", w.owner.id)
    names = [one["name"] for one in rows]
    return {}, [one | {"rest": one["organiser"] not in names} for one in _invitations(w, people)]


_OPEN = "found = calendar.list_invitations(page_size=20)\n"
_SEEN = "seen = calendar.list_invitations(page_size=20)\n"
_NAMED = Find(
    "invitation",
    ("the invitation to '{event}'", "the open invitation to '{event}'", "the invitation that I got to '{event}'"),
    _OPEN + 'found = [x for x in found if x["title"] == "{event}"]',
    _titled,
    keep="the one whose `title` is {event}",
)
_FIRST = Find(
    "first-invitation",
    (
        "the earliest event among my open invitations",
        "the event that comes first of those I am invited to and have not answered",
    ),
    "found = calendar.list_invitations(page_size=1)",
    _first,
)
_LONGEST = Find(
    "longest-invitation",
    (
        "the longest event among my open invitations",
        "the event that takes the most minutes of those I am invited to and have not answered",
    ),
    _OPEN + 'found = [max(found, key=lambda x: x["minutes"])]',
    _longest,
    keep="the one with the most `minutes`",
)
_LONG = Find(
    "long-invitations",
    (
        "all open invitations to events of more than {limit} minutes",
        "every unanswered invitation to an event that is longer than {limit} minutes",
    ),
    _SEEN + 'found = [x for x in seen if x["minutes"] > {limit}]\nrest = [x for x in seen if x["minutes"] <= {limit}]',
    _long,
    many=True,
    keep="those whose `minutes` are above {limit}",
    rest="the other open invitations",
)
_BEFORE = Find(
    "invitations-before",
    (
        "all invitations that I have not answered to events before {day}",
        "every open invitation to something earlier than {day}",
    ),
    _SEEN + 'found = [x for x in seen if x["start"][:10] < "{day}"]\nrest = [x for x in seen if x["start"] > "{day}"]',
    _before,
    many=True,
    keep="those whose `start` is before {day}",
    rest="the other open invitations",
)
_BY = Find(
    "invitations-by",
    ("all open invitations by {who}", "every invitation that {who} sent me and that I have not answered"),
    _OPEN + 'found = [x for x in found if x["organiser"] == "{who}"]',
    _by,
    many=True,
    keep="those whose `organiser` is {who}",
)
_BY_KIN = Find(
    "invitations-by-relation",
    ("all open invitations by my {kin}", "every invitation that my {kin} sent me and that I have not answered"),
    'host = contacts.search(query="{kin}")\n'
    + _OPEN
    + 'found = [x for x in found if x["organiser"] == host[0]["name"]]',
    _by_kin,
    many=True,
    keep="those whose `organiser` is the contact whose `relation` is {kin}",
)
_BY_FAVOURITES = Find(
    "invitations-by-favourites",
    (
        "all open invitations by my favourite contacts",
        "every unanswered invitation by someone who is a favourite in my contacts",
    ),
    'names = [x["name"] for x in contacts.list_favourites()]\n'
    + _SEEN
    + 'found = [x for x in seen if x["organiser"] in names]\nrest = [x for x in seen if x not in found]',
    _by_favourites,
    many=True,
    keep="those whose `organiser` is a favourite contact",
    rest="the other open invitations",
)
_DECLINED = Find(
    "declined-invitation",
    ("the invitation to '{event}' that I declined", "the declined invitation to '{event}'"),
    'found = calendar.list_invitations(answer="declined", page_size=20)\n'
    'found = [x for x in found if x["title"] == "{event}"]',
    lambda w: _titled(w, "declined"),
    keep="the one whose `title` is {event}",
)
_AGREED = Find(
    "accepted-invitations-after",
    (
        "all invitations that I accepted to events after {day}",
        "every accepted invitation to something later than {day}",
    ),
    'found = calendar.list_invitations(answer="accepted", page_size=20)\n'
    'found = [x for x in found if x["start"][:10] > "{day}"]',
    _agreed,
    many=True,
    keep="those whose `start` is after {day}",
)

_ACCEPT = Act(
    "calendar.accept",
    ("Accept {it}.", "I will come, so accept {it}.", "Say yes to {it}.", "Let the organiser know that I accept {it}."),
    "accept {them}",
    key="event_id",
)
_ACCEPT_REST, DECLINE_REST = replace(_ACCEPT, rest=True), replace(calendar.DECLINE, rest=True)

DRILLS = [
    *drills([_NAMED], [_ACCEPT, calendar.DECLINE, (_ACCEPT, calendar.REMIND)]),
    *drills([_FIRST], [calendar.TITLE, (calendar.PLACE, _ACCEPT)]),
    *drills([_LONGEST], [calendar.DECLINE]),
    *drills([_LONG], [(calendar.DECLINE, _ACCEPT_REST)]),
    *drills([_BEFORE], [(_ACCEPT, DECLINE_REST)]),
    *drills([_BY], [events.COUNT]),
    *drills([_BY_KIN], [_ACCEPT]),
    *drills([_BY_FAVOURITES], [(_ACCEPT, DECLINE_REST)]),
    *drills([_DECLINED], [_ACCEPT]),
    *drills([_AGREED], [calendar.DECLINE]),
]
