"""Drills around drafts of mails."""

from dataclasses import replace

from errands.drill import Act, Ask, Find, Rows, Slots, day, drills, pick
from errands.drills import contacts, letters, mail
from errands.people import Person
from errands.world import World


def _write(w: World, person: Person, time: str) -> None:
    """A draft with a subject that no other has."""
    used = [draft["subject"] for draft in letters.mails_in(w, "drafts")]
    subject = w.rng.choice([one for one in mail.SUBJECTS if one not in used])
    me = {"owner": w.owner.id, "sender": w.owner.name, "address": w.owner.email}
    text = {"recipients": person.email, "subject": subject, "body": w.rng.choice(mail.BODIES)}
    w.add("mail_messages", folder="drafts", **me, **text, time=time)


def _drafts(w: World) -> Rows:
    """All drafts, among them some that are days apart."""
    for days in w.rng.sample(range(1, 60, 2), w.rng.randrange(2, 5)):
        _write(w, w.rng.choice(w.others()), w.ago(days, 0.5))
    return letters.mails_in(w, "drafts")


def _newest(w: World) -> tuple[Slots, Rows]:
    _write(w, w.rng.choice(w.others()), w.ago(hours=w.rng.randrange(1, 4)))
    return {}, letters.mails_in(w, "drafts")


def _titled(w: World) -> tuple[Slots, Rows]:
    drafts = _drafts(w)
    about = w.rng.choice([draft["subject"] for draft in drafts if draft["subject"] in mail.SUBJECTS])
    return {"about": about}, [draft for draft in drafts if draft["subject"] == about]


def _oldest(w: World) -> tuple[Slots, Rows]:
    return {}, _drafts(w)[::-1]


def _before(w: World) -> tuple[Slots, Rows]:
    drafts = _drafts(w)
    end = day(w, [draft["time"] for draft in drafts])
    return {"day": end}, [draft | {"rest": draft["time"] >= end} for draft in drafts]


def _to_someone(w: World) -> tuple[Slots, Rows]:
    """One draft to someone, older than another."""
    used = [draft["recipients"] for draft in letters.mails_in(w, "drafts")]
    person, other = w.rng.sample([one for one in w.others() if one.email not in used], 2)
    _write(w, person, w.ago(w.rng.randrange(2, 60)))
    _write(w, other, w.ago(1))
    return {"who": person.name}, [one for one in letters.mails_in(w, "drafts") if one["recipients"] == person.email]


def _to_kin(w: World) -> tuple[Slots, Rows]:
    """Some drafts to people of a relation, and one to a relative."""
    kin = w.rng.choice(contacts.KINS)
    for days in w.rng.sample(range(2, 60), w.rng.randrange(2, 4)):
        _write(w, w.rng.choice(w.others(kin)), w.ago(days))
    _write(w, w.rng.choice(w.others("family")), w.ago(1))
    emails = [person.email for person in w.others(kin)]
    return {"kin": kin}, [one for one in letters.mails_in(w, "drafts") if one["recipients"] in emails]


_ALL = "found = mail.list_drafts(page_size=20)\n"
_NEWEST = Find(
    "newest-draft",
    ("my newest mail draft", "the latest of my mail drafts", "the most recent of the drafts in my mail"),
    "found = mail.list_drafts(page_size=1)",
    _newest,
)
_TITLED = Find(
    "draft-about",
    ("the mail draft '{about}'", "my mail draft with the subject '{about}'", "the mail '{about}' among my drafts"),
    _ALL + 'found = [x for x in found if x["subject"] == "{about}"]',
    _titled,
    keep="the one whose `subject` is {about}",
)
_OLDEST = Find(
    "oldest-draft",
    ("my oldest mail draft", "the oldest of the drafts in my mail"),
    _ALL + 'found = [min(found, key=lambda x: x["time"])]',
    _oldest,
    keep="the one with the earliest `time`",
)
_BEFORE_AND_SINCE = Find(
    "drafts-before-and-since",
    ("all mail drafts from before {day}", "every mail draft of mine that is older than {day}"),
    'seen = mail.list_drafts(page_size=20)\nfound = [x for x in seen if x["time"][:10] < "{day}"]\n'
    'rest = [x for x in seen if x["time"][:10] >= "{day}"]\nprint([x["time"] for x in found])',
    _before,
    many=True,
    keep="those whose `time` is before {day}",
    rest="the other mail drafts",
)
_TO = Find(
    "draft-to",
    ("my mail draft to {who}", "the mail draft that I wrote to {who}", "the draft of my mail to {who}"),
    'people = contacts.search(query="{who}")\n'
    + _ALL
    + 'found = [x for x in found if x["recipients"] == people[0]["email"]]',
    _to_someone,
    keep="the one whose `recipients` are the e-mail of {who}",
)
_TO_KIN = Find(
    "drafts-to-relation",
    ("all mail drafts to someone who is my {kin}", "every mail draft that is for a {kin} of mine"),
    'people = contacts.search(query="{kin}", page_size=20)\n'
    'emails = [x["email"] for x in people if x["relation"] == "{kin}"]\n'
    + _ALL
    + 'found = [x for x in found if x["recipients"] in emails]\nprint(len(found))',
    _to_kin,
    many=True,
    keep="those whose `recipients` are a contact whose `relation` is {kin}",
)

_SEND = Act(
    "mail.send_draft",
    (
        "Send {it}.",
        "Send off {it}, please.",
        "{it} should go out now: send {them}.",
        "I am happy with {it}, so send {them} off.",
    ),
    "send {them}",
    key="draft_id",
    name="send",
)
_RETITLE = Act(
    "mail.update_draft",
    (
        "Change the subject of {it} to '{subject}'.",
        "Give {it} the subject '{subject}'. Do not change the text.",
        "The subject of {it} should be '{subject}' instead.",
        "Set '{subject}' as the new subject of {it}.",
    ),
    "give {them} the subject '{subject}'",
    key="draft_id",
    given=pick(subject=("A question", "News from me", "About next week", "Short and sweet", "Important")),
    name="retitle",
)
_REWRITE = Act(
    "mail.update_draft",
    (
        "Change the text of {it} to '{body}'.",
        "Write '{body}' as the text of {it}, in place of what is there.",
        "The text of {it} should be '{body}' instead.",
        "Replace the whole text of {it} by '{body}'.",
    ),
    "give {them} the text '{body}'",
    key="draft_id",
    given=pick(body=("See you on Sunday", "I changed my mind", "Nothing new", "Call me about it", "All is well")),
    name="rewrite",
)
_DISCARD = replace(
    mail.DELETE,
    wordings=("Delete {it}.", "Throw away {it}.", "Away with {it}: delete {them}.", "Get rid of {it}."),
    name="discard",
)
_FOR = Ask(
    "recipients",
    ("Which e-mail address is {it} for?", "To which address would {it} go?", "Tell me the address that {it} is for."),
    "tell the address that {them} is for",
)

DRILLS = [
    *drills([_NEWEST], [_SEND, (mail.BODY, _SEND)]),
    *drills([_TITLED], [_RETITLE, _DISCARD, (_FOR, _REWRITE), (_RETITLE, _SEND)]),
    *drills([_OLDEST], [_SEND, mail.SUBJECT]),
    *drills([_BEFORE_AND_SINCE], [(_DISCARD, replace(_SEND, rest=True))]),
    *drills([_TO], [_SEND, _REWRITE]),
    *drills([_TO_KIN], [_RETITLE, mail.COUNTS]),
]
