"""What may leave the sandbox as an argument: plain values, few enough to be looked at.

A value that shares its parts is small where it was made (`x = [x] * 10`, eight times over) and large for whoever
prints, compares or stores it. So every argument is copied before anything else touches it: what is shared counts as
often as it occurs, and counting stops at the limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from pydantic_monty import FunctionSnapshot

VALUES = 1000
"""Values that the arguments of one call may have, those inside of others included."""
CHARACTERS = 50_000
"""Characters of all their text, and bytes of their numbers."""
LEVELS = 20

_TEXT = (str, bytes)
_PLAIN = (*_TEXT, int, float, type(None))
_CONTAINERS = (list, tuple, set, frozenset, dict)
_SPOKEN = (date, timedelta, Decimal, PurePath, complex)
"""Types, besides plain ones, that an answer may be given in: what counts is how they are written."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call."""

    positional: bool
    """Whether there are any besides those by keyword."""
    keywords: dict[str, Any]
    values: int


class TooLarge(Exception):
    """An argument is beyond the limits."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        most = f"{VALUES:,} values in {LEVELS} levels and {CHARACTERS:,} characters"
        return f"{self.name} is too large: the arguments of a call may have at most {most}, counting what repeats."


class Unreadable(Exception):
    """An argument cannot be converted."""

    def __str__(self) -> str:
        return "An argument cannot be read: pass text, numbers, None, and lists and dicts of these."


def arguments(asked: FunctionSnapshot) -> Arguments:
    """Convert the arguments of a call, and copy them within the limits."""
    return bounded(asked.kwargs, bool(asked.args))


def bounded(given: Mapping[str, Any], positional: bool = False) -> Arguments:
    """Copy arguments by keyword within the limits."""
    copier, keywords = _Copier(), {}
    for name, value in given.items():
        try:
            keywords[copier.copy(name)] = copier.copy(value)
        except TooLarge:
            raise TooLarge(name[:40]) from None
    return Arguments(positional, keywords, copier.values)


class Foreign:
    """Stands for an object that no API takes: a function, a class, an exception, a date."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__


class _Copier:
    """Copies the arguments of one call, as long as they are within the limits."""

    def __init__(self) -> None:
        self.values = self.characters = 0

    def copy(self, value: Any, level: int = 0) -> Any:
        """A copy that shares nothing; TooLarge as soon as a limit is passed."""
        self.values += 1
        if isinstance(value, _TEXT):
            self.characters += len(value)
        elif isinstance(value, int):
            self.characters += value.bit_length() // 8
        if self.values > VALUES or self.characters > CHARACTERS:
            raise TooLarge
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, _CONTAINERS):
            if level == LEVELS:
                raise TooLarge
            return self._copy_parts(value, level + 1)
        return Foreign(str(value) if isinstance(value, _SPOKEN) else f"<{type(value).__name__}>")

    def _copy_parts(self, value: Any, level: int) -> Any:
        if isinstance(value, dict):
            return {self.copy(key, level): self.copy(part, level) for key, part in value.items()}
        parts = [self.copy(part, level) for part in value]
        if isinstance(value, list):
            return parts
        if isinstance(value, tuple):
            return tuple(parts)
        return frozenset(parts) if isinstance(value, frozenset) else set(parts)
