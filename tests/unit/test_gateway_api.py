"""The endpoint over HTTP: three APIs in the words of their providers, keys, refusals, streams and retries."""

import asyncio
import http.client
import json
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from longloop.gateway.anthropic_messages import AnthropicMessages
from longloop.gateway.chat_completions import ChatCompletions
from longloop.gateway.request import Refused
from longloop.gateway.responses import Responses
from longloop.gateway.server import LOCAL, Server
from longloop.gateway.serving import Served
from longloop.tokens.chat import Chat
from longloop.types import Action, Call, Message, Sampled, SamplingParams, Step
from tests.support.gateway import events, listening, post, says, serving
from tests.support.templates import tokenizer

CHAT, RESPONSES, MESSAGES = ChatCompletions.path, Responses.path, AnthropicMessages.path
ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
CALL = Call("abcdefghi", "weather", '{"city": "Rome"}', text="CALL")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def calls_then_speaks(step: Step) -> Action:
    """Calls the tool, and when it has answered, repeats the answer."""
    if step.messages[-1].role == "tool":
        return Action("assistant", f"It says {step.messages[-1].content}.", (), "", "stop", 20, 5)
    return Action("assistant", "Let me see. CALL", (CALL,), "", "stop", 10, 4)


def test_a_chat_completion() -> None:
    seen: list[Step] = []

    def policy(step: Step) -> Action:
        seen.append(step)
        return Action("assistant", "hi there", (), "", "stop", 7, 3)

    body = ASK | {
        "messages": [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
        ],
        "stop": "END",
        "max_tokens": 9,
        "temperature": 0.1,
        "top_p": 0.5,
        "seed": 3,
    }
    with serving(policy) as (endpoint, session):
        status, reply = post(endpoint, CHAT, body, session.key)
    assert status == 200 and isinstance(reply, dict)
    assert reply["object"] == "chat.completion" and reply["model"] == "m"
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": "hi there", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert reply["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    (step,) = seen
    assert step.messages == (Message("system", "Be kind."), Message("user", "hello"))
    assert (step.stop, step.max_tokens, step.thread) == (("END",), 9, "")


