"""A disguise: other names for the apps' APIs and their parameters, in another order, so that they must be read.

Made from a seed. An app's APIs here do what the real ones do and say in their documentation and errors what they are
called here. The apps `docs` and `owner`, `login` and `logout` keep their names, because the system prompt uses them. A
quarter of the other names stay, one in eight says nothing, and the rest are synonyms, so that an agent has to read what
an API does. Most APIs that do something to a thing, and are not `known` to the task by their usual words, are named and
described by a foreign verb, one that no app and no task has otherwise; what the task is about may have a foreign noun.
The drill then uses these words, and only the sentence in the list of APIs says which one is meant. Experts speak real
names; `turn` translates.
"""

import ast
import functools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from errands.api import Api, ApiError, Problem
from errands.apps import BY_NAME, find
from errands.syntax import parse
from errands.words import read

_WORDS = read("disguise")
VERBS, NOUNS = tuple(_WORDS["foreign_verbs"]), tuple(_WORDS["foreign_nouns"])
USUAL = tuple(_WORDS["usual_nouns"])
"""The nouns that a foreign one may replace."""
_OPEN = ("docs", "owner")
_KEPT = ("login", "logout")
_FOREIGN = 0.7
"""The share of APIs that get a foreign verb, or speak of something foreign, of those that may."""
_ROOM = 80
"""Characters by which the names of an app may be longer in all: its list must not be cut when it is printed."""

_MENTION = re.compile(r"\b([a-z]+)\.([a-z_]+)\b|`(\w+)`|\b(\w+)(?==)")
"""In a sentence: an API, or a parameter of the API named before, written `so` or so=."""


@dataclass(frozen=True)
class _Names:
    """What an API and its parameters are called."""

    api: str
    parameters: Mapping[str, str]
    verb: str = ""
    """The foreign one, if it does something by one."""


@dataclass(frozen=True)
class Disguise:
    """The names of one task, the same for the same seed."""

    seed: str
    known: frozenset[str] = frozenset()
    """APIs that keep their verbs, because the task asks for what they do in the usual words."""
    noun: str = ""
    """The usual name of what the task is about, if it has a foreign one here."""
    used: frozenset[str] = frozenset()
    """APIs that the task needs. They speak of it by that name, and others of something else."""

    def apis(self, app: str) -> Mapping[str, Api]:
        """An app's APIs by what they are called here."""
        return _apis(self, app)

    def listed(self, app: str) -> list[str]:
        return [names.api for names in _names(self, app).values()]

    def name(self, api: str) -> str:
        """What an API is called here, both as app.api."""
        return _said(self, api)

    def parameter(self, api: str, name: str) -> str:
        """What a parameter of an API is called here."""
        app, _, of = api.partition(".")
        return _names(self, app)[of].parameters.get(name, name)

    def verb(self, api: str) -> str:
        """The foreign verb for what an API does, if it has one."""
        app, _, name = api.partition(".")
        return _names(self, app)[name].verb

    def sentence(self, api: str) -> str:
        """What the list says of an API, with real names."""
        verb = self.verb(api)
        return self.about(api, f"{verb.capitalize()} {thing(find(api))}." if verb else find(api).summary)

    def about(self, api: str, text: str) -> str:
        """A text about an API, with the foreign noun that it has for what it speaks of, if any."""
        if api in self.used or not self.noun:
            return self.called(text)
        rng = random.Random(f"{self.seed}/{api}/noun")
        return renamed(text, self.noun, rng.choice(_nouns(self.seed)[1:])) if rng.random() < _FOREIGN else text

    def called(self, text: str) -> str:
        """A text with the foreign noun for what the task is about."""
        return renamed(text, self.noun, _nouns(self.seed)[0]) if self.noun else text

    def turn(self, thought: str, code: str) -> tuple[str, str]:
        """What an expert who speaks real names would say here."""
        return _said(self, thought), self._code(code)

    def _code(self, code: str) -> str:
        lines = [line.encode() for line in code.split("\n")]  # positions are counted in bytes
        for line, column, old, new in sorted(self._changes(parse(code)), reverse=True):
            text = lines[line - 1]
            lines[line - 1] = text[:column] + new.encode() + text[column + len(old) :]
        return b"\n".join(lines).decode()

    def _changes(self, tree: ast.AST) -> list[tuple[int, int, str, str]]:
        """(line, column, what stands there, what should)."""
        changes: list[tuple[int, int, str, str]] = []
        for node in ast.walk(tree):
            match node:
                case ast.keyword("api", ast.Constant(str(api)) as text):  # in docs.show(api="app.api")
                    changes.append((text.lineno, text.col_offset + 1, api, self.name(api)))
                case ast.Call(ast.Attribute(ast.Attribute(ast.Name("apis"), app), api) as called, _, keywords):
                    names = _names(self, app)[api]
                    changes.append((called.end_lineno or 0, (called.end_col_offset or 0) - len(api), api, names.api))
                    for word in keywords:
                        if word.arg and (new := names.parameters.get(word.arg)):
                            changes.append((word.lineno, word.col_offset, word.arg, new))
        return changes


