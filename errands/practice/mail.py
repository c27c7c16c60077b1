"""Fills worlds for practice with mail (mail.toml)."""

from errands.apps.mail import deliver
from errands.practice.drill import Row, Slots
from errands.words import WORDS
from errands.world import World


def _deliver(w: World, name: str, address: str, subject: str, folder: str = "inbox") -> int:
    time = w.ago(w.rng.randrange(1, 90), w.rng.randrange(1, 20))
    message = deliver(w, name, address, subject, w.rng.choice(WORDS["bodies"]), time)
    w.run("UPDATE mail_messages SET folder = ?, read = ? WHERE id = ?", folder, w.rng.randrange(2), message)
    return message


def new(w: World, folder: str) -> Slots:
    """Puts mails with subjects of their own into a folder."""
    for subject in w.rng.sample(WORDS["subjects"], 3):
        person = w.rng.choice(w.others())
        _deliver(w, person.name, person.email, subject, folder)
    return {}


def from_someone(w: World) -> Slots:
    """Mails of a shop or a person."""
    shop, person = w.rng.choice(WORDS["shops"]), w.rng.choice(w.others())
    name, address = w.rng.choice(((shop, f"news@{shop.replace(' ', '').lower()}.com"), (person.name, person.email)))
    for subject in w.rng.sample(WORDS["subjects"], w.rng.randrange(3, 6)):
        _deliver(w, name, address, subject)
    return {"of": name}


def starred(w: World) -> Slots:
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


def labelled(w: World) -> Slots:
    name = w.rng.choice(WORDS["labels"])
    _label(w, name, w.rng.randrange(3, 7))
    return {"label": name}


def labels(w: World) -> Slots:
    """Labels on other numbers of emails each."""
    for name in w.rng.sample(WORDS["new_labels"], w.rng.randrange(1, 4)):
        w.run("INSERT OR IGNORE INTO mail_labels (owner, name) VALUES (?, ?)", w.owner.id, name)
    for name, count in zip(WORDS["labels"], w.rng.sample(range(2, 11), len(WORDS["labels"])), strict=True):
        _label(w, name, count)
    return {}


def written(w: World, folder: str) -> Slots:
    """Puts mails of the owner's own, to people of every kind, among the drafts or the sent ones."""
    kins = [w.rng.choice(w.others(kin)) for kin in ("friend", "colleague", "flatmate", "family")]
    for person, subject in zip(kins, w.rng.sample(WORDS["subjects"], len(kins)), strict=True):
        id = _deliver(w, w.owner.name, w.owner.email, subject, folder)
        w.run("UPDATE mail_messages SET recipients = ?, read = 1 WHERE id = ?", person.email, id)
    return {}


def unlabelled(w: World, row: Row) -> None:
    w.run("DELETE FROM mail_labelled WHERE message = ?", row["id"])


def service(w: World) -> str:
    return w.rng.choice(w.others("services")).email
