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


def act(thought: str, action: str) -> str:
    """A turn with a line of text as its action."""
    return f"Thought: {thought}\nAction: {action}" if thought else f"Action: {action}"


def action_of(text: str) -> str:
    """The action of a turn: the line after the first "Action:"; without one, the last line that is not a thought."""
    lines = [line.strip() for line in text.splitlines()]
    for line in lines:
        if line.lower().startswith("action:"):
            return line[len("action:") :].strip(" `*\"'")
    rest = [line for line in lines if line and not line.lower().startswith("thought:")]
    return rest[-1].strip(" `*\"'") if rest else ""
