"""What drills are built from: sources, conditions and wishes.

A source is a call that lists things. A condition is about one of their fields: it draws a threshold that has things on
both sides, and knows the words, the expert's code and the opposite. `practice` puts sources, conditions and wishes
together. What should be found is asked of the same APIs that the agent has, and chosen by a Python function, not by the
expert's code.
"""

import ast
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial
from itertools import cycle, islice, pairwise
from typing import Any

from errands.apps import find
from errands.judge import act
from errands.practice.drill import Act, Ask, Drill, Find, Row, Rows, Slots, Wish, drills
from errands.world import World
from errands.written import listing_code

KINS = ("friend", "colleague", "flatmate")
"""Relations that several people have."""
COUNT = Ask("")
REPEATED = "List one for each, even if some are the same."
"""How to answer where what is asked for may be the same for several things."""

_TRIES = 50
"""Times that a source is filled until its things differ as a condition needs it."""
_MOST = 20
"""Things on a page."""

Look = Callable[[Slots], Rows]
"""Lists the things of a source, with more arguments."""
Drawn = tuple[Slots, Rows] | None
"""What the instruction says of a choice, and the things chosen; nothing where the things do not differ."""
Draw = Callable[[World, Rows, Look], Drawn]

_PARTS = ("found", "rest")


@dataclass(frozen=True)
class Source:
    """Things that a call lists."""

    name: str
    api: str
    noun: str
    """What one of them is called, with slots; several with an s for the *. It may begin with `my`."""
    fill: Callable[[World], Slots] = lambda w: {}
    """Puts some into the world; the slots. Those that begin with _ are for variables of `before`, and not said."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Code for the call's arguments: constants with slots, or variables of `before`."""
    before: str = ""
    """Code that comes before the call."""
    part: str = ""
    """The field of the result that holds the things."""
    long: bool = False
    """Whether there may be more of them than on a page."""
    people: bool = False
    each: str = ""
    """The call's parameter that takes a number, where it shows one thing and is called for every number of {of}."""

    def called(self, words: str, many: bool) -> list[str]:
        """What is chosen by these words, as instructions call it."""
        if "{noun}" not in words:
            return [words]
        if " of {noun}" in words:  # the largest of my orders
            return [f"the {words.replace('{noun}', self.noun.replace('*', 's'))}"]
        mine, noun = self.noun.startswith("my "), self.noun.removeprefix("my ")
        said = words.replace("{noun}", noun.replace("*", "s" if many else ""))
        one = f"my {said}" if mine else f"the {said}"
        return [f"all {one if mine else said}", one] if many and "*" in noun else [one]

    @property
    def others(self) -> str:
        """What is left of them."""
        return self.called("other {noun}", many=True)[-1] if "*" in self.noun else f"the rest of {self.noun}"

    @property
    def paged(self) -> bool:
        return "page" in find(self.api).parameters

    def rows(self, w: World, slots: Slots, more: Slots | None = None) -> Rows:
        """The things, with what is in the variables."""
        given = {name: _value(code, slots) for name, code in self.arguments.items()} | (more or {})
        hidden = {name[1:]: value for name, value in slots.items() if name.startswith("_")}
        if self.each:
            return [act(w, self.api, {self.each: number}) for number in ast.literal_eval(f"[{slots['of']}]")]
        if not self.paged:
            found = act(w, self.api, given)
            return [row | hidden for row in (found[self.part] if self.part else found)]
        found, page = [], 0
        while part := act(w, self.api, {**given, "page": page, "page_size": _MOST}):
            found, page = [*found, *part], page + 1
        assert self.long or len(found) <= _MOST, f"{self.name}: more than a page"
        return [row | hidden for row in found]

    def code(self, into: str, more: str = "", size: int = _MOST) -> str:
        """Code that puts the things into a variable."""
        if self.each:
            return f"{into} = [{self.api}({self.each}=x) for x in [{{of}}]]"
        given = [f"{name}={code}" for name, code in self.arguments.items()] + [more] * bool(more)
        if self.long and size == _MOST and not more:
            return self.before + listing_code(into, f"{self.api}({', '.join(given)})")
        given += [f"page_size={size}"] * (self.paged and not more)
        return f"{self.before}{into} = {self.api}({', '.join(given)})" + (f'["{self.part}"]' if self.part else "")


