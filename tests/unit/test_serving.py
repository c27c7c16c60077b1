"""A policy that is served: over HTTP as the engine says it, from where it was left, and as a stream while it speaks."""

import asyncio
import http.client
import json
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longloop import api
from longloop.gateway import serving
from longloop.gateway.request import Request
from longloop.gateway.server import LOCAL, Server
from longloop.gateway.serving import Served
from longloop.tokens.chat import Chat
from longloop.types import Message, Sampled, SamplingParams, UserError
from tests.support import tool_templates
from tests.support.gateway import events, listening, post
from tests.support.templates import tokenizer

CHAT = Chat(tokenizer("chatml"))
PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


class Speaker:
    """An engine that says what it is told to, token by token, and remembers what it was asked."""

    def __init__(self, *said: str, chat: Chat = CHAT, spell: bool = False) -> None:
        self._said, self._chat, self._spell = list(said), chat, spell
        self.asked: list[tuple[list[int], SamplingParams, str]] = []
        self.answers: list[list[int]] = []
        self.forgotten: list[str] = []
        self.hold: asyncio.Event | None = None

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, session: str, watch: Callable[[int], None] | None = None
    ) -> Sampled:
        self.asked.append((list(ids), params, session))
        text = self._said[min(len(self.asked), len(self._said)) - 1]
        if text == "fail":
            raise RuntimeError("out of memory")
        parts = list(text) if self._spell else [text]  # letter by letter: not as the tokenizer would
        said = [id for part in parts for id in self._chat.action_ids(part)[:-1]] + [self._chat.end_id]
        said = said[: params.max_tokens]
        for id in said:
            if self.hold is not None:
                await self.hold.wait()
            await asyncio.sleep(0)
            if watch is not None:
                watch(id)
        self.answers.append(said)
        return Sampled(np.array(said), np.zeros(len(said)), "stop" if said[-1] == self._chat.end_id else "length")

    def forget(self, session: str) -> None:
        self.forgotten.append(session)

    def release(self) -> None: ...


def served(engine: Any, chat: Chat = CHAT, **options: Any) -> Served:
    chosen: dict[str, Any] = {"sampling": SamplingParams(0.7), "turn_tokens": 50, "context": 400} | options
    return Served(engine, chat, **chosen)


def server(engine: Any, chat: Chat = CHAT, **options: Any) -> Server:
    return Server(served(engine, chat, **options).find, "mine", names=LOCAL)


def said(reply: Any) -> str:
    return reply["choices"][0]["message"]["content"]


def test_a_conversation_goes_on_from_the_ids_that_were_sampled() -> None:
    """Though the tokenizer would spell the answer otherwise. A conversation that branches off is rendered anew."""
    engine = Speaker("well, what is it?", "fine", "other", spell=True)
    more = [*HELLO, {"role": "assistant", "content": "well, what is it?"}, {"role": "user", "content": "nothing"}]
    with listening(server(engine)) as where:
        _, first = post(where, PATH, {"messages": HELLO})
        assert said(first) == "well, what is it?"
        _, second = post(where, PATH, {"messages": more})
        assert said(second) == "fine"
        post(where, PATH, {"messages": [*more[:2], {"role": "user", "content": "everything"}]})
    (one, _, session), (two, _, same), (three, _, another) = engine.asked
    assert tuple(one) == CHAT.encode(CHAT.render([Message("user", "hello")]))
    assert two[: len(one) + len(engine.answers[0])] == one + engine.answers[0] and same == session
    assert CHAT.decode(two).count("well, what is it?") == 1, "what was said is read once"
    assert second["usage"] == {  # type: ignore[index]
        "prompt_tokens": len(two),
        "completion_tokens": len(engine.answers[1]),
        "total_tokens": len(two) + len(engine.answers[1]),
    }
    whole = [Message("user", "hello"), Message("assistant", "well, what is it?"), Message("user", "everything")]
    assert tuple(three) == CHAT.encode(CHAT.render(whole)) and another != session
    assert not engine.forgotten


