"""Drills in which calls, voicemails and text messages are chosen by a condition."""

from dataclasses import replace

from errands.drill import Act, Ask, Find, Rows, Slots, day, drills, limit, row
from errands.drills import phone
from errands.scenario import every
from errands.world import World

_KINS = ("friend", "colleague", "flatmate")


def _calls(w: World) -> Rows:
    """All calls, among them some with people of each relation."""
    for kin in _KINS:
        for number in range(w.rng.randrange(1, 3)):
            more = {"kind": "outgoing", "time": w.ago(number + 1, w.rng.randrange(1, 20)), "minutes": 2}
            w.add("phone_calls", owner=w.owner.id, number=w.rng.choice(w.others(kin)).phone, **more)
    return w.all("SELECT * FROM phone_calls WHERE owner = ?", w.owner.id)


def _long_calls(w: World) -> tuple[Slots, Rows]:
    kind = w.rng.choice(("incoming", "outgoing"))
    calls = [call for call in _calls(w) if call["kind"] == kind]
    least = limit(w, [call["minutes"] for call in calls])
    return {"kind": kind, "limit": least}, [call | {"rest": call["minutes"] < least} for call in calls]


def _longest_call(w: World) -> tuple[Slots, Rows]:
    number, minutes = w.rng.choice(w.others()).phone, w.rng.randrange(41, 90)
    more = {"kind": w.rng.choice(("incoming", "outgoing")), "time": w.ago(w.rng.randrange(1, 50), w.rng.randrange(20))}
    id = w.add("phone_calls", owner=w.owner.id, number=number, minutes=minutes, **more)
    return {}, [row(w, "phone_calls", id)]


def _old_calls(w: World) -> tuple[Slots, Rows]:
    calls = _calls(w)
    end = day(w, [call["time"] for call in calls])
    return {"day": end}, [call for call in calls if call["time"] < end]


def _calls_with(w: World) -> tuple[Slots, Rows]:
    kin, calls = w.rng.choice(_KINS), _calls(w)
    numbers = [person.phone for person in w.others(kin)]
    return {"kin": kin}, [call for call in calls if call["number"] in numbers]


def _voicemails(w: World) -> Rows:
    """Each with a length of its own."""
    found = w.all("SELECT * FROM phone_voicemails WHERE owner = ?", w.owner.id)
    for one, seconds in zip(found, w.rng.sample(range(5, 90), len(found)), strict=True):
        w.run("UPDATE phone_voicemails SET seconds = ? WHERE id = ?", seconds, one["id"])
    return w.all("SELECT * FROM phone_voicemails WHERE owner = ? ORDER BY seconds", w.owner.id)


def _short_voicemails(w: World) -> tuple[Slots, Rows]:
    voicemails = _voicemails(w)
    most = limit(w, [one["seconds"] for one in voicemails])
    return {"limit": most}, [one | {"rest": one["seconds"] > most} for one in voicemails]


def _texts(w: World) -> Rows:
    return w.all("SELECT * FROM phone_messages WHERE owner = ?", w.owner.id)


def _unread(w: World) -> tuple[Slots, Rows]:
    for person in w.rng.sample(w.others(), w.rng.randrange(2, 5)):
        more = {"incoming": 1, "text": w.rng.choice(phone.WORDS), "time": w.ago(w.rng.randrange(1, 40)), "read": 0}
        w.add("phone_messages", owner=w.owner.id, number=person.phone, **more)
    return {}, [text for text in _texts(w) if not text["read"]]


def _sent_before(w: World) -> tuple[Slots, Rows]:
    mine = [text for text in _texts(w) if not text["incoming"]]
    end = day(w, [text["time"] for text in mine])
    return {"day": end}, [text for text in mine if text["time"] < end]


