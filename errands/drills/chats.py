"""Drills around conversations on the phone, and numbers to be blocked."""

from dataclasses import replace

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, day, drills
from errands.drills import calls, cards, contacts, phone
from errands.world import World


def _chat(w: World, number: str) -> Rows:
    """More text messages than with any other number, on days of their own; all of them, newest first."""
    for place, days in enumerate(w.rng.sample(range(1, 60, 2), w.rng.randrange(7, 12))):
        more = {"incoming": place % 2, "text": w.rng.choice(phone.WORDS), "time": w.ago(days, 0.5)}
        w.add("phone_messages", owner=w.owner.id, number=number, **more)
    there = "SELECT * FROM phone_messages WHERE owner = ? AND number = ?"
    return w.all(f"{there} ORDER BY time DESC, id DESC", w.owner.id, number)


def _with_favourite(w: World) -> tuple[Slots, Rows]:
    """The only favourite among the contacts."""
    person = w.rng.choice(w.others())
    w.run("UPDATE contacts SET favourite = (email = ?) WHERE owner = ?", person.email, w.owner.id)
    return {}, _chat(w, person.phone)


def _from_favourite(w: World) -> tuple[Slots, Rows]:
    return {}, [text | {"rest": not text["incoming"]} for text in _with_favourite(w)[1]]


def _busiest(w: World) -> tuple[Slots, Rows]:
    """The newest text message is another number's."""
    number, other = w.rng.sample([person.phone for person in w.others()], 2)
    more = {"incoming": 1, "text": w.rng.choice(phone.WORDS), "time": w.ago(hours=2)}
    w.add("phone_messages", owner=w.owner.id, number=other, **more)
    return {}, _chat(w, number)


def _caller(w: World) -> tuple[Slots, Rows]:
    """Someone who called last."""
    person = w.rng.choice(w.others())
    more = {"kind": "incoming", "time": w.ago(hours=w.rng.randrange(1, 4)), "minutes": w.rng.randrange(1, 30)}
    w.add("phone_calls", owner=w.owner.id, number=person.phone, **more)
    return {}, _chat(w, person.phone)


def _with_number(w: World) -> tuple[Slots, Rows]:
    line = phone.strange(w)
    return {"line": line}, _chat(w, line)


def _with_number_before(w: World) -> tuple[Slots, Rows]:
    slots, chat = _with_number(w)
    end = day(w, [text["time"] for text in chat])
    return slots | {"day": end}, [text for text in chat if text["time"] < end]


def _unblocked(w: World, rows: Rows, field: str) -> Slots:
    for one in rows:
        w.run("DELETE FROM phone_blocked WHERE owner = ? AND number = ?", w.owner.id, one[field])
    return {}


_LIKED = "people = contacts.list_favourites()\n"
_FAVOURITE = Find(
    "last-text-with-favourite",
    (
        "the last text message between my favourite contact and me",
        "the newest text message from or to the only favourite among my contacts",
    ),
    _LIKED + 'found = phone.show_conversation(number=people[0]["phone"], page_size=1)',
    _with_favourite,
)
_FROM_FAVOURITE = Find(
    "texts-from-favourite",
    (
        "all text messages from my favourite contact",
        "every text message on my phone that came from the only favourite among my contacts",
    ),
    _LIKED + 'found = phone.show_conversation(number=people[0]["phone"], page_size=20)\n'
    'found = [x for x in found if x["incoming"]]\nprint(len(found))',
    _from_favourite,
    many=True,
    keep="those that are `incoming`",
)
_FROM_AND_TO_FAVOURITE = replace(
    _FROM_FAVOURITE,
    name="texts-from-and-to-favourite",
    look=_LIKED + 'seen = phone.show_conversation(number=people[0]["phone"], page_size=20)\n'
    'found = [x for x in seen if x["incoming"]]\nrest = [x for x in seen if not x["incoming"]]\nprint(len(found))',
    rest="my own text messages to this contact",
)
_BUSIEST = Find(
    "last-text-of-longest-conversation",
    (
        "the last text message of my longest conversation",
        "the newest text message in the conversation with the most messages on my phone",
    ),
    calls.ALL_CONVERSATIONS + 'found = [max(found, key=lambda x: x["messages"])]\n'
    'found = phone.show_conversation(number=found[0]["number"], page_size=1)',
    _busiest,
    keep="the conversation with the most `messages`, and its newest message",
)
_CALLER = Find(
    "texts-with-last-caller",
    (
        "all text messages from and to the number that called me last",
        "every text message from or to the number of my last incoming call",
    ),
    'calls = phone.list_calls(kind="incoming", page_size=1)\n'
    'found = phone.show_conversation(number=calls[0]["number"], page_size=20)',
    _caller,
    many=True,
)
_NUMBER = Find(
    "last-text-with-number",
    ("the last text message from or to the number {line}", "the newest text message in the conversation with {line}"),
    'found = phone.show_conversation(number="{line}", page_size=1)',
    _with_number,
)
_NUMBER_BEFORE = Find(
    "texts-with-number-before",
    (
        "all text messages from or to {line} that are from before {day}",
        "every text message in the conversation with {line} that is older than {day}",
    ),
    'found = phone.show_conversation(number="{line}", page_size=20)\n'
    'found = [x for x in found if x["time"][:10] < "{day}"]\nprint([x["time"] for x in found])',
    _with_number_before,
    many=True,
    keep="those whose `time` is before {day}",
)

