"""Text of models and environments as HTML. None of it is trusted: whatever is not our own mark-up is escaped here."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup, escape

_FENCE = re.compile(r"(```[^\n]*\n)(.*?)(```|\Z)", re.DOTALL)
_LONGEST = 40_000
"""Characters of code beyond which it is not highlighted: a lexer may take its time."""
_LONG = (1000, 14)
"""Characters and lines from which on a message is folded."""


@dataclass(frozen=True)
class Row:
    """A line of two texts side by side: the same, changed, or on one side alone."""

    left: str | None
    right: str | None

    @property
    def same(self) -> bool:
        return self.left == self.right


def action(text: str) -> Markup:
    """What an agent said: prose, and code in fences."""
    parts = []
    end = 0
    for fence in _FENCE.finditer(text):
        parts += [_prose(text[end : fence.start()]), code(fence[2], fence[1][3:].strip())]
        end = fence.end()
    parts.append(_prose(text[end:]))
    return Markup("").join(parts) if text.strip() else Markup('<p class="quiet">(nothing)</p>')


def code(text: str, language: str = "") -> Markup:
    """Highlighted by classes, without styles of its own."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language or "python", stripnl=False)
    except ClassNotFound:
        lexer = None
    if lexer is None or len(text) > _LONGEST:
        return Markup('<pre class="code">{}</pre>').format(text)
    marked = Markup(highlight(text.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)))
    return Markup('<pre class="code">{}</pre>').format(marked)


def long(text: str) -> bool:
    return len(text) > _LONG[0] or text.count("\n") >= _LONG[1]


def excerpt(text: str, most: int = 160) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def rows(left: str, right: str) -> Iterator[Row]:
    """Two texts, line by line, what they share opposite each other."""
    ours, theirs = left.splitlines(), right.splitlines()
    for tag, i, j, k, n in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Row(line, line) for line in ours[i:j])
        else:
            for place in range(max(j - i, n - k)):
                yield Row(
                    ours[i + place] if i + place < j else None,
                    theirs[k + place] if k + place < n else None,
                )


def words(row: Row) -> tuple[Markup, Markup]:
    """Both sides of a row, what differs marked."""
    if row.same or row.left is None or row.right is None:
        return escape(row.left or ""), escape(row.right or "")
    ours, theirs = re.findall(r"\w+|\W", row.left), re.findall(r"\w+|\W", row.right)
    left, right = [], []
    for tag, i, j, k, n in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        kept = "{}" if tag == "equal" else "<mark>{}</mark>"
        left.append(Markup(kept).format("".join(ours[i:j])) if i < j else Markup(""))
        right.append(Markup(kept).format("".join(theirs[k:n])) if k < n else Markup(""))
    return Markup("").join(left), Markup("").join(right)


def visible(text: str) -> str:
    """For a terminal: control characters as their escapes, so that a text cannot act on it."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _prose(text: str) -> Markup:
    return Markup('<p class="prose">{}</p>').format(text.strip("\n")) if text.strip() else Markup("")