@functools.lru_cache(maxsize=256)
def _names(disguise: Disguise, app: str) -> dict[str, _Names]:
    """By the real name, in the order in which they are listed here."""
    real = BY_NAME[app].apis
    rng = random.Random(f"{disguise.seed}/{app}/disguise")
    names = {name: _Names(name, {}) for name in real if app in _OPEN or name in _KEPT}
    others = [name for name in real if name not in names]
    rng.shuffle(others)
    taken, room, verbs = set(real), _ROOM, _verbs(disguise.seed, app)
    for name in others:
        parameters = _new_parameters(list(real[name].parameters), rng)
        what = "" if f"{app}.{name}" in disguise.known else thing(real[name])
        verb = verbs.pop() if what and verbs and rng.random() < _FOREIGN else ""
        new = _new_name(app, f"{verb}_{what.split()[-1]}" if verb else name, taken, room, rng)
        taken.add(new)
        room -= len(new) - len(name)
        names[name] = _Names(new, parameters, verb)
    return names


@functools.lru_cache(maxsize=256)
def _nouns(seed: str) -> list[str]:
    return random.Random(f"{seed}/nouns").sample(NOUNS, len(NOUNS))


def _verbs(seed: str, app: str) -> list[str]:
    """The foreign verbs that an app may have; no other has them."""
    return _all_verbs(seed)[list(BY_NAME).index(app) :: len(BY_NAME)]


@functools.lru_cache(maxsize=256)
def _all_verbs(seed: str) -> list[str]:
    return random.Random(f"{seed}/verbs").sample(VERBS, len(VERBS))


@functools.lru_cache(maxsize=256)
def _apis(disguise: Disguise, app: str) -> dict[str, Api]:
    made = (_disguised(disguise, BY_NAME[app].apis[name], names) for name, names in _names(disguise, app).items())
    return {api.name: api for api in made}


def _disguised(disguise: Disguise, api: Api, names: _Names) -> Api:
    full = f"{api.app}.{api.name}"
    real = {new: old for old, new in names.parameters.items()}

    def say(text: str) -> str:
        return _said(disguise, text, names)

    def function(world: Any, **values: Any) -> Any:
        try:
            return api.function(world, **{real.get(name, name): value for name, value in values.items()})
        except ApiError as error:
            if problems == api.problems:
                raise
            raise ApiError(error.code, say(str(error).removeprefix(f"{error.code} "))) from None

    problems = tuple(Problem(problem.code, say(problem.text)) for problem in api.problems)
    new = names.parameters
    parameters = (replace(p, name=new[p.name]) if p.name in new else p for p in api.parameters.values())
    return replace(
        api,
        name=names.api,
        about=disguise.sentence(full) if names.verb else disguise.about(full, say(api.about)),
        parameters={parameter.name: parameter for parameter in parameters},
        problems=problems,
        function=function,
    )


def _said(disguise: Disguise, text: str, names: _Names | None = None) -> str:
    """A sentence with the names of here. `names` are of the API that it is about, if one is known."""

    def here(match: re.Match[str]) -> str:
        nonlocal names
        app, api, marked, given = match.groups()
        if app is None:
            new = names.parameters.get(marked or given) if names else None
            return match[0].replace(marked or given, new) if new else match[0]
        if app not in BY_NAME or api not in BY_NAME[app].apis:
            return match[0]
        names = _names(disguise, app)[api]
        return f"{app}.{names.api}"

    return _MENTION.sub(here, text)


def thing(api: Api) -> str:
    """What an API does something to; nothing if it only tells something."""
    first = next((name for name in api.parameters if name != "access_token"), "")
    if api.name.startswith(("list_", "search", "show")):
        return ""
    if first == "message_id":
        return "an email" if api.app == "mail" else "a text message"
    return str(_WORDS["things"].get(first, ""))


def speaks_of(text: str, noun: str) -> bool:
    return _pattern(noun).search(text) is not None


def renamed(text: str, noun: str, new: str) -> str:
    """A text with another noun, one or many; but for what stands in braces, and names of apps and APIs."""

    def word(match: re.Match[str]) -> str:
        start = new.capitalize() if match["noun"][0].isupper() else new
        return (match["an"] or "").replace("n", "") + start + match["many"]

    return _pattern(noun).sub(word, text)


def _pattern(noun: str) -> re.Pattern[str]:
    spelled = noun.replace("email", "e?mail")
    ends = r"(?P<many>s?)(?![\w}]|\.\w| app\b| address)"
    return re.compile(rf"(?<![-{{@.\w])(?P<an>an )?(?P<noun>{spelled}){ends}", re.IGNORECASE)


def _new_name(app: str, name: str, taken: set[str], room: int, rng: random.Random) -> str:
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
    verb = rng.choice((verb, *_WORDS["verbs"].get(verb, [])))
    nouns = [rng.choice((noun, *_WORDS["nouns"].get(noun, []))) for noun in nouns]
    what = _WORDS["things_of_apps"].get(app)
    nouns = nouns or ([what] if what and rng.random() < 0.6 else [])
    first, last = "_".join([verb, *nouns]), "_".join([noun for noun in nouns if noun not in ("to", "from")] + [verb])
    return rng.choice((first, first, last, re.sub("_(.)", lambda part: part[1].upper(), first)))


def _new_parameters(names: list[str], rng: random.Random) -> dict[str, str]:
    """Those that are called otherwise."""
    new: dict[str, str] = {}
    for name in names:
        of = name.removesuffix("_id")
        others = _WORDS["parameters"].get(name, []) if of == name else [form.format(of) for form in _WORDS["ids"]]
        free = [other for other in others if other not in names and other not in new.values()]
        if free and rng.random() < 0.75:
            new[name] = rng.choice(free)
    return new
