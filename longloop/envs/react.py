"""The format of a turn, a thought and then an action: written, and read tolerantly, for all environments.

An action is code in a fence (`react`, `code_of`) or a line of text (`act`, `action_of`); some environments have actions
of the form `name[argument]` (`call_of`). Nothing here raises, whatever the text: what cannot be read comes back empty.
"""

import re

_FENCE = re.compile(r"```(?:[ \t]*[\w+-]*[ \t]*\r?\n|[ \t]*(?:python|py)\b[ \t]*)?", re.IGNORECASE)
_THOUGHT = re.compile(r"\A\s*Thought:[^\n]*\n?", re.IGNORECASE)

_MARKS = r"[ \t>*_#`-]*"
_LABEL = re.compile(
    rf"(?:^{_MARKS}(?i:(action|thought|observation))|\b(Action|Thought|Observation))[ \t]*\d*{_MARKS}:{_MARKS}",
    re.MULTILINE,
)
_FENCE_LINE = re.compile(r"\s*```\w*\s*")
_CALL = re.compile(r"(\w+)[ \t]*\[((?:[^\[\]]|\[[^\[\]]*\])*)\]?")
_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}


def react(thought: str, code: str) -> str:
    """Write a turn whose action is code."""
    return f"Thought: {thought}\n```python\n{code}\n```"


def code_of(text: str) -> str:
    """Return the code of a turn: the first fence's (closed or not); without one, all but the thought."""
    fence = _FENCE.search(text)
    return (text[fence.end() :].partition("```")[0] if fence else _THOUGHT.sub("", text)).strip("\n")


def act(thought: str, action: str) -> str:
    """Write a turn whose action is a line of text."""
    return f"Thought: {thought}\nAction: {action}" if thought else f"Action: {action}"


def action_of(text: str) -> str:
    """Return the action of a turn, in one line: what follows the first `Action:`; without one, the first line that is
    not the thought. Empty if there is none."""
    before, *parts = _LABEL.split("\n".join(text.splitlines()))
    labelled = [((line or word).lower(), said) for line, word, said in zip(*[iter(parts)] * 3, strict=True)]
    actions = [said for label, said in labelled if label == "action"]
    beside = [said.partition("\n")[2] for label, said in labelled if label == "thought"]
    for part in actions or [before, *beside]:
        for line in part.splitlines():
            if not _FENCE_LINE.fullmatch(line) and (bare := _bare(line)):
                return bare
    return ""


def call_of(text: str) -> tuple[str, str]:
    """Return the action of a turn as the (name, argument) of `name[argument]`, the name in lower case; ("", "") if it
    has another form."""
    call = _CALL.search(action_of(text))
    return (call[1].lower(), _unquoted(call[2].strip())) if call else ("", "")


def _bare(text: str) -> str:
    """Return a text without the marks of lists, quotations and code around it."""
    while (bare := _unquoted(text.strip().strip("`*").lstrip(">").strip().removeprefix("- "))) != text:
        text = bare
    return bare


def _unquoted(text: str) -> str:
    return text[1:-1].strip() if len(text) > 1 and _QUOTES.get(text[0]) == text[-1] else text