def _conversations(w: World) -> Rows:
    """By the number of messages, with more unread ones with one number than with any other."""
    number = w.rng.choice(_texts(w))["number"]
    for days in w.rng.sample(range(20, 50), w.rng.randrange(6, 9)):
        more = {"incoming": 1, "text": w.rng.choice(phone.WORDS), "time": w.ago(days), "read": 0}
        w.add("phone_messages", owner=w.owner.id, number=number, **more)
    counted = "SELECT number, count(*) AS messages, sum(NOT read) AS unread FROM phone_messages WHERE owner = ?"
    return w.all(f"{counted} GROUP BY number ORDER BY messages", w.owner.id)


def _long_conversations(w: World) -> tuple[Slots, Rows]:
    conversations, least = _conversations(w), w.rng.randrange(3, 6)
    return {"limit": least}, [one for one in conversations if one["messages"] > least]


_LONG_CALLS = Find(
    "long-calls",
    (
        "all {kind} calls longer than {limit} minutes",
        "every {kind} call on my phone that took more than {limit} minutes",
        "the {kind} calls of over {limit} minutes",
    ),
    every("found", 'phone.list_calls(kind="{kind}")')
    + '\nfound = [x for x in found if x["minutes"] > {limit}]\nprint([x["minutes"] for x in found])',
    _long_calls,
    many=True,
    keep="those whose `minutes` are above {limit}",
)
_LONG_AND_SHORT = replace(
    _LONG_CALLS,
    name="long-and-short-calls",
    look=every("seen", 'phone.list_calls(kind="{kind}")') + '\nfound = [x for x in seen if x["minutes"] > {limit}]\n'
    'rest = [x for x in seen if x["minutes"] <= {limit}]\nprint([x["minutes"] for x in found])',
    rest="the other {kind} calls",
)
_ALL_CALLS = every("found", "phone.list_calls()")
_LONGEST_CALL = Find(
    "longest-call",
    ("the longest of all calls on my phone", "the call on my phone that took the most minutes"),
    _ALL_CALLS + '\nfound = [max(found, key=lambda x: x["minutes"])]',
    _longest_call,
    keep="the one with the most `minutes`",
)
_OLD_CALLS = Find(
    "old-calls",
    ("all calls from before {day}", "every call on my phone that is older than {day}"),
    _ALL_CALLS + '\nfound = [x for x in found if x["time"][:10] < "{day}"]\nprint([x["time"] for x in found])',
    _old_calls,
    many=True,
    keep="those whose `time` is before {day}",
)
_CALLS_WITH = Find(
    "calls-with-relation",
    ("all calls with someone who is my {kin}", "every call on my phone from or to a {kin} of mine"),
    'people = contacts.search(query="{kin}", page_size=20)\n'
    'numbers = [x["phone"] for x in people if x["relation"] == "{kin}"]\n'
    + _ALL_CALLS
    + '\nfound = [x for x in found if x["number"] in numbers]',
    _calls_with,
    many=True,
    keep="those whose `number` is of a contact whose `relation` is {kin}",
)
_ALL_VOICEMAILS = "found = phone.list_voicemails(page_size=20)\n"
SHORT_VOICEMAILS = Find(
    "short-voicemails",
    (
        "all voicemails shorter than {limit} seconds",
        "every voicemail on my phone that has less than {limit} seconds",
        "the voicemails of under {limit} seconds",
    ),
    _ALL_VOICEMAILS + 'found = [x for x in found if x["seconds"] < {limit}]',
    _short_voicemails,
    many=True,
    keep="those whose `seconds` are below {limit}",
)
SHORT_AND_LONG = replace(
    SHORT_VOICEMAILS,
    name="short-and-long-voicemails",
    look='seen = phone.list_voicemails(page_size=20)\nfound = [x for x in seen if x["seconds"] < {limit}]\n'
    'rest = [x for x in seen if x["seconds"] >= {limit}]',
    rest="the other voicemails",
)
_LONGEST_VOICEMAIL = Find(
    "longest-voicemail",
    ("my longest voicemail", "the voicemail on my phone that has the most seconds"),
    _ALL_VOICEMAILS + 'found = [max(found, key=lambda x: x["seconds"])]',
    lambda w: ({}, _voicemails(w)[-1:]),
    keep="the one with the most `seconds`",
)
_ALL_TEXTS = every("found", "phone.search_messages()")
_UNREAD = Find(
    "unread-texts",
    ("all unread text messages", "every text message on my phone that I have not read yet"),
    _ALL_TEXTS + '\nfound = [x for x in found if not x["read"]]',
    _unread,
    many=True,
    keep="those that are not `read`",
)
_SENT_BEFORE = Find(
    "sent-texts-before",
    ("all text messages that I sent before {day}", "every text message of my own that is older than {day}"),
    _ALL_TEXTS + '\nfound = [x for x in found if not x["incoming"] and x["time"][:10] < "{day}"]\n'
    'print([x["time"] for x in found])',
    _sent_before,
    many=True,
    keep="those that are not `incoming` and whose `time` is before {day}",
)
ALL_CONVERSATIONS = "found = phone.list_conversations(page_size=20)\n"
LONG_CONVERSATIONS = Find(
    "long-conversations",
    (
        "all conversations with more than {limit} text messages",
        "every conversation of over {limit} text messages",
    ),
    ALL_CONVERSATIONS + 'found = [x for x in found if x["messages"] > {limit}]',
    _long_conversations,
    many=True,
    keep="those whose `messages` are more than {limit}",
)
_MOST_UNREAD = Find(
    "most-unread",
    ("the number on my phone with the most unread messages", "the number of which I have not read most messages"),
    ALL_CONVERSATIONS + 'found = [max(found, key=lambda x: x["unread"])]',
    lambda w: ({}, _conversations(w)[::-1]),
    keep="the one with the most `unread`",
)

