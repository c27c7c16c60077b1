"""E-mail: one row for each copy of a message, in the mailbox of the person it belongs to."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from errands.api import App, Email, Id, Line, Listing, New, Numbered, Problem, Query, Success, Text
from errands.database import Owned
from errands.words import read
from errands.world import World

app = App("mail", "E-mail: inbox, sent mail, drafts, archive, labels.")

MESSAGES = Owned("mail_messages", "message", view="mail_shown")
NO_DRAFT = Problem(404, "There is no draft {id}.")
NO_LABEL = Problem(404, "There is no label {name!r}.")
IS_DRAFT = Problem(409, "Message {id} is a draft.")
THERE_ALREADY = Problem(409, "Message {id} is already there.")
LABEL_EXISTS = Problem(409, "There is already a label called {name!r}.")
LABELLED = Problem(409, "Message {id} already has the label {name!r}.")
NOT_LABELLED = Problem(409, "Message {id} does not have the label {name!r}.")

Recipients = Annotated[list[Email], Field(min_length=1, max_length=20)]


class Brief(Numbered):
    sender: str
    subject: str
    time: str
    read: bool


class Outgoing(Numbered):
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


class Labelling(TypedDict):
    name: str
    messages: int


_NEWEST = "ORDER BY time DESC, id DESC"


@app.api()
def search(
    w: World, me: int, query: Query = "", sender: Query = "", folder: Literal["inbox", "archive", "trash"] = "inbox"
) -> Listing[Brief]:
    """Mails in a folder, newest first. `query` is searched for in subject and body, `sender` in the sender's name and
    address."""
    texts = "holds(subject || ' ' || body, ?) AND holds(sender || ' ' || address, ?)"
    source = f"FROM mail_messages WHERE owner = ? AND folder = ? AND {texts} {_NEWEST}"
    return Listing(source, me, folder, query, sender)


@app.api()
def list_unread(w: World, me: int) -> Listing[Brief]:
    """Unread mails in the inbox, newest first."""
    return Listing(f"FROM mail_messages WHERE owner = ? AND folder = 'inbox' AND NOT read {_NEWEST}", me)


@app.api()
def list_starred(w: World, me: int) -> Listing[Brief]:
    """Starred mails in all folders, newest first."""
    return Listing(f"FROM mail_messages WHERE owner = ? AND starred {_NEWEST}", me)


@app.api(MESSAGES.missing)
def show(w: World, me: int, message_id: Id) -> Message:
    """Show a mail in full."""
    return MESSAGES.show(Message, w, me, message_id)


@app.api()
def search_sent(w: World, me: int, query: Query = "") -> Listing[Outgoing]:
    """Sent mails whose recipients, subject or body contain the query, newest first."""
    found = "holds(recipients || ' ' || subject || ' ' || body, ?)"
    return Listing(f"FROM mail_messages WHERE owner = ? AND folder = 'sent' AND {found} {_NEWEST}", me, query)


@app.api()
def send(w: World, me: int, to: Recipients, subject: Line, body: Text) -> New[Literal["message_id"]]:
    """Send a mail."""
    return {"message_id": _dispatch(w, me, _draft(w, me, _join(to), subject, body))}


@app.api(MESSAGES.missing, IS_DRAFT)
def reply(w: World, me: int, message_id: Id, body: Text, everyone: bool = False) -> New[Literal["message_id"]]:
    """Reply to the sender of a mail. With everyone=True, reply to all its recipients too."""
    mail, mine = _find_no_draft(w, me, message_id), w.people[me - 1].email
    others = mail["recipients"].split(", ") if everyone or mail["address"] == mine else []
    to = {mail["address"], *others} - {mine} or {mine}
    subject = _prefixed("Re: ", mail["subject"])
    return {"message_id": _dispatch(w, me, _draft(w, me, _join(to), subject, body, reply_to=message_id))}


@app.api(MESSAGES.missing, IS_DRAFT)
def forward(w: World, me: int, message_id: Id, to: Recipients, body: Text = "") -> New[Literal["message_id"]]:
    """Forward a mail. `body` is put before its text."""
    mail = _find_no_draft(w, me, message_id)
    text = f"{body}\n\n{mail['body']}".strip()
    return {"message_id": _dispatch(w, me, _draft(w, me, _join(to), _prefixed("Fwd: ", mail["subject"]), text))}


@app.api()
def list_drafts(w: World, me: int) -> Listing[Outgoing]:
    """Your drafts, newest first."""
    return Listing(f"FROM mail_messages WHERE owner = ? AND folder = 'drafts' {_NEWEST}", me)


@app.api()
def create_draft(w: World, me: int, to: Recipients, subject: Line, body: Text) -> New[Literal["draft_id"]]:
    """Write a draft, without sending it."""
    return {"draft_id": _draft(w, me, _join(to), subject, body)}


@app.api(NO_DRAFT, says="Draft changed.")
def update_draft(
    w: World, me: int, draft_id: Id, to: Recipients | None = None, subject: Line | None = None, body: Text | None = None
) -> None:
    """Change a draft. What you leave out stays as it is."""
    _find_draft(w, me, draft_id)
    w.change("mail_messages", draft_id, recipients=to and _join(to), subject=subject, body=body)


@app.api(NO_DRAFT)
def send_draft(w: World, me: int, draft_id: Id) -> New[Literal["message_id"]]:
    """Send a draft as it is."""
    _find_draft(w, me, draft_id)
    return {"message_id": _dispatch(w, me, draft_id)}


@app.api(MESSAGES.missing, IS_DRAFT, THERE_ALREADY, says="Mail moved.")
def archive(w: World, me: int, message_id: Id) -> None:
    """Move a mail to the archive."""
    _find_no_draft(w, me, message_id)
    _move(w, message_id, "archive")


@app.api(MESSAGES.missing, IS_DRAFT, THERE_ALREADY, says="Mail moved.")
def restore(w: World, me: int, message_id: Id) -> None:
    """Move a mail back from the archive or the trash."""
    mail = _find_no_draft(w, me, message_id)
    # Of a mail to oneself there are two copies, and the one that was sent came first.
    alike = "owner = ? AND address = ? AND recipients = ? AND subject = ? AND body = ? AND time = ?"
    told = (mail[name] for name in ("recipients", "subject", "body", "time"))
    sent = w.value(f"SELECT min(id) FROM mail_messages WHERE {alike}", me, w.people[me - 1].email, *told)
    _move(w, message_id, "sent" if sent == message_id else "inbox")


@app.api(MESSAGES.missing, THERE_ALREADY)
def delete(w: World, me: int, message_id: Id) -> Success:
    """Move a mail to the trash. A draft is deleted for good."""
    if MESSAGES.find(w, me, message_id)["folder"] != "drafts":
        _move(w, message_id, "trash")
        return {"message": "Mail moved."}
    w.remove("mail_messages", id=message_id)
    return {"message": "Draft deleted."}


@app.api(MESSAGES.missing)
def mark_read(w: World, me: int, message_id: Id, read: bool = True) -> Success:
    """Mark a mail as read, or as unread."""
    MESSAGES.change(w, me, message_id, read=read)
    return {"message": "Mail marked as read." if read else "Mail marked as unread."}


@app.api(MESSAGES.missing, says="Mail changed.")
def star(w: World, me: int, message_id: Id, starred: bool = True) -> None:
    """Star a mail, or remove its star."""
    MESSAGES.change(w, me, message_id, starred=starred)


@app.api()
def list_labels(w: World, me: int) -> list[Labelling]:
    """Your labels, and how many mails have each."""
    return w.rows(Labelling, "FROM mail_counted WHERE owner = ? ORDER BY name, id", me)


@app.api(LABEL_EXISTS, says="Label created.")
def create_label(w: World, me: int, name: Line) -> None:
    """Create a label."""
    w.add_once(LABEL_EXISTS(name=name), "mail_labels", owner=me, name=name)


@app.api(NO_LABEL)
def list_labelled(w: World, me: int, label: Line) -> Listing[Brief]:
    """Mails with a label, newest first."""
    labelled = "SELECT message FROM mail_labelled WHERE label = ?"
    return Listing(f"FROM mail_messages WHERE id IN ({labelled}) {_NEWEST}", _label(w, me, label))


@app.api(MESSAGES.missing, NO_LABEL, LABELLED, says="Label added.")
def add_label(w: World, me: int, message_id: Id, label: Line) -> None:
    """Put a label on a mail."""
    MESSAGES.find(w, me, message_id)
    labelled = LABELLED(id=message_id, name=label)
    w.add_once(labelled, "mail_labelled", message=message_id, label=_label(w, me, label))


@app.api(MESSAGES.missing, NO_LABEL, NOT_LABELLED, says="Label removed.")
def remove_label(w: World, me: int, message_id: Id, label: Line) -> None:
    """Remove a label from a mail."""
    MESSAGES.find(w, me, message_id)
    removed = w.remove("mail_labelled", message=message_id, label=_label(w, me, label))
    NOT_LABELLED.unless(removed, id=message_id, name=label)


def deliver(w: World, sender: str, address: str, subject: str, body: str, time: str, *also: str) -> int:
    """An unread mail that has come into the owner's inbox, for scenarios; its id. `also` are other recipients."""
    row = {"sender": sender, "address": address, "recipients": _join([w.owner.email, *also]), "subject": subject}
    return w.add("mail_messages", owner=w.owner.id, folder="inbox", **row, body=body, time=time, read=0)


