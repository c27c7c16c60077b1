"""A round: one drill and then another, in one errand.

Whoever has done the first must see that there is more, and go on with another app. The two have no app in common, so
that neither gets in the way of the other.
"""

import random
from collections.abc import Collection, Sequence
from itertools import cycle
from typing import Any, ClassVar

from errands.disguise import Disguise
from errands.drill import Ask, Drill, Slots
from errands.judge import Goal
from errands.scenario import Scenario, Turns
from errands.world import World

_LINKS = (" ", " Then something else: ", " And: ", " When that is done: ")


class Round(Scenario):
    split = "practice"
    difficulty = 2
    first: ClassVar[type[Drill]]
    second: ClassVar[type[Drill]]

    @classmethod
    def name(cls) -> str:
        return f"{cls.first.name()}-then-{cls.second.name()}"

    @classmethod
    def known(cls) -> frozenset[str]:
        return cls.first.known() | cls.second.known()

    @classmethod
    def wordings(cls, disguise: Disguise | None) -> Sequence[str]:
        return _linked(cls.first.wordings(disguise), cls.second.wordings(disguise))

    def prepare(self, w: World) -> Goal:
        (mine, rows), (others, more) = self.first.put(w), self.second.put(w)
        goal = Goal(w, **mine, **{f"then_{name}": value for name, value in others.items()})
        self.first.fulfil(goal, mine, rows)
        self.second.fulfil(goal, others, more)
        return goal

    def solve(self, **slots: Any) -> Turns:
        first, second = self.parts(slots)
        for thought, code in first:
            if "complete_task" not in code:
                yield thought, code
        yield from second

    def parts(self, slots: Slots) -> tuple[Turns, Turns]:
        """The turns of both."""
        mine = {name: value for name, value in slots.items() if not name.startswith("then_")}
        others = {name.removeprefix("then_"): value for name, value in slots.items() if name not in mine}
        first, second = self.first(), self.second()
        first.setting = second.setting = self.setting
        return first.solve(**mine), second.solve(**others)


def rounds(drills: Sequence[type[Drill]], number: int, withheld: Collection[frozenset[str]]) -> list[type[Round]]:
    """So many kinds of errand, each drill in at most one of them as the second, which alone may ask something. None
    uses all APIs of a withheld set."""
    rng = random.Random("rounds")
    made: list[type[Round]] = []
    acts = [kind for kind in drills if not any(isinstance(wish, Ask) for wish in kind.wishes)]
    for second in rng.sample(drills, len(drills)):
        elsewhere = [kind for kind in acts if not {*kind.apps()} & {*second.apps()}]
        if len(made) == number or not elsewhere:
            continue
        first = rng.choice(elsewhere)
        apis = tuple(dict.fromkeys((*first.apis, *second.apis)))
        if not any(those <= {*apis} for those in withheld):
            members = {"first": first, "second": second, "apis": apis}
            members["phrasings"] = _linked(first.phrasings, second.phrasings)
            made.append(type(f"{first.__name__}Then{second.__name__}", (Round,), members))
    return made


def _linked(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """As many wordings as the one that has more."""
    number = max(len(first), len(second))
    both = zip(range(number), cycle(first), cycle(_LINKS), cycle(second), strict=False)
    return tuple(one + link + other.replace("{", "{then_") for _, one, link, other in both)
