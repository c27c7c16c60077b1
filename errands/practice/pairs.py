"""Errands put together from drills: two acts on one find, rounds and relays.

A round is one drill and then another: whoever has done the first must see that there is more. In a relay, what one
drill would ask for is what another is done with ("Rename the note 'Attic' to the subject of the last mail from Dora"):
it must be remembered from one app to the next. The two have no app in common, so that neither gets in the way of the
other. Which drills go together is drawn by lot; none of the three uses all APIs of a withheld set.
"""

import random
import re
from collections.abc import Collection, Sequence
from itertools import cycle, permutations
from typing import Any, ClassVar

from errands.apps import find
from errands.disguise import Disguise
from errands.judge import Goal
from errands.practice.drill import Act, Ask, Drill, Find, Slots, drills
from errands.scenario import Scenario, Turns
from errands.world import World

Withheld = Collection[frozenset[str]]


def allowed(apis: Sequence[str], withheld: Withheld) -> bool:
    return not any(those <= {*apis} for those in withheld)


_GONE = ("block", "cancel", "delete", "remove", "withdraw")
"""How the APIs begin after which a thing is gone, or out of reach."""
_CHANGED = ("accept", "decline", "restore", "rewrite", "send_draft", "unblock")
"""How those begin after which it is no longer what the next act needs."""
_UNTOUCHED = ("accept", "decline", "unblock")
"""How those begin that need the thing as nobody has touched it."""
_BACK = {"add": ["remove", "delete", "withdraw"], "write": ["delete"]}
"""What takes back what was done."""


def twice(kinds: Sequence[type[Drill]], most: int, withheld: Withheld) -> list[type[Drill]]:
    """Kinds of errand of two acts on the same find, drawn by lot, so many for each find at most."""
    acts: dict[Find, dict[str, Act]] = {}
    for kind in kinds:
        wish = kind.wishes[0]
        if len(kind.wishes) == 1 and isinstance(wish, Act) and wish.field:
            acts.setdefault(kind.find, {})[kind.name()] = wish
    rng = random.Random("twice")
    known = {kind.name() for kind in kinds}
    made: list[type[Drill]] = []
    for thing, own in acts.items():
        pairs = [pair for pair in permutations(own.values(), 2) if _go_together(*pair)]
        both = [kind for kind in drills([thing], pairs) if kind.name() not in known and allowed(kind.apis, withheld)]
        made += rng.sample(both, min(most, len(both)))
    return made


def _go_together(first: Act, second: Act) -> bool:
    """Whether the second still finds what it needs, and nothing that is told for one is taken for the other."""
    (app, verb), (other, then) = (act.api.split(".") for act in (first, second))
    undone = _BACK.get(verb.partition("_")[0], []) if app == other else []
    used, taken = ({act.field, *act.told} for act in (first, second))
    apart = not used & {*second.told} and not taken & {*first.told}
    in_order = not verb.startswith(_GONE + _CHANGED) and not then.startswith((*_UNTOUCHED, *undone))
    return apart and in_order and first.api != second.api


_LINKS = (" ", " One more thing: ", " Then: ", " And another thing: ")


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

    def turns(self, **slots: Any) -> Turns:
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
        return first.turns(**mine), second.turns(**others)


def rounds(drills: Sequence[type[Drill]], number: int, withheld: Withheld) -> list[type[Round]]:
    """So many kinds of errand, each drill in at most one of them as the second, which alone may ask something."""
    rng = random.Random("rounds")
    made: list[type[Round]] = []
    acts = [kind for kind in drills if not any(isinstance(wish, Ask) for wish in kind.wishes)]
    for second in rng.sample(drills, len(drills)):
        elsewhere = [kind for kind in acts if not {*kind.apps()} & {*second.apps()}]
        if len(made) == number or not elsewhere:
            continue
        first = rng.choice(elsewhere)
        apis = tuple(dict.fromkeys((*first.apis, *second.apis)))
        if allowed(apis, withheld):
            members = {"first": first, "second": second, "apis": apis}
            members["phrasings"] = _linked(first.phrasings, second.phrasings)
            made.append(type(f"{first.__name__}Then{second.__name__}", (Round,), members))
    return made


