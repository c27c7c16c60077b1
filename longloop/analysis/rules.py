"""What is looked for in attempts: patterns, and the properties of tasks that success is broken down by.

They are written alike in three sources: a TOML file of the user's, the class attribute `analysis` of an environment,
and run.json, where training stores what the environment declared, so that no environment is needed to read a run:

    by = ["difficulty", "topic"]

    [patterns.searches]
    said = '(?i)search\\['

A pattern is a regular expression that is searched in what the agent wrote (`said`), in what came back (`heard`), or
that an API it called must match as a whole (`called`). Where two sources have a pattern of the same name, the user's
file wins over the environment, and both win over the defaults.
"""

import importlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longloop.registry import ENVS
from longloop.store.run_reader import RunReader
from longloop.types import UserError

BY = ("split", "scenario", "difficulty", "apps", "type", "kind", "website", "game", "topic", "level")
"""Properties of a task that success is broken down by where `by` says nothing else: the scenario, the split, and
entries of `Task.data`."""
FAILURE = (
    r"Traceback \(most recent call last\)|^Execution failed|^[\w.]*(?:Error|Exception):"
    r"|^(?:[\w.]+(?:Error|Exception)|KeyboardInterrupt|Stop(?:Async)?Iteration|SystemExit|GeneratorExit)(?::|$)"
    r"|^4(?:0[01349]|22|29) .*[.?]$"  # a refused call whose exception was caught and printed
)
PATTERNS: dict[str, Any] = {
    "lookups": {"called": r"docs\.show|api_docs\.show_api_doc", "title": "doc look-ups / attempt"},
    "assumptions": {"said": r"(?i)\bassum(?:e|ed|ing)\b", "title": "assumptions / attempt"},
    "placeholders": {"said": "(?i)dummy", "title": "placeholders / attempt"},
    "failure": {"heard": FAILURE, "per": "turn", "title": "turns that failed"},
}
"""The patterns of every run: look-ups as in Errands and AppWorld, and what a failed turn looks like."""
TAKEN = (
    *("attempts", "turns", "heard", "tokens", "success", "reward"),
    *("coded", "crowded", "given_up", "failed", "repeated"),
)
"""Names of what is counted without a pattern. Those of the judge's tests have a slash in them."""
_WHERE = ("said", "heard", "called")


@dataclass(frozen=True)
class Pattern:
    name: str
    where: str
    """said, heard or called."""
    regex: re.Pattern[str]
    turns: bool
    """Whether it counts turns that match; otherwise it counts matches per attempt."""
    title: str


@dataclass(frozen=True)
class Rules:
    by: tuple[str, ...]
    patterns: dict[str, Pattern]

    @property
    def failure(self) -> re.Pattern[str]:
        return self.patterns["failure"].regex


def rules(
    declared: Mapping[str, Any] | None = None, file: Path | None = None, source: str = "run.json, analysis"
) -> Rules:
    """The rules of a run: what its environment declared (in `source`), and a file that changes them."""
    found = _read({"by": BY, "patterns": PATTERNS}, "the defaults")
    if declared:
        found = _over(found, _read(declared, source))
    if file is not None:
        try:
            tree = tomllib.loads(file.read_text())
        except OSError as error:
            raise UserError(f"--patterns {file}: cannot be read ({error.strerror or error}).") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(f"--patterns {file}: this is not TOML: {error}") from error
        found = _over(found, _read(tree, f"--patterns {file}"))
    return found


def declared(run: RunReader) -> Mapping[str, Any]:
    """What the environment of a run declared: as the run has stored it, or for older runs as it ships now."""
    stored = run.facts.get("analysis")
    if stored is not None:
        return stored
    try:
        name = run.settings["env"]["name"]
        module, _, attribute = ENVS[name].partition(":")
        return getattr(importlib.import_module(module), attribute).analysis
    except (KeyError, TypeError, ImportError):
        return {}


def _over(below: Rules, above: Rules) -> Rules:
    return Rules(above.by or below.by, below.patterns | above.patterns)


def _read(tree: Any, source: str) -> Rules:
    if not isinstance(tree, Mapping) or set(tree) - {"by", "patterns"}:
        raise UserError(f"{source}: only `by` and tables [patterns.NAME] can stand there (docs/analyze.md).")
    by, patterns = tree.get("by", ()), tree.get("patterns", {})
    if not isinstance(by, list | tuple) or not all(isinstance(name, str) for name in by):
        raise UserError(f'{source}: `by` must be a list of names, such as by = ["difficulty", "topic"].')
    if not isinstance(patterns, Mapping):
        raise UserError(f"{source}: patterns are tables: [patterns.NAME].")
    return Rules(tuple(by), {name: _pattern(name, spec, source) for name, spec in patterns.items()})


def _pattern(name: str, spec: Any, source: str) -> Pattern:
    here = f"{source}: pattern {name!r}"
    if name in TAKEN or "/" in name:
        raise UserError(f"{here} has the name of something that is counted anyway, or a slash in it. Give it another.")
    if not isinstance(spec, Mapping) or set(spec) - {*_WHERE, "per", "title"}:
        raise UserError(f"{here} may have one of said, heard and called, and `per` and `title`, and nothing else.")
    where = [key for key in _WHERE if key in spec]
    if len(where) != 1 or (name == "failure" and where != ["heard"]):
        wanted = "must have `heard`" if name == "failure" else "must have exactly one of said, heard and called"
        raise UserError(f"{here} {wanted}, a regular expression.")
    per = spec.get("per", "turn" if name == "failure" else "attempt")
    if per not in ("attempt", "turn"):
        raise UserError(f'{here}: per = {per!r} must be "attempt" or "turn".')
    try:
        regex = re.compile(spec[where[0]], re.MULTILINE)
    except (re.error, TypeError, ValueError) as error:
        raise UserError(f"{here}: {where[0]} is not a regular expression: {error}.") from error
    if regex.search("") and where[0] != "called":
        raise UserError(f"{here}: {where[0]} = {spec[where[0]]!r} also matches nothing at all, so it says nothing.")
    shown = {"turn": f"turns with {name}", "attempt": f"{name} / attempt"}[per]
    return Pattern(name, where[0], regex, per == "turn", str(spec.get("title", shown)))
