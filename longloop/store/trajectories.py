"""Trajectories on disk: per step a .jsonl with the text and a .safetensors with the token columns; one index for all.

`StoredTrajectory` is a line of the .jsonl. The columns of a step are flat, and the token counts in a line say which
part is whose. `Trajectories.read` returns the very objects that were written, ids and log-probs to the bit; everything
else reads single lines by their offset, and never the whole of a run. A step's files are written once, when its update
is done. Text is read leniently: a line that was cut or damaged is passed over.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longloop.store.files import append_lines, read_lines, stamp, write_whole
from longloop.types import Call, Floats, Group, Message, Sample, StopReason, Task, Trajectory, Turn

SCORED = frozenset(str(reason) for reason in StopReason if reason.scored)
"""The stops of attempts that have a score, as they are stored."""
_TASK_TEXT = 1000
"""Characters that are kept of a task's text."""


@dataclass(frozen=True)
class StoredTurn:
    """A `Turn` without its tokens."""

    context: tuple[Message, ...] = ()
    action: str = ""
    context_tokens: int = 0
    action_tokens: int = 0
    restarts_context: bool = False
    rebuilt: bool = False
    reward: float = 0.0
    finish: str = "stop"
    seconds: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    """Those of the action."""
    tools: tuple[dict[str, Any], ...] = ()
    thread: str = ""
    stop: tuple[str, ...] = ()
    max_tokens: int = 0

    @property
    def said(self) -> Message:
        """The action with its calls."""
        return Message("assistant", self.action, self.calls)

    @classmethod
    def of(cls, turn: Turn) -> "StoredTurn":
        counts = {"context_tokens": len(turn.context_ids), "action_tokens": len(turn.action_ids)}
        said = {"action": turn.action.content, "calls": turn.action.calls}
        return cls(**_shared(turn, cls) | counts | said)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "StoredTurn":
        values = _known(cls, line) | {"context": _messages(line.get("context")), "calls": _calls(line.get("calls"))}
        values |= {name: tuple(line.get(name) or ()) for name in ("tools", "stop")}
        values.setdefault("restarts_context", bool(line.get("fresh")))  # its name in longloop 0.1
        return cls(**values)


@dataclass(frozen=True)
class StoredTrajectory:
    """A `Trajectory` without its tokens, and where it belongs."""

    group: int
    """The index of its group in the step."""
    task: Task
    attempt: int
    """0..K-1 within its group."""
    reward: float = 0.0
    success: bool = False
    stop: str = "finished"
    """A `StopReason`, or what a later longloop calls one."""
    error: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    expert: bool = False
    unread: tuple[Message, ...] = ()
    replayed: int = 0
    side: bool = False
    first_token: int = 0
    """Where it begins in the step's columns."""
    turns: tuple[StoredTurn, ...] = ()

    @classmethod
    def of(cls, trajectory: Trajectory, group: int, first_token: int) -> "StoredTrajectory":
        turns = tuple(StoredTurn.of(turn) for turn in trajectory.turns)
        where = {"group": group, "first_token": first_token, "stop": str(trajectory.stop)}
        return cls(**_shared(trajectory, cls) | where | {"turns": turns})

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "StoredTrajectory":
        """From a line, also of a run that lacks what was added later. Raises for what is no such line."""
        task = line.get("task") or {}
        values = _known(cls, line) | {
            "group": int(line.get("group", 0)),
            "attempt": int(line.get("attempt", 0)),
            "task": Task(**({"id": "", "split": ""} | _known(Task, task))),
            "unread": _messages(line.get("unread")),
            "turns": tuple(StoredTurn.from_json(turn) for turn in line.get("turns") or ()),
        }
        return cls(**values)

    @property
    def scored(self) -> bool:
        return self.stop in SCORED and not self.side

    @property
    def demonstrated(self) -> bool:
        """Whether it is not the policy's own attempt at the task: an expert's, or one action at an expert's state."""
        return self.expert or self.stop == StopReason.PRACTISED

    @property
    def action_tokens(self) -> int:
        return sum(turn.action_tokens for turn in self.turns)

    @property
    def task_text(self) -> str:
        """What the agent was asked: the last message before its first action."""
        context = self.turns[0].context if self.turns else ()
        return context[-1].content if context else ""

    @property
    def printed(self) -> str:
        """What the agent's own program printed, where it has one."""
        output = self.info.get("output") if isinstance(self.info, dict) else None
        return output if isinstance(output, str) else ""

    @property
    def conversations(self) -> list[list[StoredTurn]]:
        """The turns of each conversation."""
        return [list(turns) for _, turns in groupby(self.turns, key=lambda turn: turn.thread)]

    @property
    def tests(self) -> list[dict[str, Any]]:
        """The judge's tests, where the environment stores them: `name` and `passed` of each."""
        tests = self.info.get("tests") if isinstance(self.info, dict) else None
        return [test for test in tests if isinstance(test, dict)] if isinstance(tests, list) else []

    @property
    def tokens(self) -> slice:
        """Its part of the step's columns."""
        count = sum(turn.context_tokens + turn.action_tokens for turn in self.turns)
        return slice(self.first_token, self.first_token + count)

    def spans(self, start: int | None = None) -> Iterator[tuple[StoredTurn, slice, slice]]:
        """Each turn with the parts of its context and its action; of the step's columns, or counted from `start`."""
        at = self.first_token if start is None else start
        for turn in self.turns:
            middle = at + turn.context_tokens
            end = middle + turn.action_tokens
            yield turn, slice(at, middle), slice(middle, end)
            at = end


