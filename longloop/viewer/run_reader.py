"""One run folder, read leniently: while it is being written, cut in the middle of a line, or of an older format."""

import fcntl
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from longloop.config import FORMAT
from longloop.store.metrics import Metrics
from longloop.store.run import read_changes, with_changes
from longloop.store.tags import read_tags
from longloop.types import StopReason
from longloop.viewer.attempts import Attempts

KINDS = {"step": "trajectories", "eval": "evaluations"}
"""How addresses name the two kinds of attempts, and where they are stored."""

T = TypeVar("T")


class Record:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.attempts = {kind: Attempts(folder / part) for kind, part in KINDS.items()}
        self._killed: object = None
        self._metrics: tuple[object, list[dict[str, Any]]] = (None, [])
        self._made: dict[str, tuple[str, Any]] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """run.json; empty where it cannot be read."""
        try:
            facts = json.loads((self.folder / "run.json").read_text())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    @property
    def config(self) -> dict[str, Any]:
        """As it is now, with what was changed when the run was resumed."""
        try:
            return with_changes(tomllib.loads((self.folder / "config.toml").read_text()), self.changes)
        except (OSError, ValueError, AttributeError):
            return {}

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What was changed when the run was resumed."""
        try:
            return read_changes(self.folder)
        except (OSError, ValueError):
            return []

    @property
    def tags(self) -> list[str]:
        return read_tags(self.folder)

    @property
    def demonstrated(self) -> bool:
        """Whether training samples nothing of the agent's own, as in SFT: its success is then the demonstrations'."""
        return self.made("demonstrated", self._demonstrated)

    @property
    def too_new(self) -> bool:
        """Whether a later longloop wrote it; what is shown of it may then be wrong."""
        written = self.facts.get("format", 0)
        return isinstance(written, int) and written > FORMAT

    @property
    def status(self) -> str:
        """As run.json has it, but `killed` when it says running and nobody holds the lock."""
        status = str(self.facts.get("status") or "unknown")
        if status != "running":
            return status
        # Trying the lock could disturb a process that wants it, so a run is found to be killed once and then believed.
        stamp = self._stamp("run.json")
        if self._killed != stamp and self._unlocked():
            self._killed = stamp
        return "killed" if self._killed == stamp else "running"

    def unread(self, line: Mapping[str, Any]) -> str:
        """What to say of the messages that an attempt did not answer; empty where there are none."""
        if not line.get("unread"):
            return ""
        if line.get("stop") != StopReason.CONTEXT_FULL:
            return "came last, and was not answered"
        tokens = 0
        for turn in line.get("turns") or ():
            tokens *= not turn.get("restarts_context", turn.get("fresh"))
            tokens += turn.get("context_tokens", 0) + turn.get("action_tokens", 0)
        limit = (self.config.get("rollout") or {}).get("context", 0)
        return f"did not fit: the conversation had {tokens:,} of the {limit:,} tokens of rollout.context before it"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A line for each step, in order."""
        stamp = self._stamp("metrics.jsonl")
        if self._metrics[0] != stamp:
            self._metrics = stamp, self._read_metrics()
        return self._metrics[1]

    @property
    def version(self) -> str:
        """Changes when there is something new to see."""
        files = ("run.json", "metrics.jsonl", "tags.json", *(f"{part}/index.jsonl" for part in KINDS.values()))
        return "/".join("{}.{}".format(*(self._stamp(file) or (0, 0))) for file in files) + self.status

    def made(self, name: str, make: Callable[[], T]) -> T:
        """What was made of the run the last time, or of what it is now if it has changed."""
        version = self.version
        if name not in self._made or self._made[name][0] != version:
            self._made[name] = version, make()
        return self._made[name][1]

    def _demonstrated(self) -> bool:
        """By the first group of the last step: where the agent plays beside an expert, it does so in every group.

        Reads the beginning of a file, not the index: the list of runs asks this of every run.
        """
        attempts = self.attempts["step"]
        found = False
        for line in attempts.lines(max(attempts.steps(), default=0)):
            if line.get("group", 0) > 0:
                break
            if not line.get("expert") and line.get("stop") != StopReason.PRACTISED:
                return False
            found = True
        return found

    def _read_metrics(self) -> list[dict[str, Any]]:
        try:
            return Metrics(self.folder / "metrics.jsonl").read()
        except (OSError, ValueError, KeyError, TypeError):
            pass
        lines = {}
        for line in (self.folder / "metrics.jsonl").read_bytes().splitlines():
            try:
                value = json.loads(line)
                lines[int(value["step"])] = value
            except (ValueError, KeyError, TypeError):
                continue  # a damaged line costs its step, not the run
        return [lines[step] for step in sorted(lines)]

    def _stamp(self, name: str) -> tuple[int, int] | None:
        try:
            status = (self.folder / name).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _unlocked(self) -> bool:
        try:
            with (self.folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True
