"""The only caller of a chat template.

Turns messages into token ids such that
- special tokens come from the template alone: an environment's text that spells `<|im_end|>` stays text;
- a conversation that grows keeps its earlier ids: `extension` returns only what is new, or None when the template
  rewrote what came before (then the caller starts a new sample).

It knows nothing of episodes; `transcript.py` keeps an episode's state.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from tokenizers import AddedToken, Tokenizer

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

    def render(self, messages: Sequence[Message], generate: bool = True) -> str:
        """The conversation as text, special tokens inside messages escaped. `generate`: end where the agent acts."""
        turns = [{"role": m.role, "content": self._escape(m)} for m in messages]
        try:
            return self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=generate)
        except Exception as error:  # templates raise whatever they like, jinja2's own errors among it
            roles = ", ".join(m.role for m in messages)
            raise UserError(f"The chat template refused a conversation with the roles {roles}: {error}") from error

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

    def action_ids(self, text: str) -> tuple[int, ...]:
        """The ids of a whole turn with this text: an expert's, a stored or a scripted one.

        A special token spelled out in the text stays text, as in `render`; only the end of the turn is one.
        """
        return (*self.encode(self._escape(Message("assistant", text))), self.end_id)

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

    def _escape(self, message: Message) -> str:
        text = _NOT_TEXT.sub("\ufffd", message.content)
        tokens = self._special if message.role == "assistant" else self._framing
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
