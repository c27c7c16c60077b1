"""An endpoint as an engine: what is said reaches it word for word, a bad one is borne with, and a dead one is told."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longloop import api, config
from longloop.cli import commands, comparison
from longloop.engines import openai
from longloop.engines.openai import OpenAIEngine, read, text_chat
from longloop.store.trajectories import Trajectories
from longloop.tokens.transcript import Transcript
from longloop.types import Call, Fault, Message, SamplingParams, StopReason, UserError
from tests.support.endpoints import Endpoint, answering, completion, refusal
from tests.support.gateway import listening
from tests.support.helpers import GUESS

CHAT = text_chat()
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "<|end|> é", "parameters": {"type": "object"}},
}
PARAMS = SamplingParams(0.5, max_tokens=7, seed=2**40 + 5, stop_ids=CHAT.end_ids)
GO = [Message("user", "go")]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Short pauses, and a cache of one's own."""
    monkeypatch.setattr(openai, "_SHORTEST", 0.01)
    monkeypatch.setattr(openai, "_LONGEST", 0.02)
    monkeypatch.setattr(api, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield


def ask(endpoint: Endpoint, messages: list[Message] = GO, params: SamplingParams = PARAMS, **options: Any) -> str:
    """What an engine makes of an endpoint's answer, as text."""
    engine = OpenAIEngine(None, CHAT, endpoint.url, "m", **options)
    sampled = asyncio.run(engine.sample(CHAT.encode(CHAT.render(messages)), params, session="s"))
    assert (sampled.logprobs == 0).all()
    return CHAT.decode(sampled.ids.tolist())


TEXT = st.text(st.sampled_from("ab\n <|>é日") | st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["<|end|>", "<|user|>x", "", "<tool_call>"]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXT), min_size=1, max_size=5))
def test_a_conversation_is_read_back_word_for_word(said: list[tuple[str, str]]) -> None:
    messages = [Message(*one) for one in said]
    got, tools = read(CHAT.encode(CHAT.render(messages)), CHAT)
    shown = [Message(m.role, m.content.translate({n: 0xFFFD for n in range(0xFDD0, 0xFDD3)})) for m in messages]
    assert got == shown and tools == []


def test_the_endpoint_gets_the_request_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    with answering(["hello"]) as endpoint:
        extra = {"reasoning_effort": "low"}
        said = ask(endpoint, [Message("system", "be"), *GO], key_variable="MY_KEY", limit="most", extra=extra)
    assert said == "hello"
    assert endpoint.asked == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "go"}],
            "temperature": 0.5,
            "top_p": 1.0,
            "seed": 5,
            "most": 7,
            "reasoning_effort": "low",
        }
    ]
    (headers,) = endpoint.headers
    assert headers["path"] == "/v1/chat/completions" and headers["authorization"] == "Bearer secret"


def test_tools_and_calls_are_the_apis_own() -> None:
    """A call comes back as a call; what it was and what the tool answered is told in the next request."""
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    called = {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "c1", "function": function}]}
    with answering([called, "Sun."]) as endpoint:
        engine = OpenAIEngine(None, CHAT, endpoint.url, "m")

        async def talk() -> tuple[Message, Message]:
            transcript = Transcript(CHAT)
            transcript.receive(GO, tools=[TOOL])
            one = transcript.act(await engine.sample(transcript.ids, PARAMS, session="s"))
            (call,) = one.calls
            transcript.receive([Message("tool", "sun", call=call.id)])
            return one, transcript.act(await engine.sample(transcript.ids, PARAMS, session="s"))

        one, two = asyncio.run(talk())
    assert one.words == "Let me see." and two.content == "Sun."
    (call,) = one.calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome"})
    first, second = endpoint.asked
    assert first["tools"] == second["tools"] == [TOOL]
    told = {"id": call.id, "type": "function", "function": function}
    assert second["messages"] == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [told]},
        {"role": "tool", "content": "sun", "tool_call_id": call.id},
    ]


