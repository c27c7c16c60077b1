"""Other words for the names of APIs and parameters: what a disguise draws from."""

import random
import re
from typing import Any

from errands.words import read

_NEW: dict[str, Any] = read("synonyms")
"""Words for verbs, nouns and parameters; what the APIs of an app are about that do not say it; forms for `..._id`."""


def new_name(app: str, name: str, taken: set[str], room: int, rng: random.Random) -> str:
    """Another name, or the same; never one that is taken, nor one too long."""
    luck = rng.random()
    if luck < 0.25:
        return name
    for _ in range(20 if luck < 0.875 else 0):
        new = _synonym(app, name, rng)
        if new not in taken and len(new) - len(name) <= room:
            return new
    while (new := f"{rng.choice(('do', 'op', 'fn'))}_{rng.choice('bdfgkmprst')}{rng.randrange(10)}") in taken:
        pass
    return new


def _synonym(app: str, name: str, rng: random.Random) -> str:
    verb, *nouns = name.split("_")
    verb = rng.choice((verb, *_NEW["verbs"].get(verb, [])))
    nouns = [rng.choice((noun, *_NEW["nouns"].get(noun, []))) for noun in nouns]
    nouns = nouns or ([_NEW["things"][app]] if app in _NEW["things"] and rng.random() < 0.6 else [])
    first, last = "_".join([verb, *nouns]), "_".join([noun for noun in nouns if noun not in ("to", "from")] + [verb])
    return rng.choice((first, first, last, re.sub("_(.)", lambda part: part[1].upper(), first)))


def new_parameters(names: list[str], rng: random.Random) -> dict[str, str]:
    """Those that are called otherwise."""
    new: dict[str, str] = {}
    for name in names:
        thing = name.removesuffix("_id")
        others = _NEW["parameters"].get(name, []) if thing == name else [form.format(thing) for form in _NEW["ids"]]
        free = [other for other in others if other not in names and other not in new.values()]
        if free and rng.random() < 0.75:
            new[name] = rng.choice(free)
    return new
