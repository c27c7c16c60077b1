"""The tokens of an attempt with their numbers, turn by turn: a part of a step's columns, read when asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from longloop.model import SHIPPED, shipped
from longloop.store.run_reader import RunReader
from longloop.store.trajectories import StoredTrajectory, Trajectories

COLORINGS = {
    "advantage": "by advantage",
    "logprob": "by log-prob",
    "gap": "by the gap between sampler and learner",
}


@dataclass(frozen=True)
class Token:
    text: str
    value: float
    shade: int
    """-4 to 4: how strongly, and towards which of two colors."""


def colored(
    run: RunReader, stored: Trajectories, step: int, trajectory: StoredTrajectory, by: str
) -> list[list[Token]] | None:
    """The tokens that the agent chose in each turn; None when the columns are not there."""
    part = trajectory.tokens
    column = {"advantage": "advantages", "logprob": "logprobs", "gap": "logprobs"}[by]
    columns = stored.columns(step, "ids", column, "learner", part=part)
    if columns is None or len(columns.get("ids", ())) < part.stop - part.start:
        return None
    if by == "gap" and "learner" not in columns:
        return None
    values = columns["learner"] - columns["logprobs"] if by == "gap" else columns[column]
    texts = _texts(columns["ids"].tolist(), _tokenizer(run))
    # An advantage or a gap is colored in proportion to the attempt's largest; a log-prob by how unlikely it was.
    known = values[np.isfinite(values)]
    scale = 1.0 if by == "logprob" else float(np.abs(known).max(initial=0.0)) or 1.0
    tokens = [Token(text, value, _shade(value / scale)) for text, value in zip(texts, map(float, values), strict=True)]
    return [tokens[action] for _, _, action in trajectory.spans(start=0)]


def has_gap(stored: Trajectories, step: int) -> bool:
    """Whether the learner's log-probs are stored."""
    return bool(stored.columns(step, "learner", part=slice(0, 0)))


def _shade(value: float) -> int:
    if not np.isfinite(value):
        return 0  # the learner was not asked about this token
    size = min(abs(value), 1.0)
    return int(np.sign(value)) * int(np.ceil(4 * size)) if size > 0.005 else 0


def _texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """The text of each token as it reads after the one before it."""
    if tokenizer is None:
        return [f"⟨{number}⟩" for number in ids]
    texts = []
    before: list[int] = []
    for number in ids:
        shown = tokenizer.decode(before, skip_special_tokens=False)
        both = tokenizer.decode([*before, number], skip_special_tokens=False)
        alone = (
            both.removeprefix(shown)
            if both.startswith(shown)
            else tokenizer.decode([number], skip_special_tokens=False)
        )
        texts.append(alone)
        before = [number]
    return texts


def _tokenizer(run: RunReader) -> Any:
    """The tokenizer of the newest checkpoint, or of the model's folder; None where there is neither."""
    path = str(run.table("model").get("path") or "")
    folders = [checkpoint / "model" for checkpoint in reversed(run.checkpoints.values())]
    folders += [shipped(path)] if path in SHIPPED else [Path(path), Path(path) / "model"] if path else []
    found = next((folder / "tokenizer.json" for folder in folders if (folder / "tokenizer.json").is_file()), None)
    return _load(found) if found else None


@lru_cache(maxsize=4)
def _load(path: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception:  # the library raises plain Exception for a file it cannot read
        return None