def test_a_call_of_somebody_else_is_told_as_a_call() -> None:
    made = Message("assistant", "", (Call("x", "weather", '{"city": "Rome"}'),))
    messages = [*GO, made, Message("tool", "sun", call="x")]
    (_, got, answer), tools = read(CHAT.encode(CHAT.render(messages, tools=[TOOL])), CHAT)
    assert [(c.name, json.loads(c.arguments)) for c in got.calls] == [("weather", {"city": "Rome"})]
    assert answer == messages[2] and tools == [TOOL]


def test_where_an_answer_ends() -> None:
    """At a stop text, which belongs to it; by itself; or cut, and then its turn is open."""
    cut = (200, {}, completion({"content": "a long st"}, "length"))
    with answering(["one\n```\ntwo", "done", cut]) as endpoint:
        params = SamplingParams(stop=("END", "\n```\n"))
        assert ask(endpoint, params=params) == "one\n```\n"
        assert ask(endpoint, params=params) == "done"
        engine = OpenAIEngine(None, CHAT, endpoint.url, "m")
        last = asyncio.run(engine.sample(CHAT.encode(CHAT.render(GO)), params, session="s"))
        assert last.finish == "length" and last.ids[-1] != CHAT.end_id


HOSTILE: list[Any] = [
    refusal(429, "slow down", retry_after="0.05"),
    refusal(429, "slow down", retry_after="Wed, 21 Oct 2026 07:28:00 GMT"),
    refusal(500, "oops"),
    (503, {}, b"<html>busy</html>"),
    (200, {}, b"not json"),
    (200, {}, b"[1]"),
    (200, {}, b'{"choices": []}'),
    (200, {}, b'{"choices": [{"message": {"content": [3]}}]}'),
    (200, {}, b'{"error": {"message": "no capacity"}}'),
    "drop",
    "drop",
    "fine",
]


def test_a_hostile_endpoint_is_borne_with() -> None:
    with answering(HOSTILE) as endpoint:
        engine = OpenAIEngine(None, CHAT, endpoint.url, "m")
        sampled = asyncio.run(engine.sample(CHAT.encode(CHAT.render(GO)), PARAMS, session="s"))
    assert CHAT.decode(sampled.ids.tolist()) == "fine"
    spent = {"calls": 1, "prompt_tokens": 10, "completion_tokens": 3, "repeated": len(HOSTILE) - 1}
    assert engine.spent() == spent
    assert engine.spent() == dict.fromkeys(spent, 0), "what was told is not told again"


