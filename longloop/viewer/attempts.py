"""The attempts that a run has stored of one kind: found in an index, read one by one by their place in a file.

Only index.jsonl is read as a whole, and of that only what is new. A step that its index lacks (the run was killed
between two writes, or is older than the index) gets its entries from its own file, when somebody asks for that step.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longloop.types import StopReason

_SCORED = frozenset(str(reason) for reason in StopReason if reason.scored)
_PATIENCE = 2.0
"""Seconds after which a search through text answers with what it has."""

_ASKED = 1000
"""Characters that are kept of a task's text."""


class Entry(NamedTuple):
    """A line of the index: what an attempt came to, and where the whole of it is."""

    step: int
    group: int
    attempt: int
    task: str
    reward: float
    success: bool
    stop: str
    turns: int
    action_tokens: int
    offset: int
    length: int

    @property
    def scored(self) -> bool:
        return self.stop in _SCORED

    @property
    def place(self) -> tuple[int, int]:
        return self.group, self.attempt


class Hit(NamedTuple):
    """What a search found, and a piece of the text around it."""

    entry: Entry
    before: str
    match: str
    after: str


class Attempts:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._indexed: dict[int, dict[tuple[int, int], Entry]] = {}
        self._derived: dict[int, tuple[object, list[Entry]]] = {}
        self._asked: dict[str, str] = {}
        self._taken = 0
        self._lock = threading.Lock()

    def steps(self) -> list[int]:
        """All steps that have a file, indexed or not."""
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.jsonl") if path.stem.isdigit())

    def entries(self, step: int) -> list[Entry]:
        """A step's attempts in the order of its file. Empty when there is no such step."""
        self._refresh()
        found = self._indexed.get(step)
        return list(found.values()) if found else self._derive(step)

    def find(self, step: int, group: int, attempt: int) -> Entry | None:
        return next((entry for entry in self.entries(step) if entry.place == (group, attempt)), None)

    def of_task(self, task: str) -> list[Entry]:
        """The attempts at a task that the index knows."""
        self._refresh()
        return [entry for step in sorted(self._indexed) for entry in self._indexed[step].values() if entry.task == task]

    def read(self, entry: Entry) -> dict[str, Any] | None:
        """The whole line of an attempt. None when it is gone, or was cut."""
        for place in self._places(entry):
            try:
                with self._path(entry.step).open("rb") as file:
                    file.seek(place.offset)
                    line = json.loads(file.read(place.length))
            except (OSError, ValueError):
                continue  # the step is being done again, and its index lines are not there yet
            if isinstance(line, dict) and (line.get("group", 0), line.get("attempt", 0)) == entry.place:
                return line
        return None

    def asked(self, entry: Entry) -> str:
        """The beginning of the task's text, read once for each task."""
        if entry.task not in self._asked:
            said = asked(self.read(entry) or {})[:_ASKED]
            if not said:
                return ""  # another attempt may have got further
            self._asked[entry.task] = said
        return self._asked[entry.task]

    def lines(self, step: int) -> Iterator[dict[str, Any]]:
        """The whole lines of a step, one in memory at a time."""
        for _, line in _whole_lines(self._path(step)):
            yield line

    def advantages(self, step: int) -> dict[tuple[int, int], float]:
        """The mean advantage of each attempt's tokens. Empty when they are not stored.

        Needs no line of the step: the chosen tokens follow one another as the attempts do, and the index counts them.
        """
        columns = self.columns(step, "mask", "advantages")
        entries = self.entries(step)
        if columns is None:
            return {}
        chosen = columns["advantages"][columns["mask"] == 1]
        counts = [entry.action_tokens for entry in entries]
        if sum(counts) != len(chosen):
            return {}
        parts = np.split(chosen, np.cumsum(counts)[:-1]) if entries else []
        return {e.place: float(part.mean()) if len(part) else 0.0 for e, part in zip(entries, parts, strict=True)}

    def columns(self, step: int, *names: str, part: slice = slice(None)) -> dict[str, np.ndarray] | None:
        """Token columns of a step, or a part of each; those that were not stored are left out. None without a file."""
        from safetensors import SafetensorError, safe_open

        path = self.folder / f"{step:06d}.safetensors"
        try:
            with safe_open(path, framework="numpy") as file:
                return {name: file.get_slice(name)[part] for name in names if name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return None

    def search(
        self, text: str, wanted: Callable[[Entry], bool], start: tuple[int, int] | None, limit: int
    ) -> tuple[list[Hit], tuple[int, int] | None]:
        """Attempts that are wanted and have the text in them, newest step first, and where to go on.

        A place to start from or go on at is a step and how many of its attempts have been looked at.
        """
        hits: list[Hit] = []
        deadline = time.monotonic() + _PATIENCE
        for step in reversed(self.steps()):
            if start is not None and step > start[0]:
                continue
            if time.monotonic() > deadline:
                return hits, (step, 0)
            seen = start[1] if start is not None and step == start[0] else 0
            for number, entry in enumerate(self._candidates(step, text, wanted)):
                if number < seen:
                    continue
                if len(hits) == limit:
                    return hits, (step, number)
                hit = self._hit(entry, text)
                if hit is not None:
                    hits.append(hit)
        return hits, None

    def _candidates(self, step: int, text: str, wanted: Callable[[Entry], bool]) -> list[Entry]:
        entries = [entry for entry in self.entries(step) if wanted(entry)]
        if not text or not entries:
            return entries
        try:
            data = self._path(step).read_bytes().lower()
        except OSError:
            return []
        needles = {
            json.dumps(text, ensure_ascii=ascii)[1:-1].encode(errors="replace").lower() for ascii in (False, True)
        }
        return [e for e in entries if any(data.find(n, e.offset, e.offset + e.length) >= 0 for n in needles)]

    def _hit(self, entry: Entry, text: str) -> Hit | None:
        if not text:
            return Hit(entry, "", "", "")
        line = self.read(entry)
        for said in texts(line) if line else ():
            at = said.lower().find(text.lower())
            if at >= 0:
                end = at + len(text)
                return Hit(entry, said[max(0, at - 60) : at], said[at:end], said[end : end + 100])
        return None

    def _places(self, entry: Entry) -> Iterator[Entry]:
        """Where an attempt may be: as the index has it, and only if that is wrong, as its file has it."""
        yield entry
        yield from (other for other in self._derive(entry.step) if other.place == entry.place)

    def _refresh(self) -> None:
        """Take in the lines that the index has got since the last time."""
        path = self.folder / "index.jsonl"
        with self._lock:
            try:
                if path.stat().st_size < self._taken:
                    self._taken = 0
                    self._indexed.clear()
                with path.open("rb") as file:
                    file.seek(self._taken)
                    data = file.read()
            except OSError:
                return
            end = data.rfind(b"\n") + 1
            self._taken += end
            for line in data[:end].splitlines():
                try:
                    entry = _entry(json.loads(line))
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue
                if entry.offset == 0:  # a step that is written again begins anew
                    self._indexed[entry.step] = {}
                self._indexed.setdefault(entry.step, {})[entry.place] = entry

    def _derive(self, step: int) -> list[Entry]:
        path = self._path(step)
        try:
            stamp = (path.stat().st_mtime_ns, path.stat().st_size)
        except OSError:
            return []
        known = self._derived.get(step)
        if known is None or known[0] != stamp:
            entries = []
            for (offset, length), line in _whole_lines(path):
                turns = line.get("turns") or []
                facts = {
                    "step": step,
                    "task": (line.get("task") or {}).get("id", ""),
                    "turns": len(turns),
                    "action_tokens": sum(turn.get("action_tokens", 0) for turn in turns),
                }
                entries.append(_entry({"group": 0, "attempt": 0} | line | facts | {"offset": offset, "length": length}))
            known = self._derived[step] = stamp, entries
        return known[1]

    def _path(self, step: int) -> Path:
        return self.folder / f"{step:06d}.jsonl"


def asked(line: dict[str, Any]) -> str:
    """What the agent was asked: the last message that it had before its first action."""
    turns = line.get("turns") or []
    context = turns[0].get("context") or [] if turns else []
    return context[-1].get("content") or "" if context else ""


def texts(line: dict[str, Any]) -> Iterator[str]:
    """What is searched: the task, what the agent said and then what it heard, but for the system's prompt."""
    yield (line.get("task") or {}).get("id", "")
    yield line.get("error") or ""
    turns = line.get("turns") or ()
    yield from (turn.get("action") or "" for turn in turns)
    for turn in turns:
        for message in turn.get("context") or ():
            if message.get("role") != "system":
                yield message.get("content") or ""


def _entry(line: dict[str, Any]) -> Entry:
    return Entry(
        int(line["step"]),
        int(line["group"]),
        int(line["attempt"]),
        str(line.get("task", "")),
        float(line.get("reward") or 0.0),
        bool(line.get("success")),
        str(line.get("stop", "finished")),
        int(line.get("turns", 0)),
        int(line.get("action_tokens", 0)),
        int(line["offset"]),
        int(line["length"]),
    )


def _whole_lines(path: Path) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """The objects of a file that may be cut or damaged, each with its place."""
    offset = 0
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    yield (offset, len(line)), value
                offset += len(line)
    except OSError:
        return