def test_the_engine_reads_only_what_is_new() -> None:
    """Counted by the native engine itself: each id goes through the model once."""
    what = api.server("tiny", ["rollout.context=200", "rollout.turn_tokens=5", "model.threads=1"])
    engine = what._find.__self__._engine  # type: ignore[attr-defined]
    with listening(what) as where:
        _, one = post(where, PATH, {"messages": HELLO, "temperature": 0})
        more = [*HELLO, one["choices"][0]["message"], {"role": "user", "content": "on"}]  # type: ignore[index]
        before = engine.forwarded
        _, two = post(where, PATH, {"messages": more, "temperature": 0})
    new = two["usage"]["total_tokens"] - one["usage"]["total_tokens"]  # type: ignore[index]
    assert engine.forwarded - before <= new + 1, "the last token of the first answer was not read yet"


def test_what_a_client_asks_for_is_what_the_engine_gets() -> None:
    engine = Speaker("ok")
    with listening(server(engine, context=30, turn_tokens=8)) as where:
        body = {"messages": HELLO, "temperature": 0, "top_p": 0.5, "seed": 3, "stop": ["END", "."], "max_tokens": 5}
        post(where, PATH, body)
        post(where, PATH, {"messages": HELLO})
        post(where, PATH, {"messages": HELLO, "max_tokens": 1000, "temperature": None})
        long = [{"role": "user", "content": "word " * 40}]
        status, reply = post(where, PATH, {"messages": long})
        assert status == 400 and reply["error"]["code"] == "context_length_exceeded"  # type: ignore[index]
        status, _ = post(where, PATH, {"messages": long, "stream": True})
        assert status == 400, "a stream that cannot begin is refused like any other"
        for bad in ({"temperature": 3}, {"temperature": "hot"}, {"top_p": 0}, {"seed": 1.5}, {"temperature": True}):
            assert post(where, PATH, {"messages": HELLO} | bad)[0] == 400, bad
        status, reply = post(where, PATH, {"messages": [{"role": "user", "content": "x"}, {"role": "nobody"}]})
    (ids, asked, _), (_, default, _), (_, most, _), *_ = engine.asked
    assert asked == SamplingParams(0, 0.5, 5, 3, CHAT.end_ids, ("END", "."))
    assert (default.temperature, default.top_p, default.max_tokens, default.stop) == (0.7, 1.0, 8, ())
    assert default.seed != most.seed and most.temperature == 0.7
    assert most.max_tokens == 30 - len(ids), "as much as the context has room for"