def test_a_pause_that_the_endpoint_asks_for_holds_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls in the meantime waits as long as the one that was told to. The clock stands until it has."""
    now, waits, early = [100.0], list[float](), list[int]()

    async def both(endpoint: Endpoint) -> list[str]:
        engine, over = OpenAIEngine(None, CHAT, endpoint.url, "m"), asyncio.Event()
        others: list[asyncio.Future[Any]] = []

        def begin() -> "asyncio.Future[Any]":
            return asyncio.ensure_future(engine.sample(CHAT.encode(CHAT.render(GO)), PARAMS, session="s"))

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            if others:
                await over.wait()
                return
            others.append(begin())
            await asyncio.sleep(0.2)  # enough for a call
            early.append(len(endpoint.asked))
            now[0] += seconds
            over.set()

        monkeypatch.setattr(openai, "sleep", sleep)
        monkeypatch.setattr(openai, "monotonic", lambda: now[0])
        found = [await begin(), await others[0]]
        return [CHAT.decode(one.ids.tolist()) for one in found]

    with answering([refusal(429, "slow down", retry_after="40"), "a", "a"]) as endpoint:
        assert asyncio.run(both(endpoint)) == ["a", "a"]
    assert early == [1] and waits == [40, 40]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([refusal(401, "who are you?")], ["OPENAI_API_KEY", "who are you?"]),
        ([refusal(404, "no model m")], ["cannot be measured", "no model m"]),
        ([refusal(400, "temperature must be 1")], ["cannot be measured", "temperature must be 1"]),
        (["hang"], ["does not answer", "within 0.1 s"]),
        (["drop"], ["does not answer"]),
        ([refusal(429, "no quota", retry_after="99999")], ["does not answer", "429", "no quota"]),
        ([(200, {}, b"garbage")], ["no chat completion", "garbage"]),
    ],
)
def test_a_dead_endpoint_is_said_in_a_sentence(answers: list[Any], words: list[str]) -> None:
    with answering(answers) as endpoint, pytest.raises(UserError) as raised:
        ask(endpoint, seconds=0.1 if answers == ["hang"] else 30.0, patience=0.2 if "garbage" in words else 900.0)
    for word in [*words, endpoint.url]:
        assert word in str(raised.value)


def test_an_address_where_nobody_is() -> None:
    with answering(["x"]) as endpoint:
        pass
    with pytest.raises(UserError, match="does not answer: ConnectError"):
        ask(endpoint)
    with pytest.raises(UserError, match=r"needs the endpoint's address"):
        OpenAIEngine(None, CHAT)


def test_a_conversation_that_is_too_long_or_unwanted_costs_itself() -> None:
    with answering([refusal(400, "maximum context length is 8 tokens")]) as endpoint, pytest.raises(Fault) as raised:
        ask(endpoint)
    assert raised.value.stop is StopReason.CONTEXT_FULL
    with answering(["fine", refusal(400, "content filter")]) as endpoint:
        engine = OpenAIEngine(None, CHAT, endpoint.url, "m")
        asyncio.run(engine.sample(CHAT.encode(CHAT.render(GO)), PARAMS, session="s"))
        engine._client = None
        with pytest.raises(Fault, match="content filter") as raised:
            asyncio.run(engine.sample(CHAT.encode(CHAT.render(GO)), PARAMS, session="s"))
    assert raised.value.stop is StopReason.ENV_ERROR


# Evaluations


def guessing(url: str, tmp_path: Path, *overrides: str) -> config.Config:
    (tmp_path / "guess.toml").write_text(GUESS)
    engine = f'engine={{name = "openai", url = "{url}", model = "m"}}'
    return config.load(tmp_path / "guess.toml", [engine, "eval.attempts=2", *overrides])


def test_our_own_server_measures_the_same_as_the_engine_itself(tmp_path: Path) -> None:
    """Attempt by attempt, word for word, at temperature 0."""
    settings = ["eval.temperature=0.0", "eval.attempts=2", "model.hidden=32"]
    (tmp_path / "g.toml").write_text(GUESS)
    here = api.measure(config.load(tmp_path / "g.toml", settings), None, ["dev"])["dev"]
    server = api.server("tiny", ["rollout.context=64", "model.threads=1", "model.hidden=32"])
    with listening(server) as where:
        there = api.measure(guessing(f"{where.address}/v1", tmp_path, *settings), None, ["dev"])["dev"]

    def said(groups: Any) -> list[Any]:
        return [[(t.reward, t.stop, [turn.action.content for turn in t.turns]) for t in g.trajectories] for g in groups]

    assert said(here[1]) == said(there[1])
    one, two = (result.to_json() for result, _ in (here, there))
    usage = two.pop("usage")
    assert one.pop("usage") == {} and one == two
    calls = sum(len(t.turns) for g in there[1] for t in g.trajectories)
    assert usage["calls"] == calls and usage["completion_tokens"] >= calls and usage["prompt_tokens"] > calls


def test_nothing_that_was_paid_for_is_lost(tmp_path: Path) -> None:
    """An evaluation whose endpoint dies goes on where it was, and when it is over nothing is left behind."""
    answers = [*["1"] * 5, refusal(403, "the account is empty")]
    with answering(answers) as endpoint:
        chosen = guessing(endpoint.url, tmp_path, "rollout.concurrency=1", "rollout.max_turns=1")
        with pytest.raises(UserError, match=r"account is empty.* 5 answers are kept: run the same command again"):
            api.measure(chosen, None, ["dev"])
        (kept,) = (tmp_path / "cache" / "answers").iterdir()
        with kept.open("a") as file:
            file.write('\n["cut off in the mid')
        endpoint._answers = ["2"]
        asked = len(endpoint.asked)
        result, groups = api.measure(chosen, None, ["dev"])["dev"]
        assert len(endpoint.asked) - asked == 1, "3 tasks, 2 attempts each, 5 answers were there"
    assert sorted(t.turns[0].action.content for g in groups for t in g.trajectories) == ["1"] * 5 + ["2"]
    assert result.usage["calls"] == 6 and not kept.exists()


def test_answers_are_kept_until_they_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command asks nothing again after its attempts could not be written."""

    def full(*_: Any) -> None:
        raise UserError("No space left.")

    with answering(["1"]) as endpoint:
        guessing(endpoint.url, tmp_path)
        words = [f'engine={{name = "openai", url = "{endpoint.url}", model = "m"}}', "eval.attempts=2"]
        asked = tmp_path / "guess.toml", words, [], None, True, tmp_path / "out"
        with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left"):
            patch.setattr(api, "write_measured", full)
            commands.evaluate(*asked)
        before = len(endpoint.asked)
        commands.evaluate(*asked)
        assert len(endpoint.asked) == before > 0
    assert (tmp_path / "out" / "dev" / "run.json").exists() and not list((tmp_path / "cache" / "answers").iterdir())


