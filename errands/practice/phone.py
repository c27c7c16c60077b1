"""Practice with the phone: calls, voicemails, text messages and conversations."""

from functools import partial

from errands.practice.blocks import COUNT, REPEATED, Source, alone, each, practice
from errands.practice.conditions import KINS, All, Amount, Kin, Moment, Name, Number, State, Top, Value
from errands.practice.contacts import number, reachable
from errands.practice.drill import TIME, Act, Ask, Row, Slots
from errands.words import WORDS
from errands.world import World


def _someone(w: World) -> str:
    return w.rng.choice(w.others(w.rng.choice(KINS))).phone


def _time(w: World) -> str:
    return w.ago(w.rng.randrange(1, 50), w.rng.randrange(1, 20))


def _calls(w: World) -> Slots:
    """Calls with people of every relation, of other lengths."""
    kind = w.rng.choice(("incoming", "outgoing"))
    for minutes in w.rng.sample(range(2, 60), 4):
        w.add("phone_calls", owner=w.owner.id, number=_someone(w), kind=kind, time=_time(w), minutes=minutes)
    return {"of": kind}


def _missed(w: World) -> Slots:
    """Calls that nobody answered."""
    for _ in range(4):
        w.add("phone_calls", owner=w.owner.id, number=_someone(w), kind="missed", time=_time(w), minutes=0)
    return {}


def _voicemails(w: World) -> Slots:
    for said in w.rng.sample(WORDS["said"], 4):
        more = {"time": _time(w), "seconds": w.rng.randrange(5, 90)}
        w.add("phone_voicemails", owner=w.owner.id, number=_someone(w), text=said, **more)
    return {}


def _text(w: World, number: str, text: str) -> None:
    more = {"text": text, "time": _time(w), "read": w.rng.randrange(2)}
    w.add("phone_messages", owner=w.owner.id, number=number, incoming=1, **more)


def _texts(w: World) -> Slots:
    for text in w.rng.sample(WORDS["said"], 4):
        _text(w, _someone(w), text)
    return {}


def _conversation(w: World) -> Slots:
    person = w.rng.choice(w.others())
    for text in w.rng.sample(WORDS["said"], 4):
        _text(w, person.phone, text)
    return {"of": person.phone}


def _blocked(w: World) -> Slots:
    for person in w.rng.sample(w.others(), w.rng.randrange(2, 5)):
        w.run("INSERT OR IGNORE INTO phone_blocked (owner, number) VALUES (?, ?)", w.owner.id, person.phone)
    return {}


def _strange_and_blocked(w: World) -> str:
    strange = number(w)
    w.add("phone_blocked", owner=w.owner.id, number=strange)
    return strange


def _unread(w: World, row: Row) -> None:
    mine = "WHERE owner = ? AND number = ?"
    w.run(f"UPDATE phone_messages SET incoming = 1, read = 0 {mine}", w.owner.id, row["number"])


_CALLS = Source("calls", "phone.list_calls", "{of} call* on my phone", _calls, {"kind": '"{of}"'})
_MISSED = Source("missed-calls", "phone.list_calls", "missed call* on my phone", _missed, {"kind": '"missed"'})
_HISTORY = Source("history", "phone.list_calls", "call* on my phone", _missed, long=True)
_VOICEMAILS = Source("voicemails", "phone.list_voicemails", "my voicemail*", _voicemails)
_TEXTS = Source("texts", "phone.search_messages", "my text message*", _texts, long=True)
_WITH = Source(
    "texts-with", "phone.show_conversation", "my text message* with {of}", _conversation, {"number": '"{of}"'}
)
_CHATS = Source("chats", "phone.list_conversations", "my text conversation*", _texts)
_BLOCKED = Source("blocked", "phone.list_blocked", "blocked number*", _blocked)

_LAST = Top("last {noun}|most recent {noun}", "time")
_WHEN = Moment("time", "{noun} from {than} {day}", "", "oldest {noun}")
_LENGTH = Amount("minutes", "{noun} that lasted {than} {limit} minutes", "longest {noun}")
_SECONDS = Amount("seconds", "{noun} of {than} {limit} seconds", "longest {noun}", "shortest {noun}")
_KIND = Value("kind", "{value} {noun}")
_COUNTED = Number("messages", "{noun} with {than} {limit} messages", "{noun} with the most messages")
_LATEST = Moment("last", "{noun} whose last message is from {than} {day}")
_NEWS = State("unread", "{noun} with unread messages", "{noun} without unread messages")
_KIN = Kin("number", "{noun} from the numbers of my {kin}s", "phone")
_FROM_KIN = Kin("number", "{noun} from my {kin}s", "phone")
_WITH_KIN = Kin("number", "{noun} with my {kin}s", "phone")
_SAYS = Name("text", "the text message that says '{called}'|the text message '{called}'", "query")
_STATE = State("read", "", "{noun} that I have not read")