class IndexEntry(NamedTuple):
    """A line of the index: what a trajectory came to, and where its whole line is."""

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
    side: bool = False

    @classmethod
    def of(cls, step: int, stored: StoredTrajectory, offset: int, length: int) -> "IndexEntry":
        verdict = (stored.task.id, float(stored.reward), stored.success, stored.stop)
        counts = (len(stored.turns), stored.action_tokens)
        return cls(step, stored.group, stored.attempt, *verdict, *counts, offset, length, stored.side)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "IndexEntry":
        """Raises for what is no such line."""
        return cls(
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
            bool(line.get("side")),
        )

    @property
    def scored(self) -> bool:
        return self.stop in SCORED and not self.side

    @property
    def key(self) -> tuple[int, int]:
        """Group and attempt: what tells it from the others of its step."""
        return self.group, self.attempt


class Trajectories:
    """The folder `trajectories` or `evaluations` of a run.

    Of the index only what is new is read again. A step that its index lacks (the run was killed between two writes, or
    is older than the index) gets its entries from its own file, when somebody asks for that step.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._indexed: dict[int, dict[tuple[int, int], IndexEntry]] = {}
        self._derived: dict[int, tuple[object, list[IndexEntry]]] = {}
        self._task_texts: dict[str, str] = {}
        self._index_read = self._index_inode = 0
        self._lock = threading.Lock()

    def write(
        self,
        step: int,
        groups: Sequence[Group],
        samples: Sequence[Sample] = (),
        learned: Sequence[tuple[Sample, Floats]] = (),
    ) -> None:
        """Store a step: its groups, the advantages that its samples were given, and for each sample in `learned` what
        the learner said of its ids."""
        from safetensors.numpy import save

        self.folder.mkdir(parents=True, exist_ok=True)
        lines: list[bytes] = []
        index: list[IndexEntry] = []
        starts: dict[tuple[int, int], list[int]] = {}
        offset = tokens = 0
        for number, group in enumerate(groups):
            for trajectory in group.trajectories:
                stored = StoredTrajectory.of(trajectory, number, tokens)
                lines.append(_line(stored))
                index.append(IndexEntry.of(step, stored, offset, len(lines[-1])))
                starts[number, trajectory.attempt] = _stretch_starts(stored)
                offset += len(lines[-1])
                tokens = stored.tokens.stop
        columns = _columns([turn for g in groups for t in g.trajectories for turn in t.turns])
        columns["advantages"] = np.zeros(tokens, dtype=np.float32)
        for sample in samples:
            _put(columns["advantages"], starts, sample, sample.advantages)
        if learned:
            columns["learner"] = np.full(tokens, np.nan, dtype=np.float32)
            for sample, logprobs in learned:
                _put(columns["learner"], starts, sample, logprobs)
        write_whole(self._columns_path(step), save(columns))
        write_whole(self.path(step), b"".join(lines))
        append_lines(self.folder / "index.jsonl", [entry._asdict() for entry in index])

    def steps(self) -> list[int]:
        """All steps that have a file, indexed or not."""
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.jsonl") if path.stem.isdigit())

    def path(self, step: int) -> Path:
        return self.folder / f"{step:06d}.jsonl"

    def read(self, step: int) -> list[Group]:
        """The groups of a step as they were written. Raises where a file is missing or damaged."""
        from safetensors.numpy import load_file

        columns = load_file(self._columns_path(step))
        groups: dict[int, list[Trajectory]] = {}
        for line in read_lines(self.path(step)):
            if missing := {"task", "attempt", "turns", "first_token"} - line.keys():
                raise ValueError(f"a trajectory has no {', '.join(sorted(missing))}")
            stored = StoredTrajectory.from_json(line)
            if stored.tokens.stop > len(columns["ids"]):
                raise ValueError("its tokens are not all there")
            groups.setdefault(stored.group, []).append(_trajectory(stored, columns))
        return [Group(trajectories[0].task, tuple(trajectories)) for _, trajectories in sorted(groups.items())]

    def stored(self, step: int, skip_damaged: bool = True) -> Iterator[StoredTrajectory]:
        """The trajectories of a step without their tokens, one in memory at a time. Damaged lines are passed over, or
        raise ValueError."""
        for _, stored in self._lines(step, skip_damaged):
            yield stored

    def entries(self, step: int) -> list[IndexEntry]:
        """A step's trajectories in the order of its file. Empty when there is no such step."""
        self._refresh()
        found = self._indexed.get(step)
        return list(found.values()) if found else self._derive(step)

    def find(self, step: int, group: int, attempt: int) -> IndexEntry | None:
        return next((entry for entry in self.entries(step) if entry.key == (group, attempt)), None)

    def of_task(self, task: str) -> list[IndexEntry]:
        """The trajectories of a task that the index knows."""
        self._refresh()
        return [entry for step in sorted(self._indexed) for entry in self._indexed[step].values() if entry.task == task]

    def get(self, entry: IndexEntry) -> StoredTrajectory | None:
        """The trajectory that an entry names, without its tokens. None when its line is gone, or was cut."""
        for candidate in self._candidates(entry):
            try:
                with self.path(entry.step).open("rb") as file:
                    file.seek(candidate.offset)
                    stored = StoredTrajectory.from_json(json.loads(file.read(candidate.length)))
            except (OSError, ValueError, TypeError, AttributeError):
                continue  # the step is being done again, and its index lines are not there yet
            if (stored.group, stored.attempt) == entry.key:
                return stored
        return None

    def task_text(self, entry: IndexEntry) -> str:
        """The beginning of the task's text, read once for each task."""
        if entry.task not in self._task_texts:
            stored = self.get(entry)
            if stored is None or not stored.task_text:
                return ""  # another attempt may have got further
            self._task_texts[entry.task] = stored.task_text[:_TASK_TEXT]
        return self._task_texts[entry.task]

    def advantages(self, step: int) -> dict[tuple[int, int], float]:
        """(group, attempt) -> the mean advantage of its tokens. Empty when they are not stored.

        Needs no line of the step: the action tokens follow one another as the trajectories do, and the index counts
        them.
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
        return {e.key: float(part.mean()) if len(part) else 0.0 for e, part in zip(entries, parts, strict=True)}

    def columns(self, step: int, *names: str, part: slice = slice(None)) -> dict[str, np.ndarray] | None:
        """Token columns of a step, or a part of each; those that were not stored are left out. None without a file."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self._columns_path(step), framework="numpy") as file:
                return {name: file.get_slice(name)[part] for name in names if name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError):
            return None

    def _candidates(self, entry: IndexEntry) -> Iterator[IndexEntry]:
        """Where a trajectory may be: as the index has it, and only if that is wrong, as its file has it."""
        yield entry
        yield from (other for other in self._derive(entry.step) if other.key == entry.key)

    def _refresh(self) -> None:
        """Read the lines that the index has got since the last time."""
        path = self.folder / "index.jsonl"
        with self._lock:
            try:
                with path.open("rb") as file:
                    now = os.fstat(file.fileno())
                    if now.st_size < self._index_read or now.st_ino != self._index_inode:
                        self._index_read, self._index_inode = 0, now.st_ino
                        self._indexed.clear()
                    file.seek(self._index_read)
                    data = file.read()
            except OSError:
                return
            end = data.rfind(b"\n") + 1
            self._index_read += end
            for line in data[:end].splitlines():
                try:
                    entry = IndexEntry.from_json(json.loads(line))
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue
                if entry.offset == 0:  # a step that is written again begins anew
                    self._indexed[entry.step] = {}
                self._indexed.setdefault(entry.step, {})[entry.key] = entry

    def _derive(self, step: int) -> list[IndexEntry]:
        """A step's entries from its own file."""
        now = stamp(self.path(step))
        known = self._derived.get(step)
        if known is None or known[0] != now:
            entries = [IndexEntry.of(step, stored, *where) for where, stored in self._lines(step, skip_damaged=True)]
            known = self._derived[step] = now, entries
        return known[1]

    def _lines(self, step: int, skip_damaged: bool) -> Iterator[tuple[tuple[int, int], StoredTrajectory]]:
        """The lines of a step's file, each with its offset and length."""
        offset = 0
        try:
            with self.path(step).open("rb") as file:
                for line in file:
                    where = offset, len(line)
                    offset += len(line)
                    try:
                        stored = StoredTrajectory.from_json(json.loads(line))
                    except (ValueError, TypeError, AttributeError) as error:
                        if skip_damaged or not line.endswith(b"\n"):
                            continue
                        raise ValueError(f"{self.path(step)} has a line that is not a trajectory") from error
                    yield where, stored
        except OSError:
            return

    def _columns_path(self, step: int) -> Path:
        return self.folder / f"{step:06d}.safetensors"


