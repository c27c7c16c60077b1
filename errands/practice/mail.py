"""Practice with mail."""

from functools import partial

from errands.apps.mail import deliver
from errands.practice.blocks import COUNT, REPEATED, Source, alone, each, practice, switch
from errands.practice.conditions import All, Kin, Moment, Name, Number, State, Top
from errands.practice.drill import TIME, Act, Ask, Row, Slots
from errands.words import WORDS
from errands.world import World


def _deliver(w: World, name: str, address: str, subject: str, folder: str = "inbox") -> int:
    time = w.ago(w.rng.randrange(1, 90), w.rng.randrange(1, 20))
    message = deliver(w, name, address, subject, w.rng.choice(WORDS["bodies"]), time)
    w.run("UPDATE mail_messages SET folder = ?, read = ? WHERE id = ?", folder, w.rng.randrange(2), message)
    return message


def _new(w: World, folder: str) -> Slots:
    """Puts mails with subjects of their own into a folder."""
    for subject in w.rng.sample(WORDS["subjects"], 3):
        person = w.rng.choice(w.others())
        _deliver(w, person.name, person.email, subject, folder)
    return {}


def _from(w: World) -> Slots:
    """Mails of a shop or a person."""
    shop, person = w.rng.choice(WORDS["shops"]), w.rng.choice(w.others())
    name, address = w.rng.choice(((shop, f"news@{shop.replace(' ', '').lower()}.com"), (person.name, person.email)))
    for subject in w.rng.sample(WORDS["subjects"], w.rng.randrange(3, 6)):
        _deliver(w, name, address, subject)
    return {"of": name}


def _starred(w: World) -> Slots:
    for message in _of_inbox(w, 5):
        w.run("UPDATE mail_messages SET starred = 1, read = ? WHERE id = ?", w.rng.randrange(2), message)
    return {}


def _of_inbox(w: World, count: int) -> list[int]:
    """Some emails of the inbox."""
    rows = w.all("SELECT id FROM mail_messages WHERE owner = ? AND folder = 'inbox'", w.owner.id)
    return [row["id"] for row in w.rng.sample(rows, count)]


def _label(w: World, name: str, count: int) -> None:
    """Put a label on so many emails of the inbox, and on no other."""
    label = w.value("SELECT id FROM mail_labels WHERE owner = ? AND name = ?", w.owner.id, name)
    w.run("DELETE FROM mail_labelled WHERE label = ?", label)
    for message in _of_inbox(w, count):
        w.add("mail_labelled", message=message, label=label)


def _labelled(w: World) -> Slots:
    name = w.rng.choice(WORDS["labels"])
    _label(w, name, w.rng.randrange(3, 7))
    return {"label": name}


def _labels(w: World) -> Slots:
    """Labels on other numbers of emails each."""
    for name in w.rng.sample(WORDS["new_labels"], w.rng.randrange(1, 4)):
        w.run("INSERT OR IGNORE INTO mail_labels (owner, name) VALUES (?, ?)", w.owner.id, name)
    for name, count in zip(WORDS["labels"], w.rng.sample(range(2, 11), len(WORDS["labels"])), strict=True):
        _label(w, name, count)
    return {}


def _written(w: World, folder: str) -> Slots:
    """Puts mails of the owner's own, to people of every kind, among the drafts or the sent ones."""
    kins = [w.rng.choice(w.others(kin)) for kin in ("friend", "colleague", "flatmate", "family")]
    for person, subject in zip(kins, w.rng.sample(WORDS["subjects"], len(kins)), strict=True):
        id = _deliver(w, w.owner.name, w.owner.email, subject, folder)
        w.run("UPDATE mail_messages SET recipients = ?, read = 1 WHERE id = ?", person.email, id)
    return {}


def _unlabelled(w: World, row: Row) -> None:
    w.run("DELETE FROM mail_labelled WHERE message = ?", row["id"])


INBOX = Source("mails", "mail.search", "email* in my inbox", partial(_new, folder="inbox"), long=True)
FROM = Source("mails-from", "mail.search", "email* from {of} in my inbox", _from, {"sender": '"{of}"'})
ARCHIVED, TRASHED = (
    Source(name, "mail.search", noun, partial(_new, folder=folder), {"folder": f'"{folder}"'})
    for name, noun, folder in (
        ("archived-mails", "archived email*", "archive"),
        ("trashed-mails", "email* in the trash", "trash"),
    )
)
STARRED = Source("starred-mails", "mail.list_starred", "starred email*", _starred)
UNREAD = Source("unread-mails", "mail.list_unread", "unread email* in my inbox", partial(_new, folder="inbox"))
LABELLED = Source(
    "labelled-mails", "mail.list_labelled", "email* with the label '{label}'", _labelled, {"label": '"{label}"'}
)
SENT = Source("sent-mails", "mail.search_sent", "sent email*", partial(_written, folder="sent"))
DRAFTS = Source("drafts", "mail.list_drafts", "my email draft*", partial(_written, folder="drafts"))
LABELS = Source("labels", "mail.list_labels", "email label*", _labels)