def test_tools_by_chat_completions() -> None:
    tool = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}
    seen: list[Step] = []

    def policy(step: Step) -> Action:
        seen.append(step)
        return calls_then_speaks(step)

    with serving(policy) as (endpoint, session):
        _, reply = post(endpoint, CHAT, ASK | {"tools": [tool]}, session.key)
        message = reply["choices"][0]["message"]  # type: ignore[index]
        assert reply["choices"][0]["finish_reason"] == "tool_calls"  # type: ignore[index]
        assert message["content"] == "Let me see."
        assert message["tool_calls"] == [
            {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
        ]
        answer = {"role": "tool", "tool_call_id": "abcdefghi", "content": "sun"}
        body = ASK | {"tools": [tool], "messages": [*ASK["messages"], message, answer]}
        _, reply = post(endpoint, CHAT, body, session.key)
        assert reply["choices"][0]["message"]["content"] == "It says sun."  # type: ignore[index]
        _, plain = post(endpoint, CHAT, ASK | {"tools": [tool], "tool_choice": "none"}, session.key)
        assert plain["choices"][0]["message"]["content"] == "Let me see. CALL"  # type: ignore[index]
    assert seen[0].tools == (tool,)
    assert seen[1].messages == (Message("tool", "sun", call="abcdefghi"),), "the echoed call was recognized"


def test_a_streamed_chat_completion() -> None:
    tool = {"type": "function", "function": {"name": "weather"}}
    body = ASK | {"stream": True, "stream_options": {"include_usage": True}, "tools": [tool]}
    with serving(calls_then_speaks) as (endpoint, session):
        status, text = post(endpoint, CHAT, body, session.key)
    assert status == 200
    *chunks, last = [data for _, data in events(text)]
    assert last == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == "Let me see."
    assert [call["function"]["name"] for delta in deltas for call in delta.get("tool_calls", ())] == ["weather"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, None, "tool_calls"]
    assert chunks[-1]["usage"]["total_tokens"] == 14 and len({chunk["id"] for chunk in chunks}) == 1


def test_a_stream_shows_signs_of_life_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longloop.gateway.server._PING", 0.05)

    async def slow(step: Step) -> Message:
        await asyncio.sleep(3)
        return Message("assistant", "at last")

    with serving(slow) as (endpoint, session):
        _, text = post(endpoint, CHAT, ASK | {"stream": True}, session.key)
    assert str(text).startswith(": ping\n\n: ping\n\n") and "at last" in str(text)


def test_a_response() -> None:
    tool = {"type": "function", "name": "weather", "description": "d", "parameters": SCHEMA}
    body = {"model": "m", "instructions": "Be kind.", "input": "How is Rome?", "tools": [tool]}
    seen: list[Step] = []

    def policy(step: Step) -> Action:
        seen.append(step)
        return calls_then_speaks(step)

    with serving(policy) as (endpoint, session):
        _, first = post(endpoint, RESPONSES, body, session.key)
        assert isinstance(first, dict) and first["status"] == "completed"
        text, call = first["output"]
        assert text["content"][0]["text"] == "Let me see."
        assert (call["type"], call["call_id"], call["name"]) == ("function_call", "abcdefghi", "weather")
        output = {"type": "function_call_output", "call_id": "abcdefghi", "output": "sun"}
        again = body | {"input": [output], "previous_response_id": first["id"]}
        _, second = post(endpoint, RESPONSES, again, session.key)
        assert second["output"][0]["content"][0]["text"] == "It says sun."  # type: ignore[index]
        whole = [{"role": "user", "content": "How is Rome?"}, {"type": "reasoning", "summary": []}, text, call, output]
        third = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It says sun."}]}
        thanks = {"role": "user", "content": [{"type": "input_text", "text": "Thanks."}]}
        post(endpoint, RESPONSES, body | {"input": [*whole, third, thanks]}, session.key)
        status, error = post(endpoint, RESPONSES, body | {"previous_response_id": "resp_x"}, session.key)
        assert status == 400 and "resp_x" in error["error"]["message"]  # type: ignore[index]
    assert seen[0].messages == (Message("system", "Be kind."), Message("user", "How is Rome?"))
    assert seen[0].tools[0]["function"]["name"] == "weather"
    assert [step.thread for step in seen] == ["", "", ""], "by id or in full, it is the same conversation"
    assert [step.messages for step in seen[1:]] == [
        (Message("tool", "sun", call="abcdefghi"),),
        (Message("user", "Thanks."),),
    ]


CHAIN: list[dict[str, Any]] = [
    {"instructions": "Be kind.", "input": "one"},
    {"input": "two"},
    {"instructions": "Be stern.", "input": "three"},
    {"input": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "one"}]},
    {"instructions": "Be stern.", "input": "two"},
]
"""Calls that each go on from the one before, but for the fourth, which begins with a system message of its own."""
HEARD = [
    ["system: Be kind.", "user: one"],
    ["user: one", "assistant: ok", "user: two"],
    ["system: Be stern.", "user: one", "assistant: ok", "user: two", "assistant: ok", "user: three"],
    ["system: Be kind.", "user: one"],
    ["system: Be stern.", "system: Be kind.", "user: one", "assistant: ok", "user: two"],
]


def chained(where: Any, key: str | None = None) -> None:
    last: str | None = None
    for body in CHAIN:
        before = None if isinstance(body["input"], list) else last
        status, reply = post(where, RESPONSES, body | {"previous_response_id": before}, key)
        assert status == 200 and isinstance(reply, dict)
        last = reply["id"]


def test_earlier_instructions_are_not_carried_over_and_a_system_message_is() -> None:
    heard: list[list[str]] = []

    def policy(step: Step) -> Message:
        heard.append([f"{message.role}: {message.content}" for message in step.messages])
        return Message("assistant", "ok")

    with serving(policy) as (endpoint, session):
        chained(endpoint, session.key)
    assert heard == HEARD


