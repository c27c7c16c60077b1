"""Reads the TOML file beside a practice module: what there is to find, how to choose from it, and what to do with it.

    [sources]       what lists things (`Source` in blocks.py); `fill` puts some into the world
    [conditions]    ways to choose from them (conditions.py), each of a `kind`
    [acts], [asks]  what can be done with them and asked about them (drill.py)
    [[kinds]]       drills: `of` a source, `by` conditions, with wishes, or wishes `alone`, about no thing

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
from errands.practice.blocks import COUNT, Sets, Source, practice
from errands.practice.drill import Act, Ask, Drill, Find, Wish, drills

_NOTHING = Find("", ("",), "", lambda w: ({}, [{}]))


def declared(module: str) -> Iterator[type[Drill]]:
    """The drills of a module, in the order of its file."""
    file, made = _file(module), _made(module)
    sources = {name: Source(**one) for name, one in made(file["sources"]).items()}
    choices = {name: getattr(conditions, one.pop("kind"))(**one) for name, one in made(file["conditions"]).items()}
    for kind in file["kinds"]:
        if "alone" in kind:
            yield from drills([_NOTHING], [tuple(_wish(module, name) for name in some) for some in kind["alone"]])
        else:
            by = [choices[name] if name != "all" else conditions.All() for name in kind["by"]]
            wishes = [_wish(module, name) for name in kind["wishes"]]
            yield from practice(sources[kind["of"]], by, wishes, kind.get("per", 2))


@cache
def _file(module: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{module}.toml").read_text(encoding="utf-8"))


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
