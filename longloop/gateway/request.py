"""What a client asks and what it is told, in no provider's words: the APIs translate to these and back."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from longloop.types import Action, Message

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
    temperature: float | None = None
    """What the client would like; None for what the server has. An attempt is sampled at the run's, whatever it is."""
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Reply:
    """What the policy said."""

    id: str
    message: Message
    """As the client is told: text without calls in it, and the calls."""
    finish: Ending
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True)
class Piece:
    """A part of an answer, as it comes."""

    id: str
    """The answer's."""
    text: str
    """What is new in the answer's text."""
    reply: Reply | None = None
    """The whole answer, with its last piece."""


Event = tuple[str, dict[str, Any] | str]
"""Of a stream: its type, or empty; and what it holds."""


class Refused(Exception):
    """A request that is not answered: the HTTP status, a sentence that says why, and a short code."""

    def __init__(self, status: int, text: str, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.status, self.code = status, code


class Answers(Protocol):
    """Who answers the calls that show a key."""

    @property
    def earlier(self) -> Mapping[str, Sequence[Message]]:
        """The conversations that replies ended, by the replies' ids."""
        ...

    def pieces(self, request: Request, body: Body, retried: bool) -> AsyncGenerator[Piece, None]:
        """The answer to a call, or `Refused`. `retried`: the client says that it has sent the same call before."""
        ...


class Api(Protocol):
    """A provider's API: how it writes requests and answers."""

    path: str

    def read(self, body: Body, earlier: Mapping[str, Sequence[Message]]) -> Request:
        """What a client asks, or `Refused`. `earlier` are the conversations that replies ended, by the replies' ids."""
        ...

    def whole(self, reply: Reply, body: Body) -> dict[str, Any]:
        """The answer in one piece."""
        ...

    def events(self, pieces: AsyncIterator[Piece], body: Body) -> AsyncIterator[Event]:
        """The answer as a stream. Nothing is sent before the first piece has come."""
        ...

    def refusal(self, refused: Refused) -> dict[str, Any]:
        """An error."""
        ...


def told(id: str, request: Request, action: Message) -> Reply:
    """What the client is told of an action: its text, cut at a stop text, and its calls."""
    said = action if isinstance(action, Action) else Action(action.role, action.content, action.calls)
    calls = said.calls if request.calls else ()
    words = replace(said, calls=calls).words
    words = words[: min((words.index(stop) for stop in request.stop if stop in words), default=len(words))]
    finish: Ending = "length" if said.finish == "length" else "calls" if calls else "stop"
    return Reply(id, Message("assistant", words, calls), finish, said.prompt_tokens, said.tokens)


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
