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


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is not finite is stored as null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