@dataclass(frozen=True)
class Choice:
    """One way to choose from the things of a source."""

    name: str
    words: str
    """What is chosen, around a {noun} or by itself; after a | in other words."""
    draw: Draw
    field: str = ""
    many: bool = True
    code: str = ""
    """Makes `found` of `seen`."""
    rest: str = ""
    """Makes `rest` of `seen`."""
    keep: str = ""
    before: str = ""
    more: str = ""
    """An argument of the call, by which it finds the thing itself."""
    size: int = _MOST
    """How many are listed."""


class _Alike(Exception):
    """The things do not differ as a condition needs it."""


@dataclass(frozen=True)
class Sets:
    """Makes a thing ready for an act by setting a column of its row; a condition about it does not go with the act."""

    table: str
    column: str
    value: Any

    def __call__(self, w: World, row: Row) -> None:
        w.run(f"UPDATE {self.table} SET {self.column} = ? WHERE id = ?", self.value, row["id"])


class Condition(ABC):
    """Chooses by a field, in one way or in several that belong together."""

    @abstractmethod
    def choices(self) -> Iterator[Choice]: ...


@dataclass(frozen=True)
class All(Condition):
    """Every thing there is."""

    def choices(self) -> Iterator[Choice]:
        yield Choice("all", "{noun}", lambda w, rows, look: ({}, rows) if len(rows) > 1 else None)


@dataclass(frozen=True)
class Top(Condition):
    """The thing that the call lists first. It differs from the second in the field, if one is given."""

    words: str
    field: str = ""

    def choices(self) -> Iterator[Choice]:
        def draw(w: World, rows: Rows, look: Look) -> Drawn:
            alone = len(rows) > 1 and not (self.field and rows[0][self.field] == rows[1][self.field])
            return ({}, rows[:1]) if alone else None

        yield Choice("top", self.words, draw, many=False, size=1)


@dataclass(frozen=True)
class Name(Condition):
    """The one thing whose field is as the instruction says. `query` is the call's parameter that searches for it."""

    field: str
    words: str
    query: str = ""

    def choices(self) -> Iterator[Choice]:
        def draw(w: World, rows: Rows, look: Look) -> Drawn:
            counted = Counter(row[self.field] for row in rows)
            alone = [row for row in rows if row[self.field] and counted[row[self.field]] == 1]
            for row in w.rng.sample(alone, len(alone)):
                if not self.query or len(look({self.query: row[self.field]})) == 1:
                    return {"called": row[self.field]}, [row]
            return None

        by = Choice(f"by-{self.field}", self.words, draw, self.field, many=False)
        if self.query:
            yield replace(by, more=f'{self.query}="{{called}}"')
        else:
            test = f'x["{self.field}"] == "{{called}}"'
            yield replace(by, code=_kept(test), keep=f"the one whose `{self.field}` is '{{called}}'")


@dataclass(frozen=True)
class _Threshold(Condition):
    """Things on one side of a threshold, or on the other, or the first or the last of all."""

    field: str
    words: str
    """With {than} for which side it is, and the threshold."""
    top: str = ""
    bottom: str = ""
    """Words for the first and the last of all, if they are asked for."""
    slot = "limit"
    names = ("above", "below", "highest", "lowest")
    than = ("more than", "less than")

    def value(self, row: Row) -> Any:
        return row[self.field]

    @abstractmethod
    def between(self, w: World, values: list[Any]) -> Any:
        """A threshold with some of the values above it and some below; None if there is none."""

    def test(self, sign: str) -> str:
        """The expert's code."""
        return f'x["{self.field}"] {sign} {{limit}}'

    def choices(self) -> Iterator[Choice]:
        for name, than, signs in zip(self.names, self.than, ("> <=", "< >="), strict=False):
            code, rest = map(_kept, map(self.test, signs.split()), _PARTS)
            keep = f"those whose `{self.field}` is {name} {{{self.slot}}}"
            words, draw = self.words.replace("{than}", than), partial(self._parted, name == self.names[0])
            yield Choice(f"{self.field}-{name}", words, draw, self.field, code=code, rest=rest, keep=keep)
        for words, name, best in zip((self.top, self.bottom), self.names[2:], ("max", "min"), strict=True):
            if words:
                code = f'found = [{best}(seen, key=lambda x: x["{self.field}"])]'
                keep, draw = f"the one with the {name} `{self.field}`", partial(self._extreme, best == "max")
                yield Choice(f"{name}-{self.field}", words, draw, self.field, many=False, code=code, keep=keep)

    def _parted(self, high: bool, w: World, rows: Rows, look: Look) -> Drawn:
        limit = self.between(w, sorted({self.value(row) for row in rows}))
        if limit is None:
            return None
        return {self.slot: limit}, [
            row for row in rows if (self.value(row) > limit if high else self.value(row) < limit)
        ]

    def _extreme(self, high: bool, w: World, rows: Rows, look: Look) -> Drawn:
        ranked = sorted(rows, key=lambda row: row[self.field], reverse=high)
        alone = len(ranked) > 1 and ranked[0][self.field] != ranked[1][self.field]
        return ({}, ranked[:1]) if alone and ranked[0] is not rows[0] else None


