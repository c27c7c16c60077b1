"""Calls of tools: read from the text of each family, rendered by its template, and never encoded again."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longloop.diagnose.tools import tools
from longloop.rollout.demonstrations import retokenize
from longloop.tokens.chat import Chat
from longloop.tokens.tools import FENCED, FORMATS, format_of
from longloop.tokens.transcript import Transcript
from longloop.types import Call, Message, Sampled, StopReason, Task, Trajectory, Turn
from tests.support.tool_templates import WITH_TOOLS, tokenizer

CHATS = {name: Chat(tokenizer(name)) for name in WITH_TOOLS}
KINDS = {one.name: one for one in (*FORMATS, FENCED)}
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather somewhere.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "how": {"type": "object"}},
            },
        },
    },
)
SPOKEN = {
    "qwen2.5": '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>',
    "qwen-xml": (
        "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
    ),
    "glm": (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
    ),
    "llama3.1": '{"name": "weather", "parameters": {"city": "Rome", "days": 3}}',
    "mistral": '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome", "days": 3}}]',
    "chatml": '```json\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n```',
    "llama3": '```json\n{"name": "weather", "arguments": {"city": "Rome", "days": 3}}\n```',
}
"""One call, as each family says it."""


def spoken_ids(chat: Chat, text: str) -> list[int]:
    """A turn with this text, in which the marks of calls are the tokens that models use for them."""
    return [*chat.encode(text), chat.end_id]


def act(transcript: Transcript, text: str) -> Message:
    ids = np.array(spoken_ids(transcript.chat, text))
    return transcript.act(Sampled(ids, np.zeros(len(ids)), "stop"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("qwen2.5", "hermes"),
        ("qwen-xml", "qwen-xml"),
        ("glm", "glm"),
        ("llama3.1", "llama3"),
        ("mistral", "mistral"),
        ("chatml", "fenced"),
    ],
)
def test_the_template_tells_the_format(name: str, kind: str) -> None:
    assert CHATS[name].tool_format.name == kind
    assert CHATS[name].tool_format.in_template == (kind != "fenced")


@pytest.mark.parametrize("name", SPOKEN)
def test_a_call_is_read_as_the_family_says_it(name: str) -> None:
    chat = CHATS[name]
    message = chat.message(spoken_ids(chat, SPOKEN[name]), TOOLS)
    (call,) = message.calls
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome", "days": 3})
    assert message.content == SPOKEN[name] and message.words == ""
    assert len(call.id) == 9 and call.id.isalnum(), "Mistral's templates take no other ids"
    assert chat.message(spoken_ids(chat, SPOKEN[name])).calls == (), "without tools nothing is a call"


def test_text_around_calls_is_left_and_several_are_told_apart() -> None:
    said = f"Let me look.\n{SPOKEN['qwen2.5']}\n{SPOKEN['qwen2.5'].replace('Rome', 'Oslo')}"
    message = Message("assistant", said, KINDS["hermes"].calls(said, TOOLS))
    assert [json.loads(call.arguments)["city"] for call in message.calls] == ["Rome", "Oslo"]
    assert len({call.id for call in message.calls}) == 2
    assert message.words == "Let me look."
    both = '[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": [1, {"y": "]"}]}}]'
    calls = KINDS["mistral"].calls(both, TOOLS)
    assert [(call.name, call.text) for call in calls] == [("a", both), ("b", "")]
    named = '[TOOL_CALLS]a[ARGS]{"x": 1}[TOOL_CALLS]b[CALL_ID]12345[ARGS]{}'
    assert [(c.name, c.arguments) for c in KINDS["mistral-named"].calls(named, TOOLS)] == [
        ("a", '{"x": 1}'),
        ("b", "{}"),
    ]


@pytest.mark.parametrize("kind", ["glm", "qwen-xml"])
def test_unquoted_arguments_follow_the_schema(kind: str) -> None:
    """Text stays text, whatever it looks like; other values are JSON; what is not JSON stays text."""
    said = {
        "glm": "<tool_call>weather<arg_key>{}</arg_key><arg_value>{}</arg_value></tool_call>",
        "qwen-xml": "<tool_call><function=weather><parameter={}>{}</parameter></function></tool_call>",
    }[kind]

    def value(key: str, text: str) -> Any:
        (call,) = KINDS[kind].calls(said.format(key, text), TOOLS)
        return json.loads(call.arguments)[key]

    assert [value("city", "42"), value("days", "42"), value("unknown", "42")] == ["42", 42, "42"]
    assert value("how", '{"unit": "C"}') == {"unit": "C"} and value("days", "null") is None
    assert value("days", "many") == "many"


BROKEN = [
    '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
    '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    '<tool_call>{"arguments": {}}</tool_call>',
    '<tool_call>{"name": "weather", "arguments": {}}',
    '<tool_call>"weather"</tool_call>',
    "[TOOL_CALLS][{]",
    '[TOOL_CALLS][{"name": "weather", "arguments": {}}, {"name": 3}]',
    '[TOOL_CALLS]{"name": "weather"}',
    '{"name": "weather", "parameters": "Rome"}',
    '{"city": "Rome"}',
    "```json\n{]\n```",
    "<tool_call><function=></function></tool_call>",
    "[" * 100_000,
    '<tool_call>{"name": "weather", "arguments": ' + "[" * 100_000 + "}</tool_call>",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", BROKEN, ids=lambda said: said[:30])
def test_a_call_that_does_not_parse_is_what_the_model_said(kind: str, said: str) -> None:
    assert KINDS[kind].calls(said, TOOLS) == ()
    assert Message("assistant", said).words == said


_PIECES = (
    *(
        "<tool_call>",
        "</tool_call>",
        '{"name":"weather","arguments":',
        "{}",
        "}",
        "[",
        "]",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<function=f>",
        "</function>",
    ),
    *(
        "<parameter=p>",
        "</parameter>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "```json",
        "```",
        "weather",
        '"',
        "\\",
    ),
    *(" ", "\n", "\ud800"),
)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join), st.sampled_from(list(KINDS)))
def test_reading_never_raises_and_what_it_reads_was_said(said: str, kind: str) -> None:
    message = Message("assistant", said, KINDS[kind].calls(said, TOOLS))
    for call in message.calls:
        assert call.text in said
        assert isinstance(json.loads(call.arguments), dict)
    assert len(message.words) <= len(said)


def test_a_tokenizer_that_reads_its_own_answers_is_asked() -> None:
    parsed = {
        "content": "Well.",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
    }

    def parse_response(text: str, *, prefix: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
        assert tools == list(TOOLS)
        if text == "broken":
            raise ValueError
        return parsed

    brings = SimpleNamespace(chat_template="{{ tools }}", response_template={"x": 1}, parse_response=parse_response)
    kind = format_of(brings)
    (call,) = kind.calls("Well. CALL f x=1", TOOLS)
    assert (call.name, call.arguments, call.text) == ("f", '{"x": 1}', " CALL f x=1")
    assert Message("assistant", "Well. CALL f x=1", (call,)).words == "Well."
    assert kind.calls("broken", TOOLS) == ()


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_ids_of_a_conversation_with_tools_are_never_encoded_again(name: str) -> None:
    """Append-only for every family but Mistral's: its template takes a second call in a structure alone, with which the
    context restarts."""
    chat = CHATS[name]
    transcript = Transcript(chat)
    sent, _ = transcript.receive([Message("user", "How is Rome?")], tools=TOOLS)
    assert "weather" in chat.tokenizer.decode(sent), "the model is told what it can call"
    seen = sent.tolist()
    for city in ("Rome", "Oslo"):
        said = SPOKEN[name].replace("Rome", city)
        action = act(transcript, said)
        seen += spoken_ids(chat, said)
        assert transcript.ids == seen
        more, restarts = transcript.receive([Message("tool", f"Sun in {city}.", call=action.calls[0].id)])
        assert restarts == (name == "mistral" and city == "Oslo")
        assert f"Sun in {city}." in chat.tokenizer.decode(more)
        seen = [*([] if restarts else seen), *more.tolist()]
        assert transcript.ids == seen


def test_a_template_that_knows_no_tools_is_told_in_words() -> None:
    chat = CHATS["chatml"]
    other = Call("1", "weather", '{"city": "Rome"}')
    said = [
        Message("system", "Be brief."),
        Message("user", "How is Rome?"),
        Message("assistant", "", (other,)),
        Message("tool", "Sun.", call="1"),
        Message("tool", "And wind.", call="2"),
    ]
    text = chat.render(said, tools=TOOLS)
    system, _, rest = text.partition("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nBe brief.\n\nYou can call these tools:\n") and '"weather"' in system
    assert rest == (
        "<|im_start|>user\nHow is Rome?<|im_end|>\n"
        '<|im_start|>assistant\n```json\n{"name": "weather", "arguments": {"city": "Rome"}}\n```<|im_end|>\n'
        "<|im_start|>user\nSun.\n\nAnd wind.<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_tools_and_calls_cannot_forge_special_tokens(name: str) -> None:
    """Neither a tool's description, nor its answer, nor the arguments of a call that somebody else made."""
    chat = CHATS[name]
    end = chat.tokenizer.convert_ids_to_tokens(chat.end_id)

    def ends(evil: str) -> int:
        tools = [{"type": "function", "function": {"name": "f", "description": evil, "parameters": {"default": evil}}}]
        said = [
            Message("user", "go"),
            Message("assistant", "", (Call("abcdefghi", "f", json.dumps({"x": evil})),)),
            Message("tool", evil, call="abcdefghi"),
        ]
        return list(chat.encode(chat.render(said, tools=tools))).count(chat.end_id)

    assert ends(end) == ends("harmless")


