"""OpenAI's Responses: `POST /v1/responses`."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longloop.gateway.request import (
    Body,
    Refused,
    Reply,
    Request,
    limit,
    list_of,
    may_call,
    need,
    text_of,
    tool,
)
from longloop.types import Call, Message

_ID = "resp_"


class Responses:
    path = "/v1/responses"

    def read(self, body: Body, earlier: Mapping[str, Sequence[Message]]) -> Request:
        form = (body.get("text") or {}).get("format") or {} if isinstance(body.get("text") or {}, dict) else {}
        need(
            isinstance(form, dict) and form.get("type", "text") == "text",
            "text.format must be text: a grammar changes the distribution that the policy is trained on. Ask for the "
            "format in the prompt.",
        )
        need(not body.get("background"), "background is not supported: an attempt lasts as long as its agent.")
        messages: list[Message] = []
        if instructions := text_of(body.get("instructions"), "instructions"):
            messages.append(Message("system", instructions))
        if before := body.get("previous_response_id"):
            known = earlier.get(str(before).removeprefix(_ID))
            need(known is not None, f"There is no response {before!r} in this attempt.")
            skip = 1 if messages and known and known[0].role == "system" else 0  # instructions are not carried over
            messages += (known or ())[skip:]
        messages += _input(body.get("input"))
        need(messages, "input must hold at least one message.")
        tools = []
        for one in list_of(body, "tools"):
            need(
                isinstance(one, dict) and one.get("type") == "function",
                "A tool must be a function: the provider's own tools (search, files, code) do not exist here.",
            )
            tools.append(tool(one.get("name"), one.get("description"), one.get("parameters")))
        calls = may_call(body.get("tool_choice"))
        return Request(tuple(messages), tuple(tools), (), limit(body.get("max_output_tokens")), calls)

    def whole(self, reply: Reply, body: Body) -> dict[str, Any]:
        cut = reply.finish == "length"
        return {
            "id": f"{_ID}{reply.id}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "model": str(body.get("model") or "policy"),
            "output": _output(reply),
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "temperature": body.get("temperature"),
            "tool_choice": "auto",
            "tools": list_of(body, "tools"),
            "top_p": body.get("top_p"),
            "usage": {
                "input_tokens": reply.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": reply.tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.prompt_tokens + reply.tokens,
            },
        }

    def events(self, reply: Reply, body: Body) -> Iterator[tuple[str, dict[str, Any] | str]]:
        whole = self.whole(reply, body)
        for number, (kind, content) in enumerate(_events(whole)):
            yield kind, {"type": kind, "sequence_number": number} | content

    def refusal(self, refused: Refused) -> dict[str, Any]:
        return {
            "error": {"message": str(refused), "type": "invalid_request_error", "param": None, "code": refused.code}
        }


def _input(value: Any) -> Iterator[Message]:
    """The messages of a request's input: a text, or items. Calls that follow one another are one message."""
    if value is None or isinstance(value, str):
        if value:
            yield Message("user", value)
        return
    need(isinstance(value, list), "input must be text or a list of items.")
    said: Message | None = None
    for number, item in enumerate(value):
        where = f"input[{number}]"
        need(isinstance(item, dict), f"{where} must be an object.")
        kind = item.get("type", "message")
        if kind == "function_call":
            call = Call(str(item.get("call_id") or ""), str(item.get("name") or ""), str(item.get("arguments") or "{}"))
            said = Message("assistant", said.content if said else "", (*(said.calls if said else ()), call))
            continue
        if kind == "message" and item.get("role") == "assistant" and said is None:
            said = Message("assistant", text_of(item.get("content"), where))
            continue
        if kind == "reasoning":
            continue
        if said is not None:
            yield said
            said = None
        if kind == "function_call_output":
            output = item.get("output")
            content = output if isinstance(output, str) else text_of(output, where)
            yield Message("tool", content, call=str(item.get("call_id") or ""))
            continue
        need(kind == "message", f"{where} is of the type {kind!r}, which the policy cannot read.")
        role = str(item.get("role") or "user")
        yield Message("system" if role == "developer" else role, text_of(item.get("content"), where))
    if said is not None:
        yield said


def _output(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.message.content or not reply.message.calls:
        part = {"type": "output_text", "text": reply.message.content, "annotations": []}
        items.append({"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "content": [part]})
    for number, call in enumerate(reply.message.calls):
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"id": f"fc_{reply.id}{number}", "type": "function_call", **called})
    return [item | {"status": "completed"} for item in items]


def _events(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": index}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        started = json.loads(json.dumps(item)) | empty | {"status": "in_progress"}
        yield "response.output_item.added", {"output_index": index, "item": started}
        if item["type"] == "message":
            part = item["content"][0]
            inside = at | {"content_index": 0}
            yield "response.content_part.added", inside | {"part": part | {"text": ""}}
            yield "response.output_text.delta", inside | {"delta": part["text"], "logprobs": []}
            yield "response.output_text.done", inside | {"text": part["text"], "logprobs": []}
            yield "response.content_part.done", inside | {"part": part}
        else:
            yield "response.function_call_arguments.delta", at | {"delta": item["arguments"]}
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", at | done
        yield "response.output_item.done", {"output_index": index, "item": item}
    ended = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    yield ended, {"response": whole}
