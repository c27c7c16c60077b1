"""The result of a check: a verdict, what it means, and what to do about it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "warning", "fail"]


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: Verdict
    seen: str
    """What was seen and what it means, in a sentence or two."""
    advice: str = ""
    """What to do; empty when all is well."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    text: tuple[tuple[bool, str], ...] = ()
    """A conversation as (trained on?, text) pieces."""

    def __str__(self) -> str:
        return f"{self.seen} {self.advice}".strip()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