class Amount(_Threshold):
    """A number is more or less than a limit of at least 2, or the highest or the lowest."""

    def between(self, w: World, values: list[Any]) -> int | None:
        numbers = range(max(int(values[0]) + 1, 2), math.ceil(values[-1])) if values else ()
        fits = [n for n in numbers if n not in values] or [n for n in numbers if values[0] < n < values[-1]]
        return w.rng.choice([n for n in fits if n % 5 == 0] or fits) if fits else None


class Number(Amount):
    """There are more or fewer of something than a limit, or the most or the fewest."""

    than = ("more than", "fewer than")


class Moment(_Threshold):
    """A time is after or before a day, or the latest or the earliest."""

    slot = "day"
    names = ("after", "before", "latest", "earliest")
    than = ("after", "before")

    def value(self, row: Row) -> str:
        return str(row[self.field])[:10]

    def test(self, sign: str) -> str:
        return f'x["{self.field}"][:10] {sign} "{{day}}"'

    def between(self, w: World, values: list[str]) -> str | None:
        days = [date.fromisoformat(value) for value in values]
        gaps = [(one, (other - one).days) for one, other in pairwise(days) if (other - one).days > 1]
        if not gaps:
            return None
        start, length = w.rng.choice(gaps)
        return str(start + timedelta(days=w.rng.randrange(1, length)))


@dataclass(frozen=True)
class State(Condition):
    """A field is true or not, or says something or nothing."""

    field: str
    yes: str = ""
    no: str = ""

    def choices(self) -> Iterator[Choice]:
        tests = f'x["{self.field}"]', f'not x["{self.field}"]'
        for words, name, wanted in ((self.yes, self.field, True), (self.no, f"not-{self.field}", False)):
            if words:
                code, rest = map(_kept, tests if wanted else tests[::-1], _PARTS)
                keep = f"those that {'have' if wanted else 'do not have'} `{self.field}`"
                draw = partial(self._draw, wanted)
                yield Choice(name, words, draw, self.field, code=code, rest=rest, keep=keep)

    def _draw(self, wanted: bool, w: World, rows: Rows, look: Look) -> Drawn:
        chosen = [row for row in rows if bool(row[self.field]) == wanted]
        return ({}, chosen) if 0 < len(chosen) < len(rows) else None


@dataclass(frozen=True)
class Value(Condition):
    """All things whose field is as the instruction says; some others are not so."""

    field: str
    words: str
    among: tuple[str, ...] = ()
    """What may be said; anything if none is given."""

    def choices(self) -> Iterator[Choice]:
        tests = (f'x["{self.field}"] {sign} "{{value}}"' for sign in ("==", "!="))
        code, rest = map(_kept, tests, _PARTS)
        keep = f"those whose `{self.field}` is '{{value}}'"
        yield Choice(f"of-{self.field}", self.words, self._draw, self.field, code=code, rest=rest, keep=keep)

    def _draw(self, w: World, rows: Rows, look: Look) -> Drawn:
        counted = Counter(row[self.field] for row in rows if not self.among or row[self.field] in self.among)
        fits = sorted(value for value, count in counted.items() if value and count < len(rows))
        fits = [value for value in fits if counted[value] > 1] or fits
        if not fits:
            return None
        value = w.rng.choice(fits)
        return {"value": value}, [row for row in rows if row[self.field] == value]


