"""A relay: what one drill would ask for is what another is done with.

"Rename the note 'Attic' to the subject of the last mail from Dora": whoever does it must look in one app and remember
what it says there, and then do something in another. The two have no app in common, so that neither gets in the way of
the other.
"""

import random
import re
from collections.abc import Collection, Sequence
from itertools import cycle
from typing import Any, ClassVar

from errands.apps import find
from errands.disguise import Disguise
from errands.drill import Act, Ask, Drill
from errands.judge import Goal
from errands.round import Round
from errands.scenario import Turns
from errands.world import World

_TOLD = ("address", "body", "code", "note", "organiser", "place", "sender", "subject", "text", "title")
"""What is asked for and can be written down anywhere."""
_LONG, _SHORT = ("body", "line", "note", "text"), ("subject", "title")
"""Where it can be written: anything, or what is not long itself."""
_NOTED = "what I noted"


class Relay(Round):
    slot: ClassVar[str]
    """Of the second's, for what the first tells."""

    @classmethod
    def name(cls) -> str:
        return f"{cls.second.name()}-by-{cls.first.name()}"

    @classmethod
    def wordings(cls, disguise: Disguise | None) -> Sequence[str]:
        return _linked(cls.first, cls.second.wordings(disguise), cls.slot)

    def prepare(self, w: World) -> Goal:
        (mine, rows), (others, more) = self.first.put(w), self.second.put(w)
        others |= {self.slot: rows[0][_ask(self.first).field]}
        goal = Goal(w, **mine, **{f"then_{name}": value for name, value in others.items()})
        self.second.fulfil(goal, others, more)
        return goal

    def solve(self, **slots: Any) -> Turns:
        ask = _ask(self.first)
        first, second = self.parts(slots | {f"then_{self.slot}": _NOTED})
        for thought, code in first:
            if "complete_task" in code:
                break
            code = re.sub(r"\bfound\b", "there", code)
            noted = "" if ask.show else f"\nanswer = {ask.answer.replace('found', 'there')}"
            yield thought, code + noted
        for thought, code in second:
            thought = thought.replace(" as I was told", f" as I was told (`{self.slot}`: {ask.said})")
            yield thought, code.replace(f'"{_NOTED}"', "answer")


def relays(drills: Sequence[type[Drill]], withheld: Collection[frozenset[str]]) -> list[type[Relay]]:
    """A kind of errand for every text that a drill is told, with a drill that tells one, drawn by lot. None uses all
    APIs of a withheld set."""
    rng = random.Random("relays")
    single = [kind for kind in drills if len(kind.wishes) == 1]
    asks = [kind for kind in single if not kind.find.many and isinstance(kind.wishes[0], Ask)]
    asks = [kind for kind in asks if kind.wishes[0].field in _TOLD and not kind.wishes[0].rest]
    made: list[type[Relay]] = []
    for second in single:
        for slot in _texts(second):
            fits = [kind for kind in asks if not {*kind.apps()} & {*second.apps()}]
            fits = [kind for kind in fits if slot in _LONG or _ask(kind).field not in _LONG]
            fits = [kind for kind in fits if not any(those <= {*kind.apis, *second.apis} for those in withheld)]
            if fits:
                made.append(_relay(rng.choice(fits), second, slot))
    return made


def _relay(first: type[Drill], second: type[Drill], slot: str) -> type[Relay]:
    apis = tuple(dict.fromkeys((*first.apis, *second.apis)))
    members = {"first": first, "second": second, "slot": slot, "apis": apis}
    members["phrasings"] = _linked(first, second.phrasings, slot)
    return type(f"{second.__name__}{slot.title()}By{first.__name__}", (Relay,), members)


def _ask(kind: type[Drill]) -> Ask:
    ask = kind.wishes[0]
    assert isinstance(ask, Ask)
    return ask


def _texts(kind: type[Drill]) -> list[str]:
    """The parameters of a drill's one act that take the text that is told, whatever it is."""
    act = kind.wishes[0]
    if not isinstance(act, Act):
        return []
    parameters = find(act.api).parameters
    free = [slot for slot in act.told if slot in _LONG + _SHORT and parameters[slot].label.startswith("str")]
    return [slot for slot in free if all(f"'{{{slot}}}'" in said for said in kind.phrasings)]


def _linked(first: type[Drill], second: Sequence[str], slot: str) -> tuple[str, ...]:
    """The second's wordings, with what the first asks for in the place of what would be told."""
    sources = cycle(f"{_ask(first).said} of {it}" for it in first.find.it)
    said = (wording.replace("{", "{then_").split(f"'{{then_{slot}}}'") for wording in second)
    return tuple(source.join(parts) for source, parts in zip(sources, said, strict=False))
