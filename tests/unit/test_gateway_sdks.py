"""The providers' own clients against the endpoint: they must not notice that it is not theirs."""

from typing import Any

import pytest

from longloop.gateway.session import Session
from longloop.types import Action, Call, Step
from tests.support.gateway import serving

CALL = Call("abcdefghi", "weather", '{"city": "Rome"}', text="CALL")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def sdk(name: str) -> Any:
    return pytest.importorskip(name, reason=f"needs the package {name}: pip install {name}")


def policy(step: Step) -> Action:
    if step.messages[-1].role == "tool":
        return Action("assistant", f"It says {step.messages[-1].content}.", (), "", "stop", 20, 5)
    return Action("assistant", "Let me see. CALL", (CALL,), "", "stop", 10, 4)


def one_conversation(session: Session) -> bool:
    """Whether every call was recognized as the next of the same conversation."""
    return len(session.threads.all) == 1


def test_openai_chat_completions() -> None:
    openai = sdk("openai")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    with serving(policy) as (endpoint, session):
        client = openai.OpenAI(base_url=f"{endpoint.address}/v1", api_key=session.key)
        talk: list[Any] = [{"role": "user", "content": "How is Rome?"}]
        reply = client.chat.completions.create(model="m", messages=talk, tools=tools)
        message = reply.choices[0].message
        assert (message.content, reply.choices[0].finish_reason) == ("Let me see.", "tool_calls")
        talk += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"}]
        stream = client.chat.completions.create(model="m", messages=talk, tools=tools, stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert said == "It says sun." and one_conversation(session)
        with pytest.raises(openai.BadRequestError, match="n must be 1"):
            client.chat.completions.create(model="m", messages=talk, n=2)
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{endpoint.address}/v1", api_key="forged").models.list()
        assert [model.id for model in client.models.list()] == ["policy"]


def test_openai_responses() -> None:
    openai = sdk("openai")
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
    with serving(policy) as (endpoint, session):
        client = openai.OpenAI(base_url=f"{endpoint.address}/v1", api_key=session.key)
        first = client.responses.create(model="m", input="How is Rome?", tools=tools)
        assert first.output_text == "Let me see."
        (call,) = (item for item in first.output if item.type == "function_call")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
        second = client.responses.create(model="m", input=[output], tools=tools, previous_response_id=first.id)
        assert second.output_text == "It says sun."
        talk: list[Any] = [{"role": "user", "content": "How is Rome?"}, *first.output, output, *second.output]
        talk.append({"role": "user", "content": "And Oslo?"})
        with client.responses.stream(model="m", input=talk, tools=tools) as stream:
            assert stream.until_done().get_final_response().output_text == "Let me see."
        assert one_conversation(session)


def test_anthropic_messages() -> None:
    anthropic = sdk("anthropic")
    tools = [{"name": "weather", "input_schema": SCHEMA}]
    with serving(policy) as (endpoint, session):
        client = anthropic.Anthropic(base_url=endpoint.address, api_key=session.key)
        talk: list[Any] = [{"role": "user", "content": "How is Rome?"}]
        asked = {"model": "m", "max_tokens": 50, "system": "Be kind.", "tools": tools}
        first = client.messages.create(messages=talk, **asked)
        assert first.stop_reason == "tool_use" and first.content[1].input == {"city": "Rome"}
        result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "sun"}
        talk += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        with client.messages.stream(messages=talk, **asked) as stream:
            assert stream.get_final_text() == "It says sun."
        assert one_conversation(session)
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=endpoint.address, api_key="forged").messages.create(messages=talk, **asked)
