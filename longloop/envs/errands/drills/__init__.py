"""The drills of the practice split: for each app things that have a name, and things chosen by a condition."""

from longloop.envs.errands.drill import Drill
from longloop.envs.errands.drills import (
    calendar,
    calls,
    cards,
    chats,
    contacts,
    days,
    drafts,
    events,
    favourites,
    guests,
    invitations,
    items,
    labels,
    letters,
    mail,
    marks,
    memos,
    notes,
    payments,
    phone,
    purchases,
    shop,
    tags,
    todo,
    wallet,
)

_NAMED = (contacts, mail, phone, calendar, notes, todo, wallet, shop)
_CHOSEN = (
    cards,
    favourites,
    drafts,
    marks,
    labels,
    letters,
    calls,
    chats,
    events,
    invitations,
    days,
    guests,
    memos,
    tags,
    items,
    payments,
    purchases,
)
DRILLS: list[type[Drill]] = [kind for module in _NAMED + _CHOSEN for kind in module.DRILLS]
