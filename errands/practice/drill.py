"""Drills: small scenarios, each made of a way to find a thing and of what to do with it.

A Find puts a thing into the world, names it in the instruction, and has the code that looks it up. An Act is an API
that does something to the thing; an Ask is a question about it. Any Find combines with any Act or Ask for the same
thing, so an agent has to understand the wish and pick the right API from the documentation. Names here are the real
ones, those of parameters in backticks; disguise.py translates them where the APIs have other names.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any, ClassVar

from errands.apps import BY_NAME, find
from errands.disguise import USUAL, Disguise, speaks_of
from errands.disguise import thing as thing_of
from errands.judge import Goal, act
from errands.scenario import Scenario, Turns
from errands.words import WORDS
from errands.world import World
from errands.written import login_code

Slots = dict[str, Any]
Row = dict[str, Any]
Rows = list[Row]
"""The things a Find is about, as the APIs return them."""

_LINKS = ("After that, ", "Then ", "Also, ", "When that is done, ")
"""What comes between two wishes; each wording takes the next one."""
_FIND = "Find {it} and {aim}."
"""A wording that fits every wish about a thing."""
_POSSESSED = re.compile(r"the ((?:(?! of )[\w' -])+) of {it}")
"""What becomes possessive: "the title of {it}" becomes "its title"."""
_SLOT = re.compile(r"{(\w+)}")
_CALL = re.compile(r"\b([a-z]+)\.([a-z_]+)\(([^()]*)\)")


@dataclass(frozen=True)
class Find:
    """A thing, and how to find it."""

    name: str
    it: tuple[str, ...]
    """What it is called in an instruction, with slots in braces."""
    look: str
    """Code that leaves its rows in `found`. Calls are written `app.api(...)`; log-ins and tokens are added."""
    put: Callable[[World], tuple[Slots, Rows]]
    """Puts it into the world; returns the slots and the rows that should be found."""
    many: bool = False
    """Whether it is about all rows, not just the first."""
    person: bool = False
    """Whether it is a person."""
    keep: str = ""
    """What `look` keeps of all that it lists, as in "I keep ...", with slots in braces and fields in backticks."""
    rest: str = ""
    """What the other things are called, if `look` leaves them in `rest`; `put` marks their rows with `rest`."""

    def pronounced(self, phrase: str) -> str:
        """A phrase with pronouns for {it}."""
        them, their = ("them", "their") if self.many or self.person else ("it", "its")
        return _POSSESSED.sub(rf"{their} \1", phrase).replace("{it}", them)

    @property
    def apis(self) -> list[str]:
        return [f"{app}.{api}" for app, api, _ in _CALL.findall(self.look) if app in BY_NAME]


@dataclass(frozen=True)
class Act:
    """Something that can be done to a thing."""

    api: str
    wish: str
    """As in "Please ..."; alternatives follow after a |. {it} is the thing, everything else in braces a slot. A slot
    named like a parameter of the API is its argument."""
    name: str = ""
    """Part of the drill's name; by default the name of the API."""
    args: Mapping[str, str | Sequence[Any] | Callable[[World], Any]] = field(default_factory=dict)
    """Where the slots come from: the name of a list in WORDS, some values, or a function."""
    field: str = "id"
    """The field of the thing that the API takes; empty if it needs no thing."""
    key: str = ""
    """The parameter that takes it; by default the first."""
    known: tuple[tuple[str, str], ...] = ()
    """More parameters, and the variables that hold their arguments after the look-up."""
    fixed: tuple[tuple[str, Any], ...] = ()
    """Arguments that are always the same."""
    ready: Callable[[World, Row], None] = lambda w, row: None
    """Changes the world so that the act has an effect on the thing."""
    single: bool = False
    """Whether it only makes sense for one thing."""
    rest: bool = False
    """Whether it is for the other things instead of those found."""

    @property
    def apis(self) -> list[str]:
        return [self.api]

    @property
    def phrases(self) -> list[str]:
        return self.wish.split("|")

    @property
    def phrase(self) -> str:
        return self.phrases[0]

    @property
    def wordings(self) -> tuple[str, ...]:
        return (*(f"{one}." for one in self.phrases), f"please {self.phrase}.", f"Can you {self.phrase}?")

    hint: ClassVar[str] = ""

    @property
    def told(self) -> list[str]:
        """The slots that the wish has besides the thing."""
        return [slot for slot in dict.fromkeys(_SLOT.findall(self.phrase)) if slot != "it"]

    @property
    def which(self) -> str:
        """The parameter that says which thing; none for an API that needs no thing."""
        first = next((name for name in find(self.api).parameters if name != "access_token"), "")
        return (self.key or first) if self.field else ""

    @property
    def _listed(self) -> bool:
        """Whether the API takes a list of things; it gets one."""
        return find(self.api).parameters[self.which].label.startswith("list")

    @property
    def plain(self) -> bool:
        """Whether all it takes is the thing and arguments that are told, so that any verb can stand for it."""
        parameters = find(self.api).parameters
        needed = {name for name, one in parameters.items() if one.required}
        needed -= {self.which, "access_token", *dict(self.known)}
        return bool(self.field) and not self.fixed and needed <= set(self.told) <= set(parameters)

    def given(self, w: World) -> Slots:
        """The slots."""
        return {name: _drawn(w, source) for name, source in self.args.items()}

    def said_in(self, disguise: Disguise) -> "Act":
        """The same wish, by the foreign verb that a disguise may have for it and the names of its parameters there."""
        verb = disguise.verb(self.api)
        if not verb:
            return self
        quoted = {slot: f"'{{{slot}}}'" if f"'{{{slot}}}'" in self.phrase else f"{{{slot}}}" for slot in self.told}
        more = [f"{disguise.parameter(self.api, slot).replace('_', ' ')} {value}" for slot, value in quoted.items()]
        rest = f" with {' and '.join(more)}" if more else ""
        wish, app = f"{verb} {{it}}{rest}", self.api.partition(".")[0]
        return replace(self, wish=f"{wish} in the {app} app|use the {app} app to {wish}")

    def arguments(self, slots: Slots) -> dict[str, Any]:
        """All but which thing."""
        told = {name: one for name, one in find(self.api).parameters.items() if name in slots and name in self.told}
        lists = {name for name, one in told.items() if one.label.startswith("list")}
        return {name: [slots[name]] if name in lists else slots[name] for name in told} | dict(self.fixed)

    def done(self, goal: Goal, slots: Slots, rows: Rows) -> None:
        for row in rows:
            key = {self.which: [row[self.field]] if self._listed else row.get(self.field)} if self.field else {}
            key |= {name: row.get(taken) for name, taken in self.known}
            goal.do(self.api, **key, **self.arguments(slots))

    def turn(self, slots: Slots, many: bool) -> tuple[str, str]:
        """A thought and the code."""
        arguments = {name: _literal(value) for name, value in self.arguments(slots).items()}
        one = "x" if many else "found[0]"
        which = f'{one}["{self.field}"]'
        key = {self.which: f"[{which}]" if self._listed else which} if self.field else {}
        call = _call(self.api, key | dict(self.known) | arguments)
        needs = [f"`{self.which}` is the {self.field} of what {'is left' if self.rest else 'I found'}"] if key else []
        needs += [f"`{name}` is in {variable}" for name, variable in self.known]
        needs += [f"{', '.join(f'`{name}`' for name in arguments)} as the task says"] if arguments else []
        thought = f"I use {self.api}{' for each' if many else ''}{': ' if needs else ''}{'; '.join(needs)}."
        rows = "rest" if self.rest else "found"
        return thought, f"for x in {rows}:\n    {call}\nprint(len({rows}))" if many else f"print({call})"


