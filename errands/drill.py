"""A drill: a small kind of errand, put together from how a thing is found and what is wished of it.

The tables in `drills` say each only once: a Find (how a thing comes into the world, what it is called, the code that
looks for it), an Act (an API that does something to it) and an Ask (something to be told about it). Any Find goes with
any Act or Ask for the same thing, so that the wish must be understood and the API for it found in the documentation;
no script for the whole of it can be learnt by heart. Names here are the real ones, in a thought `so` if they are of
parameters; what the agent and the expert say in their place is up to disguise.py.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, ClassVar

from errands import foreign
from errands.apps import BY_NAME, find
from errands.disguise import Disguise
from errands.judge import Goal
from errands.scenario import Scenario, Turns, log_in
from errands.world import World

Slots = dict[str, Any]
Rows = list[dict[str, Any]]
"""The things that a Find is about, by their columns."""

_LINKS = ("After that, ", "Then ", "And ", "When that is done, ")
"""Between a wish and the next, one for each wording."""
_FORMS = ("This is about {it}: {aim}.", "Look for {it}, and {aim}.", "I am thinking of {it}. Please {aim}.")
"""Any wish about any thing, besides the wordings of its own."""
_SLOT = re.compile(r"{(\w+)}")
_CALL = re.compile(r"\b([a-z]+)\.([a-z_]+)\(([^()]*)\)")


@dataclass(frozen=True)
class Find:
    """How a thing is found."""

    name: str
    it: tuple[str, ...]
    """What it is called in an instruction, with slots in braces."""
    look: str
    """Code that leaves its rows in `found`. Calls are written `app.api(...)`; log-ins and tokens are added."""
    put: Callable[[World], tuple[Slots, Rows]]
    """Puts it into the world; the slots, and what should be found."""
    many: bool = False
    """Whether every row counts, and not just the first."""
    person: bool = False
    """Whether `it` is someone."""
    keep: str = ""
    """What `look` keeps of all that it sees, as in "I keep ...", with slots and with fields `so`."""
    rest: str = ""
    """What the others are called, if `look` leaves them in `rest`; `put` gives their rows a true `rest`."""

    @property
    def pronoun(self) -> str:
        return "them" if self.many or self.person else "it"

    @property
    def apis(self) -> list[str]:
        return [f"{app}.{api}" for app, api, _ in _CALL.findall(self.look) if app in BY_NAME]


@dataclass(frozen=True)
class Act:
    """Something that can be done to a thing. A slot that is called like a parameter of the API is its argument."""

    api: str
    wordings: tuple[str, ...]
    """The wish. {it} is what the thing is called, {them} its pronoun; the rest are slots."""
    aim: str
    """The wish as in "I should ...", with {them} and all slots."""
    key: str = ""
    """The parameter that says which thing; none for an API that needs no thing."""
    field: str = "id"
    """What of the thing it takes."""
    also: tuple[tuple[str, str], ...] = ()
    """More parameters, and what of the thing they take."""
    given: Callable[[World, Rows], Slots] = lambda w, rows: {}
    """More slots. May also make the world ready for it."""
    fixed: tuple[tuple[str, Any], ...] = ()
    """Arguments that are always the same."""
    name: str = ""
    """Of the kinds of errand with it; what the API is called if not given."""
    listed: bool = False
    """Whether the API takes a list of things; it gets one."""
    rest: bool = False
    """Whether it is for those that are left over, and not for those that were found."""

    @property
    def apis(self) -> list[str]:
        return [self.api]

    @property
    def told(self) -> list[str]:
        """The slots that the wish has besides the thing."""
        return [slot for slot in dict.fromkeys(_SLOT.findall(self.wordings[0])) if slot not in ("it", "them")]

    @property
    def plain(self) -> bool:
        """Whether all it takes is the thing and arguments that are told, so that any verb can stand for it."""
        parameters = find(self.api).parameters
        needed = {name for name, one in parameters.items() if one.required}
        needed -= {self.key, "access_token", *dict(self.also)}
        return bool(self.key) and not self.fixed and needed <= set(self.told) <= set(parameters)

    def said_in(self, disguise: Disguise) -> "Act":
        """The same wish, by the foreign verb that a disguise may have for it and the names of its parameters there."""
        verb = disguise.verb(self.api)
        if not verb:
            return self
        quoted = {slot: f"'{{{slot}}}'" if f"'{{{slot}}}'" in self.wordings[0] else f"{{{slot}}}" for slot in self.told}
        more = [f"{disguise.parameter(self.api, slot).replace('_', ' ')} {value}" for slot, value in quoted.items()]
        rest = f" with {' and '.join(more)}" if more else ""
        app = self.api.partition(".")[0]
        forms = tuple(form.format(verb=verb, it=f"{{it}}{rest}", app=app) for form in foreign.FORMS)
        return replace(self, wordings=forms, aim=f"{verb} {{them}}{rest}")

    def arguments(self, slots: Slots) -> dict[str, Any]:
        """All but which thing."""
        told = [name for name in find(self.api).parameters if name in slots and name not in dict(self.also)]
        return {name: slots[name] for name in told} | dict(self.fixed)

    def done(self, goal: Goal, slots: Slots, rows: Rows) -> None:
        for row in rows:
            which = [row[self.field]] if self.listed else row.get(self.field)
            key = ({self.key: which} if self.key else {}) | {name: row.get(field) for name, field in self.also}
            goal.do(self.api, **key, **self.arguments(slots))

    def turn(self, slots: Slots, many: bool) -> tuple[str, str]:
        """A thought and the code."""
        arguments = {name: _literal(value) for name, value in self.arguments(slots).items()}
        one = "x" if many else "found[0]"
        which = f'{one}["{self.field}"]'
        key = {self.key: f"[{which}]" if self.listed else which} if self.key else {}
        key |= {name: f'{one}["{field}"]' for name, field in self.also}
        call = _call(self.api, key | arguments)
        fields = ([(self.key, self.field)] if self.key else []) + [*self.also]
        needs = [f"`{name}` is the {f} of what {'is left over' if self.rest else 'I found'}" for name, f in fields]
        needs += [f"{', '.join(f'`{name}`' for name in arguments)} as I was told"] if arguments else []
        thought = f"{self.api} does it{' for each' if many else ''}{': ' if needs else ''}{'; '.join(needs)}."
        rows = "rest" if self.rest else "found"
        return thought, f"for x in {rows}:\n    {call}\nprint(len({rows}))" if many else f"print({call})"


@dataclass(frozen=True)
class Ask:
    """Something that can be asked about a thing."""

    field: str
    """What is asked for: a field of what was found, `how many` there are, or the `sum of` or `each` of a field."""
    wordings: tuple[str, ...]
    aim: str
    show: str = ""
    """The API that tells it, if finding the thing does not."""
    key: str = ""
    """The parameter of that API that says which thing."""
    name: str = ""
    rest: bool = False
    """Whether it is about how many are left over, and not about those that were found."""

    @property
    def apis(self) -> list[str]:
        return [self.show] if self.show else []

    def done(self, goal: Goal, slots: Slots, rows: Rows) -> None:
        if self.field == "how many":
            goal.answer = len(rows)
        elif self.field.startswith("sum of "):
            goal.answer = round(sum(row[self.field[7:]] for row in rows), 2)
        elif self.field.startswith("each "):
            goal.answer = [row[self.field[5:]] for row in rows]
        else:
            goal.answer = rows[0][self.field]

    @property
    def said(self) -> str:
        if self.field == "how many":
            return "how many are left over" if self.rest else "how many there are"
        return f"the {self.field[5:]}s" if self.field.startswith("each ") else f"the {self.field}"

    @property
    def answer(self) -> str:
        """The code for it."""
        if self.show:
            return "answer"
        if self.field == "how many":
            return "len(rest)" if self.rest else "len(found)"
        if self.field.startswith("sum of "):
            return f'round(sum([x["{self.field[7:]}"] for x in found]), 2)'
        if self.field.startswith("each "):
            return f'[x["{self.field[5:]}"] for x in found]'
        return f'found[0]["{self.field}"]'

    def turn(self, slots: Slots, many: bool) -> tuple[str, str] | None:
        if not self.show:
            return None
        call = _call(self.show, {self.key: 'found[0]["id"]'} if self.key else {})
        return f"{self.show} tells {self.said}.", f'answer = {call}["{self.field}"]\nprint(answer)'


Wish = Act | Ask

NOTHING = Find("", ("",), "", lambda w: ({}, [{}]))
"""For acts that need no thing."""


class Drill(Scenario):
    """Find a thing, then do with it what is wished, one after the other."""

    split = "practice"
    called: ClassVar[str]
    find: ClassVar[Find]
    wishes: ClassVar[tuple[Wish, ...]]

    @classmethod
    def name(cls) -> str:
        return cls.called

    def prepare(self, w: World) -> Goal:
        slots, rows = self.put(w)
        goal = Goal(w, **slots)
        self.fulfil(goal, slots, rows)
        return goal

    @classmethod
    def put(cls, w: World) -> tuple[Slots, Rows]:
        """Put into the world what it is about; what the instruction says of it, and the things."""
        slots, rows = cls.find.put(w)
        rows = rows if cls.find.many else rows[:1]
        for wish in cls.wishes:
            slots |= wish.given(w, _meant(wish, rows)) if isinstance(wish, Act) else {}
        return slots, rows

    @classmethod
    def fulfil(cls, goal: Goal, slots: Slots, rows: Rows) -> None:
        for wish in cls.wishes:
            wish.done(goal, slots, _meant(wish, rows))

    @classmethod
    def known(cls) -> frozenset[str]:
        plain = [wish for wish in cls.wishes if isinstance(wish, Act) and wish.plain]
        others = [api for wish in cls.wishes if wish not in plain for api in wish.apis]
        return frozenset([*cls.find.apis, *others])

    @classmethod
    def noun(cls) -> str:
        apis = [api for api in cls.apis if not api.startswith("owner.")]
        things = [foreign.thing(find(api)) for api in {*apis} - cls.known()]
        said = [*cls.find.it, *(find(api).summary for api in apis), *things]
        fits = (noun for noun in foreign.USUAL if all(foreign.speaks_of(text, noun) for text in said))
        return next(fits, "") if len(cls.apps()) == 1 else ""

    @classmethod
    def wordings(cls, disguise: Disguise | None) -> Sequence[str]:
        if disguise is None:
            return cls.phrasings
        wishes = [wish.said_in(disguise) if isinstance(wish, Act) else wish for wish in cls.wishes]
        said = _phrasings(cls.find, wishes)
        if not disguise.noun:
            return said
        start = f"In the app {cls.apps()[0]}: "  # nothing else says which
        return [("" if " app " in text else start) + disguise.called(text) for text in said]

    def solve(self, **slots: Any) -> Turns:
        enter = log_in(*(app for app in self.apps()))
        if self.find.look:
            parted = any(wish.rest for wish in self.wishes)
            look = _expanded(self.find.look.format(**slots))
            look = look if parted else re.sub(r"\nrest = .*", "", look)
            shown = "" if "print(" in look else "\nprint(found)"
            keep = f" I keep {self.find.keep}{f'; `rest` is {self.find.rest}' if parted else ''}."
            keep = self._said(keep, slots) if self.find.keep else ""
            yield f"I look for {self._it(slots)}.{keep}", f"{enter}\n{look}{shown}".strip()
            enter = ""
        for wish in self.wishes:
            if turn := wish.turn(slots, self.find.many):
                thought, code = turn
                yield thought, f"{enter}\n{code}".strip()
                enter = ""
        answers = [wish for wish in self.wishes if isinstance(wish, Ask)]
        if answers:
            yield f"I answer with {answers[0].said}.", f"apis.owner.complete_task(answer={answers[0].answer})"
        else:
            yield "That is all that was asked.", "apis.owner.complete_task()"

    def _it(self, slots: Slots) -> str:
        """What the thing is called, in the words of the instruction if they are known."""
        names = [self._said(it, slots) for it in self.find.it]
        asked = self.setting.instruction.lower() if self.setting else ""
        return max((name for name in names if name.lower() in asked), key=len, default=names[0])

    def _said(self, text: str, slots: Slots) -> str:
        disguise = self.setting.disguise if self.setting else None
        return (disguise.called(text) if disguise else text).format(**slots)


def drills(finds: Sequence[Find], wishes: Sequence[Wish | tuple[Wish, Wish]]) -> list[type[Drill]]:
    """A kind of errand for every way to find a thing and every wish, or two wishes one after the other."""
    return [_drill(thing, wish if isinstance(wish, tuple) else (wish,)) for thing in finds for wish in wishes]


def _drill(thing: Find, wishes: tuple[Wish, ...]) -> type[Drill]:
    names = [wish.name or (wish.api.partition(".")[2] if isinstance(wish, Act) else wish.field) for wish in wishes]
    names = [f"{name}-rest" if wish.rest else name for name, wish in zip(names, wishes, strict=True)]
    called = re.sub(r"[ _]", "-", "-and-".join(names) + (f"-{thing.name}" if thing.name else ""))
    apis = [*thing.apis, *(api for wish in wishes for api in wish.apis)]
    members = {
        "__doc__": f"{wishes[0].aim.replace('{them}', thing.it[0]).capitalize()}.",
        "called": called,
        "find": thing,
        "wishes": wishes,
        "difficulty": 1 if len(wishes) == 1 and not thing.many and not thing.keep else 2,
        "apis": tuple(dict.fromkeys(apis)),
        "phrasings": _phrasings(thing, wishes),
    }
    return type(called.title().replace("-", ""), (Drill,), members)


def _phrasings(thing: Find, wishes: Sequence[Wish]) -> tuple[str, ...]:
    aim, *aims = (_aimed(wish, thing) for wish in wishes)
    wordings = [*wishes[0].wordings, *(form.replace("{aim}", aim) for form in _FORMS if thing.name)]
    said = [_joined(wording, aims, link) for wording, link in zip(wordings, cycle(_LINKS), strict=False)]
    filled = (one.replace("{it}", it).replace("{them}", thing.pronoun) for one in said for it in thing.it)
    return tuple(dict.fromkeys(map(_sentence, filled)))


def pick(**choices: Sequence[Any]) -> Callable[[World, Rows], Slots]:
    """Arguments chosen at random."""
    return lambda w, rows: {name: w.rng.choice(options) for name, options in choices.items()}


def limit(w: World, values: Collection[float]) -> int:
    """A number with some of the values above it and some below, and none at it; a round one if there is any."""
    between = [n for n in range(int(min(values)) + 1, math.ceil(max(values))) if n not in values]
    return w.rng.choice([n for n in between if n % 5 == 0] or between)


def day(w: World, moments: Collection[str]) -> str:
    """A day with some of the moments before it and some after it, and none on it."""
    days = {moment[:10] for moment in moments}
    around = (w.day(offset) for offset in range(-200, 100))
    return w.rng.choice([one for one in around if min(days) < one < max(days) and one not in days])


def row(w: World, table: str, id: int) -> dict[str, Any]:
    """A row with its columns as the APIs call them: money not in cents."""
    found = w.one(f"SELECT * FROM {table} WHERE id = ?", id)
    assert found is not None
    return found | {name[:-6]: value / 100 for name, value in found.items() if name.endswith("_cents")}


def _meant(wish: Wish, rows: Rows) -> Rows:
    return [one for one in rows if one.get("rest", False) == wish.rest]


def _aimed(wish: Wish, thing: Find) -> str:
    """The aim of a wish that is not the first."""
    return wish.aim.replace("{them}", thing.rest if wish.rest else thing.pronoun)


def _joined(wording: str, aims: list[str], link: str) -> str:
    for aim in aims:
        wording += f" Then {aim}." if wording.endswith("?") else f" {link}{aim}."
    return wording


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _call(api: str, arguments: dict[str, str]) -> str:
    app = api.partition(".")[0]
    token = {"access_token": app} if BY_NAME[app].login else {}
    return f"apis.{api}({', '.join(f'{name}={code}' for name, code in (arguments | token).items())})"


def _expanded(code: str) -> str:
    """The code of a Find as the agent writes it."""

    def call(match: re.Match[str]) -> str:
        app, api, arguments = match.groups()
        if app not in BY_NAME:
            return match[0]
        token = f"access_token={app}" if BY_NAME[app].login else ""
        return f"apis.{app}.{api}({', '.join(part for part in (arguments, token) if part)})"

    return _CALL.sub(call, code)


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
