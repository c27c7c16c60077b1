"""Short runs for tests: a config on the guessing game, and training in this process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from longloop import api, build, config
from longloop.store.run import Run

GUESS = """
name = "test"
steps = 3
tasks_per_step = 3
[env]
name = "guess"
highest = 3
tries = 2
[model]
threads = 1
[algo]
name = "loop"
k = 4
lr = 1e-3
[rollout]
max_turns = 2
turn_tokens = 2
context = 64
[eval]
every = 0
temperature = 1.0
"""


class Enough(Exception):
    """The run has shown what it was to show."""


class Silent:
    """A report that only remembers, and ends the run when it has `seen` enough steps."""

    def __init__(self, seen: Callable[[list[dict[str, Any]]], bool] = lambda steps: False) -> None:
        self.seen = seen
        self.steps: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def phase(self, step: int, name: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, metrics: dict[str, Any]) -> None:
        self.steps.append(metrics)
        if self.seen(self.steps):
            raise Enough


def write_config(folder: Path, text: str = GUESS) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def load_config(folder: Path, *overrides: str) -> config.Config:
    return config.load(write_config(folder), [f"folder={folder / 'runs'}", *overrides])


def train(
    folder: Path, *overrides: str, seen: Callable[[list[dict[str, Any]]], bool] = lambda steps: False
) -> tuple[build.Training, Run, list[dict[str, Any]]]:
    """A run, whole or until enough was `seen`; its parts, its folder and its metrics."""
    settings = load_config(folder, *overrides)
    parts = api.prepared(settings)
    report = Silent(seen)
    with suppress(Enough), Run.create(settings, {}) as run:
        asyncio.run(api.run_loop(parts, run, report))
    return parts, run, report.steps


def imitated(folder: Path, steps: int = 12, *overrides: str) -> str:
    """Where a model is that has imitated the expert for a short while: it wins sometimes."""
    short = ["algo.name=sft", "algo.k=1", "algo.lr=3e-3", f"steps={steps}", f"save.every={steps}", *overrides]
    _, run, _ = train(folder, *short)
    return str(run.folder / "checkpoints" / f"{steps:06d}" / "model")