def test_a_comparison_keeps_answers_until_its_result_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise UserError("No space left.")

    with answering(["1"]) as endpoint:
        guessing(endpoint.url, tmp_path)
        words = [f'engine={{name = "openai", url = "{endpoint.url}", model = "m"}}', f"folder={tmp_path}", "name=both"]
        asked = tmp_path / "guess.toml", words, "base", 1, [], ""
        with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left"):
            patch.setattr(comparison, "write_whole", full)
            comparison.compare(*asked)
        before = len(endpoint.asked)
        comparison.compare(*asked)
        assert len(endpoint.asked) == before > 0
    assert (tmp_path / "both" / "results" / "base-0.json").exists()
    assert not list((tmp_path / "cache" / "answers").iterdir())


def test_a_full_context_is_scored_and_an_error_is_not(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Any:
        if len(body["messages"]) == 1:
            return "7"
        return refusal(400, "this model's context is too short")

    with answering(answer) as endpoint:
        result, groups = api.measure(guessing(endpoint.url, tmp_path), None, ["dev"])["dev"]
    stops = {t.stop for g in groups for t in g.trajectories}
    assert stops == {StopReason.CONTEXT_FULL} and result.unscored == 0


def test_an_endpoint_cannot_train(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot train"):
        api.train(guessing("http://127.0.0.1:9/v1", tmp_path), {"folder": str(tmp_path / "runs")})
    assert not (tmp_path / "runs").exists()


def test_the_attempts_are_kept_as_a_run_and_the_key_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with answering(["2"]) as endpoint:
        chosen = guessing(endpoint.url, tmp_path)
        measured = api.measure(chosen, None, ["dev"])
        api.write_measured(chosen, None, tmp_path / "out", measured)
    assert endpoint.headers[0]["authorization"] == "Bearer sk-secret"
    stored = Trajectories(tmp_path / "out" / "dev" / "evaluations").read(0)
    assert stored[0].trajectories[0].turns[0].action.content == "2"
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or b"sk-secret" not in file.read_bytes()
    (line,) = (tmp_path / "out" / "dev" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["eval"]["usage"]["calls"] > 0
