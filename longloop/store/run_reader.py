"""The one reader of a run folder, which docs/reference/run-format.md describes.

    run = load_run("runs/quickstart")
    run.config.algo["lr"], run.status, run.tags
    run.metrics[-1]["update"]["loss"]
    run.column("eval.success")             # {0: 0.31, 20: 0.58}
    run.evaluations[20].success_interval
    run.trajectories(12)[0].scored         # groups, with every token
    run.checkpoints[20]                    # a folder

Nothing is read before it is asked for, and single trajectories are found through an index (`run.stored["step"]`), so a
run of any length opens at once. A run may be read while it is being written: a property reads anew when its file has
changed, and what a crash has cut or damaged is passed over. Loads no torch and writes nothing.
"""

import fcntl
import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import longloop.config as configs
from longloop.config import FORMAT, MEASURED, Config, Overrides
from longloop.store.files import read_lines, stamp
from longloop.store.metrics import Evaluation, Metrics
from longloop.store.tags import read_tags
from longloop.store.trajectories import Trajectories
from longloop.types import Group, UserError

FOLDERS = {"step": "trajectories", "eval": "evaluations"}
"""The two kinds of trajectories as `longloop show` and the viewer's addresses name them, and where they are stored."""
_BESIDE = 5
"""Runs that are named where one was looked for."""

T = TypeVar("T")


@dataclass(frozen=True)
class SettingsChange:
    """What was changed when a run was resumed: a line of changes.jsonl."""

    step: int
    """The first step with the new values."""
    time: str
    changed: dict[str, tuple[Any, Any]]
    """Dotted key -> its old and its new value."""


