"""Drills around the phone: text messages, calls and voicemails."""

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.scenario import every
from errands.world import World

WORDS = ("The code is 4711", "Meet me at gate B", "Bus 12 is late", "The cat is fine", "Lift is broken", "Table at 8")


def _text(w: World) -> tuple[Slots, Rows]:
    ids = []
    for words, person in zip(w.rng.sample(WORDS, 3), w.rng.sample(w.others(), 3), strict=True):
        more = {"incoming": 1, "text": words, "time": w.ago(w.rng.randrange(1, 40)), "read": 1}
        ids.append(w.add("phone_messages", owner=w.owner.id, number=person.phone, **more))
    found = row(w, "phone_messages", ids[0])
    return {"words": found["text"]}, [found]


def _call(w: World) -> tuple[Slots, Rows]:
    """The newest call of a kind, which took some minutes."""
    kind = w.rng.choice(("incoming", "outgoing"))
    minutes, time, number = w.rng.randrange(2, 50), w.ago(hours=w.rng.randrange(1, 4)), w.rng.choice(w.others()).phone
    id = w.add("phone_calls", owner=w.owner.id, number=number, kind=kind, time=time, minutes=minutes)
    return {"kind": kind}, [row(w, "phone_calls", id)]


def _calls(w: World) -> tuple[Slots, Rows]:
    kind = w.rng.choice(("incoming", "outgoing", "missed"))
    for number in w.rng.sample([person.phone for person in w.others()], w.rng.randrange(1, 4)):
        more = {"kind": kind, "time": w.ago(w.rng.randrange(1, 40)), "minutes": 0}
        w.add("phone_calls", owner=w.owner.id, number=number, **more)
    return {"kind": kind}, w.all("SELECT * FROM phone_calls WHERE owner = ? AND kind = ?", w.owner.id, kind)


def _voicemails(w: World) -> tuple[Slots, Rows]:
    for person in w.rng.sample(w.others(), w.rng.randrange(1, 4)):
        said = {"seconds": w.rng.randrange(5, 90), "text": w.rng.choice(WORDS)}
        w.add("phone_voicemails", owner=w.owner.id, number=person.phone, time=w.ago(hours=w.rng.random() * 4), **said)
    found = w.all("SELECT * FROM phone_voicemails WHERE owner = ? ORDER BY time DESC, id DESC", w.owner.id)
    return {}, found


def _blocked(w: World) -> tuple[Slots, Rows]:
    for person in w.rng.sample(w.others(), w.rng.randrange(1, 4)):
        w.add("phone_blocked", owner=w.owner.id, number=person.phone)
    return {}, w.all("SELECT * FROM phone_blocked WHERE owner = ?", w.owner.id)


def strange(w: World) -> str:
    return str(w.rng.randrange(2_000_000, 9_999_999))


def _block(w: World, rows: Rows) -> Slots:
    number = strange(w)
    w.add("phone_blocked", owner=w.owner.id, number=number)
    return {"number": number}


TEXT = Find(
    "text-message",
    ("the text message '{words}'", "the text message that says '{words}'"),
    'found = phone.search_messages(query="{words}")',
    _text,
)
_CALL = Find(
    "last-call",
    ("my last {kind} call", "the newest {kind} call on my phone", "the most recent {kind} call"),
    'found = phone.list_calls(kind="{kind}", page_size=1)',
    _call,
)
_CALLS = Find(
    "all-calls",
    ("all {kind} calls", "every {kind} call on my phone"),
    every("found", 'phone.list_calls(kind="{kind}")') + "\nprint(len(found))",
    _calls,
    many=True,
)
VOICEMAIL = Find(
    "last-voicemail",
    ("my last voicemail", "the newest voicemail", "the most recent voicemail on my phone"),
    "found = phone.list_voicemails(page_size=1)",
    _voicemails,
)
_VOICEMAILS = Find(
    "all-voicemails",
    ("all my voicemails", "every voicemail on my phone", "all voicemails that there are"),
    "found = phone.list_voicemails(page_size=20)\nprint(len(found))",
    _voicemails,
    many=True,
)
_BLOCKED = Find(
    "all-blocked",
    ("all blocked numbers", "every number that is blocked on my phone", "all numbers that I blocked"),
    "found = phone.list_blocked(page_size=20)",
    _blocked,
    many=True,
)

