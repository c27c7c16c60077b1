"""What a person sees while a run is on: a live panel at a terminal, plain lines anywhere else, the lines in a log."""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from longloop.diagnose.hopeless import TELLING, why
from longloop.printable import visible
from longloop.types import StopReason

_PATIENCE = 3
"""Steps, the first of a run, without anything to learn after which someone should know."""
_SHORTEST = 1e-4
"""Seconds of a step at least: times are rounded, and what needs no playing and teaches nothing takes none."""
_STEP = re.compile(r"^Step \d+: ")


class Progress:
    """The report that training talks to. Use as a context manager."""

    def __init__(self, steps: int, log: Path, console: Console) -> None:
        self._steps = steps
        self._console = console
        self._log_path = log
        self._live: Live | None = None
        self._rows: list[list[str]] = []
        self._now = ""
        self._share = 0.0
        self._done = 0
        self._told = False
        self._said = ""
        """What was said of the last step, without its number."""
        self._failures: list[dict[str, Any]] | None = []
        """The metrics of each step so far; None since something has succeeded or taught something."""
        self._start = time.monotonic()

    def __enter__(self) -> "Progress":
        self._log_path.parent.mkdir(exist_ok=True)
        self._log: TextIO = self._log_path.open("a", encoding="utf-8")
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._panel, console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        with suppress(OSError):
            self._log.close()

    def phase(self, step: int, name: str) -> None:
        self._now = f"step {step}/{self._steps}: {name}"
        self._share = 0.0

    def attempts(self, done: int, total: int) -> None:
        """Episodes of the current phase."""
        self._share = done / total

    def step(self, metrics: dict[str, Any]) -> None:
        row = self._row(metrics)
        self._rows = [*self._rows[-9:], row]
        line = "  ".join(f"{name} {value}" for name, value in zip(_COLUMNS, row, strict=True) if value)
        self._write(line)
        if self._live is None:
            self._console.print(line, soft_wrap=True, markup=False)
        if _abandoned(metrics) and not self._told:
            self._told = True
            self.note(_BIAS)
        self._worry(metrics)

    def note(self, text: str) -> None:
        """Something worth a line of its own. What is true of many steps in a row is printed for the first of them."""
        text = visible(text)
        self._write(text)
        said = _STEP.sub("", text)
        if said == text or said != self._said:
            self._console.print(text, soft_wrap=True, markup=False)
        if said != text:
            self._said = said

    def _write(self, line: str) -> None:
        """A log on a full disk ends no run: the error to show is that of a file that is needed. After the end, a
        tracker that was left behind may still have something to say."""
        with suppress(OSError, ValueError):
            self._log.write(line + "\n")
            self._log.flush()

    def _worry(self, metrics: dict[str, Any]) -> None:
        """Say once that the model never succeeds, as soon as the first steps have shown it."""
        if "trained_tokens" not in metrics:
            return
        if metrics["trained_tokens"]:
            self._said = ""
        if metrics["trained_tokens"] or metrics["success"] or not scored(metrics):
            self._failures = None
        if self._failures is None:
            return
        self._failures.append(metrics)
        attempts = sum(step["attempts"] for step in self._failures)
        if len(self._failures) >= _PATIENCE and attempts >= TELLING:
            self.note(f"None of {attempts} attempts has succeeded: {why(self._failures)}")
            self._failures = None

    def _row(self, metrics: dict[str, Any]) -> list[str]:
        measured = metrics.get("eval")
        evaluation = ""
        if measured:
            low, high = measured["success_interval"]
            evaluation = f"{measured['success']:.1%} [{low:.0%}, {high:.0%}]"
        if "time" not in metrics:
            return [str(metrics["step"]), "", "", evaluation, "", "", "", "", ""]
        self._done += 1
        seconds = metrics["time"]
        rate = metrics["action_tokens"] / max(seconds["collect"] + seconds["update"], _SHORTEST)
        return [
            f"{metrics['step']}/{self._steps}",
            f"{metrics['success']:.1%}",
            f"{metrics['reward']:.3f}",
            evaluation,
            f"{rate:.0f}",
            f"{sum(seconds.values()):.1f}s",
            self._left(metrics["step"]),
            _abandoned(metrics),
            metrics["guard"] or "nothing to learn" * (metrics["trained_tokens"] == 0),
        ]

    def _left(self, step: int) -> str:
        left = (time.monotonic() - self._start) / self._done * (self._steps - step)
        return f"{left:.0f}s" if left < 90 else f"{left / 60:.0f}min" if left < 5400 else f"{left / 3600:.1f}h"

    def _panel(self) -> RenderableType:
        table = Table(box=None, pad_edge=False)
        for name in _COLUMNS:
            table.add_column(name, no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(self._now, ProgressBar(total=1.0, completed=self._share, width=30))
        return Group(table, bar)


def scored(metrics: dict[str, Any]) -> bool:
    """Whether any of a step's attempts has a reward."""
    return any(StopReason(stop).scored for stop in metrics["stops"])


def _abandoned(metrics: dict[str, Any]) -> str:
    """How many of a step's attempts were given up as stragglers; empty when none was."""
    count = metrics.get("stops", {}).get(StopReason.CANCELLED, 0)
    return f"{count} of {metrics['attempts']}" if count else ""


_COLUMNS = ["step", "success", "reward", "eval success [95%]", "tokens/s", "took", "left", "abandoned", "guard"]
_BIAS = (
    "Attempts that grew much longer than the others were abandoned: they have no reward and are not learned from. If "
    "failures take longer than successes, success and reward look better than they are, and baselines are too high. "
    "rollout.straggler_cutoff=1.0 waits for every attempt (docs/reliability.md, Stragglers)."
)
"""Said once, at the first step that abandons attempts."""