def _linked(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """As many wordings as the one that has more."""
    number = max(len(first), len(second))
    both = zip(range(number), cycle(first), cycle(_LINKS), cycle(second), strict=False)
    return tuple(one + link + other.replace("{", "{then_") for _, one, link, other in both)


_TOLD = ("address", "code", "name", "organiser", "sender", "subject", "text", "title")
"""What is asked for and can be written down anywhere: a line that is never empty."""
_LONG, _SHORT = ("body", "line", "note", "text"), ("subject", "title")
"""Where it can be written: anything, or what is not long itself."""
_NOTED = "what I noted"
_EACH = 3
"""Relays for each text."""


class Relay(Round):
    slot: ClassVar[str]
    """Of the second's, for what the first tells."""

    @classmethod
    def name(cls) -> str:
        return f"{cls.second.name()}-by-{cls.first.name()}"

    @classmethod
    def wordings(cls, disguise: Disguise | None) -> Sequence[str]:
        return _passed_on(cls.first, cls.second.wordings(disguise), cls.slot)

    def prepare(self, w: World) -> Goal:
        (mine, rows), (others, more) = self.first.put(w), self.second.put(w)
        others |= {self.slot: _ask(self.first).told(w, rows)}
        goal = Goal(w, **mine, **{f"then_{name}": value for name, value in others.items()})
        self.second.fulfil(goal, others, more)
        return goal

    def turns(self, **slots: Any) -> Turns:
        ask = _ask(self.first)
        first, second = self.parts(slots | {f"then_{self.slot}": _NOTED})
        for thought, code in first:
            if "complete_task" in code:
                break
            code = re.sub(r"\bfound\b", "there", code)
            noted = "" if ask.show else f"\nanswer = {ask.answer.replace('found', 'there')}"
            yield thought, code + noted
        for thought, code in second:
            thought = thought.replace(" as the task says", f" as the task says (`{self.slot}`: {ask.said})")
            yield thought, code.replace(f'"{_NOTED}"', "answer")


def relays(drills: Sequence[type[Drill]], withheld: Withheld) -> list[type[Relay]]:
    """Kinds of errand for texts that a drill is told, each with a drill that tells one, drawn by lot."""
    rng = random.Random("relays")
    single = [kind for kind in drills if len(kind.wishes) == 1]
    asks = [kind for kind in single if not kind.find.many and isinstance(kind.wishes[0], Ask)]
    asks = [kind for kind in asks if kind.wishes[0].field in _TOLD and not kind.wishes[0].rest]
    made: list[type[Relay]] = []
    for second in single:
        for slot in _texts(second):
            fits = [kind for kind in asks if not {*kind.apps()} & {*second.apps()}]
            fits = [kind for kind in fits if slot in _LONG or _ask(kind).field not in _LONG]
            fits = [kind for kind in fits if allowed((*kind.apis, *second.apis), withheld)]
            made += [_relay(first, second, slot) for first in rng.sample(fits, min(_EACH, len(fits)))]
    return list({kind.name(): kind for kind in made}.values())


def _relay(first: type[Drill], second: type[Drill], slot: str) -> type[Relay]:
    apis = tuple(dict.fromkeys((*first.apis, *second.apis)))
    members = {"first": first, "second": second, "slot": slot, "apis": apis}
    members["phrasings"] = _passed_on(first, second.phrasings, slot)
    return type(f"{second.__name__}{slot.title()}By{first.__name__}", (Relay,), members)


def _ask(kind: type[Drill]) -> Ask:
    ask = kind.wishes[0]
    assert isinstance(ask, Ask)
    return ask


def _texts(kind: type[Drill]) -> list[str]:
    """The parameters of a drill's one act that take the text that is told, and where that may be something's title."""
    act = kind.wishes[0]
    if not isinstance(act, Act):
        return []
    parameters = find(act.api).parameters
    free = [slot for slot in act.told if slot in _LONG + _SHORT and parameters[slot].label.startswith("str")]
    words = r"(?<!the )\b(add|put|reply|text|to|with) '{%s}'"
    return [slot for slot in free if all(re.search(words % slot, phrase) for phrase in act.phrases)]


def _passed_on(first: type[Drill], second: Sequence[str], slot: str) -> tuple[str, ...]:
    """The second's wordings, with what the first asks for in the place of what would be told."""
    sources = cycle(f"{_ask(first).said} of {it}" for it in first.find.it)
    said = (wording.replace("{", "{then_").split(f"'{{then_{slot}}}'") for wording in second)
    return tuple(source.join(parts) for source, parts in zip(sources, said, strict=False))