def _stretch_starts(stored: StoredTrajectory) -> list[int]:
    """Where each of `Trajectory.stretches` begins in the step's columns."""
    starts: list[int] = []
    start, acted = stored.first_token, False
    for turn, context, _ in stored.spans():
        if turn.restarts_context:
            starts += [start] * acted
            start, acted = context.start, False
        acted = acted or turn.action_tokens > 0
    return starts + [start] * acted


def _put(column: np.ndarray, starts: Mapping[tuple[int, int], Sequence[int]], sample: Sample, values: Floats) -> None:
    """Write a sample's values to the tokens that are trained on. A sample may be the beginning of its stretch only."""
    chosen = np.flatnonzero(sample.mask)
    column[starts[sample.source][sample.stretch] + chosen] = values[chosen]


def _columns(turns: Sequence[Turn]) -> dict[str, np.ndarray]:
    """The columns that sampling fills, turn after turn: context, then action."""

    def flat(parts: list[Any], dtype: type) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *(np.asarray(part, dtype) for part in parts)])

    sizes = [(len(turn.context_ids), len(turn.action_ids)) for turn in turns]
    return {
        "ids": flat([ids for turn in turns for ids in (turn.context_ids, turn.action_ids)], np.int32),
        "mask": flat([part for context, action in sizes for part in (np.zeros(context), np.ones(action))], np.uint8),
        "logprobs": flat(
            [part for turn in turns for part in (np.zeros(len(turn.context_ids)), turn.action_logprobs)], np.float32
        ),
    }