@dataclass(frozen=True)
class Ask:
    """Something that can be asked about a thing, or about all that were found."""

    field: str
    """A field of what was found; empty to ask how many there are."""
    label: str = ""
    """What the instruction calls the field, by default its name; the plural after a |, by default with an s."""
    asked: str = ""
    """A question in its own words; alternatives follow after a |."""
    of: str = "one"
    """`one`: the field of one thing; `each`: a list for all things; `sum`: the sum over all things."""
    hint: str = ""
    """A sentence on how to answer."""
    show: str = ""
    """The API that returns it, if the look-up does not; its first parameter takes the thing's `key`, if any."""
    key: str = "id"
    ready: Callable[[World, Row], None] = lambda w, row: None
    """Changes the world so that there is something to answer."""
    rest: bool = False
    """Whether it counts the other things instead of those found."""

    @property
    def name(self) -> str:
        if not self.field:
            return "how-many"
        return self.field if self.of == "one" else f"{self.of}-{self.field}"

    @property
    def apis(self) -> list[str]:
        return [self.show] if self.show else []

    @property
    def said(self) -> str:
        """What is asked for."""
        if not self.field:
            return "how many are left" if self.rest else "how many there are"
        label, _, labels = (self.label or self.field).partition("|")
        return f"the {labels or label + 's'}" if self.of == "each" else f"the {label}"

    @property
    def phrase(self) -> str:
        return f"tell me {self.said} of {{it}}" if self.field else "count {it}"

    @property
    def wordings(self) -> tuple[str, ...]:
        if not self.field:
            return ("count {it}.", "Please count {it}.", "Count {it} and tell me the number.")
        own = self.asked.split("|") if self.asked else []
        verb = "are" if self.of == "each" else "is"
        usual = (f"What {verb} {self.said} of {{it}}?", f"{self.phrase}.", f"I need {self.said} of {{it}}.")
        return tuple(own) if not self.key else (*own, *usual)  # without a key it is about no thing

    def told(self, w: World, rows: Rows) -> Any:
        """The answer."""
        if not self.field:
            return len(rows)
        if self.of == "each":
            return [row[self.field] for row in rows]
        if self.of == "sum":
            return round(sum(row[self.field] for row in rows), 2)
        if not self.show:
            return rows[0][self.field]
        return act(w, self.show, {self._which: rows[0][self.key]} if self.key else {})[self.field]

    def done(self, goal: Goal, slots: Slots, rows: Rows) -> None:
        goal.answer = self.told(goal.start, rows)

    @property
    def answer(self) -> str:
        """The code for it."""
        if self.show:
            return "answer"
        if not self.field:
            return "len(rest)" if self.rest else "len(found)"
        every = f'[x["{self.field}"] for x in found]'
        return {"one": f'found[0]["{self.field}"]', "each": every, "sum": f"round(sum({every}), 2)"}[self.of]

    def turn(self, slots: Slots, many: bool) -> tuple[str, str] | None:
        if not self.show:
            return None
        call = _call(self.show, {self._which: f'found[0]["{self.key}"]'} if self.key else {})
        return f"I use {self.show} to get {self.said}.", f'answer = {call}["{self.field}"]\nprint(answer)'

    @property
    def _which(self) -> str:
        return next(name for name in find(self.show).parameters if name != "access_token")


