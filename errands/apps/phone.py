"""The phone: text messages, calls, voicemails and blocked numbers. It knows numbers, not names."""

from typing import Literal

from typing_extensions import TypedDict

from errands.api import App, Id, Line, Listing, New, Numbered, Phone, Problem, Query
from errands.database import Owned
from errands.words import read
from errands.world import World

app = App("phone", "Text messages, calls, voicemails and blocked numbers. It knows numbers, not names.")

MESSAGES = Owned("phone_messages", "message")
CALLS = Owned("phone_calls", "call")
VOICEMAILS = Owned("phone_voicemails", "voicemail")
NO_CONVERSATION = Problem(404, "There are no messages with {number}.")
NOT_BLOCKED = Problem(404, "{number} is not blocked.")
BLOCKED = Problem(409, "{number} is blocked.")
OWN_NUMBER = Problem(422, "{number} is your own number.")


class Message(Numbered):
    number: str
    incoming: bool
    text: str
    time: str
    read: bool


class Conversation(TypedDict):
    number: str
    messages: int
    unread: int
    last: str


class Call(Numbered):
    number: str
    kind: str
    time: str
    minutes: int


class Brief(Numbered):
    number: str
    time: str
    seconds: int


class Voicemail(Brief):
    text: str


class Blocked(TypedDict):
    number: str


@app.api()
def search_messages(w: World, me: int, query: Query = "") -> Listing[Message]:
    """Text messages that contain the query, newest first."""
    source = "FROM phone_messages WHERE owner = ? AND holds(text, ?) ORDER BY time DESC, id DESC"
    return Listing(source, me, query)


@app.api()
def list_conversations(w: World, me: int) -> Listing[Conversation]:
    """The numbers you have messages with, latest first. `last` is the time of the last message."""
    return Listing("FROM phone_conversations WHERE owner = ? ORDER BY last DESC, number", me)


@app.api(NO_CONVERSATION)
def show_conversation(w: World, me: int, number: Phone) -> Listing[Message]:
    """The messages from and to a number, newest first. Those that are not incoming are your own."""
    _find_conversation(w, me, number)
    source = "FROM phone_messages WHERE owner = ? AND number = ? ORDER BY time DESC, id DESC"
    return Listing(source, me, number)


@app.api(OWN_NUMBER, BLOCKED)
def send_message(w: World, me: int, number: Phone, text: Line) -> New[Literal["message_id"]]:
    """Send a text message."""
    message = w.add("phone_messages", owner=me, number=number, incoming=0, text=text, time=w.moment)
    other = _reach(w, me, number)
    if other is not None:
        row = {"number": w.people[me - 1].phone, "incoming": 1, "text": text, "time": w.moment, "read": 0}
        w.add("phone_messages", owner=other, **row)
    return {"message_id": message}


@app.api(MESSAGES.missing, says="Message deleted.")
def delete_message(w: World, me: int, message_id: Id) -> None:
    """Delete a text message."""
    MESSAGES.delete(w, me, message_id)


@app.api(NO_CONVERSATION, says="Conversation deleted.")
def delete_conversation(w: World, me: int, number: Phone) -> None:
    """Delete all messages from and to a number."""
    _find_conversation(w, me, number)
    w.remove("phone_messages", owner=me, number=number)


@app.api(NO_CONVERSATION, says="Messages marked as read.")
def mark_read(w: World, me: int, number: Phone) -> None:
    """Mark all messages from a number as read."""
    _find_conversation(w, me, number)
    w.run("UPDATE phone_messages SET read = 1 WHERE owner = ? AND number = ?", me, number)


@app.api()
def list_calls(w: World, me: int, kind: Literal["any", "incoming", "outgoing", "missed"] = "any") -> Listing[Call]:
    """Your calls, newest first."""
    return Listing("FROM phone_calls WHERE owner = ? AND ? IN ('any', kind) ORDER BY time DESC, id DESC", me, kind)


@app.api(OWN_NUMBER, BLOCKED)
def start_call(w: World, me: int, number: Phone) -> New[Literal["call_id"]]:
    """Call a number."""
    call = w.add("phone_calls", owner=me, number=number, kind="outgoing", time=w.moment, minutes=0)
    other = _reach(w, me, number)
    if other is not None:
        w.add("phone_calls", owner=other, number=w.people[me - 1].phone, kind="incoming", time=w.moment, minutes=0)
    return {"call_id": call}


