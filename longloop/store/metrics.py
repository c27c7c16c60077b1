"""metrics.jsonl: one object per step. A step that was repeated after a crash has two lines; the last one counts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from longloop.store.files import append_lines, read_lines


class Metrics:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.mirror: Callable[[Mapping[str, Any]], None] = lambda line: None
        """Called with every line that was written."""

    def write(self, values: dict[str, Any]) -> None:
        line = _finite(values)
        append_lines(self._path, [line])
        self.mirror(line)

    def read(self) -> list[dict[str, Any]]:
        """One line for each step, in order. A damaged line costs its step, not the run."""
        lines = {}
        for line in read_lines(self._path, skip_damaged=True):
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                lines[line["step"]] = line
        return [lines[step] for step in sorted(lines)]


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found: the object `eval` of a line. Intervals are 95%."""

    tasks: int
    """That had an attempt with a score; those whose every attempt was spoiled are left out."""
    attempts: int
    """Per task."""
    unscored: int
    """Attempts that the environment spoiled; they count for nothing."""
    success: float
    """Mean over tasks of the share of attempts that succeeded (TGC when tasks have one attempt)."""
    success_interval: tuple[float, float]
    """Wilson's interval with the number of tasks as the number of trials: attempts at one task are not independent."""
    reward: float
    reward_interval: tuple[float, float]
    """Percentile bootstrap over tasks."""
    pass_at: dict[str, float]
    """k -> the chance that at least one of k attempts succeeds, for k = 1, 2, 4, ... attempts (unbiased).
    All over the same tasks: those of which no attempt was spoiled. Empty where there is none."""
    scenarios: float | None
    """Share of scenarios whose every task succeeded in every attempt with a score (SGC); None when tasks have no
    scenarios."""
    floor_reward: float
    """What an agent that does nothing is paid on the same tasks."""
    floor_success: float
    env_version: str = ""
    """The version of the environment that it was measured in; empty where that has none."""
    usage: dict[str, int] = field(default_factory=dict)
    """Of an endpoint (`engine.name=openai`): what has to be paid for, as it counts. Calls, tokens, repeated calls."""

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Evaluation":
        """Raises KeyError, TypeError or ValueError for what is not a stored evaluation."""
        stored = {"env_version": "", "usage": {}} | dict(stored)  # which earlier evaluations lack
        values = {one.name: stored[one.name] for one in fields(cls)}
        for name in ("success_interval", "reward_interval"):
            low, high = values[name]
            values[name] = low, high
        numbers = [values[name] for name in ("tasks", "attempts", "success", "reward", "floor_success", "floor_reward")]
        if not all(isinstance(one, int | float) for one in (*numbers, *values["success_interval"])):
            raise TypeError("an evaluation without its numbers")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> dict[str, str]:
        """Row name -> text, as tables show an evaluation."""

        def with_interval(value: float, ends: tuple[float, float], form: str) -> str:
            return f"{value:{form}} [{ends[0]:{form}}, {ends[1]:{form}}]"

        cells = {
            "success [95%]": with_interval(self.success, self.success_interval, ".1%"),
            "reward [95%]": with_interval(self.reward, self.reward_interval, ".3f"),
            "doing nothing": f"{self.floor_success:.1%}, reward {self.floor_reward:.3f}",
        }
        cells |= {f"pass@{k}": f"{value:.1%}" for k, value in self.pass_at.items() if k != "1"}
        if self.scenarios is not None:
            cells["scenarios"] = f"{self.scenarios:.1%}"
        if self.env_version:
            cells["environment"] = f"version {self.env_version}"
        if self.usage:
            tokens = f"{self.usage['prompt_tokens']:,} + {self.usage['completion_tokens']:,} tokens"
            cells["cost"] = f"{tokens} in {self.usage['calls']:,} calls, {self.usage['repeated']:,} repeated"
        spoiled = f", {self.unscored} spoiled by the environment" if self.unscored else ""
        return cells | {"tasks": f"{self.tasks} x {self.attempts} attempts{spoiled}"}


def when(step: int) -> str:
    """Of an evaluation: which it is."""
    return "before training" if step == 0 else f"after step {step}"


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is not finite is stored as null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
