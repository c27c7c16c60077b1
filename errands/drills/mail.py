"""Drills around mail."""

from errands.apps.mail import deliver
from errands.drill import Act, Ask, Find, Rows, Slots, drills, pick, row
from errands.world import World

SUBJECTS = ("Rooftop party", "Lost umbrella", "Spare tickets", "Old bicycle", "Kite festival", "Moving boxes")
BODIES = ("Please tell me by Friday", "I found it at last", "There are two left", "Let us meet at noon", "It is yours")
SHOPS = ("Lamp Market", "Sky Travel", "Tea House", "Shoe Barn", "Garden Post", "Film Weekly")


def _last(w: World) -> tuple[Slots, Rows]:
    """Two mails of someone, newer than all others in the inbox."""
    person, subjects = w.rng.choice(w.others()), w.rng.sample(SUBJECTS, 2)
    for subject, hours in zip(subjects, (4, 2), strict=True):
        last = deliver(w, person.name, person.email, subject, w.rng.choice(BODIES), w.ago(hours=hours))
    return {"who": person.name}, [row(w, "mail_messages", last)]


def _about(w: World, folder: str = "inbox") -> tuple[Slots, Rows]:
    """A mail with a subject that no other has, and two others."""
    ids = []
    for subject in w.rng.sample(SUBJECTS, 3):
        person = w.rng.choice(w.others())
        ids.append(deliver(w, person.name, person.email, subject, w.rng.choice(BODIES), w.ago(w.rng.randrange(1, 60))))
        w.run("UPDATE mail_messages SET folder = ?, read = 1 WHERE id = ?", folder, ids[-1])
    found = row(w, "mail_messages", ids[0])
    return {"about": found["subject"]}, [found]


def _sent(w: World) -> tuple[Slots, Rows]:
    person, me = w.rng.choice(w.others()), w.owner
    message = deliver(w, me.name, me.email, w.rng.choice(SUBJECTS), w.rng.choice(BODIES), w.ago(w.rng.randrange(60)))
    w.run("UPDATE mail_messages SET folder = 'sent', read = 1, recipients = ? WHERE id = ?", person.email, message)
    found = row(w, "mail_messages", message)
    return {"about": found["subject"]}, [found]


def _starred(w: World) -> tuple[Slots, Rows]:
    w.run("UPDATE mail_messages SET starred = 0 WHERE owner = ?", w.owner.id)
    mine = [r["id"] for r in w.all("SELECT id FROM mail_messages WHERE owner = ? AND folder = 'inbox'", w.owner.id)]
    for message in w.rng.sample(mine, w.rng.randrange(2, 6)):
        w.run("UPDATE mail_messages SET starred = 1 WHERE id = ?", message)
    found = w.all("SELECT * FROM mail_messages WHERE starred AND owner = ? ORDER BY time DESC, id DESC", w.owner.id)
    return {}, found


def _labelled(w: World) -> tuple[Slots, Rows]:
    """The mails with a label, all of them in the inbox."""
    name = w.rng.choice(("home", "receipts", "travel", "work"))
    label = w.value("SELECT id FROM mail_labels WHERE owner = ? AND name = ?", w.owner.id, name)
    there = "id IN (SELECT message FROM mail_labelled WHERE label = ?)"
    w.run(f"UPDATE mail_messages SET folder = 'inbox' WHERE {there}", label)
    return {"label": name}, w.all(f"SELECT * FROM mail_messages WHERE {there} ORDER BY time DESC, id DESC", label)


def _from_shop(w: World) -> tuple[Slots, Rows]:
    shop, other = w.rng.sample(SHOPS, 2)
    ids = []
    for sender in [shop] * w.rng.randrange(2, 6) + [other] * 2:
        address = f"news@{sender.replace(' ', '').lower()}.com"
        ids.append(deliver(w, sender, address, "Only today", "Come and see.", w.ago(w.rng.randrange(1, 80))))
    rows = [row(w, "mail_messages", id) for id in ids]
    return {"shop": shop}, [r for r in rows if r["sender"] == shop]


LAST = Find(
    "last-mail-from",
    ("the last mail from {who}", "the newest mail that {who} sent me", "the latest mail of {who} in my inbox"),
    'found = mail.search(sender="{who}", page_size=1)',
    _last,
)
ABOUT = Find(
    "mail-about",
    ("the mail with the subject '{about}'", "the mail titled '{about}'", "the mail '{about}' in my inbox"),
    'found = mail.search(query="{about}")',
    _about,
)
_ARCHIVED = Find(
    "archived-mail",
    ("the mail '{about}' in my archive", "the archived mail with the subject '{about}'"),
    'found = mail.search(query="{about}", folder="archive")',
    lambda w: _about(w, "archive"),
)
_TRASHED = Find(
    "trashed-mail",
    ("the mail '{about}' in the trash", "the deleted mail with the subject '{about}'"),
    'found = mail.search(query="{about}", folder="trash")',
    lambda w: _about(w, "trash"),
)
SENT = Find(
    "sent-mail",
    ("the mail '{about}' that I sent", "my sent mail with the subject '{about}'"),
    'found = mail.search_sent(query="{about}")',
    _sent,
)
LABELLED = Find(
    "labelled-mail",
    ("the newest mail with the label '{label}'", "the latest of the mails labelled '{label}'"),
    'found = mail.list_labelled(label="{label}", page_size=1)',
    _labelled,
)
ALL_STARRED = Find(
    "starred-mails",
    ("all mails with a star", "every starred mail", "all my starred mails"),
    "found = mail.list_starred(page_size=20)\nprint(len(found))",
    _starred,
    many=True,
)
_ALL_LABELLED = Find(
    "labelled-mails",
    ("all mails with the label '{label}'", "every mail labelled '{label}'"),
    'found = mail.list_labelled(label="{label}", page_size=20)\nprint(len(found))',
    _labelled,
    many=True,
)
ALL_FROM = Find(
    "mails-from-shop",
    ("all mails from {shop} in my inbox", "every mail in my inbox that {shop} sent"),
    'found = mail.search(sender="{shop}", page_size=20)\nprint(len(found))',
    _from_shop,
    many=True,
)

