"""E-mail: one row for each copy of a message, in the mailbox of the person it belongs to."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import App, Email, Id, Line, Page, PageSize, Problem, Query, Success, Text
from errands.world import World

app = App(
    "mail",
    "E-mail: inbox, sent mail, drafts, archive, labels.",
    schema="""
CREATE TABLE mail_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    folder TEXT NOT NULL CHECK (folder IN ('inbox', 'archive', 'sent', 'drafts', 'trash')),
    sender TEXT NOT NULL, address TEXT NOT NULL, recipients TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL,
    time TEXT NOT NULL, read INTEGER NOT NULL DEFAULT 1, starred INTEGER NOT NULL DEFAULT 0,
    reply_to INTEGER REFERENCES mail_messages(id));
CREATE INDEX mail_messages_owner ON mail_messages(owner, folder);
CREATE TABLE mail_labels (id INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL REFERENCES people(id),
    name TEXT NOT NULL, UNIQUE (owner, name));
CREATE TABLE mail_labelled (id INTEGER PRIMARY KEY AUTOINCREMENT,
    message INTEGER NOT NULL REFERENCES mail_messages(id) ON DELETE CASCADE,
    label INTEGER NOT NULL REFERENCES mail_labels(id), UNIQUE (message, label));
CREATE INDEX mail_labelled_label ON mail_labelled(label);
""",
    invariants=(
        "SELECT m.id FROM mail_messages m JOIN people p ON p.id = owner WHERE folder = 'sent' AND m.address != email",
        "SELECT id FROM mail_messages WHERE recipients = '' OR recipients != lower(recipients)",
        "SELECT m.id FROM mail_messages m JOIN mail_messages o ON o.id = m.reply_to WHERE o.owner != m.owner",
        "SELECT x.id FROM mail_labelled x JOIN mail_messages m ON m.id = message JOIN mail_labels l ON l.id = label "
        "WHERE m.owner != l.owner",
    ),
)

NO_MESSAGE = Problem(404, "There is no message {id}.")
NO_DRAFT = Problem(404, "There is no draft {id}.")
NO_LABEL = Problem(404, "There is no label {name!r}.")
IS_DRAFT = Problem(409, "Message {id} is a draft.")
THERE_ALREADY = Problem(409, "Message {id} is there already.")
LABEL_EXISTS = Problem(409, "There is a label {name!r} already.")
LABELLED = Problem(409, "Message {id} has the label {name!r} already.")
NOT_LABELLED = Problem(409, "Message {id} does not have the label {name!r}.")

Recipients = Annotated[list[Email], Field(min_length=1, max_length=20)]


class Brief(TypedDict):
    id: int
    sender: str
    subject: str
    time: str
    read: bool


class Outgoing(TypedDict):
    id: int
    recipients: str
    subject: str
    time: str


class Message(Brief):
    address: str
    recipients: str
    body: str
    folder: str
    starred: bool
    labels: str


class Sent(TypedDict):
    message_id: int


class Drafted(TypedDict):
    draft_id: int


class Labelling(TypedDict):
    name: str
    messages: int


@app.api()
def search(
    w: World,
    me: int,
    query: Query = "",
    sender: Query = "",
    folder: Literal["inbox", "archive", "trash"] = "inbox",
    page: Page = 0,
    page_size: PageSize = 5,
) -> list[Brief]:
    """Mails in a folder, newest first. The query is in subject or body, `sender` in the sender's name or address."""
    source = (
        "FROM mail_messages WHERE owner = ? AND folder = ? AND subject || ' ' || body LIKE ? "
        "AND sender || ' ' || address LIKE ? ORDER BY time DESC, id DESC"
    )
    return w.page(Brief, source, (me, folder, f"%{query}%", f"%{sender}%"), page, page_size)


