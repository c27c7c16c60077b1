"""Trajectories on disk: per step a .jsonl for people and a .safetensors with the token columns, and one index for all.

The columns of a step are flat; a trajectory's part is found by the token counts in its line. Reading gives back the
very same objects that were written, ids and log-probs to the bit.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from longloop.store.files import append_lines, read_lines, write_whole
from longloop.types import Floats, Group, Message, Sample, StopReason, Task, Trajectory, Turn


class Trajectories:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, step: int, groups: Sequence[Group], samples: Sequence[Sample] = ()) -> None:
        """Store a step's groups, with the advantages their samples were given."""
        self.folder.mkdir(parents=True, exist_ok=True)
        advantages = _advantages(samples)
        lines: list[bytes] = []
        index: list[dict[str, Any]] = []
        columns: dict[str, list[Any]] = {"ids": [], "mask": [], "logprobs": [], "advantages": []}
        offset = start = 0
        for place, group in enumerate(groups):
            for trajectory in group.trajectories:
                line = _line(_to_json(place, start, trajectory))
                for number, stretch in enumerate(trajectory.stretches()):
                    columns["ids"] += stretch.ids.tolist()
                    columns["mask"] += stretch.mask.tolist()
                    columns["logprobs"] += stretch.logprobs.tolist()
                    given = advantages.get(((place, trajectory.attempt), number), [])
                    columns["advantages"] += given + [0.0] * (len(stretch.ids) - len(given))
                start = len(columns["ids"])
                index.append(_index_line(step, place, trajectory, offset, len(line)))
                lines.append(line)
                offset += len(line)
        arrays = {
            "ids": np.array(columns["ids"], dtype=np.int32),
            "mask": np.array(columns["mask"], dtype=np.uint8),
            "logprobs": np.array(columns["logprobs"], dtype=np.float32),
            "advantages": np.array(columns["advantages"], dtype=np.float32),
        }
        write_whole(self.folder / f"{step:06d}.safetensors", to_bytes(arrays))
        write_whole(self.folder / f"{step:06d}.jsonl", b"".join(lines))
        append_lines(self.folder / "index.jsonl", index)

    def add_learner(self, step: int, rows: Sequence[tuple[Sample, Floats]]) -> None:
        """Add the column `learner` to a step: what the learner said of the same tokens; NaN where it said nothing."""
        if not rows:
            return
        path = self.folder / f"{step:06d}.safetensors"
        columns = load_file(path)
        starts: dict[tuple[tuple[int, int], int], int] = {}
        for line in read_lines(self.folder / f"{step:06d}.jsonl"):
            stretch = 0
            for number, (turn, context, _) in enumerate(_spans(line)):
                stretch += bool(number and _restarts(turn))
                starts.setdefault(((line["group"], line["attempt"]), stretch), context.start)
        column = np.full(len(columns["ids"]), np.nan, dtype=np.float32)
        for sample, row in rows:
            start = starts[sample.source, sample.stretch]
            column[start : start + len(row)][sample.mask] = row[sample.mask]
        write_whole(path, to_bytes(columns | {"learner": column}))

    def steps(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("[0-9]*.jsonl"))

    def index(self) -> list[dict[str, Any]]:
        """A short line for every trajectory, with the place of its whole line; the last line for each counts."""
        lines = {
            (line["step"], line["group"], line["attempt"]): line for line in read_lines(self.folder / "index.jsonl")
        }
        return [lines[key] for key in sorted(lines)]

    def read(self, step: int) -> list[Group]:
        """The groups of a step, as they were written."""
        columns = load_file(self.folder / f"{step:06d}.safetensors")
        groups: dict[int, list[Trajectory]] = {}
        for line in read_lines(self.folder / f"{step:06d}.jsonl"):
            groups.setdefault(line["group"], []).append(_from_json(line, columns))
        return [Group(trajectories[0].task, tuple(trajectories)) for _, trajectories in sorted(groups.items())]


def _advantages(samples: Sequence[Sample]) -> dict[tuple[tuple[int, int], int], list[float]]:
    """What was given to each stretch. Several samples may be of one, and may be no more than its beginning."""
    columns: dict[tuple[tuple[int, int], int], list[float]] = {}
    for sample in samples:
        column = columns.setdefault((sample.source, sample.stretch), [])
        column += [0.0] * (len(sample.ids) - len(column))
        for place, chosen in enumerate(sample.mask):
            if chosen:
                column[place] = sample.advantages[place]
    return columns


def _line(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, from text that was never Unicode: only escapes can hold it
        return json.dumps(value).encode() + b"\n"


def _index_line(step: int, place: int, trajectory: Trajectory, offset: int, length: int) -> dict[str, Any]:
    return {
        "step": step,
        "group": place,
        "attempt": trajectory.attempt,
        "task": trajectory.task.id,
        "reward": trajectory.reward,
        "success": trajectory.success,
        "stop": trajectory.stop,
        "turns": len(trajectory.turns),
        "action_tokens": trajectory.action_tokens,
        "offset": offset,
        "length": length,
    }


def _to_json(place: int, start: int, trajectory: Trajectory) -> dict[str, Any]:
    turns = []
    for turn in trajectory.turns:
        fields = {name: value for name, value in vars(turn).items() if not name.startswith(("context", "action"))}
        turns.append(
            {
                "context": [asdict(message) for message in turn.context],
                "action": turn.action.content,
                "context_tokens": len(turn.context_ids),
                "action_tokens": len(turn.action_ids),
            }
            | fields
        )
    names = ("attempt", "reward", "success", "stop", "error", "info", "expert")
    kept = {name: getattr(trajectory, name) for name in names}
    kept["unread"] = [asdict(message) for message in trajectory.unread]
    return {"group": place, "task": asdict(trajectory.task)} | kept | {"first_token": start, "turns": turns}


def _from_json(line: dict[str, Any], columns: dict[str, np.ndarray]) -> Trajectory:
    turns = []
    for turn, context, action in _spans(line):
        rest = {name: value for name, value in turn.items() if not name.startswith(("context", "action", "fresh"))}
        rest["restarts_context"] = _restarts(turn)
        turns.append(
            Turn(
                context=tuple(Message(**message) for message in turn["context"]),
                context_ids=columns["ids"][context],
                action=Message("assistant", turn["action"]),
                action_ids=columns["ids"][action],
                action_logprobs=columns["logprobs"][action],
                **rest,
            )
        )
    return Trajectory(
        task=Task(**line["task"]),
        attempt=line["attempt"],
        turns=tuple(turns),
        reward=line["reward"],
        success=line["success"],
        stop=StopReason(line["stop"]),
        error=line["error"],
        info=line["info"],
        expert=line.get("expert", False),
        unread=tuple(Message(**message) for message in line.get("unread", ())),
    )


def _restarts(turn: dict[str, Any]) -> bool:
    """`Turn.restarts_context`, which was called `fresh` in runs of longloop 0.1."""
    return bool(turn.get("restarts_context", turn.get("fresh")))


def _spans(line: dict[str, Any]) -> Iterator[tuple[dict[str, Any], slice, slice]]:
    """Each turn with the places of its context and action in the step's columns."""
    at = line["first_token"]
    for turn in line["turns"]:
        middle = at + turn["context_tokens"]
        end = middle + turn["action_tokens"]
        yield turn, slice(at, middle), slice(middle, end)
        at = end
