"""The only caller of a chat template.

Turns messages into token ids such that
- special tokens come from the template alone: an environment's text that spells `<|im_end|>` stays text;
- a conversation that grows keeps its earlier ids: `extension` returns only what is new, or None when the template
  rewrote what came before (then the caller starts a new sample).

It knows nothing of episodes; `transcript.py` keeps an episode's state.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

from tokenizers import AddedToken, Tokenizer

from longloop.tokens.tools import ToolFormat, as_function, format_of, spelled_out
from longloop.types import Message, UserError

# Unicode noncharacters, which no text may contain: they mark what must not be read as a special token.
_ESCAPE = "\ufdd0"
_EDGE = "\ufdd1"
# White space as the tokenizers library defines it: Python adds four control characters.
_SPACE = r"(?:(?![\x1c-\x1f])\s)*"
_NOT_TEXT = re.compile("[\ufdd0-\ufdd2\ud800-\udfff]")


class Chat:
    """Renders and encodes conversations with one tokenizer and its template."""

    def __init__(self, tokenizer: Any, end_ids: Sequence[int] = ()) -> None:
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise UserError(
                "This model's tokenizer has no fast (tokenizers library) version, which longloop needs to encode text "
                "with special tokens off. Convert it, or choose another model."
            )
        if not tokenizer.chat_template:
            raise UserError(
                "This model's tokenizer has no chat template. Use the instruct version of the model, or set "
                "`model.chat_template` to a file with one."
            )
        self.tokenizer = tokenizer
        self._more_end_ids = end_ids
        templates = tokenizer.chat_template
        written = templates if isinstance(templates, str) else "".join(templates.values())
        # Framing: the tokens that only the template may write. Other added tokens (runs of spaces, say) are just text.
        framing = {
            id: token
            for id, token in tokenizer.added_tokens_decoder.items()
            if token.special or (str(token).strip() and str(token) in written)
        }
        self._framing = {str(token): id for id, token in framing.items()}
        self._special = [str(token) for token in framing.values() if token.special]
        self._firsts = {token[0] for token in self._framing}
        self._split = _pattern(list(framing.values()))
        self._plain = _plain_tokenizer(tokenizer.backend_tokenizer, set(self._framing))
        for text, id in self._framing.items():
            if id in self.encode(self._escape(Message("user", text))):
                raise UserError(
                    f"This tokenizer reads {text!r} as a special token even in plain text, so an environment could "
                    "forge one. longloop cannot use it."
                )

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The ids that end an assistant's turn: the template's, the tokenizer's and the model's own."""
        ends = set(self._closing) | set(self._more_end_ids)
        if self.tokenizer.eos_token_id is not None:
            ends.add(self.tokenizer.eos_token_id)
        return frozenset(ends)

    @property
    def end_id(self) -> int:
        """The id that ends a turn which is written for the model: the template's, if it has one."""
        return self._closing[0] if self._closing else min(self.end_ids)

    @cached_property
    def _closing(self) -> list[int]:
        """The token with which the template closes an assistant's turn, if it is a single one."""
        mark = "MARK"
        text = self.render([Message("user", "x"), Message("assistant", mark)], generate=False)
        closing = self.encode(text[text.rindex(mark) + len(mark) :])
        return [id for id in closing[:1] if id in self._framing.values()]

    def render(self, messages: Sequence[Message], generate: bool = True, tools: Sequence[dict[str, Any]] = ()) -> str:
        """The conversation as text, special tokens inside messages escaped. `generate`: end where the agent acts.

        A call that the policy made stands there as the policy said it. A template that wants calls in a structure, and
        refuses the conversation without, gets them in one.
        """
        if tools and not self.tool_format.in_template:
            messages, tools = spelled_out(messages, tools, self.tool_format), ()
        try:
            return self._rendered(messages, generate, tools, structured=False)
        except Exception as error:  # templates raise whatever they like, jinja2's own errors among it
            if any(call.text for m in messages for call in m.calls):
                with contextlib.suppress(Exception):
                    return self._rendered(messages, generate, tools, structured=True)
            roles = ", ".join(m.role for m in messages)
            raise UserError(f"The chat template refused a conversation with the roles {roles}: {error}") from error

    def _rendered(
        self, messages: Sequence[Message], generate: bool, tools: Sequence[dict[str, Any]], structured: bool
    ) -> str:
        turns = [self._turn(message, structured) for message in messages]
        given = {"tools": self._escape_all(list(tools))} if tools else {}
        return self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=generate, **given)

    def _turn(self, message: Message, structured: bool) -> dict[str, Any]:
        """A message as chat templates take it."""
        turn: dict[str, Any] = {"role": message.role, "content": self._escape(message)}
        if message.calls and (structured or not message.calls[0].text):
            turn["content"] = self._escape(Message("assistant", message.words))
            turn["tool_calls"] = [
                {"type": "function", "id": call.id, "function": self._escape_all(as_function(call))}
                for call in message.calls
            ]
        if message.call:
            turn["tool_call_id"] = message.call
        return turn

    def encode(self, rendered: str) -> tuple[int, ...]:
        """Rendered text to ids: special tokens where the template put them, plain text everywhere else.

        Pass only what `render` returned: in any other text, a spelled-out special token becomes one.
        """
        ids: list[int] = []
        end = 0
        for match in self._split.finditer(rendered):
            ids += self._encode_plain(rendered[end : match.start()])
            ids.append(self._framing[match.group(match.lastindex or 0)])
            end = match.end()
        return (*ids, *self._encode_plain(rendered[end:]))

    def action_ids(self, action: str | Message) -> tuple[int, ...]:
        """The ids of a whole turn with this text: an expert's, a stored or a scripted one.

        A special token spelled out in the text stays text, as in `render`; only the end of the turn is one, and what
        marks the calls of a message that has some.
        """
        said = Message("assistant", action) if isinstance(action, str) else action
        return (*self.encode(self._escape(said)), self.end_id)

    def extension(self, before: str, action: Message, after: str, ended: bool) -> str | None:
        """What `after` (the rendering with the action and what followed) adds to `before` and the action itself.

        None when `after` does not begin with both: the template rewrote history. White space around the action does
        not count as rewriting: the sampled ids stand as they are, whatever the template would trim. `ended`: the model
        closed its turn itself, so the template's closing is not added again.
        """
        if not after.startswith(before):
            return None
        text = self._escape(action)
        rest = after[len(before) :]
        if not rest.startswith(text):
            rest, text = rest.lstrip(), text.strip()
        if not rest.startswith(text):
            return None
        rest = rest[len(text) :]
        closing = self._split.match(rest.lstrip())
        if ended and closing and self._framing[closing.group(closing.lastindex or 0)] in self.end_ids:
            return rest.lstrip()[closing.end() :]
        return rest

    def decode(self, ids: Sequence[int]) -> str:
        """Sampled ids as text for people and environments."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def message(self, ids: Sequence[int], tools: Sequence[dict[str, Any]] = ()) -> Message:
        """The message that sampled ids spell, with the calls of tools that can be read from it."""
        text = self.decode(ids)
        if not tools:
            return Message("assistant", text)
        marks = self._call_marks
        if marks.intersection(ids):  # special tokens, which decode() leaves out, and by which calls are known
            parts = groupby(ids, key=lambda id: id in marks)
            text = "".join(
                self.tokenizer.decode(list(part)) if mark else self.decode(list(part)) for mark, part in parts
            )
        return Message("assistant", text, self.tool_format.calls(text, tools))

    def spell(
        self, messages: Sequence[Message], action: Message, tools: Sequence[dict[str, Any]]
    ) -> tuple[int, ...] | None:
        """The ids of a turn with an action's words and calls, as the template writes it after these messages; None
        where that cannot be seen."""
        before = self.render(messages, tools=tools)
        told = Message("assistant", action.words, tuple(replace(call, text="") for call in action.calls))
        after = self.render([*messages, told], generate=False, tools=tools)
        if not after.startswith(before):
            return None
        ids = self.encode(after[len(before) :])
        end = next((at for at, id in enumerate(ids) if id in self.end_ids), len(ids))
        return (*ids[:end], self.end_id)

    @cached_property
    def tool_format(self) -> ToolFormat:
        """How the model calls tools."""
        return format_of(self.tokenizer)

    @cached_property
    def _call_marks(self) -> frozenset[int]:
        return frozenset(id for text, id in self._framing.items() if text in self.tool_format.marks)

    def _escape(self, message: Message) -> str:
        if message.role != "assistant":
            return self._escaped(message.content, self._framing)
        if not message.calls:
            return self._escaped(message.content, self._special)
        return self._escaped(message.content, [one for one in self._special if one not in self.tool_format.marks])

    def _escape_all(self, value: Any) -> Any:
        """JSON values with every text in them escaped."""
        if isinstance(value, str):
            return self._escaped(value, self._framing)
        if isinstance(value, dict):
            return {self._escape_all(key): self._escape_all(one) for key, one in value.items()}
        return [self._escape_all(one) for one in value] if isinstance(value, list | tuple) else value

    def _escaped(self, text: str, tokens: Iterable[str]) -> str:
        # A conversation is rendered anew at every turn, and most of its texts have nothing to escape: see that fast.
        if not text.isascii():
            text = _NOT_TEXT.sub("\ufffd", text)
        if any(first in text for first in self._firsts):
            for token in tokens:
                if token in text:
                    text = text.replace(token, token[0] + _ESCAPE + token[1:])
        return text

    @cached_property
    def _encode_plain(self) -> Callable[[str], tuple[int, ...]]:
        @lru_cache(maxsize=1024)  # openings, and what the template writes around every message, come again and again
        def encode(text: str) -> tuple[int, ...]:
            # The edge token in front tells tokenizers that add a space to the start of a text that this is not one.
            text = text.replace(_ESCAPE, "")
            return tuple(self._plain.encode(_EDGE + text, add_special_tokens=False).ids[1:]) if text else ()

        return encode


def _pattern(tokens: Sequence[AddedToken]) -> re.Pattern[str]:
    """Matches any of the tokens, the longest first, with the white space that belongs to it."""
    longest_first = sorted(tokens, key=lambda token: -len(str(token)))
    parts = [
        (_SPACE if token.lstrip else "") + f"({re.escape(str(token))})" + (_SPACE if token.rstrip else "")
        for token in longest_first
    ]
    firsts = {re.escape(str(token)[0]) for token in tokens} | {r"\s" for token in tokens if token.lstrip}
    # Looking at one character first is thirty times faster than trying all of them everywhere.
    return re.compile(f"(?=[{''.join(sorted(firsts))}])(?:{'|'.join(parts)})" if parts else "(?!)")


def _plain_tokenizer(tokenizer: Tokenizer, framing: set[str]) -> Tokenizer:
    """A copy that cannot produce a framing token, and gives everything else the same id."""
    spec = json.loads(tokenizer.to_str())
    vocabulary = spec["model"]["vocab"]
    known = set(vocabulary) if isinstance(vocabulary, dict) else {piece for piece, _ in vocabulary}
    # Tokens outside the model's vocabulary are numbered by their position here, so those keep it under a spelling that
    # no text contains; the others can simply be left out.
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] not in framing & known]
    for number, token in enumerate(spec["added_tokens"]):
        if token["content"] in framing:
            token["content"] = f"\ufdd2{number}\ufdd2"
    spec["post_processor"] = None
    spec["truncation"] = spec["padding"] = None
    plain = Tokenizer.from_str(json.dumps(spec))
    plain.add_special_tokens([AddedToken(_EDGE, special=True, normalized=False)])
    return plain
