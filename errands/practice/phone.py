"""Practice with the phone: calls, voicemails, text messages and conversations."""

from errands.practice.blocks import (
    COUNT,
    KINS,
    All,
    Amount,
    Kin,
    Moment,
    Name,
    Source,
    State,
    Top,
    alone,
    each,
    practice,
)
from errands.practice.contacts import number, reachable
from errands.practice.drill import Act, Ask, Row, Slots
from errands.words import WORDS
from errands.world import World


def _someone(w: World) -> str:
    return w.rng.choice(w.others(w.rng.choice(KINS))).phone


def _calls(w: World) -> Slots:
    """Calls with people of every relation, of other lengths."""
    kind = w.rng.choice(("incoming", "outgoing"))
    for minutes in w.rng.sample(range(2, 60), 4):
        time = w.ago(w.rng.randrange(1, 50), w.rng.randrange(1, 20))
        w.add("phone_calls", owner=w.owner.id, number=_someone(w), kind=kind, time=time, minutes=minutes)
    return {"of": kind}


def _voicemails(w: World) -> Slots:
    for said in w.rng.sample(WORDS["said"], 4):
        more = {"time": w.ago(w.rng.randrange(1, 50), w.rng.randrange(1, 20)), "seconds": w.rng.randrange(5, 90)}
        w.add("phone_voicemails", owner=w.owner.id, number=_someone(w), text=said, **more)
    return {}


def _text(w: World, number: str, text: str) -> None:
    more = {"time": w.ago(w.rng.randrange(1, 50), w.rng.randrange(1, 20)), "read": w.rng.randrange(2)}
    w.add("phone_messages", owner=w.owner.id, number=number, incoming=1, text=text, **more)


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


_CALLS = Source("calls", "phone.list_calls", "{of} call*", _calls, {"kind": '"{of}"'})
_VOICEMAILS = Source("voicemails", "phone.list_voicemails", "voicemail*", _voicemails)
_TEXTS = Source("texts", "phone.search_messages", "text message*", _texts, long=True)
_WITH = Source(
    "texts-with", "phone.show_conversation", "text message* from or to {of}", _conversation, {"number": '"{of}"'}
)
_CHATS = Source("chats", "phone.list_conversations", "conversation* on my phone", _texts)
_BLOCKED = Source("blocked", "phone.list_blocked", "blocked number*", _blocked)

_LAST = Top("last {noun}|most recent {noun}")
_WHEN = Moment("time", "{noun} from {than} {day}", "", "oldest {noun}")
_LENGTH = Amount("minutes", "{noun} of {than} {limit} minutes", "longest {noun}")
_SECONDS = Amount("seconds", "{noun} of {than} {limit} seconds", "longest {noun}", "shortest {noun}")
_COUNTED = Amount("messages", "{noun} with {than} {limit} messages", "{noun} with the most messages")
_LATEST = Moment("last", "{noun} with the last message {than} {day}")
_NEWS = State("unread", "{noun} with unread messages", "{noun} without unread messages")
_KIN = Kin("number", "{noun} with the number of a {kin} of mine", "phone")
_SAYS = Name("text", "the text message '{called}'|the text message that says '{called}'", "query")
_STATE = State("read", "", "{noun} that I have not read")

_CALL_BACK = Act("phone.start_call", "call the number of {it}", field="number", ready=reachable, single=True)
_ANSWER = Act(
    "phone.send_message",
    "send the text message '{text}' to the number of {it}",
    args={"text": "texts"},
    field="number",
    ready=reachable,
    single=True,
)
_BLOCK = Act("phone.block", "block the number of {it}", field="number", ready=reachable, single=True)
_DELETE_CALL = Act("phone.delete_call", "delete {it} from the list of calls", name="delete")
_DELETE_VOICEMAIL = Act("phone.delete_voicemail", "delete {it}|throw away {it}", name="delete")
_DELETE_TEXT = Act("phone.delete_message", "delete {it}|remove {it} from my phone", name="delete")
_DELETE_CHAT = Act("phone.delete_conversation", "delete {it}", name="delete", field="number")
_READ = Act("phone.mark_read", "mark {it} as read", field="number", ready=_unread)
_UNBLOCK = Act("phone.unblock", "unblock {it}", field="number")
_NUMBER = Ask("number", asked="Which number belongs to {it}?")
_SAID = Ask("text", asked="What does {it} say?", show="phone.show_voicemail")
_MESSAGES = Ask("messages", "number of messages")
_TIME = Ask("time", form="2026-01-31 15:00")

KINDS = [
    *practice(
        _CALLS,
        [All(), _LAST, _LENGTH, _WHEN, _KIN],
        [
            _DELETE_CALL,
            _ANSWER,
            _NUMBER,
            COUNT,
            _CALL_BACK,
            Ask("minutes", "length in minutes"),
            _TIME,
            _BLOCK,
            Ask("minutes", "length", of="sum"),
        ],
    ),
    *practice(
        _VOICEMAILS,
        [_LAST, All(), _SECONDS, _WHEN, _KIN],
        [
            _DELETE_VOICEMAIL,
            _SAID,
            COUNT,
            _CALL_BACK,
            _NUMBER,
            _ANSWER,
            Ask("seconds", "length in seconds"),
            Ask("seconds", "length", of="sum"),
        ],
    ),
    *practice(
        _TEXTS,
        [_SAYS, _LAST, _WHEN, _STATE, _KIN],
        [_DELETE_TEXT, _NUMBER, each("text"), _ANSWER, _TIME, _CALL_BACK, _BLOCK],
    ),
    *practice(_WITH, [All(), _LAST, _WHEN], [_DELETE_TEXT, Ask("text"), COUNT, _TIME, each("text")]),
    *practice(_CHATS, [_COUNTED, _LATEST, _NEWS], [_DELETE_CHAT, _NUMBER, COUNT, _BLOCK, _MESSAGES, each("number")], 1),
    *practice(_CHATS, [_COUNTED, _LATEST], [_READ]),
    *practice(_BLOCKED, [All()], [_UNBLOCK, COUNT, each("number")]),
    *alone(
        Act(
            "phone.unblock",
            "unblock the number {number}",
            name="unblock-number",
            args={"number": _strange_and_blocked},
            field="",
        ),
        Act("phone.block", "block the number {number}", name="block-number", args={"number": number}, field=""),
        Act("phone.start_call", "call {number}", name="call-number", args={"number": number}, field=""),
        Act(
            "phone.send_message",
            "text '{text}' to {number}",
            name="text-number",
            args={"text": "texts", "number": number},
            field="",
        ),
    ),
]
