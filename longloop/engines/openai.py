"""Any endpoint with OpenAI's chat completions as an engine: to measure what stands behind it, text in, text out.

Engines take ids. Here ids only spell a conversation, byte by byte, in a frame from which it is read back word for word:
the endpoint gets messages, tools and calls as its own API has them. Log-probs are 0, so nothing can be trained on what
it says, and how long a conversation may be is for the endpoint to say.

A call that fails for reasons which may pass is made again. Every answer is kept in a file until the evaluation is over:
one that is stopped, or whose endpoint dies, pays for no answer twice.
"""

import hashlib
import json
import os
from asyncio import sleep
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from longloop.tokens.chat import Chat
from longloop.types import Fault, Finish, Message, Sampled, SamplingParams, StopReason, UserError

_ROLES = ("system", "user", "assistant", "tool")
_TEMPLATE = """\
{%- if tools %}<|tools|>{{ tools | tojson }}<|end|>{% endif %}
{%- for m in messages %}
    {{- '<|' + (m.role if m.role in ['system', 'assistant', 'tool'] else 'user') + '|>' }}
    {%- if m.role == 'tool' %}{{ (m.tool_call_id or '') + '\\n' }}{% endif %}
    {{- m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""

_PASSING = (408, 409, 425, 429)
"""Refusals that may pass, besides all of the 500s."""
_SHORTEST, _LONGEST = 1.0, 60.0
"""Seconds between two tries where the endpoint does not say how long to wait: twice as many each time."""
_TRIES = 3
"""Of an endpoint that has never replied: something is wrong with the address."""


@dataclass
class Usage:
    """What was asked of the endpoint and has to be paid for, as it counts."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    repeated: int = 0
    """Calls that were made again."""


@dataclass(frozen=True)
class _Answer:
    text: str
    finish: Finish
    usage: Mapping[str, int] = field(default_factory=dict)


class OpenAIEngine:
    """An endpoint. It measures, and cannot train.

    url: the address of the API, such as https://api.example.com/v1.
    model: the model's name there.
    key_variable: the environment variable that holds the key. The key itself is stored nowhere.
    limit: the name under which the endpoint takes the limit on tokens; some want max_completion_tokens.
    extra: further fields of every request.
    seconds: how long to wait for an answer.
    patience: how long to repeat a call, in seconds, while the endpoint is busy, failing or silent.
    answers: a file that keeps all answers, for calls that are made once more; empty for none.
    """

    def __init__(
        self,
        policy: None,
        chat: Chat,
        url: str = "",
        model: str = "",
        key_variable: str = "OPENAI_API_KEY",
        limit: str = "max_tokens",
        extra: dict[str, Any] | None = None,
        seconds: float = 300.0,
        patience: float = 900.0,
        answers: str = "",
    ) -> None:
        if not url or not model:
            raise UserError("engine.name=openai needs the endpoint's address, engine.url, and engine.model.")
        self.usage = Usage()
        self._told: dict[str, int] = {}
        self._chat, self._url = chat, f"{url.rstrip('/')}/chat/completions"
        self._fixed, self._limit = {"model": model} | (extra or {}), limit
        self._key_variable = key_variable
        self._seconds, self._patience = seconds, patience
        self._answers = _Kept(Path(answers)) if answers else None
        self._client: Any = None
        self._reached = False
        """Whether there has been any reply."""
        self._hold = 0.0
        """Until then nobody calls: the endpoint has asked for a pause."""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        messages, tools = read(ids, self._chat)
        body = self._fixed | {
            "messages": [_as_json(message) for message in messages],
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": params.seed % 2**31,
            self._limit: params.max_tokens,
        }
        if tools:
            body["tools"] = tools
        answer = self._answers.find(body) if self._answers else None
        if answer is None:
            answer = await self._asked(body)
            if self._answers:
                self._answers.keep(body, answer)
        self._count(answer)
        ends = [answer.text.index(stop) + len(stop) for stop in params.stop if stop in answer.text]
        said = self._chat.action_ids(answer.text[: min(ends, default=None)])
        cut = answer.finish == "length" and not ends
        spoken = np.array(said[:-1] if cut else said, np.int64)
        return Sampled(spoken, np.zeros(len(spoken)), "length" if cut else "stop")

    def spent(self) -> dict[str, int]:
        """What was asked of the endpoint since this was last called."""
        now = asdict(self.usage)
        spent = {name: count - self._told.get(name, 0) for name, count in now.items()}
        self._told = now
        return spent

    async def close(self) -> None:
        """Give up the connections."""
        if self._client is not None:
            await self._client.aclose()

    def forget(self, session: str) -> None: ...

    def release(self) -> None: ...

    def _count(self, answer: _Answer) -> None:
        self.usage.calls += 1
        self.usage.prompt_tokens += answer.usage.get("prompt_tokens", 0)
        self.usage.completion_tokens += answer.usage.get("completion_tokens", 0)

    async def _asked(self, body: Mapping[str, Any]) -> _Answer:
        """The endpoint's answer, however often it takes to get one."""
        began, tries = monotonic(), 0
        while True:
            while (pause := self._hold - monotonic()) > 0:
                await sleep(pause)
            answer, problem, wait = await self._tried(body)
            if answer is not None:
                return answer
            tries += 1
            hopeless = not self._reached and tries >= _TRIES
            pause = wait or min(_SHORTEST * 2 ** (tries - 1), _LONGEST)
            if hopeless or monotonic() - began + pause > self._patience:
                raise UserError(f"The endpoint {self._url} does not answer: {problem}.{self._what_is_kept()}")
            self.usage.repeated += 1
            if wait:
                self._hold = max(self._hold, monotonic() + wait)
            await sleep(pause)

    async def _tried(self, body: Mapping[str, Any]) -> tuple[_Answer | None, str, float]:
        """The answer; or what was wrong, and the seconds that the endpoint asks to wait, if any."""
        import httpx2

        if self._client is None:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
            self._client = httpx2.AsyncClient(timeout=self._seconds, limits=limits)
        key = os.environ.get(self._key_variable)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            reply = await self._client.post(self._url, json=body, headers=headers)
        except httpx2.TimeoutException:
            return None, f"there was no reply within {self._seconds:g} s", 0.0
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return None, f"{type(error).__name__}: {error}".rstrip(": ."), 0.0
        self._reached = True
        try:
            found = reply.json()
        except ValueError:
            found = None
        if reply.status_code == 200:
            answer = _answer(found)
            return answer, f"what it sent is no chat completion: {reply.text[:200]!r}", 0.0
        said = f"it refused with {reply.status_code}: {_error(found) or reply.text[:200]}".rstrip(".")
        if reply.status_code in _PASSING or reply.status_code >= 500:
            return None, said, _seconds(reply.headers.get("retry-after"))
        raise self._refusal(reply.status_code, said)

    def _refusal(self, status: int, said: str) -> Exception:
        """A refusal for good: of one conversation, or of all."""
        if status in (400, 413, 422) and any(word in said.lower() for word in ("context", "too long", "too large")):
            return Fault(StopReason.CONTEXT_FULL, said)
        if status == 401:
            return UserError(
                f"The endpoint {self._url} wants a valid key in the environment variable {self._key_variable}: {said}."
                f"{self._what_is_kept()}"
            )
        if status in (400, 422) and self.usage.calls:
            return Fault(StopReason.ENV_ERROR, f"the endpoint took no more of this conversation: {said}")
        return UserError(f"The endpoint {self._url} cannot be measured: {said}.{self._what_is_kept()}")

    def _what_is_kept(self) -> str:
        if self._answers is None or not self.usage.calls:
            return ""
        return f" {self.usage.calls} answers are kept: run the same command again to go on from there."


