"""Drills around people: their contacts, and what other apps do for someone in the contacts."""

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, drills, pick
from errands.people import ALONE, FIRST, LAST, Person
from errands.world import World

_NOTES = ("likes tulips", "plays the cello", "allergic to nuts", "has a van", "works at night", "collects stamps")
_TEXTS = ("See you at six", "I am on the train", "Please call back", "The key is under the mat", "Good luck today")
KINS = ("friend", "colleague", "flatmate")


def _card(w: World, person: Person) -> dict[str, object]:
    note = w.rng.choice(_NOTES)
    w.run("UPDATE contacts SET note = ? WHERE owner = ? AND email = ?", note, w.owner.id, person.email)
    found = w.one("SELECT * FROM contacts WHERE owner = ? AND email = ?", w.owner.id, person.email)
    assert found is not None
    return found


def _named(w: World) -> tuple[Slots, Rows]:
    person = w.rng.choice(w.others())
    return {"who": person.name}, [_card(w, person)]


def _kin(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(ALONE)
    return {"kin": kin}, [_card(w, w.others(kin)[0])]


def _kins(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(KINS)
    return {"kin": kin}, [_card(w, person) for person in w.others() if person.relation == kin]


def _texts(w: World, rows: Rows) -> Slots:
    """Unread messages of someone."""
    for number in range(w.rng.randrange(1, 4)):
        text = {"text": w.rng.choice(_TEXTS), "time": w.ago(hours=number + 1), "read": 0}
        w.add("phone_messages", owner=w.owner.id, number=rows[0]["phone"], incoming=1, **text)
    return {}


def _no_friends(w: World, rows: Rows) -> Slots:
    for card in rows:
        friend = w.person_with(card["email"])
        w.run("DELETE FROM wallet_friends WHERE owner = ? AND friend = ?", w.owner.id, friend)
    return {}


def _friends(w: World, rows: Rows) -> Slots:
    _no_friends(w, rows)
    for card in rows:
        w.add("wallet_friends", owner=w.owner.id, friend=w.person_with(card["email"]))
    return {}


def _blocked(w: World, rows: Rows) -> Slots:
    w.add("phone_blocked", owner=w.owner.id, number=rows[0]["phone"])
    return {}


def _money(w: World, rows: Rows) -> Slots:
    note = w.rng.choice(("tickets", "pizza", "flowers", "paint", "petrol", "cake"))
    return {"amount": w.rng.randrange(300, 1500, 5) / 100, "note": note}


def _stranger(w: World, rows: Rows) -> Slots:
    taken = {part for person in w.people for part in (person.first, person.last)}
    first = w.rng.choice([name for name in FIRST if name not in taken])
    last = w.rng.choice([name for name in LAST if name not in taken])
    number = str(w.rng.randrange(2_000_000, 9_999_999))
    return {"name": f"{first} {last}", "email": f"{first}.{last}@post.org".lower(), "phone": number}


NAMED = Find(
    "of-someone",
    ("{who}",),
    'found = contacts.search(query="{who}")',
    _named,
    person=True,
)
KIN = Find(
    "of-relation",
    ("my {kin}",),
    'found = contacts.search(query="{kin}")',
    _kin,
    person=True,
)
KINS_ALL = Find(
    "of-all",
    ("every {kin} of mine", "each contact who is my {kin}"),
    'found = contacts.search(query="{kin}", page_size=20)\n'
    'found = [x for x in found if x["relation"] == "{kin}"]\nprint([x["name"] for x in found])',
    _kins,
    many=True,
)

_PHONE = Act(
    "contacts.update",
    (
        "{it} has a new phone number: {phone}. Change the contact.",
        "Write down that the phone number of {it} is {phone} now.",
        "The number of {it} in my contacts is wrong. It should be {phone}.",
    ),
    "change the phone number of {them} to {phone} in the contacts",
    key="contact_id",
    given=lambda w, rows: {"phone": str(w.rng.randrange(2_000_000, 9_999_999))},
    name="new-number",
)
_EMAIL = Act(
    "contacts.update",
    (
        "{it} has another e-mail address: {email}. Change the contact.",
        "Set the e-mail of {it} in my contacts to {email}.",
        "In my contacts, the address for mails to {it} should be {email}.",
    ),
    "change the e-mail of {them} to {email} in the contacts",
    key="contact_id",
    given=lambda w, rows: {"email": _stranger(w, rows)["email"]},
    name="new-e-mail",
)
_BIRTHDAY = Act(
    "contacts.update",
    (
        "The birthday of {it} is {birthday}. My contacts have it wrong, correct that.",
        "Note the birthday of {it} in my contacts: {birthday}.",
        "Change the birthday of {it} to {birthday} in my contacts.",
    ),
    "set the birthday of {them} to {birthday} in the contacts",
    key="contact_id",
    given=lambda w, rows: {"birthday": f"{w.rng.randrange(1960, 2000)}-{w.rng.randrange(1, 13):02}-28"},
    name="right-birthday",
)
NOTE = Act(
    "contacts.set_note",
    (
        "Write '{note}' as the note about {it} in my contacts.",
        "My contacts should say about {it}: '{note}'.",
        "Set the note on the contact of {it} to '{note}'.",
    ),
    "write the note '{note}' about {them}",
    key="contact_id",
    given=pick(note=("speaks Danish", "new job in May", "prefers tea", "owes me a book", "best before noon")),
)
_DELETE = Act(
    "contacts.delete",
    (
        "Delete {it} from my contacts.",
        "I do not want {it} in my contacts any more.",
        "Take {it} out of my address book.",
    ),
    "delete {them} from the contacts",
    key="contact_id",
    name="delete-contact",
)
_ADD = Act(
    "contacts.add",
    (
        "Add {name} to my contacts: e-mail {email}, phone {phone}.",
        "I met {name}. Make a contact with the e-mail {email} and the number {phone}.",
        "New contact: {name}, {email}, {phone}.",
        "Save {name} in my address book, with {phone} as the number and {email} as the e-mail.",
    ),
    "add {name} to the contacts, with {email} and {phone}",
    given=_stranger,
    name="add-contact",
)
CALL = Act(
    "phone.start_call",
    ("Call {it}.", "Ring {it} on the phone.", "Start a call to {it}.", "Give {it} a call."),
    "call {them}",
    key="number",
    field="phone",
)
TEXT = Act(
    "phone.send_message",
    ("Text {it} '{text}'.", "Send the text message '{text}' to {it}.", "Write {it} a text message: '{text}'."),
    "text '{text}' to {them}",
    key="number",
    field="phone",
    given=pick(text=_TEXTS),
)
_READ = Act(
    "phone.mark_read",
    (
        "Mark the text messages from {it} as read.",
        "I have seen the text messages of {it}. Mark all of them as read.",
        "On my phone the messages from {it} are still unread, mark them as read.",
    ),
    "mark the text messages of {them} as read",
    key="number",
    field="phone",
    given=_texts,
)
_FORGET = Act(
    "phone.delete_conversation",
    (
        "Delete the whole conversation with {it} on my phone.",
        "Remove all text messages from and to {it}.",
        "I do not want to keep any text messages with {it}. Delete them all.",
    ),
    "delete all text messages with {them}",
    key="number",
    field="phone",
    given=_texts,
)
_UNBLOCK = Act(
    "phone.unblock",
    (
        "Unblock {it} on my phone.",
        "The number of {it} is blocked. It should not be.",
        "Let {it} reach me by phone again: take the number off the blocked ones.",
    ),
    "unblock the number of {them}",
    key="number",
    field="phone",
    given=_blocked,
)
_DRAFT = Act(
    "mail.create_draft",
    (
        "Prepare a mail to {it} with the subject '{subject}' and the text '{body}', but do not send it.",
        "Write a draft for {it}: subject '{subject}', text '{body}'.",
        "I want a mail draft to {it}. Its subject is '{subject}', its text '{body}'.",
    ),
    "write a draft to {them} with the subject '{subject}' and the text '{body}'",
    key="to",
    field="email",
    listed=True,
    given=pick(subject=("Holiday", "Our plan", "The bill", "Spring"), body=_TEXTS),
)
MAIL = Act(
    "mail.send",
    (
        "Mail {it}: subject '{subject}', text '{body}'.",
        "Send a mail with the subject '{subject}' and the text '{body}' to {it}.",
        "{it} should get a mail '{subject}' that says '{body}'.",
    ),
    "mail {them} '{body}' under the subject '{subject}'",
    key="to",
    field="email",
    listed=True,
    given=pick(subject=("Holiday", "Our plan", "The bill", "Spring"), body=_TEXTS),
    name="mail",
)
PAY = Act(
    "wallet.send",
    (
        "Pay {it} {amount:.2f} with the note '{note}'.",
        "Send {it} {amount:.2f} through the wallet, note '{note}'.",
        "{it} should get {amount:.2f} from my wallet, with '{note}' as the note.",
    ),
    "send {amount:.2f} to {them} with the note '{note}'",
    key="email",
    field="email",
    given=_money,
    name="pay",
)
REQUEST = Act(
    "wallet.request",
    (
        "Ask {it} for {amount:.2f} in the wallet, with the note '{note}'.",
        "Request {amount:.2f} from {it} through the wallet. The note is '{note}'.",
        "I want {amount:.2f} back from {it}: make a request in the wallet with the note '{note}'.",
    ),
    "ask {them} for {amount:.2f} with the note '{note}'",
    key="email",
    field="email",
    given=_money,
    name="request-money",
)
BEFRIEND = Act(
    "wallet.add_friend",
    (
        "Add {it} to my friends in the wallet.",
        "Make {it} a friend of mine in the wallet app.",
        "In my wallet {it} should be among the friends.",
    ),
    "add {them} to the friends in the wallet",
    key="email",
    field="email",
    given=_no_friends,
)
_UNFRIEND = Act(
    "wallet.remove_friend",
    (
        "Remove {it} from my friends in the wallet.",
        "Take {it} off the list of friends in my wallet.",
        "In the wallet app I do not want {it} as a friend any more.",
    ),
    "remove {them} from the friends in the wallet",
    key="email",
    field="email",
    given=_friends,
)

_MAILBOX = Ask(
    "email",
    ("What is the e-mail address of {it}?", "Give me the e-mail of {it}.", "I want to mail {it}. What is the address?"),
    "tell the e-mail of {them}",
)
_RELATION = Ask(
    "relation",
    (
        "How do I know {it}, according to my contacts? Friend, colleague, or what?",
        "What relation to me do my contacts give for {it}?",
        "Look up in my contacts what {it} is to me.",
    ),
    "say what relation {them} is",
)


def _told(field: str, *wordings: str) -> Ask:
    return Ask(field, wordings, f"tell the {field} of {{them}}", show="contacts.show", key="contact_id")


BORN = _told(
    "birthday",
    "When is the birthday of {it}? Answer like 1990-01-31.",
    "When was {it} born? Write it like 1990-01-31.",
    "Tell me the birthday of {it}, written like 1990-01-31.",
)
_HOME = _told("address", "Where does {it} live?", "What is the address of {it}?", "Tell me the home address of {it}.")
_REMARK = _told(
    "note",
    "What did I note about {it} in my contacts?",
    "Tell me the note on the contact of {it}.",
    "There is a note about {it} in my contacts. What does it say?",
)

DRILLS = [
    *drills([NAMED, KIN], [_PHONE, _BIRTHDAY, _DELETE, CALL, _READ, _DRAFT, BORN, _HOME]),
    *drills([NAMED], [_EMAIL, _UNBLOCK, BEFRIEND, _MAILBOX, _RELATION, _REMARK, MAIL]),
    *drills([KIN], [NOTE, _FORGET, _UNFRIEND, REQUEST, TEXT, PAY]),
    *drills([KINS_ALL], [TEXT, PAY, BEFRIEND, _UNFRIEND, NOTE, _DRAFT]),
    *drills([NAMED], [(_PHONE, NOTE), (PAY, TEXT), (BORN, TEXT)]),
    *drills([KIN], [(_FORGET, _DELETE), (MAIL, CALL)]),
    *drills([NOTHING], [_ADD]),
]
