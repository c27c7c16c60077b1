"""Drills in which mails are chosen by a condition."""

from dataclasses import replace

from errands.apps.mail import deliver
from errands.drill import Find, Rows, Slots, day, drills
from errands.drills import mail
from errands.scenario import every
from errands.world import World


def mails_in(w: World, folder: str = "inbox") -> Rows:
    """The mails in a folder, newest first."""
    there = "SELECT * FROM mail_messages WHERE owner = ? AND folder = ?"
    return w.all(f"{there} ORDER BY time DESC, id DESC", w.owner.id, folder)


def _from(w: World, name: str, address: str, days: int) -> int:
    """A mail that was read, at a time of its own."""
    time = w.ago(days, w.rng.randrange(1, 20))
    message = deliver(w, name, address, w.rng.choice(mail.SUBJECTS), w.rng.choice(mail.BODIES), time)
    w.run("UPDATE mail_messages SET read = 1 WHERE id = ?", message)
    return message


def _before(w: World) -> tuple[Slots, Rows]:
    mails = mails_in(w)
    end = day(w, [one["time"] for one in mails])
    return {"day": end}, [one for one in mails if one["time"] < end]


def _unread(w: World) -> tuple[Slots, Rows]:
    for one in w.rng.sample(mails_in(w), 4):
        w.run("UPDATE mail_messages SET read = 0 WHERE id = ?", one["id"])
    return {}, [one for one in mails_in(w) if not one["read"]]


def _from_kin(w: World) -> tuple[Slots, Rows]:
    kin = w.rng.choice(("friend", "colleague", "flatmate"))
    names = [person.name for person in w.others(kin)]
    for days in w.rng.sample(range(1, 80), w.rng.randrange(1, 4)):
        person = w.rng.choice(w.others(kin))
        _from(w, person.name, person.email, days)
    return {"kin": kin}, [one for one in mails_in(w) if one["sender"] in names]


def _in_two(w: World) -> tuple[Slots, Rows]:
    """Mails of someone in inbox, archive and trash."""
    person = w.rng.choice(w.others())
    for place, days in enumerate(w.rng.sample(range(1, 80), w.rng.randrange(3, 7))):
        message = _from(w, person.name, person.email, days)
        folder = ("inbox", "archive", "trash")[place % 3]
        w.run("UPDATE mail_messages SET folder = ? WHERE id = ?", folder, message)
    return {"who": person.name}, [one for one in mails_in(w) + mails_in(w, "archive") if one["sender"] == person.name]


def _sent_before(w: World) -> tuple[Slots, Rows]:
    mails = mails_in(w, "sent")
    end = day(w, [one["time"] for one in mails])
    return {"day": end}, [one for one in mails if one["time"] < end]


def _since(w: World) -> tuple[Slots, Rows]:
    """Mails of a shop, before and after a day."""
    shop = w.rng.choice(mail.SHOPS)
    for days in w.rng.sample(range(1, 80, 2), w.rng.randrange(4, 8)):
        _from(w, shop, f"news@{shop.replace(' ', '').lower()}.com", days)
    mails = [one for one in mails_in(w) if one["sender"] == shop]
    start = day(w, [one["time"] for one in mails])
    return {"shop": shop, "day": start}, [one | {"rest": one["time"] < start} for one in mails]


def _oldest(w: World) -> tuple[Slots, Rows]:
    person = w.rng.choice(w.others())
    _from(w, person.name, person.email, w.rng.randrange(101, 150))
    return {}, mails_in(w)[-1:]


def _first_of(w: World) -> tuple[Slots, Rows]:
    person = w.rng.choice(w.others())
    for days in w.rng.sample(range(1, 120), w.rng.randrange(2, 5)):
        _from(w, person.name, person.email, days)
    return {"who": person.name}, [one for one in mails_in(w) if one["sender"] == person.name][-1:]


def _starred_read(w: World) -> tuple[Slots, Rows]:
    w.run("UPDATE mail_messages SET starred = 0 WHERE owner = ?", w.owner.id)
    for place, one in enumerate(w.rng.sample(mails_in(w), w.rng.randrange(4, 9))):
        w.run("UPDATE mail_messages SET starred = 1, read = ? WHERE id = ?", place % 2, one["id"])
    return {}, [one for one in mails_in(w) if one["starred"] and one["read"]]


