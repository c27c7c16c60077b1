"""OpenAI's chat completions: `POST /v1/chat/completions`."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from longloop.gateway import fields
from longloop.gateway.request import Body, Event, Piece, Refused, Reply, Request
from longloop.types import Call, Message

_FINISH = {"stop": "stop", "length": "length", "calls": "tool_calls"}
_ROLES = {"developer": "system", "function": "tool"}
"""Roles with another name in chat templates."""


class ChatCompletions:
    path = "/v1/chat/completions"

    def read(self, body: Body, earlier: Mapping[str, Sequence[Message]]) -> Request:
        fields.need(
            body.get("n") in (None, 1), "n must be 1: each call gets one answer of the policy. Call several times."
        )
        fields.need(not body.get("logprobs"), "logprobs are not returned.")
        form = body.get("response_format") or {}
        fields.need(
            isinstance(form, dict) and form.get("type", "text") == "text",
            "response_format must be text: the policy is sampled without a grammar. Ask for the format in the prompt.",
        )
        messages = tuple(_message(one, number) for number, one in enumerate(fields.list_of(body, "messages")))
        fields.need(messages, "messages must hold at least one message.")
        tools = []
        for one in fields.list_of(body, "tools"):
            function = one.get("function") if isinstance(one, dict) else None
            fields.need(isinstance(function, dict), "A tool must be a function, with its schema in `function`.")
            assert isinstance(function, dict)
            tools.append(fields.tool(function.get("name"), function.get("description"), function.get("parameters")))
        return Request(
            messages,
            tuple(tools),
            fields.stops(body.get("stop")),
            fields.limit(body.get("max_completion_tokens"), body.get("max_tokens")),
            fields.may_call(body.get("tool_choice")),
            **fields.sampling(body),
        )

    def whole(self, reply: Reply, body: Body) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.message.content or None, "refusal": None}
        if reply.message.calls:
            message["tool_calls"] = [_function(call) for call in reply.message.calls]
        else:
            message["content"] = reply.message.content
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.finish]}
        return _head(reply.id, body, "chat.completion") | {"choices": [choice], "usage": _usage(reply)}

    async def events(self, pieces: AsyncIterator[Piece], body: Body) -> AsyncIterator[Event]:
        head: dict[str, Any] = {}

        def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return "", head | {"choices": [choice]}

        async for piece in pieces:
            if not head:
                head = _head(piece.id, body, "chat.completion.chunk")
                yield chunk({"role": "assistant", "content": ""})
            if piece.text:
                yield chunk({"content": piece.text})
            if reply := piece.reply:
                for index, call in enumerate(reply.message.calls):
                    yield chunk({"tool_calls": [{"index": index} | _function(call)]})
                yield chunk({}, _FINISH[reply.finish])
                options = body.get("stream_options")
                if isinstance(options, dict) and options.get("include_usage"):
                    yield "", head | {"choices": [], "usage": _usage(reply)}
                yield "", "[DONE]"

    def refusal(self, refused: Refused) -> dict[str, Any]:
        return {
            "error": {
                "message": str(refused),
                "type": "invalid_request_error" if refused.status < 500 else "server_error",
                "param": None,
                "code": refused.code,
            }
        }


def _message(value: Any, number: int) -> Message:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        raise Refused(400, f"messages[{number}] must be an object with a role.")
    role: str = value["role"]
    content = value.get("content")
    text = content if isinstance(content, str) else fields.text_of(content, f"messages[{number}]")
    calls = tuple(_call(call, number) for call in fields.list_of(value, "tool_calls")) if "tool_calls" in value else ()
    return Message(_ROLES.get(role, role), text, calls, str(value.get("tool_call_id") or ""))


def _call(value: Any, number: int) -> Call:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refused(400, f"A tool call of messages[{number}] must be a function with a name.")
    return Call(str(value.get("id") or ""), function["name"], str(function.get("arguments") or "{}"))


def _function(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _head(id: str, body: Body, kind: str) -> dict[str, Any]:
    model = str(body.get("model") or "policy")
    return {"id": f"chatcmpl-{id}", "object": kind, "created": int(time.time()), "model": model}


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.tokens,
        "total_tokens": reply.prompt_tokens + reply.tokens,
    }