ABOUT, PUT_AWAY, THROWN, WRITTEN = (
    Name("subject", f"the {words} with the subject '{{called}}'|the {words} '{{called}}'", "query")
    for words in ("email", "archived email", "trashed email", "sent email")
)
NEWEST = Top("newest {noun}|latest {noun}", "time")
WHEN = Moment("time", "{noun} that arrived {than} {day}", "", "oldest {noun}")
SENT_WHEN = Moment("time", "{noun} from {than} {day}", "", "oldest {noun}")
WHICH = State("read", "{noun} that I have read", "{noun} that I have not read")
BY_KIN = Kin("sender", "{noun} from my {kin}s")
TO_KIN = Kin("recipients", "{noun} addressed to my {kin}s", "email")

ARCHIVE = Act("mail.archive", "archive {it}|move {it} to the archive")
DELETE = Act("mail.delete", "delete {it}|move {it} to the trash")
RESTORE = Act("mail.restore", "move {it} back to my inbox|restore {it}")
STAR, UNSTAR = switch(
    "mail.star", "mail_messages", "star {it}|put a star on {it}", "remove the star from {it}|unstar {it}", "unstar"
)
READ, UNREAD_AGAIN = switch(
    "mail.mark_read", "mail_messages", "mark {it} as read", "mark {it} as unread", "mark-unread"
)
LABEL = Act(
    "mail.add_label",
    "add the label '{label}' to {it}|label {it} '{label}'",
    name="label",
    args={"label": "labels"},
    ready=_unlabelled,
)
UNLABEL = Act("mail.remove_label", "remove the label '{label}' from {it}", name="unlabel", key="message_id")
REPLY = Act("mail.reply", "reply to {it} with '{body}'|reply '{body}' to {it}", args={"body": "replies"})
FORWARD = Act(
    "mail.forward",
    "forward {it} to {to} with the text '{body}'",
    args={"to": lambda w: w.rng.choice(w.others("services")).email, "body": "replies"},
    single=True,
)
RETITLE = Act(
    "mail.update_draft",
    "change the subject of {it} to '{subject}'",
    name="retitle",
    args={"subject": "titles_of_mails"},
)
REWRITE = Act("mail.update_draft", "change the text of {it} to '{body}'", name="rewrite", args={"body": "replies"})
SEND = Act("mail.send_draft", "send {it}|send off {it}")
THROW = Act("mail.delete", "delete {it}|discard {it}", name="throw", key="message_id")
CREATE = Act("mail.create_label", "create a new email label '{name}'", args={"name": "new_labels"})
LIST_FOR = Act("todo.create_list", "create a to-do list named after {it}", field="name", single=True)
NOTE_FOR = Act("notes.create", "create an empty note named after {it}", name="note", field="name", single=True)

ASKS = [
    Ask("sender", "name of the sender", asked="Who sent {it}?"),
    Ask("subject"),
    Ask("body", "text", asked="What does {it} say?", show="mail.show"),
    Ask("time", hint=TIME),
    Ask("address", "email address of the sender", show="mail.show"),
]
OWN = [Ask("recipients", "email address of the recipient"), Ask("body", "text", show="mail.show")]
MANY = [COUNT, each("subject"), each("sender", "name of the sender|names of the senders", REPEATED)]

KINDS = [
    *practice(INBOX, [ABOUT, NEWEST], [REPLY, ARCHIVE, DELETE, STAR, LABEL, FORWARD, UNREAD_AGAIN, *ASKS], 7),
    *practice(INBOX, [WHEN, WHICH, BY_KIN], [ARCHIVE, COUNT, DELETE, STAR, LABEL, READ, *ASKS]),
    *practice(FROM, [All(), NEWEST, WHEN, WHICH], [ARCHIVE, DELETE, STAR, LABEL, READ, *MANY[:2], *ASKS[1:4]]),
    *practice(ARCHIVED, [PUT_AWAY, WHEN], [RESTORE, DELETE, STAR, *ASKS, *MANY]),
    *practice(TRASHED, [THROWN, WHEN, All()], [RESTORE, *ASKS, *MANY]),
    *practice(STARRED, [All(), WHEN, WHICH, NEWEST], [UNSTAR, ARCHIVE, DELETE, *MANY, *ASKS]),
    *practice(UNREAD, [All(), WHEN, NEWEST], [STAR, READ, ARCHIVE, LABEL, *MANY, *ASKS], 3),
    *practice(LABELLED, [All(), WHEN, WHICH, NEWEST], [STAR, UNLABEL, ARCHIVE, DELETE, *MANY, *ASKS], 3),
    *practice(SENT, [WRITTEN, SENT_WHEN, TO_KIN], [STAR, ARCHIVE, DELETE, COUNT, each("subject"), *OWN], 3),
    *practice(DRAFTS, [NEWEST, SENT_WHEN, TO_KIN], [SEND, THROW, RETITLE, REWRITE, COUNT, each("subject"), *OWN]),
    *practice(
        LABELS,
        [Number("messages", "{noun} used on {than} {limit} emails", "{noun} used on the most emails")],
        [LIST_FOR, NOTE_FOR, COUNT, each("name"), Ask("name")],
    ),
    *alone(CREATE),
]
