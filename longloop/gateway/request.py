"""What an agent asks and what it is told, in no provider's words: the APIs translate to these and back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from longloop.types import Message

Body = Mapping[str, Any]
"""The JSON object that a client sent."""


Ending = Literal["stop", "length", "calls"]
"""How an answer ended: by itself, at the limit on tokens, or with calls of tools."""


@dataclass(frozen=True)
class Request:
    """A conversation that the policy is to continue."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    stop: tuple[str, ...] = ()
    """Texts that end the answer; it is returned without them."""
    max_tokens: int = 0
    """The most tokens of the answer; 0 for the run's limit."""
    calls: bool = True
    """Whether the answer may be read as calls of tools."""


@dataclass(frozen=True)
class Reply:
    """What the policy said."""

    id: str
    message: Message
    """As the agent is told: text without calls in it, and the calls."""
    finish: Ending
    prompt_tokens: int
    tokens: int


class Refused(Exception):
    """A request that is not answered: the HTTP status, a sentence that says why, and a short code."""

    def __init__(self, status: int, text: str, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.status, self.code = status, code


class Api(Protocol):
    """A provider's API: how it writes requests and answers."""

    path: str

    def read(self, body: Body, earlier: Mapping[str, Sequence[Message]]) -> Request:
        """What a client asks, or `Refused`. `earlier` are the conversations that replies ended, by the replies' ids."""
        ...

    def whole(self, reply: Reply, body: Body) -> dict[str, Any]:
        """The answer in one piece."""
        ...

    def events(self, reply: Reply, body: Body) -> Iterator[tuple[str, dict[str, Any] | str]]:
        """The answer as a stream: (type of the event, or empty; what it holds)."""
        ...

    def refusal(self, refused: Refused) -> dict[str, Any]:
        """An error."""
        ...


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


def tool(name: Any, description: Any, parameters: Any) -> dict[str, Any]:
    """A tool as chat templates take it."""
    need(isinstance(name, str) and name, "A tool needs a name.")
    need(
        parameters is None or isinstance(parameters, dict), f"The parameters of the tool {name} must be a JSON schema."
    )
    function = {"name": name, "description": description or "", "parameters": parameters or {"type": "object"}}
    return {"type": "function", "function": function}


def may_call(choice: Any) -> bool:
    """Whether the answer may call tools. A choice that forces a call is refused."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    need(
        kind in (None, "auto", "none"),
        "tool_choice can be auto or none: forcing a call would need a grammar, and a grammar changes the distribution "
        "that the policy is trained on. Ask for the call in the prompt.",
    )
    return kind != "none"
