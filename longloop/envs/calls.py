"""How players without a model call tools: with a fenced block of JSON in what they say.

    Player:      I look it up.
                 ```json
                 {"name": "search", "arguments": {"query": "tea"}}
                 ```
    the action:  Message("assistant", ..., calls=(Call("...", "search", '{"query": "tea"}'),))

Experts, baselines and people speak text, whatever they play. A demonstration is spelled as the policy's own model calls
tools (rollout/demonstrations.py). Only where the environment gives tools is a block read as a call.
"""

import json
from collections.abc import Sequence
from typing import Any

from longloop.tokens.tools import FENCED
from longloop.types import Call, Message


def spoken(text: str, tools: Sequence[dict[str, Any]]) -> Message:
    """What a player said, with the calls that can be read from it if there are tools."""
    return Message("assistant", text, FENCED.calls(text, tools) if tools else ())


def called(name: str, arguments: dict[str, Any]) -> str:
    """How a player says a call."""
    return f"```json\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n```"


def arguments_of(call: Call) -> dict[str, Any]:
    """The arguments of a call. Raises ValueError, with a sentence for the agent, if they are no JSON object."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ValueError("the arguments must be a JSON object, such as {}")
    return arguments