class _Kept:
    """Answers on disk, by what was asked."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, _Answer] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                asked, text, finish, usage = json.loads(line)
            except ValueError:
                continue  # the line that was being written when it was stopped
            self._known[asked] = _Answer(text, finish, usage)

    def find(self, body: Mapping[str, Any]) -> _Answer | None:
        return self._known.get(_digest(body))

    def keep(self, body: Mapping[str, Any], answer: _Answer) -> None:
        with self._file.open("a") as file:
            file.write(f"\n{json.dumps([_digest(body), answer.text, answer.finish, answer.usage])}")


def text_chat() -> Chat:
    """Conversations as bytes between marks, with tools and calls: any can be read back from its ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: id for id, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    marks = [f"<|{name}|>" for name in (*_ROLES, "tools", "end")]
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    return Chat(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=_TEMPLATE))


def read(ids: Sequence[int], chat: Chat) -> tuple[list[Message], list[dict[str, Any]]]:
    """The conversation that ids of `text_chat` spell, and its tools."""
    messages: list[Message] = []
    tools: list[dict[str, Any]] = []
    for name, text in _parts(ids, chat):
        if name == "tools":
            tools = json.loads(text)
        elif name == "tool":
            call, _, content = text.partition("\n")
            messages.append(Message(name, content, call=call))
        elif name == "assistant" and tools:
            messages.append(Message(name, text, chat.tool_format.calls(text, tools)))
        else:
            messages.append(Message(name, text))
    return messages, tools


def _parts(ids: Sequence[int], chat: Chat) -> Iterator[tuple[str, str]]:
    """What stands between a mark and the end mark, with the mark's name."""
    marks = {chat.tokenizer.convert_tokens_to_ids(f"<|{name}|>"): name for name in (*_ROLES, "tools")}
    begin = 0
    for position, id in enumerate(ids):
        if id in marks:
            name, begin = marks[id], position + 1
        elif id == chat.end_id:
            yield name, chat.decode(ids[begin:position])


def _as_json(message: Message) -> dict[str, Any]:
    """A message in the API's words."""
    found: dict[str, Any] = {"role": message.role, "content": message.words}
    if message.calls:
        found["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.call
    return found


def _answer(found: Any) -> _Answer | None:
    """A chat completion, calls as text; None if it is none."""
    try:
        choice = found["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text") or "" for part in content)
        calls = [_spelled(call["function"]) for call in message.get("tool_calls") or ()]
        usage = found.get("usage") or {}
        counts = {name: int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")}
        text = "\n".join(filter(None, (str(content), *calls)))
        return _Answer(text, "length" if choice.get("finish_reason") == "length" else "stop", counts)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None


def _spelled(function: Mapping[str, Any]) -> str:
    """A call as the template writes calls. Arguments that are no JSON stay text, and the whole is then no call."""
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        arguments = function["arguments"]
    spelled = json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{spelled}\n</tool_call>"


def _error(found: Any) -> str:
    """The sentence in an error."""
    error = found.get("error", found) if isinstance(found, dict) else None
    said = error.get("message") if isinstance(error, dict) else error
    return str(said)[:300] if said else ""


def _seconds(retry_after: str | None) -> float:
    """What a Retry-After header asks for; 0 without one, or where it is a date."""
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:
        return 0.0


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()
