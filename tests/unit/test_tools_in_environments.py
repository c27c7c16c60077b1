"""Environments that give the agent tools and hold several conversations: inline, in workers, stored and read again."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from longloop.config import RolloutConfig
from longloop.engines.scripted import ScriptedEngine
from longloop.envs.calls import called, spoken
from longloop.envs.contract import ContractError, expect
from longloop.envs.play import Script, play
from longloop.rollout.demonstrations import demonstrate, retokenize
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.store.trajectories import Trajectories
from longloop.tokens.chat import Chat
from longloop.types import Action, Group, Message, SamplingParams, Start, Step, Task, Trajectory
from tests.support.obedient import made, pool
from tests.support.tool_templates import tokenizer
from tests.support.toolbox import ADD, Toolbox

CHAT = Chat(tokenizer("qwen2.5"))
TASKS = Toolbox.tasks("train", None)


def calls(session: str, turn: int) -> str:
    """Two calls at once, then one with a mistake in it, which is text."""
    first = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 1}}\n</tool_call>'
    second = '<tool_call>\n{"name": "add", "arguments": {"a": 0, "b": 2}}\n</tool_call>'
    spoken = [f"I add.\n{first}\n{second}", '<tool_call>\n{"name": "add", "arguments": }\n</tool_call>']
    return "yes" if session.endswith("helper") else spoken[min(turn, 1)]


def played(make: Any) -> list[Group]:
    engine = ScriptedEngine(None, CHAT, calls)
    context = RolloutContext(make, CHAT, engine, RolloutConfig(context=2000), SamplingParams())
    return asyncio.run(GroupRollouts(context, "test").play([Start(task) for task in TASKS], 2, 0))


def without_times(groups: Sequence[Group]) -> list[Group]:
    return [
        Group(
            g.task,
            tuple(replace(t, turns=tuple(replace(turn, seconds={}) for turn in t.turns)) for t in g.trajectories),
        )
        for g in groups
    ]


GROUPS = played(lambda: Toolbox(Toolbox.Options()))


def test_an_attempt_with_tools_and_a_helper() -> None:
    one = GROUPS[0].trajectories[0]
    assert (one.error, one.reward) == ("", 1.0)
    first, second, helper = one.turns
    assert first.tools == (ADD,) and second.tools == helper.tools == ()
    assert [call.arguments for call in first.action.calls] == ['{"a": 1, "b": 1}', '{"a": 0, "b": 2}']
    assert first.action.words == "I add." and first.info == {"calls": 2}
    assert [(m.role, m.content) for m in second.context] == [("tool", "2"), ("tool", "2")]
    assert [m.call for m in second.context] == [call.id for call in first.action.calls]
    assert second.action.calls == (), "what does not parse is what the model said"
    assert (helper.restarts_context, helper.rebuilt) == (True, True)
    assert [turn.restarts_context for turn in (first, second)] == [False, False]
    assert len(one.stretches()) == 2 and sum(s.mask.sum() for s in one.stretches()) == one.action_tokens
    assert "Adds two numbers." in CHAT.tokenizer.decode(first.context_ids)


def test_the_same_in_workers() -> None:
    workers = pool(Toolbox)
    try:
        assert without_times(played(made(workers, Toolbox))) == without_times(GROUPS)
    finally:
        workers.close()


def test_stored_and_read_again(tmp_path: Any) -> None:
    """The very objects; and lines of environments without tools have no word of them."""
    store = Trajectories(tmp_path)
    store.write(1, GROUPS)
    read = store.read(1)
    assert read == GROUPS
    assert read[0].trajectories[0].turns[0].action.calls == GROUPS[0].trajectories[0].turns[0].action.calls
    text = store.path(1).read_text()
    assert '"tools": [' in text and '"calls": []' not in text and '"call": ""' not in text and '"tools": []' not in text


def test_encoded_anew_from_what_was_stored() -> None:
    """As demonstrations are, with the tools and the conversations that they had."""
    for one in GROUPS[0].trajectories:
        again = retokenize(CHAT, one)
        for turn, twin in zip(one.turns, again.turns, strict=True):
            assert np.array_equal(turn.context_ids, twin.context_ids)
            assert np.array_equal(turn.action_ids, twin.action_ids)
            assert turn.restarts_context == twin.restarts_context


def test_a_conversation_that_is_rebuilt_keeps_its_tools() -> None:
    class Forgetful(Toolbox):
        def step(self, action: Message) -> Step:
            step = super().step(action)
            return step if step.done or step.thread else replace(step, messages=[Message("user", "anew")], rebuild=True)

    for one in played(lambda: Forgetful(Forgetful.Options()))[0].trajectories:
        assert [turn.tools for turn in one.turns] == [(ADD,), (ADD,), ()]
        assert "Adds two numbers." in CHAT.tokenizer.decode(one.turns[1].context_ids)
        again = retokenize(CHAT, one)
        assert [t.context_ids.tolist() for t in again.turns] == [t.context_ids.tolist() for t in one.turns]


def test_a_player_without_a_model_sees_the_messages() -> None:
    done = asyncio.run(play(Toolbox(Toolbox.Options()), TASKS[0], Script(["well", "yes"])))
    assert [m.content for m in done.messages[:2]] == ["use tools", "add 0 and 2"] and done.turns == 2


class Taught(Toolbox):
    """The same with an expert, who speaks text as all players do."""

    def expert(self, task: Task) -> Script:
        return Script([f"I add.\n{called('add', {'a': task.data['a'], 'b': 2})}", "done"])

    def step(self, action: Message) -> Step:
        """A player without a model counts no tokens."""
        counted = (
            action if isinstance(action, Action) else Action(action.role, action.content, action.calls, "", "", 1, 1)
        )
        return super().step(counted)


def test_a_player_calls_tools_with_blocks_of_json_where_there_are_tools() -> None:
    env = Taught(Taught.Options())
    done = asyncio.run(play(env, TASKS[1], env.expert(TASKS[1])))
    action, answer = done.messages[2:4]
    assert [(call.name, call.arguments) for call in action.calls] == [("add", '{"a": 1, "b": 2}')]
    assert (action.words, answer.content, answer.call) == ("I add.", "3", action.calls[0].id)
    assert done.outcome.success
    assert spoken(called("add", {"a": 1}), ()).calls == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qwen2.5", 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'),
        ("llama3.1", '{"name": "add", "parameters": {"a": 1, "b": 2}}'),
        ("chatml", 'I add.\n```json\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n```'),
    ],
)
def test_a_demonstration_calls_tools_as_the_policys_model_does(name: str, said: str) -> None:
    chat = Chat(tokenizer(name))
    context = RolloutContext(
        lambda: Taught(Taught.Options()),
        chat,
        ScriptedEngine(None, chat, calls),
        RolloutConfig(context=2000),
        SamplingParams(),
    )
    one = asyncio.run(demonstrate(context, TASKS[1]))
    assert (one.success, one.expert, [turn.restarts_context for turn in one.turns[:2]]) == (True, True, [False, False])
    assert one.turns[0].action.content == said
    assert [call.arguments for call in one.turns[0].action.calls] == ['{"a": 1, "b": 2}']
    assert one.turns[0].action_ids[-1] == chat.end_id and one.turns[1].action.content == "done"


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (Step([Message("user", "x")], tools=({"name": "add"},)), "tools must be a list of"),
        (Step([Message("user", "x")], tools="add"), "tools must be a list of"),  # type: ignore[arg-type]
        (
            Step([Message("user", "x")], tools=({"type": "function", "function": {"name": "f", "x": {1}}},)),
            "of the type set",
        ),
        (Step([Message("user", "x")], stop=("",)), "not empty"),
        (Step([Message("user", "x")], thread=3), "thread must be a text"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("method", ["start", "step"])
def test_what_a_step_owes(method: str, step: Step, word: str) -> None:
    with pytest.raises(ContractError, match=word):
        expect(method, step)


def test_start_may_not_be_empty_in_a_step_either() -> None:
    with pytest.raises(ContractError, match="at least one Message"):
        expect("start", Step([], done=True))


def test_trajectories_of_one_conversation_are_as_they_were() -> None:
    """The order of turns is that of time, and nothing restarts."""
    one: Trajectory = GROUPS[0].trajectories[0]
    assert [turn.context[-1].role for turn in one.turns] == ["user", "tool", "user"]
