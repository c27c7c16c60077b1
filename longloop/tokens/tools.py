"""How models of the common families call tools, as data: what a call looks like in their text, and how it is read.

The sampled ids stay as they are; what is read here is for the environment. Reading never raises: a call that does not
parse is what the model said, a text like any other, and the environment may tell the model so.

A tokenizer that says itself how its model's answers are read (transformers' `response_template`) is asked first. The
template's text tells the other formats apart. A template that knows no tools gets them spelled out in the system
message, with the fallback: a call is a fenced block of JSON.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from longloop.types import Call, Message

Tools = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class ToolFormat:
    """A family's way to call tools."""

    name: str
    sign: str
    """What the templates of the family, and of no family before it, have in their text: a regular expression."""
    block: str
    """A call in an answer. The groups are `json` (an object with a name and arguments, or a list of such), or `name`
    and `arguments` (a JSON object), or `name` and `body`."""
    argument: str = ""
    """An argument in a `body`: groups `key` and `value`."""
    marks: tuple[str, ...] = ()
    """Special tokens that belong to a call. Others are left out of an answer's text."""
    in_template: bool = True
    """Whether the chat template takes tools."""
    read: Callable[[str, Tools], Sequence[Call]] | None = None
    """The tokenizer's own way to read an answer, in place of the above."""

    def calls(self, text: str, tools: Tools) -> tuple[Call, ...]:
        """The calls in an answer that can be read."""
        if self.read is not None:
            return tuple(self.read(text, tools))
        found: list[Call] = []
        for match in re.finditer(self.block, text, re.DOTALL):
            read = [*self._read(match.groupdict(), tools)]
            texts = [match[0], *[""] * (len(read) - 1)]  # one block may hold several calls: the first has its text
            for (name, arguments), said in zip(read, texts, strict=False):
                found.append(_call(len(found), name, arguments, said))
        return tuple(found)

    def _read(self, groups: Mapping[str, str | None], tools: Tools) -> Iterator[tuple[str, Any]]:
        """The name and the arguments of each call in a block; none if any of it does not parse."""
        name = groups.get("name")
        if name is not None and groups.get("body") is not None:
            pairs = re.finditer(self.argument, groups["body"] or "", re.DOTALL)
            yield name, {p["key"].strip(): _typed(p["value"], p["key"].strip(), name, tools) for p in pairs}
            return
        value = _parsed(groups.get("json") or groups.get("arguments") or "")
        found = [{"name": name, "arguments": value}] if name is not None else value
        calls = [_named(one) for one in (found if isinstance(found, list) else [found])]
        if all(call is not None for call in calls):
            yield from (call for call in calls if call is not None)


_OBJECT = r"(?P<json>\{.*?\})"
FORMATS = (
    ToolFormat(
        "glm",
        sign=r"<arg_key>",
        block=r"<tool_call>\s*(?P<name>[\w.-]+)(?P<body>.*?)</tool_call>",
        argument=r"<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
    ),
    ToolFormat(
        "qwen-xml",
        sign=r"<function=",
        block=r"<tool_call>\s*<function=(?P<name>[^>\s]+)>(?P<body>.*?)</function>\s*</tool_call>",
        argument=r"<parameter=(?P<key>[^>\s]+)>\n?(?P<value>.*?)\n?</parameter>",
    ),
    ToolFormat("hermes", sign=r"<tool_call>", block=rf"<tool_call>\s*{_OBJECT}\s*</tool_call>"),
    ToolFormat(
        "mistral-named",
        sign=r"\[ARGS\]",
        block=r"\[TOOL_CALLS\]\s*(?P<name>[\w.-]+)(?:\[CALL_ID\]\w+)?\[ARGS\]\s*(?P<arguments>\{.*?\})\s*(?=\[TOOL_CALLS\]|\Z)",
        marks=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    ),
    ToolFormat(
        "mistral", sign=r"\[TOOL_CALLS\]", block=r"\[TOOL_CALLS\]\s*(?P<json>\[.*\])\s*\Z", marks=("[TOOL_CALLS]",)
    ),
    ToolFormat(
        "llama3",
        sign=r"python_tag|ipython",
        block=r"\A\s*(?:<\|python_tag\|>)?\s*(?P<json>\{.*\})\s*(?:<\|eom_id\|>)?\s*\Z",
        marks=("<|python_tag|>",),
    ),
)
"""Looked through in this order: the first whose sign a template has."""