DELETE_ALL = Act(
    "phone.delete_message",
    ("Delete {it}.", "Remove {it} from my phone.", "{it} can go: delete {them}."),
    "delete {them}",
    key="message_id",
    name="delete",
)
FORGET = Act(
    "phone.delete_conversation",
    ("Delete {it}.", "Remove {it} from my phone.", "{it} can go: delete {them}."),
    "delete {them}",
    key="number",
    field="number",
    name="forget",
)
_READ = Act(
    "phone.mark_read",
    (
        "Mark all messages from {it} as read.",
        "Have a look at {it}: mark the messages from there as read.",
        "Messages from {it} should count as read.",
    ),
    "mark the messages of {them} as read",
    key="number",
    field="number",
)
_TALKED = Ask(
    "sum of minutes",
    ("How many minutes are {it} together?", "Add up the minutes of {it}.", "Tell me how long {it} were in all."),
    "add up the minutes of {them}",
    name="minutes",
)

DRILLS = [
    *drills([_LONG_CALLS], [phone.DELETE_CALL, _TALKED]),
    *drills([_LONG_AND_SHORT], [(phone.DELETE_CALL, replace(phone.COUNT, rest=True))]),
    *drills([_LONGEST_CALL], [phone.TEXT_BACK]),
    *drills([_OLD_CALLS], [(phone.COUNT, phone.DELETE_CALL)]),
    *drills([_CALLS_WITH], [phone.COUNT]),
    *drills([SHORT_VOICEMAILS], [phone.DELETE_VOICEMAIL]),
    *drills([SHORT_AND_LONG], [(phone.DELETE_VOICEMAIL, replace(phone.TEXT_BACK, rest=True))]),
    *drills([_LONGEST_VOICEMAIL], [phone.SAID]),
    *drills([_UNREAD], [phone.COUNT]),
    *drills([_SENT_BEFORE], [DELETE_ALL]),
    *drills([LONG_CONVERSATIONS], [FORGET]),
    *drills([_MOST_UNREAD], [_READ]),
]
