"""The one writer of a run folder, which docs/reference/run-format.md describes.

A step is finished when its checkpoint has been renamed into place; what was written of an unfinished step is written
again when the run is resumed, and readers take the last. `config.toml` is what the run began with and stays; settings
that were changed on resuming are lines of `changes.jsonl`.
"""

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shlex import join, quote
from typing import Any

from longloop.config import FORMAT, Config, WorkerConfig
from longloop.store.files import append_lines, cannot_write, whole_folder, write_whole
from longloop.store.metrics import Metrics
from longloop.store.run_reader import RunReader, checkpoints, read_facts
from longloop.store.trajectories import Trajectories
from longloop.types import UserError
from longloop.version import __version__

CHANGEABLE = (
    *("steps", "tasks_per_step", "doctor", "rollout", "learner", "eval", "save", "ranks", "track", "model.threads"),
    "env_version",
    *("algo.lr", "algo.weight_decay", "algo.max_grad_norm", "algo.kl_guard"),
    *("engine.url", "engine.folder", "engine.key_variable", "engine.seconds", "engine.patience"),
    *(f"env.{name}" for name in WorkerConfig.model_fields),
)
"""Keys, or whole tables, that may differ when a run is resumed. Each is read anew at every step, and nothing in a
checkpoint was made for its old value."""

_FIXED = {
    "seed": "every random number of the run follows from it",
    "env": "rewards before and after would not be those of the same tasks",
    "split": "the run has gone through a part of these tasks",
    "demos": "the run has gone through a part of these tasks",
    "model": "the checkpoint's weights belong to the old value",
    "algo": "the steps before and after would be those of different methods",
    "engine": "the attempts before and after would come from different samplers",
}


class Run:
    """An open run folder: locked against other writers until the end of the `with` block, which notes how it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = Metrics(folder / "metrics.jsonl")
        self.trajectories = Trajectories(folder / "trajectories")
        self.evaluations = Trajectories(folder / "evaluations")
        try:
            self._lock = (folder / "lock").open("w")
        except OSError as error:
            raise cannot_write(folder / "lock", error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UserError(f"{folder} is in use by another process. Wait for it, or stop it first.") from None

    @classmethod
    def create(cls, config: Config, facts: dict[str, Any]) -> "Run":
        """Create the folder of a new run, whole or not at all. Raises UserError if it exists."""
        folder = new_folder(config)
        partial = folder.with_name(folder.name + ".partial")
        begun = {"format": FORMAT, "status": "running", "started": _now(), "env_version": config.env_version}
        try:
            partial.mkdir(parents=True, exist_ok=True)
            with cls(partial)._lock:  # nobody else makes it meanwhile
                write_whole(partial / "config.toml", config.to_toml().encode())
                write_whole(partial / "run.json", _as_json(begun | facts))
                partial.replace(folder)
        except OSError as error:
            raise UserError(
                f"Cannot make {folder}: {error.strerror}. Set `folder` and `name` to what can be written."
            ) from error
        return cls(folder)

    @classmethod
    def reopen(cls, folder: Path, changed: Mapping[str, Sequence[Any]] | None = None) -> "Run":
        """Open an existing run to continue it; `changed` has the old and the new value of each setting that differs."""
        read_facts(folder)
        run = cls(folder)
        if changed:
            append_lines(folder / "changes.jsonl", [{"step": run.next_step, "time": _now(), "changed": changed}])
        run.set_status("running")
        return run

    @property
    def next_step(self) -> int:
        """The first step that is not finished."""
        return max(checkpoints(self.folder), default=0) + 1

    def save(self, step: int, keep: int, write: Callable[[Path], None], state: dict[str, Any]) -> None:
        """Write a checkpoint, whole or not at all, and delete all but the newest `keep` and the best ones."""
        final = self.folder / "checkpoints" / f"{step:06d}"
        try:
            with whole_folder(final) as partial:
                partial.mkdir(parents=True)
                write(partial)
                (partial / "state.json").write_text(json.dumps(state))
                for path in [*partial.rglob("*"), partial]:
                    _sync(path)
            _sync(final.parent)
        except OSError as error:
            raise cannot_write(final, error) from error
        except Exception as error:
            # safetensors reports a full disk as an error of its own
            if "os error" in str(error).lower():
                raise UserError(f"{cannot_write(final, OSError(0, str(error)))}") from error
            raise
        self._clear(keep)

    def restore(self, keep: int, read: Callable[[Path], None]) -> dict[str, Any] | None:
        """Load the newest checkpoint and return its state; None when there is none yet. Deletes what a killed save left
        behind."""
        self._clear(keep)
        steps = checkpoints(self.folder)
        if not steps:
            return None
        folder = self.folder / "checkpoints" / f"{max(steps):06d}"
        read(folder)
        return json.loads((folder / "state.json").read_text())

    def set_status(self, status: str) -> None:
        """running, finished, interrupted or failed."""
        self.note(status=status)

    def note(self, **facts: Any) -> None:
        """Add entries to run.json, or replace them."""
        self._write_facts(read_facts(self.folder) | facts)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = "interrupted" if kind and issubclass(kind, KeyboardInterrupt) else "failed" if kind else "finished"
        try:
            self.set_status(ended)
        except UserError:
            if kind is None:
                raise  # otherwise the first error is the one to show
        finally:
            self._lock.close()

    def _clear(self, keep: int) -> None:
        """Delete all but the newest `keep` checkpoints and the best ones. Each is renamed first: half of one must not
        pass for whole."""
        old_ones = sorted(checkpoints(self.folder))[:-keep]
        for old in set(old_ones) - RunReader(self.folder).best_ones if old_ones else ():
            whole = self.folder / "checkpoints" / f"{old:06d}"
            whole.replace(whole.with_name(whole.name + ".partial"))
        for partial in (self.folder / "checkpoints").glob("*.partial"):
            shutil.rmtree(partial)

    def _write_facts(self, facts: dict[str, Any]) -> None:
        write_whole(self.folder / "run.json", _as_json(facts))


def run_folder(config: Config) -> Path:
    """The folder of a config's run. Raises UserError if its name leads out of `folder`, or nowhere."""
    name = Path(config.name)
    if not name.name or name.is_absolute() or ".." in name.parts:
        raise UserError(f"name = {config.name!r} names no folder inside {config.folder!r}.")
    return Path(config.folder) / name


