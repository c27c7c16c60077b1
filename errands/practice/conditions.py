"""Conditions: ways to choose from the things that a source lists.

A condition is about one of their fields. It draws a threshold that has things on both sides, and knows the words, the
expert's code and the opposite. What should be found is chosen by a Python function, not by the expert's code.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from errands.judge import act
from errands.practice.drill import Row, Rows, Slots
from errands.world import World

KINS = ("friend", "colleague", "flatmate")
"""Relations that several people have."""
PAGE = 20
"""Things on a page, at most."""

Look = Callable[[Slots], Rows]
"""Lists the things of a source, with more arguments."""
Drawn = tuple[Slots, Rows] | None
"""What the instruction says of a choice, and the things chosen; nothing where the things do not differ."""
Draw = Callable[[World, Rows, Look], Drawn]

_PARTS = ("found", "rest")


@dataclass(frozen=True)
class Choice:
    """One way to choose from the things of a source."""

    name: str
    words: str
    """What is chosen, around a {noun} or by itself; alternatives follow after a |."""
    draw: Draw
    field: str = ""
    many: bool = True
    code: str = ""
    """The expert's code that makes `found` from `seen`."""
    rest: str = ""
    """The same for `rest`."""
    keep: str = ""
    """What it keeps, as in "I keep ..."."""
    before: str = ""
    """Code that comes first."""
    more: str = ""
    """An argument with which the call itself returns only the thing."""
    size: int = PAGE
    """How many are listed."""


class Condition(ABC):
    """A condition on a field, with one or several ways to choose by it."""

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
        before = f'people = contacts.search(query="{{kin}}", page_size={PAGE})\n'
        before += f'known = [x["{self.by}"] for x in people if x["relation"] == "{{kin}}"]\n'
        code, rest = map(_kept, (f'x["{self.field}"] {sign} known' for sign in ("in", "not in")), _PARTS)
        keep = f"those whose `{self.field}` is the {self.by} of a contact whose `relation` is {{kin}}"
        yield Choice("of-kin", self.words, self._draw, self.field, code=code, rest=rest, keep=keep, before=before)

    def _draw(self, w: World, rows: Rows, look: Look) -> Drawn:
        for kin in w.rng.sample(KINS, len(KINS)):
            people = act(w, "contacts.search", {"query": kin, "page_size": PAGE})
            known = [one[self.by] for one in people if one["relation"] == kin]
            chosen = [row for row in rows if row[self.field] in known]
            if 0 < len(chosen) < len(rows):
                return {"kin": kin}, chosen
        return None


def _kept(test: str, into: str = "found") -> str:
    return f"{into} = [x for x in seen if {test}]"