_BLOCK = Act(
    "phone.block",
    (
        "Block the number of {it}.",
        "I do not want to hear from the number of {it} again. Block it.",
        "Nothing should come from the number of {it} any more, so block that number.",
        "Put the number of {it} among the blocked ones.",
    ),
    "block the number that belongs to {them}",
    key="number",
    field="number",
    given=lambda w, rows: _unblocked(w, rows, "number"),
)
_BLOCK_EACH = replace(
    _BLOCK,
    wordings=(
        "Block the numbers of {it}.",
        "Find out the numbers of {it} and block each of these numbers.",
        "The numbers of {it} should all be blocked.",
    ),
    aim="block the numbers of {them}",
)
_BLOCK_PERSON = Act(
    "phone.block",
    (
        "Block {it} on my phone.",
        "Block the phone number of {it}.",
        "Make sure that calls and text messages from {it} are blocked.",
        "The number of {it} should be blocked on my phone.",
    ),
    "block the phone number of {them}",
    key="number",
    field="phone",
    given=lambda w, rows: _unblocked(w, rows, "phone"),
)
_BLOCK_NUMBER = Act(
    "phone.block",
    (
        "Block the number {number}.",
        "{number} should not be able to reach me any more. Block that number.",
        "Someone annoys me from {number}: block this number on my phone.",
        "Put {number} among the blocked numbers.",
    ),
    "block the number {number}",
    given=lambda w, rows: {"number": phone.strange(w)},
    name="block-number",
)
_SAYS = Ask(
    "text",
    ("What does {it} say?", "Tell me the text of {it}.", "Read me {it}: what is written in it?"),
    "tell the text of {them}",
)
_WHEN = Ask(
    "time",
    (
        "When was {it} sent? Answer like 2026-01-31 15:00.",
        "Tell me date and time of {it}, written like 2026-01-31 15:00.",
        "What is the time of {it}? Write it like 2026-01-31 15:00.",
    ),
    "say when {them} was sent",
)

DRILLS = [
    *drills([_NUMBER], [_SAYS, (_SAYS, _BLOCK)]),
    *drills([_NUMBER_BEFORE], [calls.DELETE_ALL]),
    *drills([_BUSIEST], [_SAYS]),
    *drills([_CALLER], [phone.COUNT]),
    *drills([_FAVOURITE], [phone.DELETE_TEXT, (_WHEN, phone.DELETE_TEXT)]),
    *drills([_FROM_FAVOURITE], [phone.COUNT]),
    *drills([_FROM_AND_TO_FAVOURITE], [(calls.DELETE_ALL, replace(phone.COUNT, rest=True))]),
    *drills([NOTHING], [_BLOCK_NUMBER]),
    *drills([phone.TEXT], [_BLOCK]),
    *drills([phone.VOICEMAIL], [(phone.SAID, _BLOCK)]),
    *drills([calls.LONG_CONVERSATIONS], [(_BLOCK_EACH, replace(calls.FORGET, aim="delete these conversations"))]),
    *drills([calls.SHORT_VOICEMAILS], [_BLOCK_EACH]),
    *drills([calls.SHORT_AND_LONG], [(phone.DELETE_VOICEMAIL, replace(_BLOCK_EACH, rest=True))]),
    *drills([contacts.NAMED, cards.EITHER, cards.OLDEST_KIN], [_BLOCK_PERSON]),
    *drills([contacts.KIN], [(contacts.TEXT, _BLOCK_PERSON)]),
]