def _find_no_draft(w: World, me: int, id: int) -> dict[str, str]:
    found = MESSAGES.find(w, me, id)
    IS_DRAFT.when(found["folder"] == "drafts", id=id)
    return found


def _find_draft(w: World, me: int, id: int) -> None:
    NO_DRAFT.unless(w.find_id("mail_messages", id=id, owner=me, folder="drafts"), id=id)


def _label(w: World, me: int, name: str) -> int:
    return NO_LABEL.unless(w.find_id("mail_labels", owner=me, name=name), name=name)


def _join(addresses: Iterable[str]) -> str:
    return ", ".join(sorted({address.lower() for address in addresses}))


def _prefixed(prefix: str, subject: str) -> str:
    return subject if subject.startswith(prefix) else prefix + subject


def _move(w: World, id: int, folder: str) -> None:
    sql = "UPDATE mail_messages SET folder = ? WHERE id = ? AND folder != ?"
    THERE_ALREADY.unless(w.run(sql, folder, id, folder), id=id)


def _draft(w: World, me: int, recipients: str, subject: str, body: str, reply_to: int | None = None) -> int:
    writer = w.people[me - 1]
    return w.add(
        "mail_messages",
        **{"owner": me, "folder": "drafts", "sender": writer.name, "address": writer.email, "recipients": recipients},
        **{"subject": subject, "body": body, "time": w.moment, "reply_to": reply_to},
    )


