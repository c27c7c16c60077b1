"""The kinds of errand of the practice split."""

from itertools import combinations

from errands.practice.declared import declared
from errands.practice.drill import Drill
from errands.practice.pairs import Relay, Round, allowed, relays, rounds, twice
from errands.scenarios import SCENARIOS

_MEASURED = [kind for kind in SCENARIOS if kind.split != "train"]
_WITHHELD = [frozenset(kind.apis) for kind in _MEASURED]
"""APIs that no drill may have all of: those of an errand of the tests."""
_FURTHER = [frozenset(some) for kind in _MEASURED for some in combinations(kind.apis, max(2, len(kind.apis) - 1))]
"""The same for what is put together from drills: not even all but one."""

_MODULES = ("contacts", "mail", "phone", "calendar", "notes", "todo", "wallet", "shop")
PLAIN: list[type[Drill]] = [kind for one in _MODULES for kind in declared(one) if allowed(kind.apis, _WITHHELD)]
TWICE: list[type[Drill]] = twice(PLAIN, 1, _FURTHER)
DRILLS: list[type[Drill]] = [*PLAIN, *TWICE]
ROUNDS: list[type[Round]] = rounds(PLAIN, 40, _FURTHER)
RELAYS: list[type[Relay]] = relays(PLAIN, _FURTHER)