FENCED = ToolFormat(
    "fenced", sign=r"", block=rf"```(?:json|tool_call)?[ \t]*\n\s*{_OBJECT}\s*\n?```", in_template=False
)
"""The fallback, which any model can be told."""

_INSTRUCTION = """\
You can call these tools:
{tools}
To call one, write a fenced block with its name and arguments, and nothing after it:
```json
{{"name": "...", "arguments": {{...}}}}
```"""


def format_of(tokenizer: Any) -> ToolFormat:
    """How the model of a tokenizer calls tools."""
    template = tokenizer.chat_template
    written = template if isinstance(template, str) else "".join((template or {}).values())
    if not re.search(r"\btools\b", written):
        return FENCED
    if getattr(tokenizer, "response_template", None):
        return ToolFormat(
            "tokenizer", sign="", block="", read=lambda text, tools: _by_tokenizer(tokenizer, text, tools)
        )
    return next((one for one in FORMATS if re.search(one.sign, written)), replace(FENCED, in_template=True))


def as_function(call: Call) -> dict[str, Any]:
    """A call as chat templates take it, its arguments as an object if they are one."""
    return {"name": call.name, "arguments": _parsed(call.arguments) or {}}


def spelled_out(messages: Sequence[Message], tools: Tools, format: ToolFormat) -> list[Message]:
    """A conversation for a template that knows no tools: described in the system message, their answers by the user."""
    described = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    instruction = _INSTRUCTION.format(tools=described)
    spelled = [Message("system", instruction)]
    if messages and messages[0].role == "system":
        spelled = [Message("system", f"{messages[0].content}\n\n{instruction}")]
        messages = messages[1:]
    before = ""
    for message in messages:
        if message.role == "tool" and before == "tool":  # answers to one action are one message of the user's
            spelled[-1] = replace(spelled[-1], content=f"{spelled[-1].content}\n\n{message.content}")
        elif message.role == "tool":
            spelled.append(Message("user", message.content))
        elif message.calls and not message.calls[0].text:
            blocks = [f"```json\n{json.dumps(as_function(call), ensure_ascii=False)}\n```" for call in message.calls]
            spelled.append(Message(message.role, "\n".join(filter(None, (message.content, *blocks)))))
        else:
            spelled.append(Message(message.role, message.content))
        before = message.role
    return spelled


def _by_tokenizer(tokenizer: Any, text: str, tools: Tools) -> list[Call]:
    """The calls as the tokenizer reads them."""
    try:
        parsed = tokenizer.parse_response(text, prefix="", tools=list(tools))
        named = [_named(call.get("function", call)) for call in parsed.get("tool_calls") or ()]
    except Exception:  # it reads what a model wrote, and may fail in any way
        return []
    said = str(parsed.get("content") or "")
    markup = text.replace(said, "", 1) if said.strip() else text
    found = [call for call in named if call is not None]
    return [_call(number, *call, "" if number else markup) for number, call in enumerate(found)]


def _call(number: int, name: str, arguments: Any, text: str) -> Call:
    """A call with an id of nine letters and digits, which is what the strictest templates take."""
    said = json.dumps(arguments, ensure_ascii=False)
    id = hashlib.blake2b(f"{number} {name} {said}".encode(errors="replace"), digest_size=8).hexdigest()[:9]
    return Call(id, name, said, text)


def _named(value: Any) -> tuple[str, Any] | None:
    """The name and the arguments of a call, or None if it is no call."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    arguments = _parsed(arguments) if isinstance(arguments, str) else arguments
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _typed(text: str, key: str, name: str, tools: Tools) -> Any:
    """An argument that was written without quotes: text where the tool's schema wants text, else what JSON makes of
    it."""
    function: dict[str, Any] = next((tool["function"] for tool in tools if tool["function"]["name"] == name), {})
    schema: Any = function
    for part in ("parameters", "properties", key):
        schema = schema.get(part) if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or schema.get("type") == "string":
        return text
    value = _parsed(text.strip())
    return text if value is None and text.strip() != "null" else value
