"""Run folders, compared to the bit."""

import json
from pathlib import Path
from typing import Any


def contents(run: Path) -> dict[str, Any]:
    """Everything in a run folder that does not depend on the clock."""
    found: dict[str, Any] = {"metrics": {}}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        found["metrics"][json.loads(line)["step"]] = _timeless(line)
    for path in sorted([*run.glob("checkpoints/*/**/*.safetensors"), *run.glob("*/*.safetensors")]):
        found[str(path.relative_to(run))] = path.read_bytes()
    for path in sorted([*run.glob("trajectories/0*.jsonl"), *run.glob("evaluations/0*.jsonl")]):
        found[str(path.relative_to(run))] = [_timeless(line) for line in path.read_text().splitlines()]
    for path in sorted([*run.glob("checkpoints/*/state.json"), *run.glob("checkpoints/*/agreement.json")]):
        found[str(path.relative_to(run))] = json.loads(path.read_text())
    return found


def differences(one: Path, other: Path) -> list[str]:
    """In what two runs differ."""
    a, b = contents(one), contents(other)
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def _timeless(line: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(line)
    for name in ("time", "memory", "ranks"):
        value.pop(name, None)
    for turn in value.get("turns", []) if isinstance(value.get("turns"), list) else []:
        turn.pop("seconds")
    return value
