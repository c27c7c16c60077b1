"""metrics.jsonl: one object a step. A step that was repeated after a crash has two lines; the last one counts."""

import math
from pathlib import Path
from typing import Any

from longloop.store.files import append_lines, read_lines


class Metrics:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, values: dict[str, Any]) -> None:
        append_lines(self._path, [_finite(values)])

    def read(self) -> list[dict[str, Any]]:
        """The lines in order of step, one for each."""
        lines = {line["step"]: line for line in read_lines(self._path)}
        return [lines[step] for step in sorted(lines)]


def cells(e: dict[str, Any]) -> dict[str, str]:
    """An evaluation as a person reads it."""

    def with_interval(key: str, form: str) -> str:
        low, high = e[f"{key}_interval"]
        return f"{e[key]:{form}} [{low:{form}}, {high:{form}}]"

    cells = {
        "success [95%]": with_interval("success", ".1%"),
        "reward [95%]": with_interval("reward", ".3f"),
        "doing nothing": f"{e['floor_success']:.1%}, reward {e['floor_reward']:.3f}",
    }
    cells |= {f"pass@{k}": f"{value:.1%}" for k, value in e["pass_at"].items() if k != "1"}
    if e["scenarios"] is not None:
        cells["scenarios"] = f"{e['scenarios']:.1%}"
    spoiled = f", {e['unscored']} spoiled by the environment" if e["unscored"] else ""
    cells["tasks"] = f"{e['tasks']} x {e['attempts']} attempts{spoiled}"
    return cells


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is not finite is stored as null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