_TO_NUMBER = partial(Act, field="number", ready=reachable, single=True)
_CALL_BACK = _TO_NUMBER("phone.start_call", "call the number of {it}")
_ANSWER = _TO_NUMBER("phone.send_message", "text '{text}' to the number of {it}", args={"text": "texts"})
_BLOCK = _TO_NUMBER("phone.block", "block the number of {it}")
_DELETE_CALL = Act("phone.delete_call", "delete {it} from the call history", name="delete")
_DELETE_VOICEMAIL = Act("phone.delete_voicemail", "delete {it}|get rid of {it}", name="delete")
_DELETE_TEXT = Act("phone.delete_message", "delete {it}|remove {it} from my phone", name="delete")
_DELETE_CHAT = Act("phone.delete_conversation", "delete {it}", name="delete", field="number")
_READ = Act("phone.mark_read", "mark {it} as read", field="number", ready=_unread)
_UNBLOCK = Act("phone.unblock", "unblock {it}", field="number")
_NUMBER = Ask("number", "phone number")
_SAID = Ask("text", asked="What does {it} say?", show="phone.show_voicemail")
_MESSAGES = Ask("messages", "number of messages")
_TIME = Ask("time", hint=TIME)
_MINUTES = [Ask("minutes", "length in minutes"), Ask("minutes", "total length in minutes", of="sum")]
_LENGTHS = [Ask("seconds", "length in seconds"), Ask("seconds", "total length in seconds", of="sum")]
_CONTENT, _CONTENTS = Ask("text", "content"), each("text", "content")

KINDS = [
    *practice(
        _CALLS,
        [All(), _LAST, _LENGTH, _WHEN, _WITH_KIN],
        [_DELETE_CALL, _ANSWER, _NUMBER, COUNT, _CALL_BACK, _TIME, _BLOCK, *_MINUTES],
    ),
    *practice(
        _MISSED,
        [_LAST, All(), _WHEN, _FROM_KIN],
        [_CALL_BACK, _DELETE_CALL, _ANSWER, _NUMBER, COUNT, _TIME, each("number", "phone number", REPEATED)],
    ),
    *practice(_HISTORY, [_LAST, _KIND], [_DELETE_CALL, _NUMBER, COUNT, Ask("kind"), _CALL_BACK], 4),
    *practice(
        _VOICEMAILS,
        [_LAST, All(), _SECONDS, _WHEN, _KIN],
        [_DELETE_VOICEMAIL, _SAID, COUNT, _CALL_BACK, _NUMBER, _ANSWER, *_LENGTHS],
    ),
    *practice(
        _TEXTS,
        [_SAYS, _LAST, _WHEN, _STATE, _WITH_KIN],
        [_DELETE_TEXT, _NUMBER, _CONTENTS, _ANSWER, _TIME, _CALL_BACK, _BLOCK],
    ),
    *practice(_WITH, [All(), _LAST, _WHEN], [_DELETE_TEXT, _CONTENT, COUNT, _TIME, _CONTENTS]),
    *practice(_CHATS, [_COUNTED, _LATEST, _NEWS], [_DELETE_CHAT, _NUMBER, COUNT, _BLOCK, _MESSAGES, each("number")], 1),
    *practice(_CHATS, [_COUNTED, _LATEST], [_READ]),
    *practice(_BLOCKED, [All()], [_UNBLOCK, COUNT]),
    *alone(
        Act(
            "phone.unblock", "unblock the number {number}", name="unblock-number", args={"number": _strange_and_blocked}
        ),
        Act("phone.block", "block the number {number}", name="block-number", args={"number": number}),
        Act("phone.start_call", "call {number}", name="call-number", args={"number": number}),
        Act(
            "phone.send_message",
            "text '{text}' to {number}",
            name="text-number",
            args={"text": "texts", "number": number},
        ),
    ),
]