class RunReader:
    """What a run folder holds. `load_run` opens one."""

    def __init__(self, folder: Path, name: str = "") -> None:
        """Takes any folder: what is missing reads as empty."""
        self.folder = folder
        self.name = name or folder.name
        self.stored = {kind: Trajectories(folder / part) for kind, part in FOLDERS.items()}
        """`step` and `eval`: the trajectories of training and of evaluations, to be searched and read one by one."""
        self._killed: object = None
        self._cache: dict[str, tuple[object, Any]] = {}

    def __repr__(self) -> str:
        return f"<run {self.name}: {self.status}, {len(self.metrics)} steps measured, in {self.folder}>"

    @property
    def facts(self) -> dict[str, Any]:
        """run.json: when, where and with what it was made. Empty where it cannot be read."""
        return _facts(self.folder) or {}

    @property
    def config(self) -> Config:
        """The config that the run was last trained with, changes included. Raises UserError where this longloop does
        not understand it."""
        return stored_config(self.folder)

    @property
    def settings(self) -> dict[str, Any]:
        """The same as plain tables, without a check; empty where there is no readable config.toml."""
        try:
            return _with_changes(tomllib.loads((self.folder / "config.toml").read_text()), self.changes)
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def table(self, name: str) -> dict[str, Any]:
        """A table of the settings; empty where there is none of that name."""
        found = self.settings.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def env(self) -> str:
        """The name of its environment."""
        return str(self.table("env").get("name", ""))

    @property
    def env_version(self) -> str:
        """The version of its environment; empty where that had none, as in runs from before versions."""
        return str(self.settings.get("env_version", ""))

    @property
    def changes(self) -> list[SettingsChange]:
        """What was changed when the run was resumed."""
        try:
            return read_changes(self.folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []

    @property
    def tags(self) -> list[str]:
        return read_tags(self.folder)

    @property
    def status(self) -> str:
        """running, finished, interrupted or failed, as run.json has it; `killed` when it says running and nobody holds
        the lock."""
        status = str(self.facts.get("status") or "unknown")
        if status != "running":
            return status
        # Trying the lock could disturb a process that wants it, so a run is found to be killed once and then believed.
        now = stamp(self.folder / "run.json")
        if self._killed != now and self._unlocked():
            self._killed = now
        return "killed" if self._killed == now else "running"

    @property
    def trains(self) -> bool:
        """Whether it is, or was, in training; other runs hold demonstrations or evaluations."""
        return bool(self.facts) and bool(self.facts.get("trains", "measured" not in self.facts))

    @property
    def too_new(self) -> bool:
        """Whether a later longloop wrote it; what is read of it may then be wrong."""
        written = self.facts.get("format", 0)
        return isinstance(written, int) and written > FORMAT

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The numbers of each step, in order; step 0 is the evaluation before training. `pandas.json_normalize` makes
        a table of them."""
        path = self.folder / "metrics.jsonl"
        return self._cached("metrics", stamp(path), Metrics(path).read)

    def column(self, name: str) -> dict[int, Any]:
        """Step -> one of its numbers, where it was measured. A dot leads inside: `update.loss`, `eval.success`."""
        found: dict[int, Any] = {}
        for line in self.metrics:
            value: Any = line
            for key in name.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None:
                found[line["step"]] = value
        return found

    @property
    def evaluations(self) -> dict[int, Evaluation]:
        """Step -> what the evaluation after it found; 0 is before training."""
        found = {}
        for step, line in self.column("eval").items():
            try:
                found[step] = Evaluation.from_json(line)
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
        return found

    @property
    def measured_since(self) -> int:
        """The step from which on evaluations compare: what is measured (split, tasks, attempts, sampling, limits) was
        last changed there. 0 where it never was."""
        return max((c.step for c in self.changes if MEASURED & c.changed.keys()), default=0)

    @property
    def comparable_evaluations(self) -> dict[int, Evaluation]:
        """Those since what is measured was last changed."""
        return self._measured_alike[-1]

    def trajectories(self, step: int) -> list[Group]:
        """The groups that training sampled in a step. `run.stored["step"].steps()` are the steps that have some."""
        return self._groups("step", step)

    def evaluation_trajectories(self, step: int) -> list[Group]:
        """The groups of the evaluation after a step."""
        return self._groups("eval", step)

    @property
    def checkpoints(self) -> dict[int, Path]:
        """Step -> the folder of its checkpoint; the last is the newest."""
        return {step: self.folder / "checkpoints" / f"{step:06d}" for step in sorted(checkpoints(self.folder))}

    @property
    def best(self) -> int | None:
        """The step of the checkpoint that was evaluated best: by its success, then its reward, then the later one."""
        return self._best(self.comparable_evaluations)

    @property
    def best_ones(self) -> set[int | None]:
        """The best, and those that were it before what is measured was changed."""
        return {self._best(alike) for alike in self._measured_alike}

    @property
    def demonstrated(self) -> bool:
        """Whether training samples nothing of the agent's own, as in SFT: its success is then the demonstrations'."""
        return self.derived("demonstrated", self._demonstrated)

    @property
    def version(self) -> str:
        """A text that changes when there is something new to read."""
        files = ("run.json", "metrics.jsonl", "tags.json", *(f"{part}/index.jsonl" for part in FOLDERS.values()))
        return "/".join("{}.{}".format(*stamp(self.folder / file)) for file in files) + self.status

    def derived(self, name: str, make: Callable[[], T]) -> T:
        """What `make` made of the run the last time, or makes of it now if it has changed since."""
        return self._cached(name, self.version, make)

    @property
    def _measured_alike(self) -> list[dict[int, Evaluation]]:
        """The evaluations in parts, between changes of what is measured."""
        starts = [0, *sorted({c.step for c in self.changes if MEASURED & c.changed.keys()} - {0})]
        ends, evaluations = [*starts[1:], math.inf], self.evaluations.items()
        return [
            {step: found for step, found in evaluations if start <= step < end}
            for start, end in zip(starts, ends, strict=True)
        ]

    def _best(self, measured: Mapping[int, Evaluation]) -> int | None:
        evaluated = [step for step in checkpoints(self.folder) if step in measured]
        return max(evaluated, key=lambda step: (measured[step].success, measured[step].reward, step), default=None)

    def _cached(self, name: str, version: object, make: Callable[[], T]) -> T:
        if name not in self._cache or self._cache[name][0] != version:
            self._cache[name] = version, make()
        return self._cache[name][1]

    def _groups(self, kind: str, step: int) -> list[Group]:
        stored = self.stored[kind]
        if not stored.path(step).is_file():
            known = ", ".join(map(str, stored.steps())) or "none"
            raise UserError(f"{self.folder} has no {FOLDERS[kind]} of step {step}. It has those of: {known}.")
        return stored.read(step)

    def _demonstrated(self) -> bool:
        """By the first group of the last step: where the agent plays beside an expert, it does so in every group.

        Reads the beginning of a file, not the index: the list of runs asks this of every run.
        """
        stored = self.stored["step"]
        found = False
        for trajectory in stored.stored(max(stored.steps(), default=0)):
            if trajectory.group > 0:
                break
            if not trajectory.demonstrated:
                return False
            found = True
        return found

    def _unlocked(self) -> bool:
        try:
            with (self.folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def load_run(path: str | Path) -> RunReader:
    """Open a run folder to read it. Raises UserError where there is none, or a later longloop wrote it."""
    run = RunReader(Path(path))
    if _facts(run.folder) is None:
        known = runs_beside(run.folder) or " Name one that `longloop train` wrote, such as runs/quickstart."
        raise UserError(f"{path} is not a run folder.{known}")
    if run.too_new:
        raise UserError(
            f"{path} is in run format {run.facts['format']}; this longloop knows up to {FORMAT}. Upgrade longloop."
        )
    return run


def runs_beside(path: Path) -> str:
    """A sentence that names the newest runs of the folder in which a run was looked for; empty if it has none."""
    runs = sorted(path.parent.glob("*/run.json"), key=stamp, reverse=True)
    names = ", ".join(run.parent.name for run in runs[:_BESIDE])
    more = f" and {len(runs) - _BESIDE} more" if len(runs) > _BESIDE else ""
    return f" In {path.parent} there {'are' if len(runs) > 1 else 'is'} {names}{more}." if runs else ""


def version_in_words(version: str) -> str:
    return f"version {version}" if version else "an unknown version (before versions)"


def mixed_versions(runs: Sequence[RunReader]) -> str:
    """A sentence, if some of these runs were made in different versions of one environment."""
    for env in dict.fromkeys(run.env for run in runs):
        versions: dict[str, list[str]] = {}
        for run in runs:
            if run.env == env:
                versions.setdefault(run.env_version, []).append(run.name)
        if len(versions) > 1:
            which = "; ".join(f"{version_in_words(version)}: {', '.join(names)}" for version, names in versions.items())
            return f"These runs were made in different versions of {env}, whose scores do not compare ({which})."
    return ""


def read_facts(folder: Path) -> dict[str, Any]:
    """run.json of a folder that must be a run this longloop can read."""
    return load_run(folder).facts


def stored_config(folder: Path, overrides: Overrides = ()) -> Config:
    """The config that a run was last trained with, its changes included, with overrides."""
    return _resolved(folder, read_changes(folder), overrides)


def config_at(folder: Path, step: int) -> Config:
    """The config that a run had at a step."""
    return _resolved(folder, [change for change in read_changes(folder) if change.step <= step])


def _resolved(folder: Path, changes: Sequence[SettingsChange], overrides: Overrides = ()) -> Config:
    file = folder / "config.toml"
    return configs.resolve(_with_changes(configs.read(file), changes), str(file), overrides)


def read_changes(folder: Path) -> list[SettingsChange]:
    """What was changed when a run was resumed."""
    return [
        SettingsChange(line["step"], line["time"], {key: (old, new) for key, (old, new) in line["changed"].items()})
        for line in read_lines(folder / "changes.jsonl")
    ]


def checkpoints(folder: Path) -> list[int]:
    """The steps that have a whole checkpoint."""
    return [int(path.name) for path in (folder / "checkpoints").glob("*") if path.name.isdigit()]


def checkpoint_in(path: Path) -> Path | None:
    """The checkpoint that a path names, itself or as the newest of a run folder; None where it is neither."""
    if path.parent.name == "checkpoints" and (path.parents[1] / "run.json").is_file():
        if not (path / "state.json").is_file():
            kept = ", ".join(map(str, sorted(checkpoints(path.parents[1])))) or "none"
            raise UserError(
                f"{path} is not a checkpoint (any more); the run has those of these steps: {kept}. To keep one for "
                "other runs, export it: `longloop export RUN --out FOLDER`, then model.path=FOLDER."
            )
        return path
    if not (path / "run.json").is_file():
        if not path.exists() and len(path.parts) > 1 and (known := runs_beside(path)) and not in_hubs_cache(path):
            raise UserError(f"There is no {path}.{known}")
        return None
    found = list(RunReader(path).checkpoints.values())
    if not found:
        raise UserError(f"{path} is a run folder without a checkpoint, so there is no model in it.")
    return found[-1]


def in_hubs_cache(name: Path) -> bool:
    """Whether a path is the name of a model that is in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(str(name), "config.json"), str)
    except HFValidationError:  # it is a path
        return False


def _facts(folder: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _with_changes(tree: dict[str, Any], changes: Sequence[SettingsChange]) -> dict[str, Any]:
    """A run's config as it is after these changes."""
    for change in changes:
        for key, (_, new) in change.changed.items():
            table, _, name = key.rpartition(".")
            (tree.setdefault(table, {}) if table else tree)[name] = new
    return tree
