"""Text of models and environments for pages and terminals. None of it is trusted: it is escaped here."""

import json
import re

from markupsafe import Markup

from longloop.store.run_reader import RunReader
from longloop.store.trajectories import StoredTrajectory
from longloop.types import StopReason

_FENCE = re.compile(r"(```[^\n]*\n)(.*?)(```|\Z)", re.DOTALL)
_LONGEST = 40_000
"""Longer code is not highlighted: a lexer can be slow."""
_LONG = (1000, 14)
"""Characters and lines; longer messages are folded."""


def action(text: str, quiet: object = None) -> Markup:
    """What an agent said: prose, and code in fences. With `quiet`, nothing is shown for nothing."""
    parts = []
    end = 0
    for fence in _FENCE.finditer(text):
        parts += [_prose(text[end : fence.start()]), code(fence[2], fence[1][3:].strip())]
        end = fence.end()
    parts.append(_prose(text[end:]))
    if quiet or text.strip():
        return Markup("").join(parts)
    return Markup('<p class="quiet small">(nothing)</p>')


def arguments(text: str) -> Markup:
    """The arguments of a call: JSON, one on each line, or whatever else was written."""
    try:
        return code(json.dumps(json.loads(text), indent=2, ensure_ascii=False), "json")
    except (ValueError, RecursionError):
        return Markup('<pre class="code">{}</pre>').format(text)


def code(text: str, language: str = "") -> Markup:
    """Code with classes for highlighting; the style sheet has the colors."""
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


def excerpt(text: str, length: int = 160) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def visible(text: str) -> str:
    """For a terminal: control characters as their escapes, so that a text cannot act on it."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def unread_note(run: RunReader, trajectory: StoredTrajectory) -> str:
    """What to say of the messages that an attempt did not answer; empty where there are none."""
    if not trajectory.unread:
        return ""
    if trajectory.stop != StopReason.CONTEXT_FULL:
        return "came last, and was not answered"
    tokens = 0
    for turn in trajectory.turns:
        tokens *= not turn.restarts_context
        tokens += turn.context_tokens + turn.action_tokens
    limit = run.table("rollout").get("context", 0)
    return f"did not fit: the conversation had {tokens:,} of the {limit:,} tokens of rollout.context before it"


def _prose(text: str) -> Markup:
    return Markup('<p class="prose">{}</p>').format(text.strip("\n")) if text.strip() else Markup("")
