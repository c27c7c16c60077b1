"""OpenAI's Responses: `POST /v1/responses`."""

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from longloop.gateway import fields
from longloop.gateway.request import Body, Event, Piece, Refused, Reply, Request
from longloop.types import Call, Message

_ID = "resp_"


class Responses:
    path = "/v1/responses"

    def read(self, body: Body, earlier: Mapping[str, Sequence[Message]]) -> Request:
        form = (body.get("text") or {}).get("format") or {} if isinstance(body.get("text") or {}, dict) else {}
        fields.need(
            isinstance(form, dict) and form.get("type", "text") == "text",
            "text.format must be text: the policy is sampled without a grammar. Ask for the format in the prompt.",
        )
        fields.need(not body.get("background"), "background is not supported: wait for the answer.")
        logprobs = body.get("top_logprobs") or "message.output_text.logprobs" in fields.list_of(body, "include")
        fields.need(not logprobs, "logprobs are not returned: leave out top_logprobs and message.output_text.logprobs.")
        instructions = fields.text_of(body.get("instructions"), "instructions")
        messages = [Message("system", instructions)] if instructions else []
        own = len(messages)
        if before := body.get("previous_response_id"):
            known = earlier.get(str(before).removeprefix(_ID))
            fields.need(known is not None, f"There is no response {before!r} here, or it is too long ago.")
            messages += known or ()
        messages += _input(body.get("input"))
        fields.need(messages, "input must hold at least one message.")
        tools = []
        for one in fields.list_of(body, "tools"):
            fields.need(
                isinstance(one, dict) and one.get("type") == "function",
                "A tool must be a function: the provider's own tools (search, files, code) do not exist here.",
            )
            tools.append(fields.tool(one.get("name"), one.get("description"), one.get("parameters")))
        calls = fields.may_call(body.get("tool_choice"))
        most = fields.limit(body.get("max_output_tokens"))
        return Request(tuple(messages), tuple(tools), (), most, calls, instructions=own, **fields.sampling(body))

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
            "tools": fields.list_of(body, "tools"),
            "top_p": body.get("top_p"),
            "usage": {
                "input_tokens": reply.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": reply.tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": reply.prompt_tokens + reply.tokens,
            },
        }

    async def events(self, pieces: AsyncIterator[Piece], body: Body) -> AsyncIterator[Event]:
        number = 0
        async for kind, content in self._events(pieces, body):
            yield kind, {"type": kind, "sequence_number": number} | content
            number += 1

    async def _events(self, pieces: AsyncIterator[Piece], body: Body) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        begun = spoken = False
        async for piece in pieces:
            at = {"item_id": f"msg_{piece.id}", "output_index": 0, "content_index": 0}
            if not begun:
                begun = True
                empty = self.whole(Reply(piece.id, Message("assistant", ""), "stop", 0, 0), body)
                empty |= {"status": "in_progress", "output": [], "usage": None}
                yield "response.created", {"response": empty}
                yield "response.in_progress", {"response": empty}
            if piece.text and not spoken:
                spoken = True
                item = _spoken(piece.id, "") | {"content": [], "status": "in_progress"}
                yield "response.output_item.added", {"output_index": 0, "item": item}
                yield "response.content_part.added", at | {"part": _part("")}
            if piece.text:
                yield "response.output_text.delta", at | {"delta": piece.text, "logprobs": []}
            if piece.reply is not None:
                whole = self.whole(piece.reply, body)
                for index, item in enumerate(whole["output"]):
                    for event in _said(at, item) if item["type"] == "message" else _called(index, item):
                        yield event
                ended = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
                yield ended, {"response": whole}

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
    fields.need(isinstance(value, list), "input must be text or a list of items.")
    said: Message | None = None
    for number, item in enumerate(value):
        where = f"input[{number}]"
        fields.need(isinstance(item, dict), f"{where} must be an object.")
        kind = item.get("type", "message")
        if kind == "function_call":
            call = Call(str(item.get("call_id") or ""), str(item.get("name") or ""), str(item.get("arguments") or "{}"))
            said = Message("assistant", said.content if said else "", (*(said.calls if said else ()), call))
            continue
        if kind == "message" and item.get("role") == "assistant" and said is None:
            said = Message("assistant", fields.text_of(item.get("content"), where))
            continue
        if kind == "reasoning":
            continue
        if said is not None:
            yield said
            said = None
        if kind == "function_call_output":
            output = item.get("output")
            content = output if isinstance(output, str) else fields.text_of(output, where)
            yield Message("tool", content, call=str(item.get("call_id") or ""))
            continue
        fields.need(kind == "message", f"{where} is of the type {kind!r}, which the policy cannot read.")
        role = str(item.get("role") or "user")
        yield Message("system" if role == "developer" else role, fields.text_of(item.get("content"), where))
    if said is not None:
        yield said


def _output(reply: Reply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.message.content or not reply.message.calls:
        items.append(_spoken(reply.id, reply.message.content))
    for number, call in enumerate(reply.message.calls):
        called = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append({"id": f"fc_{reply.id}{number}", "type": "function_call", **called})
    return [item | {"status": "completed"} for item in items]


def _spoken(id: str, text: str) -> dict[str, Any]:
    return {"id": f"msg_{id}", "type": "message", "role": "assistant", "content": [_part(text)]}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _said(at: dict[str, Any], item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The end of a text, whose parts have been sent."""
    (part,) = item["content"]
    if part["text"]:
        yield "response.output_text.done", at | {"text": part["text"], "logprobs": []}
        yield "response.content_part.done", at | {"part": part}
        yield "response.output_item.done", {"output_index": 0, "item": item}


def _called(index: int, item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A call, which is sent in one piece."""
    at = {"item_id": item["id"], "output_index": index}
    yield (
        "response.output_item.added",
        {"output_index": index, "item": item | {"arguments": "", "status": "in_progress"}},
    )
    yield "response.function_call_arguments.delta", at | {"delta": item["arguments"]}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield "response.function_call_arguments.done", at | done
    yield "response.output_item.done", {"output_index": index, "item": item}