def test_nor_are_they_by_a_policy_that_is_served() -> None:
    chat = Chat(tokenizer("chatml"))
    asked: list[Any] = []

    class Engine:
        async def sample(self, ids: Any, params: Any, *, session: str, watch: Any = None) -> Sampled:
            asked.append(tuple(ids))
            said = chat.action_ids("ok")
            return Sampled(np.array(said), np.zeros(len(said)), "stop")

        def forget(self, session: str) -> None: ...

        def release(self) -> None: ...

    with listening(Server(Served(Engine(), chat, SamplingParams(1.0), 50, 400).find, "mine", names=LOCAL)) as where:
        chained(where)
    said = [[line.split(": ") for line in lines] for lines in HEARD]
    heard = [chat.render([Message(role, text) for role, text in lines]) for lines in said]
    assert asked == [tuple(chat.encode(text)) for text in heard]


def test_a_streamed_response() -> None:
    with serving(calls_then_speaks) as (endpoint, session):
        _, text = post(endpoint, RESPONSES, {"input": "hello", "stream": True}, session.key)
    found = events(text)
    assert [kind for kind, _ in found] == [data["type"] for _, data in found]
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    assert found[0][0] == "response.created" and found[-1][0] == "response.completed"
    deltas = {kind: data["delta"] for kind, data in found if kind.endswith(".delta")}
    assert deltas == {
        "response.output_text.delta": "Let me see.",
        "response.function_call_arguments.delta": '{"city": "Rome"}',
    }


def test_anthropics_messages() -> None:
    tool = {"name": "weather", "description": "d", "input_schema": SCHEMA}
    body = {"model": "m", "max_tokens": 50, "system": "Be kind.", "messages": ASK["messages"], "tools": [tool]}
    seen: list[Step] = []

    def policy(step: Step) -> Action:
        seen.append(step)
        return calls_then_speaks(step)

    with serving(policy) as (endpoint, session):
        _, reply = post(endpoint, MESSAGES, body | {"stop_sequences": ["END"]}, **{"x-api-key": session.key})
        assert isinstance(reply, dict) and (reply["type"], reply["stop_reason"]) == ("message", "tool_use")
        text, use = reply["content"]
        assert text == {"type": "text", "text": "Let me see."}
        assert use == {"type": "tool_use", "id": "abcdefghi", "name": "weather", "input": {"city": "Rome"}}
        assert reply["usage"] == {"input_tokens": 10, "output_tokens": 4}
        result = {"type": "tool_result", "tool_use_id": "abcdefghi", "content": [{"type": "text", "text": "sun"}]}
        said = [*ASK["messages"], {"role": "assistant", "content": [text, use]}, {"role": "user", "content": [result]}]
        _, reply = post(endpoint, MESSAGES, body | {"messages": said}, session.key)
        assert reply["content"] == [{"type": "text", "text": "It says sun."}]  # type: ignore[index]
        assert reply["stop_reason"] == "end_turn"  # type: ignore[index]
        _, stream = post(endpoint, MESSAGES, body | {"stream": True}, session.key)
        status, error = post(endpoint, MESSAGES, body, "no such key")
        assert (status, error["error"]["type"]) == (401, "authentication_error")  # type: ignore[index]
    assert seen[0].messages == (Message("system", "Be kind."), Message("user", "hello"))
    assert (seen[0].stop, seen[0].max_tokens) == (("END",), 50)
    assert seen[1].messages == (Message("tool", "sun", call="abcdefghi"),) and seen[1].thread == ""
    found = events(stream)
    assert [kind for kind, _ in found] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert json.loads(found[5][1]["delta"]["partial_json"]) == {"city": "Rome"}


@pytest.mark.parametrize(("path", "choice"), [(CHAT, "required"), (RESPONSES, "required"), (MESSAGES, {"type": "any"})])
def test_an_agent_that_wants_a_call_gets_what_the_policy_says(path: str, choice: Any) -> None:
    """With a call or without: smolagents asks so, and reads an answer without one itself."""
    body = ASK | {"input": "hello", "tool_choice": choice}
    with serving(says("no call")) as (endpoint, session):
        status, reply = post(endpoint, path, body, session.key)
    assert status == 200 and "no call" in json.dumps(reply)


