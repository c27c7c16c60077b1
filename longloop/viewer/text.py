"""Text of models and environments for pages and terminals. None of it is trusted: it is escaped here."""

import json

from markupsafe import Markup

from longloop.store.run_reader import RunReader
from longloop.store.trajectories import StoredTrajectory
from longloop.types import StopReason

_LANGUAGES = ("python", "py", "python3", "json", "bash", "sh", "shell", "sql", "toml")
"""Only these are highlighted: with others, a text of a model's choice can take a lexer minutes."""
_LONGEST = 5_000
"""Longer texts are not highlighted. The worst of this length take 0.3 seconds, with the square of it."""
_LONG = (1000, 14)
"""Characters and lines; longer messages are folded."""


def action(text: str, quiet: object = None) -> Markup:
    """What an agent said: prose, and code in fences. With `quiet`, nothing is shown for nothing."""
    parts = []
    end = 0
    while (start := text.find("```", end)) >= 0 and (line := text.find("\n", start)) >= 0:
        close = text.find("```", line + 1)
        close = close if close >= 0 else len(text)
        language = text[start + 3 : line].strip() if len(text) <= _LONGEST else "text"
        parts += [_prose(text[end:start]), code(text[line + 1 : close], language)]
        end = close + 3
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

    language = language.lower() or "python"
    if language not in _LANGUAGES or len(text) > _LONGEST:
        return Markup('<pre class="code">{}</pre>').format(text)
    lexer = get_lexer_by_name(language, stripnl=False)
    marked = Markup(highlight(text.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)))
    return Markup('<pre class="code">{}</pre>').format(marked)


def long(text: str) -> bool:
    return len(text) > _LONG[0] or text.count("\n") >= _LONG[1]


def excerpt(text: str, length: int = 160) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


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