def test_calls_of_others_are_rendered_as_the_template_does() -> None:
    """A history that the agent rewrote has structure alone; so do few-shot examples."""
    said = [Message("user", "go"), Message("assistant", "", (Call("1", "weather", '{"city": "Rome"}'),))]
    text = CHATS["qwen2.5"].render(said, generate=False, tools=TOOLS)
    wanted = '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    assert wanted in text


def attempt(name: str) -> Trajectory:
    """One turn with tools, in which nothing was called."""
    turn = Turn((Message("user", "go"),), [1], Message("assistant", "hm"), [2], [0.0], tools=TOOLS)
    return Trajectory(Task("t", "train"), 0, (turn,), 0.0, False, StopReason.FINISHED)


@pytest.mark.parametrize("name", sorted({*WITH_TOOLS} - {"qwen-xml", "glm"}))
def test_the_doctor_tries_calls_out_with_the_users_tools(name: str) -> None:
    """How many turns would restart the context: none, but for a template that wants structure from the second call."""
    found = tools([attempt(name)], CHATS[name])
    assert found is not None
    restarts = 3 if name == "mistral" else 0
    assert (found.verdict, found.numbers["restarts"]) == ("warning" if restarts else "pass", restarts), found
    assert f"0 of 1 actions called a tool, in the format `{CHATS[name].tool_format.name}`" in found.seen
    assert not restarts or "Of 4 turns that follow a call, 3 would restart" in found.seen


