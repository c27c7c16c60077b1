"""Anthropic's messages: `POST /v1/messages`."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from longloop.gateway import fields
from longloop.gateway.request import Body, Event, Piece, Refused, Reply, Request
from longloop.types import Call, Message

_FINISH = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}
_ERRORS = {401: "authentication_error", 403: "permission_error", 413: "request_too_large", 429: "rate_limit_error"}


class AnthropicMessages:
    path = "/v1/messages"

    def read(self, body: Body, earlier: Mapping[str, Sequence[Message]]) -> Request:
        form = body.get("output_config") or {}
        fields.need(
            isinstance(form, dict) and not form.get("format") and not body.get("output_format"),
            "output_config.format is not supported: the policy is sampled without a grammar. Ask for the format in the "
            "prompt.",
        )
        messages: list[Message] = []
        if system := fields.text_of(body.get("system"), "system"):
            messages.append(Message("system", system))
        for number, one in enumerate(fields.list_of(body, "messages")):
            fields.need(
                isinstance(one, dict) and isinstance(one.get("role"), str), f"messages[{number}] must have a role."
            )
            messages += _messages(one["role"], one.get("content"), f"messages[{number}]")
        fields.need(messages, "messages must hold at least one message.")
        tools = []
        for one in fields.list_of(body, "tools"):
            fields.need(
                isinstance(one, dict) and "input_schema" in one,
                "A tool must have an input_schema: the provider's own tools do not exist here.",
            )
            tools.append(fields.tool(one.get("name"), one.get("description"), one.get("input_schema")))
        return Request(
            tuple(messages),
            tuple(tools),
            fields.stops(body.get("stop_sequences")),
            fields.limit(body.get("max_tokens")),
            fields.may_call(body.get("tool_choice")),
            **fields.sampling(body),
        )

    def whole(self, reply: Reply, body: Body) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if reply.message.content or not reply.message.calls:
            content.append({"type": "text", "text": reply.message.content})
        for call in reply.message.calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)})
        return {
            "id": f"msg_{reply.id}",
            "type": "message",
            "role": "assistant",
            "model": str(body.get("model") or "policy"),
            "content": content,
            "stop_reason": _FINISH[reply.finish],
            "stop_sequence": None,
            "usage": {"input_tokens": reply.prompt_tokens, "output_tokens": reply.tokens},
        }

    async def events(self, pieces: AsyncIterator[Piece], body: Body) -> AsyncIterator[Event]:
        begun = spoken = False
        async for piece in pieces:
            if not begun:
                begun = True
                yield _event("message_start", message=_begun(piece.id, body))
            if piece.text and not spoken:
                spoken = True
                yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            if piece.text:
                yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece.text})
            if piece.reply is None:
                continue
            if spoken:
                yield _event("content_block_stop", index=0)
            whole = self.whole(piece.reply, body)
            for index, block in enumerate(whole["content"]):
                if block["type"] == "tool_use":
                    arguments = json.dumps(block["input"], ensure_ascii=False)
                    delta = {"type": "input_json_delta", "partial_json": arguments}
                    yield _event("content_block_start", index=index, content_block=block | {"input": {}})
                    yield _event("content_block_delta", index=index, delta=delta)
                    yield _event("content_block_stop", index=index)
            ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
            yield _event("message_delta", delta=ended, usage=whole["usage"])
            yield _event("message_stop")

    def refusal(self, refused: Refused) -> dict[str, Any]:
        kind = _ERRORS.get(refused.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(refused)}}


def _messages(role: str, content: Any, where: str) -> Iterator[Message]:
    """A message, which may hold answers of tools, text, and calls of tools."""
    if content is None or isinstance(content, str):
        yield Message(role, content or "")
        return
    fields.need(isinstance(content, list), f"The content of {where} must be text or a list of blocks.")
    texts: list[Any] = []
    calls: list[Call] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            yield Message("tool", fields.text_of(block.get("content"), where), call=str(block.get("tool_use_id") or ""))
        elif kind == "tool_use":
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append(Call(str(block.get("id") or ""), str(block.get("name") or ""), arguments))
        elif kind not in ("thinking", "redacted_thinking"):
            texts.append(block)
    if texts or calls:
        yield Message(role, fields.text_of(texts, where), tuple(calls))


def _begun(id: str, body: Body) -> dict[str, Any]:
    """A message of which nothing has been said yet; its tokens are counted at its end."""
    head = {"id": f"msg_{id}", "type": "message", "role": "assistant", "model": str(body.get("model") or "policy")}
    usage = {"input_tokens": 0, "output_tokens": 0}
    return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _event(kind: str, **content: Any) -> Event:
    return kind, {"type": kind} | content
