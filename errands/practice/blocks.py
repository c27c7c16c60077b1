"""What drills are built from: sources, conditions (conditions.py) and wishes (drill.py).

A source is a call that lists things. `practice` puts sources, conditions and wishes together. What should be found is
asked of the same APIs that the agent has.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice
from typing import Any

from errands.apps import find
from errands.judge import act
from errands.practice.conditions import PAGE, Choice, Condition
from errands.practice.drill import Act, Ask, Drill, Find, Row, Rows, Slots, Wish, drills
from errands.syntax import literal
from errands.world import World
from errands.written import listing_code

COUNT = Ask("")

_TRIES = 50
"""How often to fill a source until its things differ as the condition needs."""


@dataclass(frozen=True)
class Source:
    """Things that a call lists."""

    name: str
    api: str
    noun: str
    """What one of them is called, with slots in braces; the * becomes an s in the plural. It may begin with `my`."""
    fill: Callable[[World], Slots] = lambda w: {}
    """Puts some into the world; returns the slots. Those that begin with _ are the values of variables in `before`, and
    the instruction does not mention them."""
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
    """For a call that shows one thing: its parameter that takes an id. It is called for each of the ids in {of}."""

    def called(self, words: str, many: bool) -> list[str]:
        """What instructions call the things that are chosen by these words, in one or two ways."""
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
        """What instructions call the things that are not chosen."""
        return self.called("other {noun}", many=True)[-1] if "*" in self.noun else f"the rest of {self.noun}"

    @property
    def paged(self) -> bool:
        return "page" in find(self.api).parameters

    def rows(self, w: World, slots: Slots, more: Slots | None = None) -> Rows:
        """The things, with what is in the variables."""
        given = {name: _value(code, slots) for name, code in self.arguments.items()} | (more or {})
        hidden = {name[1:]: value for name, value in slots.items() if name.startswith("_")}
        if self.each:
            return [act(w, self.api, {self.each: number}) for number in literal(f"[{slots['of']}]")]
        if not self.paged:
            found = act(w, self.api, given)
            return [row | hidden for row in (found[self.part] if self.part else found)]
        found, page = [], 0
        while part := act(w, self.api, {**given, "page": page, "page_size": PAGE}):
            found, page = [*found, *part], page + 1
        assert self.long or len(found) <= PAGE, f"{self.name}: more than a page"
        return [row | hidden for row in found]

    def code(self, into: str, more: str = "", size: int = PAGE) -> str:
        """Code that puts the things into a variable."""
        if self.each:
            return f"{into} = [{self.api}({self.each}=x) for x in [{{of}}]]"
        given = [f"{name}={code}" for name, code in self.arguments.items()] + [more] * bool(more)
        if self.long and size == PAGE and not more:
            return self.before + listing_code(into, f"{self.api}({', '.join(given)})")
        given += [f"page_size={size}"] * (self.paged and not more)
        return f"{self.before}{into} = {self.api}({', '.join(given)})" + (f'["{self.part}"]' if self.part else "")


class _Alike(Exception):
    """The things do not differ as a condition needs it."""


@dataclass(frozen=True)
class Sets:
    """Makes a thing ready for an act by setting a column. Conditions on that column do not combine with the act."""

    table: str
    column: str
    value: Any

    def __call__(self, w: World, row: Row) -> None:
        w.run(f"UPDATE {self.table} SET {self.column} = ? WHERE id = ?", self.value, row["id"])


def found(source: Source, choice: Choice) -> Find:
    """The Find for a choice from a source."""

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
    """Drills: each way to choose from a source with `per` of the wishes, taken in turn. Every second way also gets a
    drill that goes on with the things not chosen, if there are any."""
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


def _fits(wish: Wish, choice: Choice) -> bool:
    if isinstance(wish, Ask):
        single = bool(wish.field) and wish.of == "one"
        return single != choice.many and (
            wish.field != choice.field or (not choice.many and not choice.name.startswith("by"))
        )
    spoilt = isinstance(wish.ready, Sets) and wish.ready.column == choice.field
    return not spoilt and not (wish.single and choice.many)


def _value(code: str, slots: Slots) -> Any:
    return slots[f"_{code}"] if f"_{code}" in slots else literal(code.format(**slots))
