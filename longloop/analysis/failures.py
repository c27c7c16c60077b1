"""What a failed attempt looks like: the judge's tests that it failed, and the last error it saw.

Two failures are alike when both texts agree once numbers, quotations and ids are taken out of them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from longloop.analysis.behaviors import answers
from longloop.store.trajectories import StoredTrajectory

FEW = 3
"""Attempts that are named for each kind of failure."""
_LONGEST = 160
_QUOTED = re.compile(r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)(?!\w)")
_UNINDENTED = re.compile(r"^\S", re.MULTILINE)
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,64}")
_ID = re.compile(r"\b(?=[a-zA-Z_]*\d)\w{6,64}\b")
_NUMBER = re.compile(r"(?<!\d)(?![45]\d\d(?: [A-Z]|:))\d+(?:[.,:/-]\d+)*")
"""All numbers but a status code with its sentence, which says what went wrong."""


@dataclass
class Cases:
    """Attempts that failed alike."""

    count: int = 0
    attempts: list[str] = field(default_factory=list)
    """The ids of the first few, as `longloop show` takes them."""

    def add(self, count: int, attempts: list[str]) -> None:
        self.count += count
        self.attempts += attempts[: FEW - len(self.attempts)]


Kinds = dict[tuple[str, ...], Cases]
"""What failures have in common -> the attempts."""


def tests(attempt: StoredTrajectory) -> Iterator[tuple[str, bool]]:
    """The judge's tests: what each asks, without what differs from task to task, and whether it was passed."""
    for test in attempt.tests:
        yield alike(str(test.get("name"))), bool(test.get("passed"))


def last_error(attempt: StoredTrajectory, failure: re.Pattern[str]) -> str:
    """The line that shows the last failure that came back; empty when there was none."""
    for back in reversed(answers(attempt)):
        for text in reversed(back or []):
            if found := list(failure.finditer(text)):
                at = found[-1].start()  # a traceback says at its end what was wrong
                if found[-1][0].startswith("Traceback"):  # by an exception whose name does not say that it is one
                    at = max([at, *(line.start() for line in _UNINDENTED.finditer(text, at))])
                start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
                return alike(text[start : end if end >= 0 else None])
    return ""


def alike(text: str) -> str:
    """The text without what differs from task to task: quotations become '…', ids and numbers #."""
    text = " ".join(text[: 8 * _LONGEST].split())
    text = _ADDRESS.sub("…", _QUOTED.sub("'…'", text))
    text = _NUMBER.sub("#", _ID.sub("#", text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