Wish = Act | Ask


class Drill(Scenario):
    """Find a thing, then fulfil one or more wishes."""

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
        """Put the things into the world; returns the slots and the rows."""
        slots, rows = cls.find.put(w)
        rows = rows if cls.find.many else rows[:1]
        # The other things are made ready too, so that acting on everything is wrong.
        for some in ([(wish, rows) for wish in cls.wishes], [(wish, _meant(wish, rows)) for wish in cls.wishes]):
            for wish, things in some:
                for row in things:
                    wish.ready(w, row)
        for wish in cls.wishes:
            if isinstance(wish, Act):
                slots |= wish.given(w)
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
        things = [thing_of(find(api)) for api in {*apis} - cls.known()]
        said = [*cls.find.it, *(find(api).summary for api in apis), *things]
        fits = (noun for noun in USUAL if all(speaks_of(text, noun) for text in said))
        return next(fits, "") if len(cls.apps()) == 1 else ""

    @classmethod
    def wordings(cls, disguise: Disguise | None) -> Sequence[str]:
        if disguise is None:
            return cls.phrasings
        wishes = [wish.said_in(disguise) if isinstance(wish, Act) else wish for wish in cls.wishes]
        said = _phrasings(cls.find, wishes)
        if not disguise.noun:
            return said
        app = f"{cls.apps()[0]} app"  # nothing else says which
        return [("" if app in text else f"In the {app}: ") + disguise.called(text) for text in said]

    def turns(self, **slots: Any) -> Turns:
        enter = login_code(*(app for app in self.apps()))
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
            yield "Everything is done.", "apis.owner.complete_task()"

    def _it(self, slots: Slots) -> str:
        """What the thing is called, in the words of the instruction if the expert knows them."""
        names = [self._said(it, slots) for it in self.find.it]
        asked = self.setting.instruction.lower() if self.setting else ""
        return max((name for name in names if name.lower() in asked), key=len, default=names[0])

    def _said(self, text: str, slots: Slots) -> str:
        disguise = self.setting.disguise if self.setting else None
        return (disguise.called(text) if disguise else text).format(**slots)