REPLY = Act(
    "mail.reply",
    (
        "Reply '{body}' to {it}.",
        "Answer {it} with the text '{body}'.",
        "Send '{body}' as a reply to {it}.",
        "Please answer {it}: '{body}'.",
    ),
    "reply '{body}' to {them}",
    key="message_id",
    given=pick(body=("Yes, gladly", "Sorry, I cannot", "Agreed", "Let me think", "Not this week", "I am in")),
)
ARCHIVE = Act(
    "mail.archive",
    (
        "Archive {it}.",
        "Put {it} into the archive.",
        "I want to keep {it}, but not in the inbox: archive {them}.",
        "Move {it} to the archive, please.",
    ),
    "archive {them}",
    key="message_id",
)
DELETE = Act(
    "mail.delete",
    (
        "Delete {it}.",
        "Throw away {it}.",
        "Move {it} to the trash.",
        "Get rid of {it}.",
    ),
    "delete {them}",
    key="message_id",
)
_RESTORE = Act(
    "mail.restore",
    (
        "Bring {it} back to where it was.",
        "Restore {it}.",
        "I need {it} in my inbox again. Move it back.",
        "Put {it} back into my inbox.",
    ),
    "restore {them}",
    key="message_id",
)
_UNLABEL = Act(
    "mail.remove_label",
    (
        "Take the label off {it}.",
        "Remove the label from {it}.",
        "{it} should no longer have that label.",
    ),
    "take the label off {them}",
    key="message_id",
    name="unlabel",
)
_TIME = Ask(
    "time",
    (
        "When did I get {it}? Answer like 2026-01-31 15:00.",
        "Tell me date and time of {it}, written like 2026-01-31 15:00.",
        "What is the time of {it}? Write it like 2026-01-31 15:00.",
    ),
    "say when {them} came",
)
SUBJECT = Ask(
    "subject",
    ("What is the subject of {it}?", "Tell me the subject of {it}.", "Which subject does {it} have?"),
    "tell the subject of {them}",
)
SENDER = Ask(
    "sender",
    ("Who sent {it}?", "Tell me who wrote {it}.", "From whom is {it}? I want the name."),
    "say who sent {them}",
)
BODY = Ask(
    "body",
    ("What does {it} say?", "Tell me the text of {it}.", "Read me {it}: what is written in it?"),
    "tell the text of {them}",
    show="mail.show",
    key="message_id",
)
_ADDRESS = Ask(
    "address",
    (
        "Which e-mail address was {it} sent from?",
        "Give me the address of the sender of {it}.",
        "I need the e-mail address of whoever wrote {it}.",
    ),
    "tell the address that {them} came from",
    show="mail.show",
    key="message_id",
)
_RECIPIENTS = Ask(
    "recipients",
    ("To which address did I send {it}?", "Who got {it}? Tell me the address.", "Tell me the recipients of {it}."),
    "tell who got {them}",
)
COUNTS = Ask(
    "how many",
    ("I have several of them: count {it}.", "Count {it} and tell me the number.", "Please count {it} for me."),
    "count {them}",
)

DRILLS = [
    *drills([LAST], [ARCHIVE, DELETE, SUBJECT, BODY, _ADDRESS, _TIME]),
    *drills([ABOUT], [REPLY, ARCHIVE, DELETE, SENDER, BODY]),
    *drills([_ARCHIVED, _TRASHED], [_RESTORE, SENDER]),
    *drills([SENT], [_RECIPIENTS, DELETE, ARCHIVE]),
    *drills([LABELLED], [_UNLABEL, DELETE, SENDER]),
    *drills([ALL_STARRED], [ARCHIVE, DELETE, COUNTS]),
    *drills([_ALL_LABELLED], [_UNLABEL, ARCHIVE]),
    *drills([ALL_FROM], [DELETE, COUNTS]),
    *drills([LAST], [(REPLY, ARCHIVE), (BODY, DELETE)]),
    *drills([ABOUT], [(REPLY, DELETE), (SENDER, ARCHIVE)]),
    *drills([_ARCHIVED], [(_RESTORE, REPLY)]),
]
