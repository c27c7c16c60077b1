"""Drills around the labels of mails."""

from dataclasses import replace

from errands.drill import NOTHING, Act, Ask, Find, Rows, Slots, drills, limit
from errands.drills import contacts, letters, mail, marks
from errands.world import World

_OLD = ("home", "receipts", "travel", "work")
_NEW = ("books", "games", "holidays", "recipes", "school", "sports")


def _label(w: World, rows: Rows) -> Slots:
    """A label that none of the mails has."""
    name = w.rng.choice(_OLD)
    label = w.value("SELECT id FROM mail_labels WHERE owner = ? AND name = ?", w.owner.id, name)
    for one in rows:
        w.run("DELETE FROM mail_labelled WHERE message = ? AND label = ?", one["id"], label)
    return {"label": name}


def _new(rows: Rows) -> str:
    """The same whenever it is asked about a mail."""
    return _NEW[int(rows[0]["time"][8:10]) % len(_NEW)]


def _labels(w: World) -> Rows:
    """All labels, some of them new and without mails, the others on a different number of mails each."""
    for name in (_NEW[0], *w.rng.sample(_NEW[1:], w.rng.randrange(1, 5))):
        w.add("mail_labels", owner=w.owner.id, name=name)
    w.run("DELETE FROM mail_labelled WHERE label IN (SELECT id FROM mail_labels WHERE owner = ?)", w.owner.id)
    mails = [one["id"] for one in letters.mails_in(w)]
    for name, count in zip(_OLD, w.rng.sample(range(2, 11), len(_OLD)), strict=True):
        label = w.value("SELECT id FROM mail_labels WHERE owner = ? AND name = ?", w.owner.id, name)
        for message in w.rng.sample(mails, count):
            w.add("mail_labelled", message=message, label=label)
    counted = "(SELECT count(*) FROM mail_labelled WHERE label = l.id) AS messages"
    return w.all(f"SELECT l.*, {counted} FROM mail_labels l WHERE owner = ? ORDER BY messages", w.owner.id)


def _over(w: World) -> tuple[Slots, Rows]:
    labels = _labels(w)
    least = limit(w, [label["messages"] for label in labels])
    return {"limit": least}, [label for label in labels if label["messages"] > least]


def _mails_of_most(w: World) -> tuple[Slots, Rows]:
    label = _labels(w)[-1]["id"]
    return {}, w.all("SELECT m.* FROM mail_messages m JOIN mail_labelled ON message = m.id WHERE label = ?", label)


_LABELS = "found = mail.list_labels()\n"
_MOST = Find(
    "most-used-label",
    ("the label that is on the most mails", "the mail label with the most mails", "my most used mail label"),
    _LABELS + 'found = [max(found, key=lambda x: x["messages"])]',
    lambda w: ({}, _labels(w)[::-1]),
    keep="the one with the most `messages`",
)
_EMPTY = Find(
    "empty-labels",
    ("all labels that no mail has", "every mail label that is on no mail at all"),
    _LABELS + 'found = [x for x in found if x["messages"] == 0]',
    lambda w: ({}, [label for label in _labels(w) if not label["messages"]]),
    many=True,
    keep="those whose `messages` are 0",
)
_OVER = Find(
    "much-used-labels",
    ("all labels that are on more than {limit} mails", "every mail label that more than {limit} mails have"),
    _LABELS + 'found = [x for x in found if x["messages"] > {limit}]\nprint([x["name"] for x in found])',
    _over,
    many=True,
    keep="those whose `messages` are more than {limit}",
)
_MAILS_OF_MOST = Find(
    "mails-of-most-used-label",
    ("all mails with the label that is on the most mails", "every mail that has my most used label"),
    _LABELS + 'found = [max(found, key=lambda x: x["messages"])]\n'
    'found = mail.list_labelled(label=found[0]["name"], page_size=20)\nprint(len(found))',
    _mails_of_most,
    many=True,
    keep="the label with the most `messages`, and all its mails",
)

_LABEL = Act(
    "mail.add_label",
    (
        "Put the label '{label}' on {it}.",
        "Label {it} '{label}'.",
        "Add the label '{label}' to {it}.",
        "{it} should get the label '{label}'.",
    ),
    "put the label '{label}' on {them}",
    key="message_id",
    given=_label,
    name="label",
)
_LABEL_NEW = replace(
    _LABEL,
    aim="put the label '{label}' on this mail",
    given=lambda w, rows: {"label": _new(rows)},
)
_CREATE = Act(
    "mail.create_label",
    (
        "Make a new label '{name}' for my mails.",
        "I need another label in my mail, with the name '{name}'.",
        "Add '{name}' to the labels that I have for mails.",
        "Create the mail label '{name}'.",
    ),
    "create the mail label '{name}'",
    given=lambda w, rows: {"name": w.rng.choice(_NEW)},
)
_CREATE_FOR = Act(
    "mail.create_label",
    (
        "Make a new label '{name}' for {it}.",
        "There is no label yet that fits {it}: create the label '{name}'.",
        "I need the new label '{name}' for {it}. Create that label.",
    ),
    "create the label '{name}'",
    given=lambda w, rows: {"name": _new(rows)},
)
_CREATE_NAMED = Act(
    "mail.create_label",
    (
        "Make a mail label for {it}, with the full name as the name of the label.",
        "I want a new label in my mail for {it}, called by the full name.",
        "Create a label for mails for {it}. Its name is the full name of that contact.",
    ),
    "create a mail label with the full name of {them}",
    key="name",
    field="name",
    name="create-label",
)
_LIST = Act(
    "todo.create_list",
    (
        "Make new to-do lists for {it}, each with the name of its label.",
        "For each of these, make a to-do list of the same name: {it}.",
        "For {it}, create to-do lists of the same names.",
    ),
    "create to-do lists with the names of {them}",
    key="name",
    field="name",
)
_NOTE = Act(
    "notes.create",
    (
        "Write empty notes for {it}, each with the name of its label as the title.",
        "For each of these, write a note without text that has its name as the title: {it}.",
        "For {it}, create empty notes whose titles are the names of the labels.",
    ),
    "create empty notes with the names of {them} as titles",
    key="title",
    field="name",
    name="note",
)
_NAME = Ask(
    "name",
    ("What is the name of {it}?", "Tell me the name of {it}.", "Which one is {it}? Tell me its name."),
    "tell the name of {them}",
)

DRILLS = [
    *drills([NOTHING], [_CREATE]),
    *drills([contacts.KIN, contacts.KINS_ALL], [_CREATE_NAMED]),
    *drills([_MOST], [_NAME]),
    *drills([_EMPTY], [mail.COUNTS, _LIST]),
    *drills([_OVER], [_NOTE]),
    *drills([_MAILS_OF_MOST], [mail.ARCHIVE]),
    *drills([mail.SENT, marks.OLDEST], [(_CREATE_FOR, _LABEL_NEW)]),
    *drills([mail.LAST], [(mail.REPLY, _LABEL)]),
    *drills([mail.ALL_FROM, mail.ALL_STARRED], [_LABEL]),
    *drills([letters.FROM_KIN, marks.BEFORE], [_LABEL]),
]
