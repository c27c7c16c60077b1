"""A comparison of methods on one environment: the same start, the same number of attempts, the same tasks.

The config is that of a run. Its `[algo]` holds for every method, as far as the method has the option: `k`, `lr` and the
other options that all methods inherit always do. An option of the named method's own (LOOP's `ratio`) also holds for
methods that inherit it from there, and for no other, though one may have an option of that name. `[methods.NAME]` is
for one method and wins over the rest of the config (`[methods.eto]` `steps = 3`, `[methods.eto.algo]` `lr = 1e-6`).

The budget is the config's own: steps x tasks x attempts at each, the expert's counted like the policy's. A method that
does not say how many steps it takes gets as many as that allows.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from longloop.config import Config, as_toml, nearest, override, read, resolve
from longloop.options import options_of
from longloop.registry import ALGOS
from longloop.stats import PairedChange, paired_change
from longloop.store.lineage import pinned
from longloop.store.run import run_folder, settings_of
from longloop.types import UserError

BASE = "base"
"""The model before any training, as a method."""
_OF_THE_RUN = ("seed", "algo.name", "model.path")
"""Settings that tell the runs of a comparison apart."""
_OF_ALL = ("name", "folder", "seed")
"""Settings that a comparison gives to each of its runs, from the config's own."""

Scores = Mapping[str, float]
"""A task's id -> the share of its attempts that succeeded."""