def _dispatch(w: World, me: int, draft: int) -> int:
    """Send what is a draft: it becomes sent mail, and everyone among the recipients gets a copy."""
    w.change("mail_messages", draft, folder="sent", time=w.moment)
    mail = MESSAGES.find(w, me, draft)
    copied = {name: mail[name] for name in ("sender", "address", "recipients", "subject", "body", "time")}
    for address in mail["recipients"].split(", "):
        person = w.person_with(address)
        if person is not None:
            w.add("mail_messages", owner=person, folder="inbox", read=0, **copied)
    return draft


_WORDS = read("world")["mail"]
_FOLDERS = ["inbox"] * 26 + ["archive"] * 7 + ["sent"] * 8 + ["drafts"] * 3 + ["trash"] * 3 + ["theirs"] * 15


@app.filled_by
def fill(w: World) -> None:
    """The owner has mail in every folder, at times of its own; others have one mail each, from the owner."""
    rng, me, rows = w.rng, w.owner, []
    circles = {circle: w.others(circle) for circle, _, _ in _WORDS["usual"]}
    for place, (folder, hours) in enumerate(zip(_FOLDERS, rng.sample(range(5, 2400), len(_FOLDERS)), strict=True)):
        circle, subject, body = rng.choice(_WORDS["usual"])
        other = w.people[place - len(_FOLDERS)] if folder == "theirs" else rng.choice(circles[circle])
        name, address, to, chance = other.name, other.email, me.email, rng.random()
        if folder in ("sent", "drafts", "theirs"):
            name, address, to = me.name, me.email, other.email
        elif chance < 0.2:
            name, address, subject, body = rng.choice(_WORDS["newsletters"])
        box = (other.id, "inbox") if folder == "theirs" else (me.id, folder)
        flags = (folder != "inbox" or chance < 0.75, folder == "inbox" and chance > 0.9)
        rows.append((*box, name, address, to, subject, body, w.ago(hours=hours), *flags))
    w.add_all("mail_messages", "owner, folder, sender, address, recipients, subject, body, time, read, starred", rows)
    labels = ("home", "receipts", "travel", "work")
    w.add_all("mail_labels", "owner, name", [(me.id, name) for name in labels])
    labelled = [(message, label + 1) for label in range(len(labels)) for message in rng.sample(range(1, 34), 3)]
    w.add_all("mail_labelled", "message, label", labelled)
