"""Errands by function calls, as an environment: the expert's calls, the floors, and what an agent meets."""

import asyncio
import json

import pytest

from errands.tool_env import ErrandsTools
from longloop.diagnose.trial import difference, players, violations
from longloop.envs.calls import called
from longloop.envs.play import Script, play
from longloop.isolation.guard import Watched

OPTIONS = ErrandsTools.Options(per_scenario=1)


def make() -> Watched:
    return Watched(lambda: ErrandsTools(OPTIONS), 60)


@pytest.mark.parametrize("split", ["train", "practice", "dev"])
def test_the_experts_code_as_calls_does_the_errand(split):
    """In practice as well, where half of the APIs have other names."""
    for task in ErrandsTools.tasks(split, OPTIONS)[:: 150 if split == "practice" else 5]:
        env = ErrandsTools(OPTIONS)
        done = asyncio.run(play(env, task, env.expert(task), max_turns=1000))
        assert done.outcome.success and done.outcome.reward == 1.0, task.id
        said = [message for message in done.messages if message.role == "assistant"]
        assert all(len(message.calls) == 1 for message in said) and said[0].words
        assert said[-1].calls[0].name.endswith("complete_task") or split == "practice"
        half = asyncio.run(play(ErrandsTools(OPTIONS), task, Script(done.said[: len(said) // 2])))
        assert not half.outcome.success


def test_others_fail():
    for task in ErrandsTools.tasks("train", OPTIONS)[::7]:
        for name, player in asyncio.run(players(ErrandsTools(OPTIONS), task)).items():
            outcome = asyncio.run(play(ErrandsTools(OPTIONS), task, player)).outcome
            assert outcome.success == (name == "expert"), (task.id, name)


def test_tools_are_those_of_the_errands_apps_unless_all_are_asked_for():
    task = ErrandsTools.tasks("train", OPTIONS)[0]
    tools = [tool["function"]["name"] for tool in ErrandsTools(OPTIONS).start(task).tools]
    assert {name.partition("__")[0] for name in tools} == {*task.data["apps"], "owner"}
    everything = ErrandsTools(ErrandsTools.Options(all_tools=True)).start(task).tools
    assert len(everything) == 224 and {*tools} <= {tool["function"]["name"] for tool in everything}


def test_what_an_agent_meets():
    env, task = ErrandsTools(OPTIONS), ErrandsTools.tasks("train", OPTIONS)[0]
    two = f"{called('owner__show_account', {'app': 'contacts'})}\n{called('owner__fly', {})}"
    met = asyncio.run(play(env, task, Script(["Well.", two, called("owner__complete_task", {}), "more"])))
    heard = met.messages[2:]
    assert heard[1].role == "user" and "no call" in heard[1].content
    account, unknown = heard[3:5]
    assert {*json.loads(account.content)} == {"email", "password"} and unknown.content.startswith("Error: 404")
    assert [account.call, unknown.call] == [call.id for call in heard[2].calls]
    assert met.turns == 3, "the errand is over when the agent says so"


def test_the_contract():
    task = ErrandsTools.tasks("dev", OPTIONS)[0]
    assert asyncio.run(violations(make, task)) == [] and asyncio.run(difference(make, task)) == ""
