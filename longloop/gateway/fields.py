"""Checks of a request's fields that the APIs share. What does not fit is `Refused`, with a sentence that says why."""

from typing import Any

from longloop.gateway.request import Body, Refused


def need(met: object, text: str) -> None:
    """Refuse a request unless a condition is met."""
    if not met:
        raise Refused(400, text)


def list_of(body: Body, key: str) -> list[Any]:
    """A list in a request; an empty one where it is missing or null."""
    value = body.get(key)
    need(value is None or isinstance(value, list), f"{key} must be a list.")
    return value or []


def text_of(content: Any, where: str) -> str:
    """The text of a message's content: a text, nothing, or parts of text."""
    if content is None or isinstance(content, str):
        return content or ""
    need(isinstance(content, list), f"The content of {where} must be text or a list of parts.")
    texts = [
        part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None for part in content
    ]
    found = [text for text in texts if isinstance(text, str)]
    need(len(found) == len(texts), f"The content of {where} has a part that is not text; the policy reads text alone.")
    return "".join(found)


def stops(value: Any) -> tuple[str, ...]:
    """The texts that end an answer: one, several or none."""
    found = [value] if isinstance(value, str) else value or []
    need(isinstance(found, list) and all(isinstance(one, str) and one for one in found), "stop must be texts.")
    return tuple(found)


def limit(*values: Any) -> int:
    """The first limit on tokens that is set; 0 if none is."""
    found = next((value for value in values if value is not None), 0)
    need(isinstance(found, int) and found >= 0, "The limit on tokens must be a positive number.")
    return found


def sampling(body: Body) -> dict[str, Any]:
    """How the client would like to have its answer sampled."""
    temperature, top_p, seed = (body.get(name) for name in ("temperature", "top_p", "seed"))
    need(temperature is None or (_number(temperature) and 0 <= temperature <= 2), "temperature must be from 0 to 2.")
    need(top_p is None or (_number(top_p) and 0 < top_p <= 1), "top_p must be above 0, and at most 1.")
    need(seed is None or isinstance(seed, int), "seed must be an integer.")
    return {"temperature": temperature, "top_p": top_p, "seed": seed}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def tool(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    """A tool as chat templates take it."""
    need(isinstance(name, str) and name, "A tool needs a name.")
    need(
        parameters is None or isinstance(parameters, dict), f"The parameters of the tool {name} must be a JSON schema."
    )
    function = {"name": name, "description": description or "", "parameters": parameters or {"type": "object"}}
    return {"type": "function", "function": function}


def may_call(choice: Any) -> bool:
    """Whether the answer may call tools.

    Agents that want a call in every answer (`required`; Anthropic's `any`) get what the policy says, with a call or
    without: nothing forces one. A choice that names the tool is refused.
    """
    kind = choice.get("type") if isinstance(choice, dict) else choice
    need(
        kind in (None, "auto", "none", "required", "any"),
        "tool_choice cannot name a tool: forcing a call would need a grammar, and the policy is sampled without one. "
        "Ask for the call in the prompt.",
    )
    return kind != "none"
