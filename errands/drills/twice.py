"""Drills in which two things are done to what was found, one after the other."""

import random
from collections.abc import Collection, Sequence
from itertools import permutations

from errands.drill import Act, Drill, Find, drills

_GONE = ("block", "cancel", "delete", "remove", "withdraw")
"""How the APIs begin after which a thing is gone, or out of reach."""
_CHANGED = ("accept", "decline", "restore", "rewrite", "send_draft", "unblock")
"""How those begin after which it is no longer what the next act needs."""
_UNTOUCHED = ("accept", "decline", "unblock")
"""How those begin that need the thing as nobody has touched it."""
_BACK = {"add": ["remove", "delete", "withdraw"], "write": ["delete"]}
"""What takes back what was done."""


def twice(kinds: Sequence[type[Drill]], most: int, withheld: Collection[frozenset[str]]) -> list[type[Drill]]:
    """Kinds of errand of two acts on the same find, drawn by lot, so many for each find at most. None uses all APIs
    of a withheld set."""
    acts: dict[Find, dict[str, Act]] = {}
    for kind in kinds:
        wish = kind.wishes[0]
        if len(kind.wishes) == 1 and isinstance(wish, Act) and wish.key:
            acts.setdefault(kind.find, {})[kind.name()] = wish
    rng = random.Random("twice")
    known = {kind.name() for kind in kinds}
    made: list[type[Drill]] = []
    for thing, own in acts.items():
        pairs = [pair for pair in permutations(own.values(), 2) if _go_together(*pair)]
        both = [kind for kind in drills([thing], pairs) if kind.name() not in known]
        allowed = [kind for kind in both if not any(those <= {*kind.apis} for those in withheld)]
        made += rng.sample(allowed, min(most, len(allowed)))
    return made


def _go_together(first: Act, second: Act) -> bool:
    """Whether the second still finds what it needs, and nothing that is told for one is taken for the other."""
    (app, verb), (other, then) = (act.api.split(".") for act in (first, second))
    undone = _BACK.get(verb.partition("_")[0], []) if app == other else []
    used, taken = ({act.field, *dict(act.also).values(), *act.told} for act in (first, second))
    apart = not used & {*second.told} and not taken & {*first.told}
    in_order = not verb.startswith(_GONE + _CHANGED) and not then.startswith((*_UNTOUCHED, *undone))
    return apart and in_order and first.api != second.api