@dataclass(frozen=True)
class Kin(Condition):
    """All things of people who are something to the owner, as only the contacts know."""

    field: str
    words: str
    by: str = "name"
    """The field of a contact that says the same."""

    def choices(self) -> Iterator[Choice]:
        before = f'people = contacts.search(query="{{kin}}", page_size={_MOST})\n'
        before += f'known = [x["{self.by}"] for x in people if x["relation"] == "{{kin}}"]\n'
        code, rest = map(_kept, (f'x["{self.field}"] {sign} known' for sign in ("in", "not in")), _PARTS)
        keep = f"those whose `{self.field}` is the {self.by} of a contact whose `relation` is {{kin}}"
        yield Choice("of-kin", self.words, self._draw, self.field, code=code, rest=rest, keep=keep, before=before)

    def _draw(self, w: World, rows: Rows, look: Look) -> Drawn:
        for kin in w.rng.sample(KINS, len(KINS)):
            people = act(w, "contacts.search", {"query": kin, "page_size": _MOST})
            known = [one[self.by] for one in people if one["relation"] == kin]
            chosen = [row for row in rows if row[self.field] in known]
            if 0 < len(chosen) < len(rows):
                return {"kin": kin}, chosen
        return None


def _kept(test: str, into: str = "found") -> str:
    return f"{into} = [x for x in seen if {test}]"


def found(source: Source, choice: Choice) -> Find:
    """How things of a source are found by a choice."""

    def put(w: World) -> tuple[Slots, Rows]:
        for _ in range(_TRIES):
            with suppress(_Alike), w.undone_on_error():
                slots = source.fill(w)
                rows = source.rows(w, slots)
                drawn = choice.draw(w, rows, partial(source.rows, w, slots))
                if drawn is None:
                    raise _Alike
                more, chosen = drawn
                others = [row | {"rest": True} for row in rows if not any(row is one for one in chosen)]
                said = {name: value for name, value in slots.items() if not name.startswith("_")}
                return said | more, [*chosen, *others]
        raise AssertionError(f"{source.name}: nothing to choose by {choice.name}")

    it = [said for words in choice.words.split("|") for said in source.called(words, choice.many)]
    if choice.code:
        shown = f'print([x["{choice.field}"] for x in found])' if choice.many else "print(found)"
        code = [choice.before + source.code("seen"), choice.code, choice.rest, shown]
    else:
        code = [source.code("found", choice.more, choice.size), "print(len(found))" if choice.many else ""]
    look = "\n".join(line for line in code if line)
    rest = source.others if choice.rest else ""
    name = f"{source.name}-{choice.name}".replace("_", "-")
    return Find(name, tuple(it), look, put, choice.many, source.people, choice.keep, rest)


def practice(
    source: Source, conditions: Sequence[Condition], wishes: Sequence[Wish], per: int = 2
) -> list[type[Drill]]:
    """Kinds of errand: each way to choose from a source with some of the wishes, all of which get their turn. Every
    second way goes on with what is left over, if it leaves any."""
    made: list[type[Drill]] = []
    turn = 0
    for number, choice in enumerate(choice for condition in conditions for choice in condition.choices()):
        thing = found(source, choice)
        fits = [wish for wish in wishes if _fits(wish, choice)]
        some = list(islice(cycle(fits), turn, turn + min(per, len(fits))))
        turn += len(some)
        made += drills([thing], some)
        acts = [wish for wish in fits if isinstance(wish, Act) and wish.field]
        if choice.rest and acts and number % 2:
            first, then = acts[number // 2 % len(acts)], acts[(number // 2 + 1) % len(acts)]
            both = number % 4 == 1 and first is not then and not {*first.args} & {*then.args}
            made += drills([thing], [(first, replace(then if both else COUNT, rest=True))])
    return made


def alone(*wishes: Wish | tuple[Wish, Wish]) -> list[type[Drill]]:
    """Kinds of errand that need no thing."""
    return drills([Find("", ("",), "", lambda w: ({}, [{}]))], wishes)


def each(field: str, label: str = "", hint: str = "") -> Ask:
    """Asks for a field of all that was found."""
    return Ask(field, label, of="each", hint=hint)


def _fits(wish: Wish, choice: Choice) -> bool:
    if isinstance(wish, Ask):
        single = bool(wish.field) and wish.of == "one"
        return single != choice.many and (
            wish.field != choice.field or (not choice.many and not choice.name.startswith("by"))
        )
    spoilt = isinstance(wish.ready, Sets) and wish.ready.column == choice.field
    return not spoilt and not (wish.single and choice.many)


def _value(code: str, slots: Slots) -> Any:
    return slots[f"_{code}"] if f"_{code}" in slots else ast.literal_eval(code.format(**slots))