@app.api(CALLS.missing, says="Call deleted.")
def delete_call(w: World, me: int, call_id: Id) -> None:
    """Delete a call from the list."""
    CALLS.delete(w, me, call_id)


@app.api()
def list_voicemails(w: World, me: int) -> Listing[Brief]:
    """Your voicemails, newest first."""
    return Listing("FROM phone_voicemails WHERE owner = ? ORDER BY time DESC, id DESC", me)


@app.api(VOICEMAILS.missing)
def show_voicemail(w: World, me: int, voicemail_id: Id) -> Voicemail:
    """Show a voicemail, with what was said."""
    return VOICEMAILS.show(Voicemail, w, me, voicemail_id)


@app.api(VOICEMAILS.missing, says="Voicemail deleted.")
def delete_voicemail(w: World, me: int, voicemail_id: Id) -> None:
    """Delete a voicemail."""
    VOICEMAILS.delete(w, me, voicemail_id)


@app.api()
def list_blocked(w: World, me: int) -> Listing[Blocked]:
    """The numbers you have blocked."""
    return Listing("FROM phone_blocked WHERE owner = ? ORDER BY number, id", me)


@app.api(OWN_NUMBER, BLOCKED, says="Number blocked.")
def block(w: World, me: int, number: Phone) -> None:
    """Block a number: you can no longer reach it, and it can no longer reach you."""
    _check(w, me, number)
    w.add("phone_blocked", owner=me, number=number)


@app.api(NOT_BLOCKED, says="Number unblocked.")
def unblock(w: World, me: int, number: Phone) -> None:
    """Unblock a number."""
    NOT_BLOCKED.unless(w.remove("phone_blocked", owner=me, number=number), number=number)


def _find_conversation(w: World, me: int, number: str) -> None:
    NO_CONVERSATION.unless(w.find_id("phone_messages", owner=me, number=number), number=number)


def _check(w: World, me: int, number: str) -> None:
    OWN_NUMBER.when(number == w.people[me - 1].phone, number=number)
    BLOCKED.when(w.find_id("phone_blocked", owner=me, number=number), number=number)


def _reach(w: World, me: int, number: str) -> int | None:
    """Whose phone rings at a number: nobody's when it is not in this world or the caller is blocked there."""
    _check(w, me, number)
    other = next((person.id for person in w.people if person.phone == number), None)
    blocked = w.find_id("phone_blocked", owner=other, number=w.people[me - 1].phone) is not None
    return None if blocked else other


_WORDS = read("world")["phone"]


@app.filled_by
def fill(w: World) -> None:
    """The owner's messages with most people, calls with anyone, a few voicemails; a little for everyone else."""
    rng, me = w.rng, w.owner
    hours = iter(rng.sample(range(5, 1400), 85))
    messages, calls = [], []
    for other in rng.sample(w.others(), 10):
        for incoming in rng.choices((True, False), k=rng.randrange(2, 6)):
            time, text = w.ago(hours=next(hours)), rng.choice(_WORDS["texts"])
            messages.append((me.id, other.phone, incoming, text, time, not incoming or rng.random() < 0.8))
    numbers = [person.phone for person in w.others()] + [str(rng.randrange(1_000_000, 2_000_000)) for _ in range(4)]
    for kind in ("incoming", "outgoing", "missed"):
        for number in rng.choices(numbers, k=7):
            minutes = 0 if kind == "missed" else rng.randrange(1, 40)
            calls.append((me.id, number, kind, w.ago(hours=next(hours)), minutes))
    for other in w.others():
        time = w.ago(hours=rng.randrange(1400, 2000))
        messages.append((other.id, me.phone, False, rng.choice(_WORDS["texts"]), time, True))
    voicemails = [
        (me.id, other.phone, w.ago(hours=next(hours)), seconds, rng.choice(_WORDS["voicemails"]))
        for other, seconds in zip(rng.sample(w.others(), 6), rng.sample(range(10, 60), 6), strict=True)
    ]
    w.add_all("phone_messages", "owner, number, incoming, text, time, read", messages)
    w.add_all("phone_calls", "owner, number, kind, time, minutes", calls)
    w.add_all("phone_voicemails", "owner, number, time, seconds, text", voicemails)
    w.add_all("phone_blocked", "owner, number", [(me.id, number) for number in numbers[-2:]])