def drills(finds: Sequence[Find], wishes: Sequence[Wish | tuple[Wish, ...]]) -> list[type[Drill]]:
    """A drill for each combination of a Find and a wish, or a tuple of wishes to fulfil one after the other."""
    return [_drill(thing, wish if isinstance(wish, tuple) else (wish,)) for thing in finds for wish in wishes]


def _drill(thing: Find, wishes: tuple[Wish, ...]) -> type[Drill]:
    names = [wish.name or (wish.api.partition(".")[2] if isinstance(wish, Act) else "") for wish in wishes]
    names = [f"{name}-rest" if wish.rest else name for name, wish in zip(names, wishes, strict=True)]
    called = re.sub(r"[ _]", "-", "-and-".join(names) + (f"-{thing.name}" if thing.name else ""))
    apis = [*thing.apis, *(api for wish in wishes for api in wish.apis)]
    members = {
        "__doc__": _sentence(f"{wishes[0].phrase.replace('{it}', thing.it[0])}."),
        "called": called,
        "find": thing,
        "wishes": wishes,
        "difficulty": 1 if len(wishes) == 1 and not thing.many and not thing.keep else 2,
        "apis": tuple(dict.fromkeys(apis)),
        "phrasings": _phrasings(thing, wishes),
    }
    return type(called.title().replace("-", ""), (Drill,), members)


def _phrasings(thing: Find, wishes: Sequence[Wish]) -> tuple[str, ...]:
    first, *others = wishes
    wordings = [*first.wordings, *([_FIND.replace("{aim}", thing.pronounced(first.phrase))] if thing.name else [])]
    aims = [wish.phrase.replace("{it}", thing.rest) if wish.rest else thing.pronounced(wish.phrase) for wish in others]
    hints = "".join(f" {wish.hint}" for wish in wishes if wish.hint)
    said = [_joined(wording, aims, link) + hints for wording, link in zip(wordings, cycle(_LINKS), strict=False)]
    return tuple(dict.fromkeys(_sentence(one.replace("{it}", it)) for one in said for it in thing.it))


def _drawn(w: World, source: str | Sequence[Any] | Callable[[World], Any]) -> Any:
    if callable(source):
        return source(w)
    return w.rng.choice(WORDS[source] if isinstance(source, str) else source)


def _meant(wish: Wish, rows: Rows) -> Rows:
    return [one for one in rows if one.get("rest", False) == wish.rest]


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