def new_folder(config: Config) -> Path:
    """The folder of a new run. Raises UserError if it exists."""
    folder = run_folder(config)
    if folder.exists():
        goes_on = (
            f"Continue it with `longloop train --resume {quote(str(folder))}`, or make"
            if RunReader(folder).trains
            else "Make"
        )
        raise UserError(f"{folder} exists already. {goes_on} another with {quote(f'name={config.name}-2')}.")
    return folder


def must_go_on(folder: Path) -> None:
    """Raise UserError if a folder holds no training, or one that could only begin again over its own steps."""
    read_facts(folder)
    run = RunReader(folder)
    if not run.trains:
        raise UserError(
            f"{folder} holds demonstrations or evaluations, and no training that could go on. To train on "
            f"demonstrations, start a run with {quote(f'demos={folder}')}."
        )
    done = max(run.column("step"), default=0)
    # A run that was killed before its first checkpoint, or while it wrote that, has none either, and lost nothing else.
    if not run.checkpoints and (run.status == "finished" or done > run.config.save.every):
        again = f"longloop train {quote(str(folder / 'config.toml'))} {quote(f'name={folder.name}-2')}"
        raise UserError(
            f"{folder} has no checkpoint left: going on would overwrite its {done} steps "
            f"from the first. Put a checkpoint back, or start a new run: `{again}`."
        )


def changes_between(folder: Path, before: Config, after: Config) -> dict[str, list[Any]]:
    """Key -> [old, new] of the settings that a run is resumed with. Raises UserError for one that must not change."""
    changed = differences(settings_of(before), settings_of(after))
    for key, (was, becomes) in changed.items():
        if not any(key == allowed or key.startswith(f"{allowed}.") for allowed in CHANGEABLE):
            raise UserError(
                f"{key} was {was!r} in {folder} and cannot become {becomes!r} when the run is resumed: "
                f"{_FIXED[key.partition('.')[0]]}. Start a new run from its weights, with "
                f"{quote(f'model.path={folder}')}. What "
                "may change is listed in docs/reference/run-format.md."
            )
    return changed


def settings_of(config: Config) -> dict[str, Any]:
    """Dotted key -> value, without the name and folder of the run."""
    return {key: value for key, value in _flat(config.model_dump()) if key not in ("format", "name", "folder")}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Key -> [old, new] where two sets of settings differ; None where one of them lacks the key."""
    keys = sorted(old.keys() | new.keys())
    return {key: [old.get(key), new.get(key)] for key in keys if old.get(key) != new.get(key)}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and not prefix:
            yield from _flat(value, f"{key}.")
        else:
            yield prefix + key, value


def machine_facts() -> dict[str, Any]:
    """What run.json says about where and how a run was made."""
    return {
        "longloop": __version__,
        "commit": _commit(),
        "command": join(sys.argv),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("torch", "transformers", "peft", "tokenizers")},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _commit() -> str:
    """The commit of the longloop that runs, where it is a git checkout. An installed one may lie in a repository of the
    user's, whose commit says nothing of it."""
    package = Path(__file__).parents[1]
    tracked = _git(package, "ls-files", "__init__.py")
    return _git(package, "describe", "--always", "--dirty") if tracked else ""


def _git(folder: Path, *words: str) -> str:
    """What git says of a folder; empty where it fails, or is not there."""
    try:
        said = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip()


def _as_json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, indent=2).encode()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
