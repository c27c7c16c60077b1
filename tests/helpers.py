"""Short runs for tests: a config on the guessing game, and training in this process."""

import asyncio
from pathlib import Path
from typing import Any

from longloop import build, config
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


class Silent:
    """A report that only remembers."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def phase(self, step: int, name: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, metrics: dict[str, Any]) -> None:
        self.steps.append(metrics)


def write_config(folder: Path, text: str = GUESS) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def load_config(folder: Path, *overrides: str) -> config.Config:
    return config.load(write_config(folder), [f"folder={folder / 'runs'}", *overrides])


def train(folder: Path, *overrides: str) -> tuple[build.Training, Run, list[dict[str, Any]]]:
    """A whole run; its parts, its folder and its metrics."""
    settings = load_config(folder, *overrides)
    parts = build.training(settings)
    report = Silent()
    with Run.create(settings, {}) as run:
        asyncio.run(parts.run(run, report))
    return parts, run, report.steps