FORCED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        (CHAT, ASK | {"n": 2}, "n must be 1"),
        (CHAT, ASK | {"response_format": {"type": "json_schema", "json_schema": {}}}, "grammar"),
        (CHAT, ASK | {"response_format": {"type": "json_object"}}, "grammar"),
        (CHAT, ASK | {"tool_choice": FORCED}, "grammar"),
        (CHAT, ASK | {"logprobs": True}, "logprobs"),
        (CHAT, ASK | {"messages": []}, "at least one"),
        (CHAT, ASK | {"messages": "hello"}, "must be a list"),
        (CHAT, ASK | {"messages": [{"content": "x"}]}, r"messages\[0\]"),
        (CHAT, ASK | {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not text"),
        (CHAT, ASK | {"tools": [{"type": "custom"}]}, "function"),
        (CHAT, ASK | {"max_tokens": "many"}, "limit"),
        (CHAT, ASK | {"stop": [""]}, "stop"),
        (CHAT, b"{", "JSON object"),
        (CHAT, [1], "JSON object"),
        (CHAT, b"[" * 100_000, "JSON object"),
        (RESPONSES, {"input": "x", "text": {"format": {"type": "json_schema"}}}, "grammar"),
        (RESPONSES, {"input": "x", "tools": [{"type": "web_search"}]}, "do not exist"),
        (RESPONSES, {"input": [{"type": "computer_call"}]}, "cannot read"),
        (RESPONSES, {"input": "x", "background": True}, "background"),
        (RESPONSES, {"input": "x", "top_logprobs": 3}, "logprobs are not returned"),
        (RESPONSES, {"input": "x", "include": ["message.output_text.logprobs"]}, "logprobs are not returned"),
        (RESPONSES, {"input": "x", "include": "usage"}, "must be a list"),
        (MESSAGES, ASK | {"tool_choice": {"type": "tool", "name": "weather"}}, "grammar"),
        (MESSAGES, ASK | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "grammar"),
        (MESSAGES, ASK | {"output_format": {"type": "json_schema", "schema": SCHEMA}}, "grammar"),
        (MESSAGES, ASK | {"output_config": "json"}, "grammar"),
        (MESSAGES, ASK | {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "do not exist"),
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not text"),
    ],
)
def test_what_cannot_be_honored_is_refused_with_a_sentence(path: str, body: Any, word: str) -> None:
    """And the policy is not asked."""

    def never(step: Step) -> Message:
        raise AssertionError

    with serving(never) as (endpoint, session):
        status, reply = post(endpoint, path, body, session.key)
    assert status == 400
    with pytest.raises(AssertionError, match=word):
        raise AssertionError(reply["error"]["message"])  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (RESPONSES, {"top_logprobs": 0, "include": ["reasoning.encrypted_content"]}),
        (RESPONSES, {"top_logprobs": None, "include": None}),
        (MESSAGES, {"output_config": {"effort": "low", "format": None}}),
    ],
)
def test_what_asks_for_no_logprobs_and_no_format_is_answered(path: str, more: dict[str, Any]) -> None:
    with serving(says("ok")) as (endpoint, session):
        assert post(endpoint, path, ASK | {"input": "hello"} | more, session.key)[0] == 200


def test_a_request_may_be_so_large_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longloop.gateway.http_request._LARGEST", 1000)
    with serving(says("ok")) as (endpoint, session):
        assert post(endpoint, CHAT, ASK | {"messages": [{"role": "user", "content": "x" * 800}]}, session.key)[0] == 200
        assert (
            post(endpoint, CHAT, ASK | {"messages": [{"role": "user", "content": "x" * 1000}]}, session.key)[0] == 413
        )


def test_a_key_opens_its_own_attempt_and_no_more() -> None:
    with serving(says("mine")) as (endpoint, mine), serving(says("yours")) as (_, yours):
        for path, key in ((CHAT, mine.key), (f"/{mine.key}{CHAT}", None), (f"/{mine.key}{CHAT}", yours.key)):
            _, reply = post(endpoint, path, ASK, key)
            assert reply["choices"][0]["message"]["content"] == "mine"  # type: ignore[index]
        assert post(endpoint, CHAT, ASK, "forged")[0] == 401 and post(endpoint, CHAT, ASK)[0] == 401
        assert post(endpoint, CHAT, ASK, mine.judge_key)[0] == 403, "the judge's key cannot sample"
        assert post(endpoint, "/outcome", {"reward": 1.0}, mine.key)[0] == 403, "an agent cannot pay itself"
        assert mine.outcome is None
        assert post(endpoint, "/outcome", {"reward": 1.0}, mine.judge_key)[0] == 200
        assert mine.outcome == {"reward": 1.0} and yours.outcome is None
    assert post(endpoint, CHAT, ASK, mine.key)[0] == 410, "after its end"
    assert post(endpoint, CHAT, ASK | {"stream": True}, mine.key)[0] == 410
    assert post(endpoint, "/outcome", {"reward": 1.0}, mine.judge_key)[0] == 401


