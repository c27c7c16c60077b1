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
    instructions: int = 0
    """How many messages at the beginning are for this call alone: a call that goes on from its reply sends its own."""


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