DELETE_TEXT = Act(
    "phone.delete_message",
    ("Delete {it} from my phone.", "Remove {it}.", "I do not want to keep {it}. Delete it."),
    "delete {them}",
    key="message_id",
    name="delete",
)
DELETE_CALL = Act(
    "phone.delete_call",
    (
        "Delete {it} from the list of calls.",
        "Nobody should see {it}: take {them} off the list.",
        "Remove {it} from my phone's list.",
    ),
    "delete {them} from the list of calls",
    key="call_id",
    name="delete",
)
DELETE_VOICEMAIL = Act(
    "phone.delete_voicemail",
    ("Delete {it}.", "I have heard {it}, so delete {them}.", "Remove {it}."),
    "delete {them}",
    key="voicemail_id",
    name="delete",
)
_CALL_BACK = Act(
    "phone.start_call",
    (
        "Call the number that {it} came from or went to.",
        "Ring the number of {it}.",
        "Start a call to the number of {it}.",
    ),
    "call the number of {them}",
    key="number",
    field="number",
)
TEXT_BACK = Act(
    "phone.send_message",
    (
        "Send the text message '{text}' to the number of {it}.",
        "Text '{text}' to the number that belongs to {it}.",
        "The number of {it} should get the text message '{text}'.",
    ),
    "text '{text}' to the number of {them}",
    key="number",
    field="number",
    given=pick(text=("I will ring you later", "Thanks for that", "Who are you?", "Please write instead", "Got it")),
)
_UNBLOCK = Act(
    "phone.unblock",
    ("Unblock {it}.", "Calls from {it} should come through again: unblock {them}.", "Lift the block on {it}."),
    "unblock {them}",
    key="number",
    field="number",
)
_UNBLOCK_NUMBER = Act(
    "phone.unblock",
    (
        "Unblock the number {number}.",
        "{number} should be able to reach me again. Take the block away.",
        "I blocked {number} on my phone by mistake. Undo that.",
    ),
    "unblock the number {number}",
    given=_block,
    name="unblock-number",
)
_CALL_NUMBER = Act(
    "phone.start_call",
    ("Call {number}.", "Ring the number {number}.", "Start a phone call to {number}."),
    "call the number {number}",
    given=lambda w, rows: {"number": strange(w)},
    name="call-number",
)
_TEXT_NUMBER = Act(
    "phone.send_message",
    (
        "Text '{text}' to {number}.",
        "Send the text message '{text}' to the number {number}.",
        "{number}: text '{text}'.",
    ),
    "text '{text}' to the number {number}",
    given=lambda w, rows: {"number": strange(w), "text": w.rng.choice(("Hello", "I am here", "Wrong number", "Yes"))},
    name="text-number",
)

_NUMBER = Ask(
    "number",
    ("Which number belongs to {it}?", "Tell me the phone number of {it}.", "What is the number of {it}?"),
    "tell the number of {them}",
)
_MINUTES = Ask(
    "minutes",
    ("How many minutes did {it} take?", "How long was {it}, in minutes?", "Tell me the minutes that {it} took."),
    "say how many minutes {them} took",
)
_SECONDS = Ask(
    "seconds",
    ("How many seconds long is {it}?", "Tell me the length of {it} in seconds.", "How long is {it}, in seconds?"),
    "say how many seconds {them} has",
)
SAID = Ask(
    "text",
    ("What does {it} say?", "Tell me what was said in {it}.", "Listen to {it} and tell me the words."),
    "tell what {them} says",
    show="phone.show_voicemail",
    key="voicemail_id",
)
COUNT = Ask(
    "how many",
    ("Count {it}.", "Please count {it} for me.", "What number do you get if you count {it}?"),
    "count {them}",
)

DRILLS = [
    *drills([TEXT], [DELETE_TEXT, _NUMBER, _CALL_BACK, (_NUMBER, DELETE_TEXT)]),
    *drills([_CALL], [DELETE_CALL, TEXT_BACK, _NUMBER, _MINUTES, (TEXT_BACK, DELETE_CALL)]),
    *drills([VOICEMAIL], [DELETE_VOICEMAIL, _CALL_BACK, _SECONDS, SAID, (SAID, DELETE_VOICEMAIL)]),
    *drills([_CALLS], [DELETE_CALL, COUNT]),
    *drills([_VOICEMAILS], [DELETE_VOICEMAIL]),
    *drills([_BLOCKED], [_UNBLOCK]),
    *drills([NOTHING], [_UNBLOCK_NUMBER, _CALL_NUMBER, _TEXT_NUMBER]),
]