def test_models_are_listed() -> None:
    with serving(says("ok")) as (endpoint, session):
        where = urlsplit(endpoint.address)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        connection.request("GET", f"/{session.key}/v1/models")
        assert [model["id"] for model in json.load(connection.getresponse())["data"]] == ["policy"]
        connection.close()


def test_a_retry_gets_the_first_answer_and_a_second_call_another() -> None:
    spoken = iter(f"answer {n}" for n in range(10))
    with serving(lambda step: Message("assistant", next(spoken))) as (endpoint, session):

        def ask(**headers: str) -> str:
            return post(endpoint, CHAT, ASK, session.key, **headers)[1]["choices"][0]["message"]["content"]  # type: ignore[index]

        assert ask() == "answer 0"
        assert ask(**{"x-stainless-retry-count": "1"}) == "answer 0"
        assert ask(**{"x-stainless-retry-count": "0"}) == "answer 1"
        assert ask(**{"x-stainless-retry-count": "2"}) == "answer 1"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hung_up_and_asks_again_gets_the_answer_it_missed(stream: bool) -> None:
    """Also without saying that it is a retry; what was sampled for it is used, and nothing is sampled twice."""
    asked, go = threading.Event(), threading.Event()
    spoken = iter(f"answer {n}" for n in range(10))

    async def slow(step: Step) -> Message:
        asked.set()
        while not go.is_set():
            await asyncio.sleep(0.01)
        return Message("assistant", next(spoken))

    with serving(slow) as (endpoint, session):
        body = ASK | {"stream": stream}
        where = urlsplit(endpoint.address)
        with socket.create_connection((where.hostname or "", where.port or 0)) as client:
            sent = json.dumps(body).encode()
            head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {session.key}\r\n"
            client.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(sent) + sent)
            assert asked.wait(10)
        (ask,) = session._asks.values()
        while ask.clients:
            threading.Event().wait(0.01)
        go.set()
        _, reply = post(endpoint, CHAT, body, session.key)
        assert "answer 0" in json.dumps(reply)
        _, reply = post(endpoint, CHAT, body, session.key)
        assert "answer 1" in json.dumps(reply), "it was delivered: the next is another call"


async def never(step: Step) -> Message:
    await asyncio.sleep(3600)
    raise AssertionError


def test_an_attempt_that_ends_tells_those_who_wait() -> None:
    with serving(never) as (endpoint, session):
        found: list[Any] = []
        clients = [
            threading.Thread(target=lambda body=body: found.append(post(endpoint, CHAT, body, session.key)))
            for body in (ASK, ASK | {"stream": True}, ASK | {"seed": 1})
        ]
        for client in clients:
            client.start()
        while len(session._asks) < 3:
            threading.Event().wait(0.01)
    for client in clients:
        client.join(10)
    assert [status for status, _ in found] == [400] * 3
    assert [reply["error"]["code"] for _, reply in found] == ["longloop_stopped"] * 3


def test_a_stream_that_has_begun_to_wait_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longloop.gateway.server._PING", 0.05)
    with serving(never) as (endpoint, session):
        where = urlsplit(endpoint.address)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        connection.request("POST", f"/{session.key}{CHAT}", json.dumps(ASK | {"stream": True}))
        reply = connection.getresponse()
        assert reply.status == 200
    assert [kind for kind, _ in events(reply.read().decode())] == ["error"]
    connection.close()


def test_a_refusal_in_each_api() -> None:
    refused = Refused(400, "Because.", "why")
    assert ChatCompletions().refusal(refused)["error"]["message"] == "Because."
    assert Responses().refusal(refused)["error"]["code"] == "why"
    wanted = {"type": "error", "error": {"type": "invalid_request_error", "message": "Because."}}
    assert AnthropicMessages().refusal(refused) == wanted
