"""Drills around the guests of events: what they answered, and who they are in the contacts."""

from dataclasses import replace

from errands.drill import Act, Ask, Find, Rows, Slots, drills
from errands.drills import calendar, contacts, events
from errands.people import Person
from errands.world import World


def _party(w: World, day: int, guests: list[Person]) -> tuple[Slots, Rows]:
    """An event with guests, all answers among them."""
    title = w.rng.choice(calendar.TITLES)
    id = events.add_event(w, title, f"{w.day(day)} 12:50", 35)
    found = []
    for place, person in enumerate(guests):
        answer = ("accepted", "declined", "open")[place % 3]
        w.add("calendar_guests", event_id=id, guest=person.id, answer=answer)
        found.append({"name": person.name, "email": person.email, "answer": answer, "event_id": id})
    return {"event": title, "day": w.day(day)}, found


def _guests(w: World, answer: str) -> tuple[Slots, Rows]:
    slots, found = _party(w, w.rng.randrange(1, 28), w.rng.sample(w.others(), w.rng.randrange(4, 9)))
    return {"event": slots["event"]}, [one | {"rest": one["answer"] != answer} for one in found]


def _with(w: World, answer: str) -> tuple[Slots, Rows]:
    slots, found = _guests(w, answer)
    return slots, [one for one in found if not one["rest"]]


def _guest(w: World) -> tuple[Slots, Rows]:
    slots, found = _guests(w, "open")
    one = w.rng.choice(found) | {"rest": False}
    return slots | {"who": one["name"]}, [one]


def _of_day(w: World) -> tuple[Slots, Rows]:
    slots, found = _party(w, w.rng.randrange(30, 60), w.rng.sample(w.others(), w.rng.randrange(4, 9)))
    return {"day": slots["day"]}, [one for one in found if one["answer"] == "open"]


def _of_kin(w: World, invited: bool) -> tuple[Slots, Rows]:
    """Contacts of a relation, some of them guests, among these the first."""
    kin = w.rng.choice(contacts.KINS)
    cards = w.all("SELECT * FROM contacts WHERE owner = ? ORDER BY id", w.owner.id)
    first, *more = [one["name"] for one in cards if one["relation"] == kin]
    names = [first, *w.rng.sample(more, len(more) - 1)]
    others = w.rng.sample([person for person in w.others() if person.relation != kin], 3)
    slots, found = _party(w, w.rng.randrange(1, 28), [p for p in w.others(kin) if p.name in names] + others)
    there = [one["email"] for one in found]
    meant = [one for one in cards if one["relation"] == kin and (one["email"] in there) == invited]
    return {"event": slots["event"], "kin": kin}, [one | {"event_id": found[0]["event_id"]} for one in meant]


_EVENT = 'event = calendar.search(query="{event}")[0]["id"]\n'
_NEXT = 'event = calendar.list_upcoming(query="{event}")[0]["id"]\n'
_LIST = "calendar.list_guests(event_id=event, page_size=20)\n"
_NOTED = "seen = [dict(x, event_id=event) for x in seen]\n"
_SPLIT = 'found = [x for x in seen if x["answer"] == "{0}"]\nrest = [x for x in seen if x["answer"] != "{0}"]'
_KINS = (
    f"guests = {_LIST}" + 'emails = [x["email"] for x in guests]\nseen = contacts.search(query="{kin}", page_size=20)\n'
    'seen = [dict(x, event_id=event) for x in seen if x["relation"] == "{kin}"]\n'
)
_DECLINED = Find(
    "guests-who-declined",
    ("all guests of my event '{event}' who declined", "everyone who declined my invitation to '{event}'"),
    f"{_EVENT}seen = {_LIST}{_NOTED}{_SPLIT.format('declined')}",
    lambda w: _guests(w, "declined"),
    many=True,
    keep="those whose `answer` is declined",
    rest="the other guests of '{event}'",
)
_ACCEPTED = Find(
    "guests-who-accepted",
    ("each guest of my event '{event}' who accepted", "everyone who accepted my invitation to '{event}'"),
    f"{_NEXT}seen = {_LIST}{_SPLIT.format('accepted')}",
    lambda w: _guests(w, "accepted"),
    many=True,
    keep="those whose `answer` is accepted",
    rest="the other guests of '{event}'",
)
_SILENT = Find(
    "guests-without-answer",
    (
        "all guests of my only event on {day} who have not answered",
        "everyone invited to my only event on {day} who has not answered yet",
    ),
    'event = calendar.list_day(day="{day}")[0]["id"]\n'
    f'seen = {_LIST}{_NOTED}found = [x for x in seen if x["answer"] == "open"]',
    _of_day,
    many=True,
    keep="those whose `answer` is open",
)
_GUEST = Find(
    "guest",
    ("the guest {who} of '{event}'", "the guest {who} of my event '{event}'"),
    f'{_EVENT}seen = {_LIST}{_NOTED}found = [x for x in seen if x["name"] == "{{who}}"]',
    _guest,
    person=True,
    keep="the one whose `name` is {who}",
)
_KIN_GUESTS = Find(
    "guests-of-relation",
    ("every {kin} of mine who is a guest of '{event}'", "each contact who is my {kin} and invited to '{event}'"),
    f'{_EVENT}{_KINS}found = [x for x in seen if x["email"] in emails]',
    lambda w: _of_kin(w, True),
    many=True,
    keep="those whose `email` is that of a guest",
)
_KIN_OTHERS = Find(
    "those-not-invited",
    ("every {kin} of mine who is not yet a guest", "each contact who is my {kin} and not among the guests"),
    f'{_NEXT}{_KINS}found = [x for x in seen if x["email"] not in emails]',
    lambda w: _of_kin(w, False),
    many=True,
    keep="those whose `email` is not that of a guest",
)

_REMOVE = Act(
    "calendar.remove_guest",
    (
        "Take {it} off the list of guests.",
        "Remove {it} from the guests of that event.",
        "{it} should no longer be invited: remove them from the guests.",
    ),
    "take {them} off the guests",
    key="email",
    field="email",
    also=(("event_id", "event_id"),),
)
_INVITE = Act(
    "calendar.invite",
    (
        "Invite {it} to '{event}'.",
        "'{event}' needs more people: invite {it}.",
        "Send {it} an invitation to '{event}'.",
    ),
    "invite {them} to '{event}'",
    key="email",
    field="email",
    also=(("event_id", "event_id"),),
)
_MAIL = replace(
    contacts.MAIL,
    aim="send each of {them} a mail of their own, with the subject '{subject}' and the text '{body}'",
    rest=True,
)
_ANSWER = Ask(
    "answer",
    (
        "What is the answer of {it}: accepted, declined or open?",
        "Tell me which answer {it} gave: accepted, declined or still open.",
        "Did {it} answer the invitation? Say accepted, declined or open.",
    ),
    "tell the answer of {them}",
)

DRILLS = [
    *drills([_DECLINED], [_REMOVE, (_REMOVE, _MAIL)]),
    *drills([_ACCEPTED], [contacts.REQUEST, (events.COUNT, _MAIL)]),
    *drills([_SILENT], [_REMOVE, contacts.BEFRIEND]),
    *drills([_GUEST], [_REMOVE, _ANSWER]),
    *drills([_KIN_GUESTS], [contacts.TEXT]),
    *drills([_KIN_OTHERS], [_INVITE]),
]
