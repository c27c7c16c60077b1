"""The drills of the practice split: for each app things that have a name, and things chosen by a condition. And
rounds and relays, of two drills each."""

from itertools import combinations

from errands.drill import Drill
from errands.drills import (
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
    lists,
    mail,
    marks,
    memos,
    names,
    notes,
    orders,
    payments,
    phone,
    purchases,
    requests,
    returns,
    shop,
    tags,
    todo,
    twice,
    wallet,
    wishes,
)
from errands.relay import Relay, relays
from errands.round import Round, rounds
from errands.scenarios import SCENARIOS

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
    lists,
    payments,
    requests,
    purchases,
    wishes,
    orders,
    returns,
)
_WITHHELD = [
    frozenset(some)
    for kind in SCENARIOS
    if kind.split != "train"
    for some in combinations(kind.apis, max(2, len(kind.apis) - 1))
]
"""APIs that nothing put together from drills may have all of: those of an errand of the tests, or all but one."""

PLAIN: list[type[Drill]] = [kind for module in _NAMED + _CHOSEN for kind in module.DRILLS]
TOLD = names.told(PLAIN, _WITHHELD)
TWICE = twice.twice(PLAIN, 4, _WITHHELD)
DRILLS: list[type[Drill]] = [*PLAIN, *TOLD, *TWICE]
ROUNDS: list[type[Round]] = rounds(PLAIN, 40, _WITHHELD)
RELAYS: list[type[Relay]] = relays(PLAIN, _WITHHELD)