@dataclass(frozen=True)
class Entry:
    """One run of the comparison."""

    method: str
    seed: int
    config: Config
    not_applied: tuple[str, ...] = ()
    """Options in `[algo]` that do not hold for the method."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.method.replace(':', '.')}-{self.seed}"


class Plan:
    """The runs to make, in order: the method that the others start from comes first."""

    def __init__(
        self,
        path: Path,
        overrides: Sequence[str],
        methods: Sequence[str],
        seeds: int,
        start: str,
        best: bool = False,
    ) -> None:
        """`best`: measure the checkpoints that were evaluated best in place of the last ones."""
        from longloop.build import algorithm

        tree = read(path)
        for word in overrides:
            if word.startswith("methods."):
                override(tree, word)
        self._own = _tables(tree.pop("methods", {}), methods, path)
        self._path, self._tree = path, tree
        rest = [word for word in overrides if not word.startswith("methods.")]
        self._base = resolve(tree, str(path), rest)  # which also puts the overrides into the tree
        self._algo = algorithm(self._base)
        self.start, self.best, self.split = start, best, self._base.eval.split
        self.folder = run_folder(self._base)
        order = sorted(dict.fromkeys(methods), key=lambda name: (name != BASE, name != start))
        self.entries = [self._entry(name, seed) for name in order for seed in self._seeds(seeds)]

    def model(self, seed: int) -> Path:
        """Where the model that the others start from is kept."""
        return self.folder / "models" / Entry(self.start, seed, self._base).name

    def _seeds(self, count: int) -> range:
        return range(self._base.seed, self._base.seed + count)

    def _entry(self, method: str, seed: int) -> Entry:
        from longloop.build import algorithm

        own = self._own.get(method, {})
        self._check(method, own)
        tree = copy.deepcopy(self._tree)
        where = {"folder": str(self.folder), "name": Entry(method, seed, self._base).name, "seed": seed}
        if method == BASE:
            _merge(tree, own)
            return Entry(method, seed, resolve(tree | where, self._source(method)))
        applied, not_applied = self._shared(method)
        tree["algo"] = applied
        _merge(tree, own)
        if isinstance(tree["algo"], dict):
            tree["algo"] = {"name": method} | tree["algo"]
        if method != self.start and self.start != BASE:
            tree.setdefault("model", {})["path"] = str(self.model(seed))
        config = resolve(tree | where, self._source(method))
        if config.algo["name"] != method:
            raise UserError(f"{self._source(method)}: algo.name is {config.algo['name']!r}. Leave it out there.")
        try:
            algo = algorithm(config)
        except UserError as error:
            options = f"[algo] and {_table(method, 'algo')} of {self._path}"
            raise UserError(f"The method {method!r}, with {options}: {error}") from None
        if "steps" not in own:
            budget = self._base.steps * self._base.tasks_per_step * self._algo.attempts_per_task
            steps = max(1, round(budget / (config.tasks_per_step * algo.attempts_per_task)))
            config = config.model_copy(update={"steps": steps})
        return Entry(method, seed, config, not_applied)

    def _check(self, method: str, own: Mapping[str, Any]) -> None:
        """Raise UserError for a setting in a method's table that would be overwritten."""
        for key in _OF_ALL:
            if key in own:
                raise UserError(
                    f"{self._source(method)}: {key} is that of the whole comparison. Set it above the tables."
                )
        model = own.get("model")
        if method not in (BASE, self.start) and self.start != BASE and isinstance(model, dict) and "path" in model:
            raise UserError(
                f"{self._source(method)}: model.path is what {self.start} has made of its own, from which all others "
                f"start. Leave it out there, or compare with --start {BASE}."
            )

    def _shared(self, method: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The options in [algo] that hold for a method, and the names of those that do not."""
        from longloop.build import named

        other = named({"name": method}, ALGOS, "algo")
        options = {key: value for key, value in self._base.algo.items() if key != "name"}
        named_here = type(self._algo)
        applied = {key: options[key] for key in options if _declared(key, other) is _declared(key, named_here)}
        return applied, tuple(key for key in options if key not in applied)

    def _source(self, method: str) -> str:
        return f"{self._path} ({_table(method)} included)"


def _tables(own: Any, methods: Sequence[str], path: Path) -> dict[str, Any]:
    """The tables [methods.NAME]. Raises UserError where there is no such method."""
    for name, table in own.items() if isinstance(own, dict) else [("", own)]:
        if not isinstance(table, dict):
            raise UserError(f"{path}: [methods] has a table of settings for each method, and {table!r} is none.")
        if ":" in name:
            options_of(name)  # a misspelt one is refused here
        elif name not in (*ALGOS, BASE):
            raise UserError(f"There is no method {name!r}, for which {path} has settings.{nearest(name, ALGOS)}")
    return own


def _table(method: str, *inside: str) -> str:
    """A method's table as TOML writes it."""
    name = f'"{method}"' if ":" in method else method
    return f"[{'.'.join(('methods', name, *inside))}]"


def _declared(option: str, algo: type) -> type | None:
    """The class that an algorithm inherits an option from: the farthest ancestor that declares it."""
    return next((one for one in reversed(algo.__mro__) if option in inspect.get_annotations(one)), None)


def _merge(tree: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        inner = tree.setdefault(key, {}) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping) and isinstance(inner, dict):
            _merge(inner, value)
        else:
            tree[key] = value


def all_settings(config: Config) -> dict[str, Any]:
    """Every setting that a run would have, defaults included."""
    from longloop.build import stamped

    return settings_of(pinned(stamped(config)))


def differing(entries: Sequence[Entry]) -> list[list[str]]:
    """The settings in which the methods differ, as rows of a table, a heading first."""
    from longloop.build import algorithm

    trained = {entry.method: entry for entry in entries if entry.method != BASE}
    rows = {
        method: {"attempts per task": algorithm(entry.config).attempts_per_task} | all_settings(entry.config)
        for method, entry in trained.items()
    }
    keys = [
        key for key in next(iter(rows.values()), {}) if key not in _OF_THE_RUN and all(key in r for r in rows.values())
    ]
    keys = [key for key in keys if any(row[key] != rows[next(iter(rows))][key] for row in rows.values())]
    own = {
        method: {
            key: value for key, value in entry.config.algo.items() if not all(f"algo.{key}" in r for r in rows.values())
        }
        for method, entry in trained.items()
    }
    said: dict[str, dict[str, str]] = {
        "its own": {method: _listed(options) for method, options in own.items()},
        "not applied": {method: ", ".join(entry.not_applied) for method, entry in trained.items()},
    }
    more = {title: cells for title, cells in said.items() if any(cells.values())}
    if not keys and not more:
        return []
    return [
        ["method", *keys, *more],
        *(
            [name, *(as_toml(row[key]) for key in keys), *(more[title][name] for title in more)]
            for name, row in rows.items()
        ),
    ]


def _listed(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {as_toml(value)}" for key, value in options.items())


def paired(one: Sequence[Scores], other: Sequence[Scores]) -> PairedChange | None:
    """How much better one is than the other on the tasks that both were measured on; None when there are none."""
    return paired_change(_by_task(other), _by_task(one))


def _by_task(runs: Sequence[Scores]) -> Scores:
    """The mean over seeds, task by task."""
    return {task: fmean(run[task] for run in runs if task in run) for task in set[str]().union(*runs)}
