"""Drills around mails that are unread or have a star."""

from dataclasses import replace

from errands.apps.mail import deliver
from errands.drill import Act, Find, Rows, Slots, day, drills
from errands.drills import contacts, letters, mail
from errands.people import Person
from errands.scenario import every
from errands.world import World


def _come(w: World, person: Person, days: float) -> None:
    """An unread mail, at a time of its own."""
    deliver(w, person.name, person.email, w.rng.choice(mail.SUBJECTS), w.rng.choice(mail.BODIES), w.ago(days, 0.5))


def _unread(w: World) -> Rows:
    return [one for one in letters.mails_in(w) if not one["read"]]


def _newest(w: World) -> tuple[Slots, Rows]:
    """Newer mails have been read."""
    for days in (0.1, 0.15, 0.2):
        _come(w, w.rng.choice(w.others()), days)
    for one in letters.mails_in(w)[: w.rng.randrange(3)]:
        w.run("UPDATE mail_messages SET read = 1 WHERE id = ?", one["id"])
    return {}, _unread(w)


def _all(w: World) -> tuple[Slots, Rows]:
    for days in w.rng.sample(range(1, 80), w.rng.randrange(2, 5)):
        _come(w, w.rng.choice(w.others()), days)
    return {}, _unread(w)


def _oldest(w: World) -> tuple[Slots, Rows]:
    return {}, _all(w)[1][::-1]


def _before(w: World) -> tuple[Slots, Rows]:
    unread = _all(w)[1]
    end = day(w, [one["time"] for one in unread])
    return {"day": end}, [one | {"rest": one["time"] >= end} for one in unread]


def _from(w: World) -> tuple[Slots, Rows]:
    """Unread mails of someone, who also sent one that was read."""
    person, other = w.rng.sample(w.others(), 2)
    for days in w.rng.sample(range(2, 80), w.rng.randrange(2, 5)):
        _come(w, person, days)
    _come(w, other, 1)
    w.run("UPDATE mail_messages SET read = 1 WHERE id = ?", _sent_by(w, [person.name])[-1]["id"])
    _come(w, person, w.rng.randrange(90, 99))
    return {"who": person.name}, _sent_by(w, [person.name])


def _from_kin(w: World) -> tuple[Slots, Rows]:
    """Unread mails of people of a relation, and one of a relative."""
    kin = w.rng.choice(contacts.KINS)
    for days in w.rng.sample(range(2, 80), w.rng.randrange(2, 5)):
        _come(w, w.rng.choice(w.others(kin)), days)
    _come(w, w.rng.choice(w.others("family")), 1)
    return {"kin": kin}, _sent_by(w, [person.name for person in w.others(kin)])


def _sent_by(w: World, names: list[str]) -> Rows:
    return [one for one in _unread(w) if one["sender"] in names]


def _set(w: World, rows: Rows, column: str, value: int) -> Slots:
    for one in rows:
        w.run(f"UPDATE mail_messages SET {column} = ? WHERE id = ?", value, one["id"])
    return {}


_UNREAD = every("found", "mail.list_unread()")
_ALL = Find(
    "all-unread",
    ("all unread mails in my inbox", "every mail in my inbox that is still unread", "all mails that I have not read"),
    _UNREAD + "\nprint(len(found))",
    _all,
    many=True,
)
_NEWEST = Find(
    "newest-unread",
    ("my newest unread mail", "the latest of the unread mails in my inbox", "the latest mail that I have not read yet"),
    "found = mail.list_unread(page_size=1)",
    _newest,
)
OLDEST = Find(
    "oldest-unread",
    ("my oldest unread mail", "the mail in my inbox that has been unread for longest"),
    _UNREAD + '\nfound = [min(found, key=lambda x: x["time"])]',
    _oldest,
    keep="the one with the earliest `time`",
)
BEFORE = Find(
    "unread-before",
    ("all unread mails from before {day}", "every unread mail in my inbox that is older than {day}"),
    _UNREAD + '\nfound = [x for x in found if x["time"][:10] < "{day}"]\nprint([x["time"] for x in found])',
    _before,
    many=True,
    keep="those whose `time` is before {day}",
)
_BEFORE_AND_SINCE = replace(
    BEFORE,
    name="unread-before-and-since",
    look=every("seen", "mail.list_unread()") + '\nfound = [x for x in seen if x["time"][:10] < "{day}"]\n'
    'rest = [x for x in seen if x["time"][:10] >= "{day}"]\nprint([x["time"] for x in found])',
    rest="the other unread mails",
)
_FROM = Find(
    "unread-from",
    ("all unread mails from {who}", "every mail from {who} in my inbox that is still unread"),
    _UNREAD + '\nfound = [x for x in found if x["sender"] == "{who}"]\nprint([x["subject"] for x in found])',
    _from,
    many=True,
    keep="those whose `sender` is {who}",
)
_FROM_KIN = Find(
    "unread-from-relation",
    ("all unread mails from someone who is my {kin}", "every unread mail in my inbox that a {kin} of mine sent"),
    'people = contacts.search(query="{kin}", page_size=20)\n'
    'names = [x["name"] for x in people if x["relation"] == "{kin}"]\n'
    + _UNREAD
    + '\nfound = [x for x in found if x["sender"] in names]\nprint([x["sender"] for x in found])',
    _from_kin,
    many=True,
    keep="those whose `sender` is a contact whose `relation` is {kin}",
)

_READ = Act(
    "mail.mark_read",
    (
        "Mark {it} as read.",
        "I know about {it}: mark {them} as read.",
        "{it} should count as read.",
        "Please set {it} to read.",
    ),
    "mark {them} as read",
    key="message_id",
    given=lambda w, rows: _set(w, rows, "read", 0),
    name="read",
)
_UNDO = Act(
    "mail.mark_read",
    (
        "Mark {it} as unread.",
        "I want to read {it} again, so mark {them} as unread.",
        "{it} should count as unread again.",
        "Please set {it} back to unread.",
    ),
    "mark {them} as unread",
    key="message_id",
    fixed=(("read", False),),
    given=lambda w, rows: _set(w, rows, "read", 1),
    name="unread",
)
_STAR = Act(
    "mail.star",
    (
        "Star {it}.",
        "Put a star on {it}.",
        "{it} should have a star.",
        "I want to find {it} among my starred mails: add the star.",
    ),
    "put a star on {them}",
    key="message_id",
    given=lambda w, rows: _set(w, rows, "starred", 0),
)
_UNSTAR = Act(
    "mail.star",
    (
        "Take the star away from {it}.",
        "Remove the star from {it}.",
        "{it} should no longer have a star.",
        "Unstar {it}.",
    ),
    "take the star away from {them}",
    key="message_id",
    fixed=(("starred", False),),
    name="unstar",
)

DRILLS = [
    *drills([_ALL], [(mail.COUNTS, _READ)]),
    *drills([_NEWEST], [mail.SUBJECT, (mail.SENDER, _READ)]),
    *drills([OLDEST], [_READ]),
    *drills([_BEFORE_AND_SINCE], [(_READ, replace(_STAR, rest=True))]),
    *drills([_FROM], [mail.ARCHIVE, (_READ, _STAR)]),
    *drills([_FROM_KIN], [_STAR]),
    *drills([mail.ABOUT, letters.SINCE], [_UNDO]),
    *drills([mail.LABELLED], [(mail.SENDER, _STAR)]),
    *drills([mail.SENT], [_STAR]),
    *drills([mail.ALL_STARRED, letters.STARRED_READ], [_UNSTAR]),
]