@app.api()
def list_unread(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Unread mails of the inbox, newest first."""
    source = "FROM mail_messages WHERE owner = ? AND folder = 'inbox' AND NOT read ORDER BY time DESC, id DESC"
    return w.page(Brief, source, (me,), page, page_size)


@app.api()
def list_starred(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Starred mails of all folders, newest first."""
    source = "FROM mail_messages WHERE owner = ? AND starred ORDER BY time DESC, id DESC"
    return w.page(Brief, source, (me,), page, page_size)


@app.api(NO_MESSAGE)
def show(w: World, me: int, message_id: Id) -> Message:
    """One mail in full."""
    _find(w, me, message_id)
    named = "SELECT name FROM mail_labelled JOIN mail_labels l ON l.id = label WHERE message = m.id ORDER BY name"
    labels = f"(SELECT coalesce(group_concat(name, ', '), '') FROM ({named}))"
    source = f"FROM (SELECT m.*, {labels} AS labels FROM mail_messages m WHERE m.id = ?)"
    return w.rows(Message, source, message_id)[0]


@app.api()
def search_sent(w: World, me: int, query: Query = "", page: Page = 0, page_size: PageSize = 5) -> list[Outgoing]:
    """Sent mails, newest first. The query is in recipients, subject or body."""
    source = (
        "FROM mail_messages WHERE owner = ? AND folder = 'sent' AND recipients || ' ' || subject || ' ' || body LIKE ? "
        "ORDER BY time DESC, id DESC"
    )
    return w.page(Outgoing, source, (me, f"%{query}%"), page, page_size)


@app.api()
def send(w: World, me: int, to: Recipients, subject: Line, body: Text) -> Sent:
    """Send a mail."""
    return {"message_id": _dispatch(w, me, _draft(w, me, _join(to), subject, body))}


@app.api(NO_MESSAGE, IS_DRAFT)
def reply(w: World, me: int, message_id: Id, body: Text, everyone: bool = False) -> Sent:
    """Reply to a mail. With everyone=True to all its recipients, not only its sender."""
    mail, mine = _sent(w, me, message_id), w.people[me - 1].email
    others = mail["recipients"].split(", ") if everyone or mail["address"] == mine else []
    to = {mail["address"], *others} - {mine} or {mine}
    subject = _prefixed("Re: ", mail["subject"])
    return {"message_id": _dispatch(w, me, _draft(w, me, _join(to), subject, body, reply_to=message_id))}


@app.api(NO_MESSAGE, IS_DRAFT)
def forward(w: World, me: int, message_id: Id, to: Recipients, body: Text = "") -> Sent:
    """Send a mail on to others. `body` is put before its text."""
    mail = _sent(w, me, message_id)
    text = f"{body}\n\n{mail['body']}".strip()
    return {"message_id": _dispatch(w, me, _draft(w, me, _join(to), _prefixed("Fwd: ", mail["subject"]), text))}


@app.api()
def list_drafts(w: World, me: int, page: Page = 0, page_size: PageSize = 5) -> list[Outgoing]:
    """Drafts, newest first."""
    source = "FROM mail_messages WHERE owner = ? AND folder = 'drafts' ORDER BY time DESC, id DESC"
    return w.page(Outgoing, source, (me,), page, page_size)


@app.api()
def create_draft(w: World, me: int, to: Recipients, subject: Line, body: Text) -> Drafted:
    """Write a draft. It is not sent."""
    return {"draft_id": _draft(w, me, _join(to), subject, body)}


@app.api(NO_DRAFT)
def update_draft(
    w: World,
    me: int,
    draft_id: Id,
    to: Recipients | None = None,
    subject: Line | None = None,
    body: Text | None = None,
) -> Success:
    """Change a draft. What is not given stays as it is."""
    _find_draft(w, me, draft_id)
    recipients = None if to is None else _join(to)
    w.change("mail_messages", draft_id, recipients=recipients, subject=subject, body=body)
    return {"message": "Draft changed."}


@app.api(NO_DRAFT)
def send_draft(w: World, me: int, draft_id: Id) -> Sent:
    """Send a draft as it is."""
    _find_draft(w, me, draft_id)
    return {"message_id": _dispatch(w, me, draft_id)}


@app.api(NO_MESSAGE, IS_DRAFT, THERE_ALREADY)
def archive(w: World, me: int, message_id: Id) -> Success:
    """Move a mail to the archive."""
    _sent(w, me, message_id)
    return _move(w, message_id, "archive")


@app.api(NO_MESSAGE, IS_DRAFT, THERE_ALREADY)
def restore(w: World, me: int, message_id: Id) -> Success:
    """Move a mail back from archive or trash."""
    mine = _sent(w, me, message_id)["address"] == w.people[me - 1].email
    return _move(w, message_id, "sent" if mine else "inbox")


@app.api(NO_MESSAGE, THERE_ALREADY)
def delete(w: World, me: int, message_id: Id) -> Success:
    """Move a mail to the trash. A draft is gone for good."""
    if _find(w, me, message_id)["folder"] != "drafts":
        return _move(w, message_id, "trash")
    w.run("DELETE FROM mail_messages WHERE id = ?", message_id)
    return {"message": "Draft deleted."}


@app.api(NO_MESSAGE)
def mark_read(w: World, me: int, message_id: Id, read: bool = True) -> Success:
    """Mark a mail as read, or as unread."""
    _find(w, me, message_id)
    w.run("UPDATE mail_messages SET read = ? WHERE id = ?", read, message_id)
    return {"message": "Mail marked."}


@app.api(NO_MESSAGE)
def star(w: World, me: int, message_id: Id, starred: bool = True) -> Success:
    """Star a mail, or take the star away."""
    _find(w, me, message_id)
    w.run("UPDATE mail_messages SET starred = ? WHERE id = ?", starred, message_id)
    return {"message": "Mail changed."}


@app.api()
def list_labels(w: World, me: int) -> list[Labelling]:
    """The labels, and how many mails have them."""
    source = "FROM (SELECT l.*, (SELECT count(*) FROM mail_labelled WHERE label = l.id) AS messages FROM mail_labels l)"
    return w.rows(Labelling, f"{source} WHERE owner = ? ORDER BY name, id", me)


@app.api(LABEL_EXISTS)
def create_label(w: World, me: int, name: Line) -> Success:
    """Make a new label."""
    if w.value("SELECT id FROM mail_labels WHERE owner = ? AND name = ?", me, name) is not None:
        raise LABEL_EXISTS(name=name)
    w.add("mail_labels", owner=me, name=name)
    return {"message": "Label created."}


@app.api(NO_LABEL)
def list_labelled(w: World, me: int, label: Line, page: Page = 0, page_size: PageSize = 5) -> list[Brief]:
    """Mails with a label, newest first."""
    source = "FROM mail_messages WHERE id IN (SELECT message FROM mail_labelled WHERE label = ?)"
    return w.page(Brief, f"{source} ORDER BY time DESC, id DESC", (_label(w, me, label),), page, page_size)


@app.api(NO_MESSAGE, NO_LABEL, LABELLED)
def add_label(w: World, me: int, message_id: Id, label: Line) -> Success:
    """Put a label on a mail."""
    _find(w, me, message_id)
    found = _label(w, me, label)
    if w.value("SELECT id FROM mail_labelled WHERE message = ? AND label = ?", message_id, found) is not None:
        raise LABELLED(id=message_id, name=label)
    w.add("mail_labelled", message=message_id, label=found)
    return {"message": "Label added."}


@app.api(NO_MESSAGE, NO_LABEL, NOT_LABELLED)
def remove_label(w: World, me: int, message_id: Id, label: Line) -> Success:
    """Take a label off a mail."""
    _find(w, me, message_id)
    if not w.run("DELETE FROM mail_labelled WHERE message = ? AND label = ?", message_id, _label(w, me, label)):
        raise NOT_LABELLED(id=message_id, name=label)
    return {"message": "Label removed."}


def deliver(w: World, sender: str, address: str, subject: str, body: str, time: str, *also: str) -> int:
    """An unread mail that has come into the owner's inbox, for scenarios; its id. `also` are other recipients."""
    row = {"sender": sender, "address": address, "recipients": _join([w.owner.email, *also]), "subject": subject}
    return w.add("mail_messages", owner=w.owner.id, folder="inbox", **row, body=body, time=time, read=0)


def _find(w: World, me: int, id: int) -> dict[str, str]:
    return w.owned("mail_messages", id, me, NO_MESSAGE)


def _sent(w: World, me: int, id: int) -> dict[str, str]:
    found = _find(w, me, id)
    if found["folder"] == "drafts":
        raise IS_DRAFT(id=id)
    return found


def _find_draft(w: World, me: int, id: int) -> None:
    if w.owned("mail_messages", id, me, NO_DRAFT)["folder"] != "drafts":
        raise NO_DRAFT(id=id)


def _label(w: World, me: int, name: str) -> int:
    found: int | None = w.value("SELECT id FROM mail_labels WHERE owner = ? AND name = ?", me, name)
    if found is None:
        raise NO_LABEL(name=name)
    return found


def _join(addresses: Iterable[str]) -> str:
    return ", ".join(sorted({address.lower() for address in addresses}))


def _prefixed(prefix: str, subject: str) -> str:
    return subject if subject.startswith(prefix) else prefix + subject


def _move(w: World, id: int, folder: str) -> Success:
    if not w.run("UPDATE mail_messages SET folder = ? WHERE id = ? AND folder != ?", folder, id, folder):
        raise THERE_ALREADY(id=id)
    return {"message": "Mail moved."}


def _draft(w: World, me: int, recipients: str, subject: str, body: str, reply_to: int | None = None) -> int:
    writer = w.people[me - 1]
    return w.add(
        "mail_messages",
        **{"owner": me, "folder": "drafts", "sender": writer.name, "address": writer.email, "recipients": recipients},
        **{"subject": subject, "body": body, "time": w.moment, "reply_to": reply_to},
    )


def _dispatch(w: World, me: int, draft: int) -> int:
    """Send what is a draft: it becomes sent mail, and everyone among the recipients gets a copy."""
    w.run("UPDATE mail_messages SET folder = 'sent', time = ? WHERE id = ?", w.moment, draft)
    copied = "sender, address, recipients, subject, body, time"
    for address in _find(w, me, draft)["recipients"].split(", "):
        person = w.person_with(address)
        if person is not None:
            w.run(
                f"INSERT INTO mail_messages (owner, folder, read, {copied}) "
                f"SELECT ?, 'inbox', 0, {copied} FROM mail_messages WHERE id = ?",
                *(person, draft),
            )
    return draft


_USUAL = [
    line.split("|")
    for line in """colleagues|Minutes of the meeting|The minutes are on the shared drive. Tell me if I missed a point.
colleagues|Slides for review|Could you look over my slides by Friday?
colleagues|Printer again|The printer on the second floor is out of order.
family|Photos from Sunday|The photos turned out well, have a look.
family|Summer plans|We are thinking of the lake this year.
friends|Board games|Shall we play again some evening?
friends|Hiking pictures|The view from the top was worth it.
flatmates|Cleaning week|It is your turn with the kitchen.
flatmates|Broken kettle|The kettle leaks, we should get a new one.
services|Short notice|Please let me know when you can be reached.""".splitlines()
]
_NEWSLETTERS = [
    ("City Library", "desk@library.org", "New at the library", "Twelve new books came in this week."),
    ("Daily Crumbs", "news@crumbs.com", "Bread of the week", "This week we bake with rye."),
    ("Fit Club", "hello@fitclub.com", "Stay in shape", "New courses start on Monday."),
]


@app.filled_by
def fill(w: World) -> None:
    """The owner has mail in every folder, at times of its own; others have one mail each, from the owner."""
    rng, me, rows = w.rng, w.owner, []
    circles = {circle: w.others(circle) for circle, _, _ in _USUAL}
    folders = ["inbox"] * 26 + ["archive"] * 7 + ["sent"] * 8 + ["drafts"] * 3 + ["trash"] * 3 + ["theirs"] * 15
    for place, (folder, hours) in enumerate(zip(folders, rng.sample(range(5, 2400), len(folders)), strict=True)):
        circle, subject, body = rng.choice(_USUAL)
        other = w.people[place - len(folders)] if folder == "theirs" else rng.choice(circles[circle])
        name, address, to, chance = other.name, other.email, me.email, rng.random()
        if folder in ("sent", "drafts", "theirs"):
            name, address, to = me.name, me.email, other.email
        elif chance < 0.2:
            name, address, subject, body = rng.choice(_NEWSLETTERS)
        box = (other.id, "inbox") if folder == "theirs" else (me.id, folder)
        flags = (folder != "inbox" or chance < 0.75, folder == "inbox" and chance > 0.9)
        rows.append((*box, name, address, to, subject, body, w.ago(hours=hours), *flags))
    columns = "owner, folder, sender, address, recipients, subject, body, time, read, starred"
    w.db.executemany(f"INSERT INTO mail_messages ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    for name in ("home", "receipts", "travel", "work"):
        label = w.add("mail_labels", owner=me.id, name=name)
        for message in rng.sample(range(1, 34), 3):
            w.add("mail_labelled", message=message, label=label)
