"""Calls of tools, tried out with the user's own tools: rendered, read, echoed, and the conversation extended."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longloop.diagnose.finding import Finding
from longloop.tokens.chat import Chat
from longloop.tokens.transcript import Transcript
from longloop.types import Call, Message, Sampled, Trajectory

_ROUNDS = 4
"""Calls that are made one after the other."""
_EXAMPLES = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
"""A value of each type that a JSON schema may ask for."""


def tools(trajectories: Sequence[Trajectory], chat: Chat) -> Finding | None:
    """Can the calls of a model be read, and do they leave the conversation's tokens as they are? None without tools."""
    actions = [turn.action for t in trajectories for turn in t.turns]
    first = next((turn for t in trajectories for turn in t.turns if turn.tools), None)
    if first is None:
        return None
    called = sum(bool(action.calls) for action in actions)
    numbers: dict[str, float] = {"tools": len(first.tools), "actions": len(actions), "with_calls": called}
    seen = f"{called} of {len(actions)} actions called a tool, in the format `{chat.tool_format.name}`."
    wanted = Call("", first.tools[0]["function"]["name"], json.dumps(_arguments(first.tools[0])))
    transcript = Transcript(chat)
    transcript.receive(first.context, tools=first.tools)
    messages, restarts = list(first.context), 0
    for _ in range(_ROUNDS):
        ids = chat.spell(messages, Message("assistant", "", (wanted,)), first.tools)
        if ids is None:
            return Finding(
                "tools",
                "warning",
                f"{seen} How the chat template writes a call could not be seen, so nothing was tried out.",
                "Look at some attempts: `longloop view` shows what the agent said and what was read from it.",
                numbers,
            )
        said = transcript.act(Sampled(np.array(ids), np.zeros(len(ids)), "stop"))
        if [(call.name, json.loads(call.arguments)) for call in said.calls] != [
            (wanted.name, json.loads(wanted.arguments))
        ]:
            return Finding(
                "tools",
                "fail",
                f"The chat template writes a call as {said.content!r}, which is not read as one: no tool would ever be "
                "called.",
                "Set model.chat_template to a file with a template of a format that longloop reads "
                "(docs/environments/agent.md).",
                numbers,
            )
        heard = Message("tool", "ok", call=said.calls[0].id)
        _, restarted = transcript.receive([heard])
        restarts += restarted
        messages += [said, heard]
    numbers |= {"rounds": _ROUNDS, "restarts": restarts}
    if not restarts:
        return Finding("tools", "pass", f"{seen} A call leaves what was said before as it is.", numbers=numbers)
    return Finding(
        "tools",
        "warning",
        f"{seen} Of {_ROUNDS} turns that follow a call, {restarts} would restart the context: the chat template writes "
        "calls in its own way. Each such turn is trained on as a sample of its own, and the whole conversation is read "
        "again for it.",
        "It costs time, and nothing else. A template that takes calls as text avoids it (model.chat_template).",
        numbers,
    )


def _arguments(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that a tool's schema would take."""
    parameters = tool["function"].get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    kinds = {
        key: schema.get("type") if isinstance(schema, dict) else None
        for key, schema in (properties if isinstance(properties, dict) else {}).items()
    }
    return {key: _EXAMPLES.get(kind, "x") if isinstance(kind, str) else "x" for key, kind in kinds.items()}
