"""Stored attempts to learn from: the best at each task, or all that were paid enough."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longloop.store.trajectories import Trajectories
from longloop.types import Group, Trajectory, UserError


def best_attempts(run: Path) -> list[Group]:
    """The attempts to imitate: at each task the best that are stored, all that were paid the same."""
    found: dict[str, dict[tuple[str, ...], Trajectory]] = {}
    for trajectory in scored_attempts(run, f"demos = {str(run)!r}"):
        best = found.setdefault(trajectory.task.id, {})
        paid = max((t.reward for t in best.values()), default=trajectory.reward)
        if trajectory.reward > paid:
            best.clear()
        if trajectory.reward >= paid:
            best.setdefault(trajectory.action_texts, trajectory)
    return _by_task(found)


def good_attempts(run: Path, least: float) -> list[Group]:
    """The stored attempts of a run that were paid at least so much, task by task; of those that say the same, one."""
    found: dict[str, dict[tuple[str, ...], Trajectory]] = {}
    best = -math.inf
    for trajectory in scored_attempts(run, f"--from {run}"):
        best = max(best, trajectory.reward)
        if trajectory.reward >= least:
            found.setdefault(trajectory.task.id, {}).setdefault(trajectory.action_texts, trajectory)
    if not found:
        raise UserError(
            f"--from {run}: no attempt there was paid {least:g} or more; the best was paid {best:g}. Lower "
            "--min-reward, or name another run."
        )
    return _by_task(found)


def scored_attempts(run: Path, asked: str) -> Iterator[Trajectory]:
    """A run's stored attempts that have a reward. `asked` is what the user wrote to have them."""
    folder = run / "trajectories"
    if not folder.is_dir():
        raise UserError(f"{asked}: there is no run folder with trajectories. `longloop demos` makes one.")
    source = Trajectories(folder)
    empty = True
    for step in source.steps():
        try:
            groups = source.read(step)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise UserError(
                f"{asked}: the trajectories of step {step} cannot be read ({error}). Delete {folder}/{step:06d}.jsonl "
                "to go without them, or name another run."
            ) from error
        for trajectory in (t for group in groups for t in group.scored):
            empty = False
            yield trajectory
    if empty:
        raise UserError(f"{asked}: no scored trajectory is stored there. `longloop demos` makes some.")


def _by_task(found: Mapping[str, Mapping[Any, Trajectory]]) -> list[Group]:
    """A group for each task, its attempts numbered anew."""
    groups = (list(by_words.values()) for by_words in found.values())
    return [Group(some[0].task, tuple(replace(t, attempt=n) for n, t in enumerate(some))) for some in groups]
