"""Reads the TOML file beside a practice module: what there is to find, how to choose from it, and what to do with it.

    [sources]       what lists things (`Source` in blocks.py); `fill` puts some into the world
    [conditions]    ways to choose from them (conditions.py), each of a `kind`
    [acts], [asks]  what can be done with them and asked about them (drill.py)
    [[kinds]]       drills: `of` a source, `by` conditions, with wishes, or wishes that stand `alone`

A table {call = "name", ...} is a function of the module, with the other entries as arguments, and {sets = [table,
column, value]} is a `Sets`. Functions and wishes of another module are named as module.name.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from errands.practice import conditions
from errands.practice.blocks import COUNT, Sets, Source, alone, practice
from errands.practice.drill import Act, Ask, Drill, Wish

_ALL = {"all": conditions.All()}


def declared(module: str) -> Iterator[type[Drill]]:
    """The drills of a module, in the order of its file."""
    file, made = _file(module), _made(module)
    sources = {name: Source(**one) for name, one in made(file["sources"]).items()}
    choices = _ALL | {name: _condition(**one) for name, one in made(file["conditions"]).items()}
    for kind in file["kinds"]:
        if "alone" in kind:
            yield from alone(*(_wishes(module, named) for named in kind["alone"]))
        else:
            by, wishes = [choices[name] for name in kind["by"]], [_wish(module, name) for name in kind["wishes"]]
            yield from practice(sources[kind["of"]], by, wishes, kind.get("per", 2))


def _condition(kind: str, **given: Any) -> conditions.Condition:
    made: conditions.Condition = getattr(conditions, kind)(**given)
    return made


@cache
def _file(module: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{module}.toml").read_text(encoding="utf-8"))


def _wishes(module: str, named: str | list[str]) -> Wish | tuple[Wish, ...]:
    return _wish(module, named) if isinstance(named, str) else tuple(_wish(module, name) for name in named)


@cache
def _wish(module: str, name: str) -> Wish:
    """The same object each time, as drills tell wishes apart by it."""
    if name == "count":
        return COUNT
    if "." in name:
        return _wish(*name.split("."))
    file, made = _file(module), _made(module)
    return Act(**made(file["acts"][name])) if name in file["acts"] else Ask(**made(file["asks"][name]))


def _made(module: str) -> Callable[[Any], Any]:
    """Puts functions where a module's file names them."""

    def function(name: str) -> Callable[..., Any]:
        *other, own = name.split(".")
        found: Callable[..., Any] = getattr(import_module(f"errands.practice.{other[0] if other else module}"), own)
        return found

    def made(value: Any) -> Any:
        match value:
            case {"call": name}:
                given = {key: one for key, one in value.items() if key != "call"}
                return partial(function(name), **given) if given else function(name)
            case {"sets": [table, column, to]}:
                return Sets(table, column, to)
            case Mapping():
                return {name: made(one) for name, one in value.items()}
            case list():
                return tuple(made(one) for one in value)
            case _:
                return value

    return made