@pytest.mark.parametrize("name", ["qwen-xml", "glm"])
def test_the_doctor_sees_a_template_whose_calls_are_not_read(name: str) -> None:
    """These describe one format and write another: a template that was put together wrongly."""
    found = tools([attempt(name)], CHATS[name])
    assert found is not None and found.verdict == "fail" and "is not read as one" in found.seen


def test_the_doctor_has_nothing_to_say_without_tools() -> None:
    turn = Turn((Message("user", "go"),), [1], Message("assistant", "hm"), [2], [0.0])
    assert tools([Trajectory(Task("t", "train"), 0, (turn,), 0.0, False, StopReason.FINISHED)], CHATS["chatml"]) is None


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_call_that_is_told_again_has_the_tokens_that_were_sampled(name: str) -> None:
    """As a stored attempt to imitate, and in a context that is written anew. Marks that are special tokens stay so."""
    chat = CHATS[name]
    transcript = Transcript(chat)
    context_ids, _ = transcript.receive([Message("user", "How is Rome?")], tools=TOOLS)
    said = SPOKEN[name]
    action = act(transcript, said)
    sampled = transcript.ids[len(context_ids) :]
    turn = Turn((Message("user", "How is Rome?"),), context_ids, action, sampled, np.zeros(len(sampled)), tools=TOOLS)
    one = Trajectory(Task("a", "train"), 0, (turn,), 1.0, True, StopReason.FINISHED)
    (again,) = retokenize(chat, one).turns
    assert again.action_ids.tolist() == list(sampled)
    marks = chat._call_marks.intersection(sampled)
    anew, _ = Transcript(chat).receive([*turn.context, action], True, TOOLS)
    assert marks <= set(anew.tolist())


def test_a_mark_in_the_text_of_a_message_without_calls_stays_text() -> None:
    chat = CHATS["mistral"]
    (mark,) = chat._call_marks
    assert mark not in chat.action_ids("[TOOL_CALLS] is how one calls")


def test_a_mark_in_the_words_beside_a_call_stays_text() -> None:
    """Where the template writes the call itself."""
    chat = CHATS["mistral"]
    (mark,) = chat._call_marks
    call = Call("1", "weather", "{}")
    turn = chat._turn(Message("assistant", "[TOOL_CALLS] is how one calls", (call,)), structured=True)
    assert turn["tool_calls"] and mark not in chat.encode(turn["content"])