_INBOX = every("found", "mail.search()")
_BEFORE = Find(
    "mails-before",
    (
        "all mails in my inbox from before {day}",
        "every mail that came into my inbox before {day}",
        "each mail in my inbox that is older than {day}",
    ),
    _INBOX + '\nfound = [x for x in found if x["time"][:10] < "{day}"]\nprint([x["time"] for x in found])',
    _before,
    many=True,
    keep="those whose `time` is before {day}",
)
_UNREAD = Find(
    "unread-mails",
    ("all unread mails in my inbox", "every mail in my inbox that I have not read"),
    _INBOX + '\nfound = [x for x in found if not x["read"]]\nprint([x["subject"] for x in found])',
    _unread,
    many=True,
    keep="those that are not `read`",
)
FROM_KIN = Find(
    "mails-from-relation",
    ("all mails in my inbox from someone who is my {kin}", "every mail in my inbox that a {kin} of mine sent"),
    'people = contacts.search(query="{kin}", page_size=20)\n'
    'names = [x["name"] for x in people if x["relation"] == "{kin}"]\n'
    + _INBOX
    + '\nfound = [x for x in found if x["sender"] in names]\nprint([x["sender"] for x in found])',
    _from_kin,
    many=True,
    keep="those whose `sender` is a contact whose `relation` is {kin}",
)
_IN_TWO = Find(
    "mails-in-two-folders",
    ("all mails from {who} in inbox and archive", "every mail of {who}, in the inbox as well as in the archive"),
    'found = mail.search(sender="{who}", folder="inbox", page_size=20)\n'
    'found += mail.search(sender="{who}", folder="archive", page_size=20)\nprint(len(found))',
    _in_two,
    many=True,
    keep="the mails of both folders",
)
_SENT_BEFORE = Find(
    "sent-mails-before",
    ("all mails that I sent before {day}", "every mail of my own that I sent earlier than {day}"),
    'found = mail.search_sent(page_size=20)\nfound = [x for x in found if x["time"][:10] < "{day}"]\n'
    'print([x["time"] for x in found])',
    _sent_before,
    many=True,
    keep="those whose `time` is before {day}",
)
SINCE = Find(
    "shop-mails-after",
    ("all mails from {shop} that came after {day}", "every mail in my inbox that {shop} sent later than {day}"),
    'found = mail.search(sender="{shop}", page_size=20)\nfound = [x for x in found if x["time"][:10] > "{day}"]\n'
    'print([x["time"] for x in found])',
    _since,
    many=True,
    keep="those whose `time` is after {day}",
)
_SINCE_AND_BEFORE = replace(
    SINCE,
    name="shop-mails-after-and-before",
    look='seen = mail.search(sender="{shop}", page_size=20)\nfound = [x for x in seen if x["time"][:10] > "{day}"]\n'
    'rest = [x for x in seen if x["time"][:10] <= "{day}"]\nprint([x["time"] for x in found])',
    rest="the other mails from {shop}",
)
_OLDEST = Find(
    "oldest-mail",
    ("the oldest mail in my inbox", "the mail that has been in my inbox for longest"),
    _INBOX + '\nfound = [min(found, key=lambda x: x["time"])]',
    _oldest,
    keep="the one with the earliest `time`",
)
_FIRST_OF = Find(
    "oldest-mail-from",
    ("the oldest mail from {who} in my inbox", "the first of the mails in my inbox that {who} sent"),
    'found = mail.search(sender="{who}", page_size=20)\nfound = [min(found, key=lambda x: x["time"])]',
    _first_of,
    keep="the one with the earliest `time`",
)
STARRED_READ = Find(
    "starred-read-mails",
    ("all mails with a star that I have read", "every starred mail that is not unread"),
    'found = mail.list_starred(page_size=20)\nfound = [x for x in found if x["read"]]\n'
    'print([x["subject"] for x in found])',
    _starred_read,
    many=True,
    keep="those that are `read`",
)

DRILLS = [
    *drills([_BEFORE], [mail.ARCHIVE, mail.COUNTS]),
    *drills([_UNREAD], [mail.COUNTS]),
    *drills([FROM_KIN], [mail.ARCHIVE]),
    *drills([_IN_TWO], [mail.DELETE]),
    *drills([_SENT_BEFORE], [mail.DELETE]),
    *drills([SINCE], [mail.COUNTS]),
    *drills([_SINCE_AND_BEFORE], [(mail.ARCHIVE, replace(mail.DELETE, rest=True))]),
    *drills([_OLDEST], [mail.SENDER]),
    *drills([_FIRST_OF], [mail.BODY]),
    *drills([STARRED_READ], [(mail.COUNTS, mail.DELETE)]),
]
