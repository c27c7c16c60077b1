"""Search through the trajectories of a run: by what the index knows, and by the text that was said."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from longloop.store.trajectories import IndexEntry, StoredTrajectory, Trajectories

_PATIENCE = 2.0
"""Seconds after which a search through text answers with what it has."""

Position = tuple[int, int]
"""Where to go on: a step, and how many of its candidates have been looked at."""


class Hit(NamedTuple):
    """What a search found, and a piece of the text around it."""

    entry: IndexEntry
    before: str
    match: str
    after: str


def search(
    stored: Trajectories, text: str, wanted: Callable[[IndexEntry], bool], start: Position | None, limit: int
) -> tuple[list[Hit], Position | None]:
    """The wanted trajectories that have the text in them, newest step first, and where to go on."""
    hits: list[Hit] = []
    looked = False
    deadline = time.monotonic() + _PATIENCE
    for step in reversed(stored.steps()):
        if start is not None and step > start[0]:
            continue
        if time.monotonic() > deadline:
            return hits, (step, 0)
        seen = start[1] if start is not None and step == start[0] else 0
        for number, entry in enumerate(_candidates(stored, step, text, wanted)):
            if number < seen:
                continue
            if len(hits) == limit or (looked and time.monotonic() > deadline):
                return hits, (step, number)
            looked = True
            hit = _hit(stored, entry, text)
            if hit is not None:
                hits.append(hit)
    return hits, None


def texts(trajectory: StoredTrajectory) -> Iterator[str]:
    """What is searched: the task, what the agent said, then what it heard, without the system prompt, and what its
    program printed."""
    yield trajectory.task.id
    yield trajectory.error
    yield from (turn.action for turn in trajectory.turns)
    for messages in (*(turn.context for turn in trajectory.turns), trajectory.unread):
        yield from (message.content for message in messages if message.role != "system")
    yield trajectory.printed


def _candidates(stored: Trajectories, step: int, text: str, wanted: Callable[[IndexEntry], bool]) -> list[IndexEntry]:
    """The wanted trajectories of a step whose lines have the text somewhere, found without parsing them."""
    entries = [entry for entry in stored.entries(step) if wanted(entry)]
    if not text.isascii() or not text or not entries:
        return entries  # of other letters, bytes do not know which are the same in lower case
    try:
        data = stored.path(step).read_bytes().lower()
    except OSError:
        return []
    needles = {json.dumps(text, ensure_ascii=ascii)[1:-1].encode(errors="replace").lower() for ascii in (False, True)}
    return [e for e in entries if any(data.find(n, e.offset, e.offset + e.length) >= 0 for n in needles)]


def _hit(stored: Trajectories, entry: IndexEntry, text: str) -> Hit | None:
    if not text:
        return Hit(entry, "", "", "")
    trajectory = stored.get(entry)
    for said in texts(trajectory) if trajectory else ():
        if found := re.search(re.escape(text), said, re.IGNORECASE):
            at, end = found.span()
            return Hit(entry, said[max(0, at - 60) : at], said[at:end], said[end : end + 100])
    return None