@pytest.mark.parametrize("path", [PATH, "/v1/responses", "/v1/messages"])
def test_a_stream_comes_as_it_is_spoken(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters of several tokens come whole, and the pieces make the text."""
    monkeypatch.setattr(serving, "pace", lambda answering: 0)
    text = "Übung macht den Meister: 日本語 です。 Привет!"
    body = {"messages": HELLO, "input": "hello", "stream": True, "max_tokens": 200}
    with listening(server(Speaker(text, spell=True))) as where:
        status, stream = post(where, path, body)
    assert status == 200
    found = [data for _, data in events(stream)]
    if path == PATH:
        pieces = [d["choices"][0]["delta"].get("content", "") for d in found[:-1]]
        assert found[-2]["choices"][0]["finish_reason"] == "stop"
    elif path == "/v1/responses":
        pieces = [data["delta"] for kind, data in events(stream) if kind == "response.output_text.delta"]
        assert found[-1]["response"]["output"][0]["content"][0]["text"] == text
    else:
        pieces = [data["delta"]["text"] for kind, data in events(stream) if kind == "content_block_delta"]
    assert "".join(pieces) == text and len([p for p in pieces if p]) >= 3
    assert not any("\ufffd" in piece for piece in pieces)


def test_pieces_are_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is spoken between two pieces comes with the second: a stream costs the engine so much and no more."""
    monkeypatch.setattr(serving, "pace", lambda answering: 3600)
    with listening(server(Speaker("one two three", spell=True))) as where:
        _, stream = post(where, PATH, {"messages": HELLO, "stream": True})
    pieces = [d["choices"][0]["delta"].get("content") for _, d in events(stream)[:-1]]
    assert "".join(filter(None, pieces)) == "one two three" and len(list(filter(None, pieces))) == 2


def test_many_streams_have_fewer_pieces_each() -> None:
    """All of them together make as many a second, few or many; and none is so slow that its reader sees it stand."""
    assert [serving.pace(count) for count in (1, 32, 64, 160, 1024)] == [0.1, 0.1, 0.2, 0.5, 0.5]


def test_the_first_piece_comes_before_the_last_is_spoken() -> None:
    engine = Speaker("one two three four", spell=True)
    with listening(server(engine)) as where:
        place = urlsplit(where.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        sampled = threading.Event()
        whole = engine.sample

        async def slow(ids: Any, params: Any, *, session: str, watch: Any) -> Sampled:
            watch(CHAT.action_ids("first")[0])
            while not sampled.is_set():
                await asyncio.sleep(0.01)
            return await whole(ids, params, session=session)

        engine.sample = slow  # type: ignore[method-assign, assignment]
        connection.request("POST", PATH, json.dumps({"messages": HELLO, "stream": True}))
        reply = connection.getresponse()
        lines = [reply.readline() for _ in range(3)]
        assert b'"role"' in lines[0] and b'"content": "' in lines[2] and not engine.answers
        sampled.set()
        assert reply.read().strip().endswith(b"[DONE]")
        connection.close()


@settings(max_examples=60, deadline=None)
@given(
    st.text("ab. \n日é", max_size=30),
    st.lists(st.text("ab.\n日", min_size=1, max_size=4), max_size=3),
    st.lists(st.booleans(), max_size=30),
)
def test_no_piece_holds_what_the_whole_answer_does_not(text: str, stops: list[str], pauses: list[bool]) -> None:
    """Whatever ends the answer, pieces and reply say the same, however many tokens come at once. The engine ends where
    a stop text is complete."""
    ids = [id for letter in text for id in CHAT.action_ids(letter)[:-1]]
    spoken = serving._Spoken(CHAT, stops)
    pieces, heard, came = "", [], []
    for id, pause in zip_longest(ids, pauses[: len(ids)], fillvalue=True):
        heard.append(id)
        came.append(id)
        ended = len(heard) == len(ids) or any(stop in CHAT.decode(heard) for stop in stops)
        if pause or ended:
            pieces += spoken.add(came)
            came = []
        if ended:
            break
    reply = serving.told("x", Request((), stop=tuple(stops)), Message("assistant", CHAT.decode(heard)))
    assert len(pieces) == spoken.sent
    assert reply.message.content.startswith(pieces)
    if not stops and text:
        assert pieces == text


def test_tools() -> None:
    """A call is told as a call, whole and streamed, and its answer continues the conversation."""
    chat = Chat(tool_templates.tokenizer("qwen2.5"))
    call = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    engine = Speaker(call, "Sun.", call, chat=chat)
    with listening(server(engine, chat, context=2000, turn_tokens=200)) as where:
        _, reply = post(where, PATH, {"messages": HELLO, "tools": [tool]})
        message = reply["choices"][0]["message"]  # type: ignore[index]
        assert message["content"] == "Let me see." and message["tool_calls"][0]["function"]["name"] == "weather"
        answer = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun"}
        _, reply = post(where, PATH, {"messages": [*HELLO, message, answer], "tools": [tool]})
        assert said(reply) == "Sun."
        _, stream = post(where, PATH, {"messages": HELLO, "tools": [tool], "stream": True})
    assert engine.asked[1][0][: len(engine.asked[0][0]) + len(engine.answers[0])] == (
        engine.asked[0][0] + engine.answers[0]
    )
    deltas = [d["choices"][0]["delta"] for _, d in events(stream)[:-1]]
    assert "".join(d.get("content", "") for d in deltas) == "Let me see."
    assert [c["function"]["name"] for d in deltas for c in d.get("tool_calls", ())] == ["weather"]


def test_a_response_continues_an_earlier_one() -> None:
    engine = Speaker("one", "two")
    with listening(server(engine)) as where:
        _, first = post(where, "/v1/responses", {"input": "hello"})
        _, second = post(where, "/v1/responses", {"input": "on", "previous_response_id": first["id"]})  # type: ignore[index]
        assert second["output"][0]["content"][0]["text"] == "two"  # type: ignore[index]
    assert engine.asked[1][2] == engine.asked[0][2], "the same session"


def test_keys_and_names() -> None:
    """With a key, who shows it is answered; without one, who calls this machine by a name of its own."""
    with listening(server(Speaker("ok"), key="secret")) as where:
        assert post(where, PATH, {"messages": HELLO}, "secret")[0] == 200
        assert post(where, f"/secret{PATH}", {"messages": HELLO})[0] == 200
        status, reply = post(where, PATH, {"messages": HELLO}, "forged")
        assert status == 401 and "key" in reply["error"]["message"]  # type: ignore[index]
        assert post(where, PATH, {"messages": HELLO})[0] == 401
        place = urlsplit(where.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        connection.request("GET", "/secret/v1/models")
        assert [one["id"] for one in json.load(connection.getresponse())["data"]] == ["mine"]
        connection.close()
    with listening(server(Speaker("ok"))) as where:
        assert post(where, PATH, {"messages": HELLO}, "anything")[0] == 200
        assert post(where, PATH, {"messages": HELLO}, host="evil.example")[0] == 400
        assert post(where, PATH, {"messages": HELLO}, host="localhost:1")[0] == 200


def test_a_failing_engine_costs_its_call() -> None:
    engine = Speaker("fail", "fine")
    with listening(server(engine)) as where:
        status, reply = post(where, PATH, {"messages": HELLO})
        assert status == 500 and "out of memory" in reply["error"]["message"]  # type: ignore[index]
        assert post(where, PATH, {"messages": HELLO})[0] == 200
    assert engine.forgotten == [engine.asked[0][2]]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_ends_its_sampling(stream: bool) -> None:
    engine = Speaker("never")
    begun = served(engine)
    with listening(Server(begun.find, "mine")) as where:
        engine.hold = asyncio.Event()
        place = urlsplit(where.address)
        with socket.create_connection((place.hostname or "", place.port or 0)) as client:
            sent = json.dumps({"messages": HELLO, "stream": stream}).encode()
            client.sendall(f"POST {PATH} HTTP/1.1\r\nhost: x\r\n".encode() + b"content-length: %d\r\n\r\n" % len(sent))
            client.sendall(sent)
            while not engine.asked:
                threading.Event().wait(0.01)
        while not engine.forgotten:
            threading.Event().wait(0.01)
    assert engine.forgotten == [engine.asked[0][2]] and begun._answering == 0 and not engine.answers


def test_a_client_that_hangs_up_in_the_middle_of_a_stream_ends_its_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "pace", lambda answering: 0)
    engine = Speaker("never ending " * 20, spell=True)
    said = engine._chat.action_ids("x")[0]

    async def endless(ids: Any, params: Any, *, session: str, watch: Any) -> Sampled:
        engine.asked.append((ids, params, session))
        while True:
            watch(said)
            await asyncio.sleep(0.001)

    engine.sample = endless  # type: ignore[method-assign]
    begun = served(engine)
    with listening(Server(begun.find, "mine")) as where:
        place = urlsplit(where.address)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        connection.request("POST", PATH, json.dumps({"messages": HELLO, "stream": True}))
        reply = connection.getresponse()
        for _ in range(9):
            assert reply.readline()
        reply.close()
        connection.close()
        while not engine.forgotten:
            threading.Event().wait(0.01)
    assert begun._answering == 0


def test_only_so_many_are_remembered_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_KEPT", 2)
    engine = Speaker("a", "b", "c")
    what = served(engine)
    with listening(Server(what.find, "mine")) as where:
        for word in ("x", "y", "z"):
            post(where, PATH, {"messages": [{"role": "user", "content": word}]})
        assert engine.forgotten == [engine.asked[0][2]] and len(what.earlier) == len(what._known) == 2
        monkeypatch.setattr(serving, "_MOST", 0)
        status, reply = post(where, PATH, {"messages": HELLO})
        assert status == 429 and reply["error"]["code"] == "too_many_calls"  # type: ignore[index]
    assert what._answering == 0


def test_64_clients_at_once_get_what_each_would_get_alone() -> None:
    """From the native engine, whole and streamed."""
    options = ["rollout.context=100", "rollout.turn_tokens=6", "model.threads=1"]

    def ask(where: Any, number: int) -> str:
        body = {"messages": [{"role": "user", "content": f"hello {number % 16}"}], "seed": number, "temperature": 1}
        if number % 2:
            return said(post(where, PATH, body)[1])
        found = events(post(where, PATH, body | {"stream": True})[1])
        return "".join(d["choices"][0]["delta"].get("content", "") for _, d in found[:-1])

    with ExitStack() as stack:
        together = stack.enter_context(listening(api.server("tiny", options)))
        alone = stack.enter_context(listening(api.server("tiny", options)))
        with ThreadPoolExecutor(64) as clients:
            found = list(clients.map(lambda number: ask(together, number), range(64)))
        assert found == [ask(alone, number) for number in range(64)]
    assert len(set(found)) > 16


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_the_providers_clients(sdk: str) -> None:
    package = pytest.importorskip(sdk, reason=f"needs the package {sdk}: pip install {sdk}")
    with listening(server(Speaker("one two", "three four", spell=True), key="secret")) as where:
        if sdk == "openai":
            client = package.OpenAI(base_url=f"{where.address}/v1", api_key="secret", max_retries=0)
            reply = client.chat.completions.create(model="mine", messages=HELLO)
            assert reply.choices[0].message.content == "one two"
            stream = client.chat.completions.create(model="mine", messages=HELLO, stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "three four"
            assert client.responses.create(model="mine", input="hello").output_text == "three four"
            with client.responses.stream(model="mine", input="hello") as streamed:
                assert streamed.get_final_response().output_text == "three four"
            assert [model.id for model in client.models.list()] == ["mine"]
            with pytest.raises(package.AuthenticationError):
                client.with_options(api_key="forged").models.list()
        else:
            client = package.Anthropic(base_url=where.address, api_key="secret", max_retries=0)
            ask = {"model": "mine", "max_tokens": 20, "messages": HELLO}
            assert client.messages.create(**ask).content[0].text == "one two"
            with client.messages.stream(**ask) as spoken:
                assert "".join(spoken.text_stream) == "three four"
                assert spoken.get_final_message().usage.output_tokens == 11


def test_what_cannot_be_served_is_said() -> None:
    with pytest.raises(UserError, match="not one"):
        api.server("tiny", step=3)
    with pytest.raises(UserError, match="Cannot load the model"):
        api.server("./no such folder")


def test_an_answer_ends_where_actions_ended_in_training() -> None:
    """The text that ends it belongs to the answer, as it belonged to the action; a client's own is cut off."""
    engine = Speaker("ok")
    with listening(server(engine, sampling=SamplingParams(0.7, stop=("</answer>",)))) as where:
        post(where, PATH, {"messages": HELLO, "stop": ["END"]})
        post(where, PATH, {"messages": HELLO})
    assert [asked.stop for _, asked, _ in engine.asked] == [("</answer>", "END"), ("</answer>",)]
    what = api.server("tiny", ["env.name=errands", "rollout.stop=['</answer>']", "model.threads=1"])
    assert what._find.__self__._sampling.stop == ("\n```\n", "</answer>")  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="If it ends actions at certain texts, set rollout.stop"):
        what = api.server("tiny", ["env.name=no_such_module:Env", "model.threads=1"])
    assert what._find.__self__._sampling.stop == ()  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, where all of 127.0.0.0/8 is this machine")
def test_an_address_of_its_own_is_answered() -> None:
    with listening(server(Speaker("ok")), "127.0.0.2") as where:
        port = urlsplit(where.address).port
        for host, status in (("127.0.0.2", 200), ("localhost", 200), ("evil.example", 400)):
            connection = http.client.HTTPConnection("127.0.0.2", port, timeout=60)
            connection.request("GET", "/v1/models", headers={"Host": f"{host}:{port}"})
            assert connection.getresponse().status == status
            connection.close()
