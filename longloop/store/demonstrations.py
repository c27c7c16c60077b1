"""Stored trajectories to learn from: the best of each task, or all that were paid enough."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from longloop.store.run_reader import RunReader
from longloop.types import Group, Trajectory, UserError


def best_trajectories(run: Path) -> list[Group]:
    """For each task the stored trajectories with the highest reward. Of those that say the same, one."""
    found: dict[str, dict[tuple[str, ...], Trajectory]] = {}
    for trajectory in scored_trajectories(run, f"demos = {str(run)!r}"):
        best = found.setdefault(trajectory.task.id, {})
        reward = max((t.reward for t in best.values()), default=trajectory.reward)
        if trajectory.reward > reward:
            best.clear()
        if trajectory.reward >= reward:
            best.setdefault(trajectory.action_texts, trajectory)
    return _by_task(found)


def good_trajectories(run: Path, min_reward: float) -> list[Group]:
    """For each task the stored trajectories with at least that reward. Of those that say the same, one."""
    found: dict[str, dict[tuple[str, ...], Trajectory]] = {}
    best = -math.inf
    for trajectory in scored_trajectories(run, f"--from {run}"):
        best = max(best, trajectory.reward)
        if trajectory.reward >= min_reward:
            found.setdefault(trajectory.task.id, {}).setdefault(trajectory.action_texts, trajectory)
    if not found:
        raise UserError(
            f"--from {run}: no attempt there was paid {min_reward:g} or more; the best was paid {best:g}. Lower "
            "--min-reward, or name another run."
        )
    return _by_task(found)


def scored_trajectories(run: Path, setting: str) -> Iterator[Trajectory]:
    """The trajectories of a run's training that have a reward. `setting` is what the user wrote to have them."""
    source = RunReader(run).stored["step"]
    if not source.folder.is_dir():
        raise UserError(f"{setting}: there is no run folder with trajectories. `longloop demos` makes one.")
    empty = True
    for step in source.steps():
        try:
            groups = source.read(step)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise UserError(
                f"{setting}: the trajectories of step {step} cannot be read ({error}). Delete {source.path(step)} "
                "to go without them, or name another run."
            ) from error
        for trajectory in (t for group in groups for t in group.scored):
            empty = False
            yield trajectory
    if empty:
        raise UserError(f"{setting}: no scored trajectory is stored there. `longloop demos` makes some.")


def _by_task(found: Mapping[str, Mapping[Any, Trajectory]]) -> list[Group]:
    """A group for each task, its attempts numbered anew."""
    groups = (list(by_texts.values()) for by_texts in found.values())
    return [Group(some[0].task, tuple(replace(t, attempt=n) for n, t in enumerate(some))) for some in groups]