def _trajectory(stored: StoredTrajectory, columns: Mapping[str, np.ndarray]) -> Trajectory:
    turns = []
    for turn, context, action in stored.spans():
        tokens = {
            "context_ids": columns["ids"][context],
            "action_ids": columns["ids"][action],
            "action_logprobs": columns["logprobs"][action],
        }
        turns.append(Turn(**_shared(turn, Turn) | tokens | {"action": Message("assistant", turn.action, turn.calls)}))
    verdict = {"stop": StopReason(stored.stop), "turns": tuple(turns)}
    return Trajectory(**_shared(stored, Trajectory) | verdict)


def _shared(source: object, kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass that another one has too, under the same names."""
    return {name: value for name, value in vars(source).items() if name in _FIELDS[kind]}


def _line(stored: StoredTrajectory) -> bytes:
    try:
        return json.dumps(stored, default=_to_json, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, from text that was never Unicode: only escapes can hold it
        return json.dumps(stored, default=_to_json).encode() + b"\n"


def _to_json(value: object) -> dict[str, Any]:
    if type(value) not in (Call, Message, Task, StoredTurn, StoredTrajectory):
        raise TypeError(f"{value!r} is not JSON")
    return {name: one for name, one in vars(value).items() if one or name not in _RARE}


def _known(kind: type[Any], line: Mapping[str, Any]) -> dict[str, Any]:
    """The values in a line that a dataclass has a field for; what is null counts as missing."""
    return {name: line[name] for name in _FIELDS[kind] if line.get(name) is not None}


def _messages(stored: Any) -> tuple[Message, ...]:
    return tuple(
        Message(**({"role": "message", "content": ""} | _known(Message, one) | {"calls": _calls(one.get("calls"))}))
        for one in stored or ()
    )


def _calls(stored: Any) -> tuple[Call, ...]:
    return tuple(Call(**({"id": "", "name": "", "arguments": ""} | _known(Call, call))) for call in stored or ())


_RARE = ("calls", "call", "tools", "thread", "stop", "max_tokens")
"""Fields of messages and turns that few environments fill: left out of a line where they are empty."""
_FIELDS: dict[type[Any], list[str]] = {
    kind: [one.name for one in fields(kind)]
    for kind in (Call, Message, Task, Turn, Trajectory, StoredTurn, StoredTrajectory)
}
