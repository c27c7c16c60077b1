"""What an attempt that failed looks like: the judge's tests that it failed, and the last error it saw.

Two failures are alike when both texts agree once numbers, quotations and ids are taken out of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from longloop.analysis.behaviours import heard

FEW = 3
"""Attempts that are named for each kind of failure."""
_LONGEST = 160
_QUOTED = re.compile(r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)(?!\w)")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,64}")
_ID = re.compile(r"\b(?=[a-zA-Z_]*\d)\w{6,64}\b")
_NUMBER = re.compile(r"(?<!\d)(?![45]\d\d(?: [A-Z]|:))\d+(?:[.,:/-]\d+)*")
"""But for a status code with its sentence, which says what went wrong."""


@dataclass
class Cases:
    """Attempts that failed alike."""

    count: int = 0
    places: list[str] = field(default_factory=list)
    """The first few, as `longloop show` takes them."""

    def add(self, count: int, places: list[str]) -> None:
        self.count += count
        self.places += places[: FEW - len(self.places)]


Kinds = dict[tuple[str, ...], Cases]
"""What failures have in common -> the attempts."""


def tests(attempt: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The judge's tests, where they are stored: what each asks, and whether it was passed."""
    info = attempt.get("info")
    stored = info.get("tests") if isinstance(info, Mapping) else None
    for test in stored if isinstance(stored, list) else ():
        if isinstance(test, Mapping):
            yield alike(str(test.get("name"))), bool(test.get("passed"))


def last_error(attempt: Mapping[str, Any], failure: re.Pattern[str]) -> str:
    """The line of the last thing that came back and showed a failure; nothing when none did."""
    for turn in reversed((attempt.get("turns") or [])[1:]):
        for text in reversed(heard(turn)):
            if found := list(failure.finditer(text)):
                at = found[-1].start()  # a traceback says at its end what was wrong
                start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
                return alike(text[start : end if end >= 0 else None])
    return ""


def alike(text: str) -> str:
    """Without what differs from task to task: quotations become '…', ids and numbers #."""
    text = " ".join(text[: 8 * _LONGEST].split())
    text = _ADDRESS.sub("…", _QUOTED.sub("'…'", text))
    text = _NUMBER.sub("#", _ID.sub("#", text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
