"""Scenarios made of two drills: two acts on one Find, rounds and relays.

A round is one drill and then another; the agent must not stop after the first. In a relay, the answer to one drill is
an argument of the other ("Rename the note 'Attic' to the subject of the latest email from Dora"); the agent must carry
it from one app to the next. The two drills share no app, so they do not interfere. Drills are paired at random, and no
pair uses all APIs of a withheld set.
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
    return not any(map({*apis}.issuperset, withheld))


_GONE = ("block", "cancel", "delete", "remove", "withdraw")
"""Prefixes of APIs after which the thing is gone or out of reach."""
_CHANGED = ("accept", "decline", "restore", "rewrite", "send_draft", "unblock")
"""Prefixes of APIs after which the next act may no longer apply."""
_UNTOUCHED = ("accept", "decline", "unblock")
"""Prefixes of APIs that need an untouched thing."""
_BACK = {"add": ["remove", "delete", "withdraw"], "write": ["delete"]}
"""Prefixes of APIs that undo others."""


def twice(kinds: Sequence[type[Drill]], most: int, withheld: Withheld) -> list[type[Drill]]:
    """Drills with two acts on the same Find, chosen at random, at most `most` for each Find."""
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
    """Whether the second act still works after the first, and the two share no slot."""
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
    """`number` rounds. A drill is the second of at most one round; only the second may ask a question."""
    rng = random.Random("rounds")
    made: list[type[Round]] = []
    acts = [kind for kind in drills if not any(isinstance(wish, Ask) for wish in kind.wishes)]
    apps = {kind: frozenset(kind.apps()) for kind in drills}
    for second in rng.sample(drills, len(drills)):
        if len(made) == number:
            break
        elsewhere = [kind for kind in acts if apps[kind].isdisjoint(apps[second])]
        if not elsewhere:
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
"""Fields whose value can be used as a text elsewhere: a line that is never empty."""
_LONG, _SHORT = ("body", "line", "note", "text"), ("subject", "title")
"""Parameters that take such a text: any, or only short ones."""
_NOTED = "what I noted"
_EACH = 3
"""Relays for each parameter that takes a text."""


class Relay(Round):
    slot: ClassVar[str]
    """The slot of the second drill that takes the answer of the first."""

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
    """Relays: for each drill that takes a text, some drills at random that ask for one."""
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
    """The slots of a drill's act that may take a text from another drill."""
    act = kind.wishes[0]
    if not isinstance(act, Act):
        return []
    parameters = find(act.api).parameters
    free = [slot for slot in act.told if slot in _LONG + _SHORT and parameters[slot].label.startswith("str")]
    words = r"(?<!the )\b(add|put|reply|text|to|with) '{%s}'"
    return [slot for slot in free if all(re.search(words % slot, phrase) for phrase in act.phrases)]


def _passed_on(first: type[Drill], second: Sequence[str], slot: str) -> tuple[str, ...]:
    """The second drill's wordings, with what the first asks for in place of the quoted text."""
    sources = cycle(f"{_ask(first).said} of {it}" for it in first.find.it)
    said = (wording.replace("{", "{then_").split(f"'{{then_{slot}}}'") for wording in second)
    return tuple(source.join(parts) for source, parts in zip(sources, said, strict=False))
