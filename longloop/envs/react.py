"""How an agent writes a turn: a thought, then an action. Written and (tolerantly) read here, for all environments."""

import re

_FENCE = re.compile(
    r"```(?:[ \t]*[\w+-]*[ \t]*\r?\n|[ \t]*(?:python|py)\b[ \t]*)?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE
)
_THOUGHT = re.compile(r"\A\s*Thought:[^\n]*\n?", re.IGNORECASE)


def react(thought: str, code: str) -> str:
    """A turn with code as its action."""
    return f"Thought: {thought}\n```python\n{code}\n```"


def code_of(text: str) -> str:
    """The code of a turn: what stands in the first fence (closed or not); without one, all but the thought."""
    fence = _FENCE.search(text)
    return (fence.group(1) if fence else _THOUGHT.sub("", text)).strip("\n")
