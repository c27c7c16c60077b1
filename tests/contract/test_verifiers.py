"""verifiers, the real one, in its own virtualenv, with environments of ours as its hub has them."""

import asyncio
from pathlib import Path

import pytest

from longloop import build, config
from longloop.diagnose.trial import violations
from longloop.envs.calls import called
from longloop.envs.play import Played, Script, play
from longloop.gateway import verifiers
from longloop.gateway.verifiers import Verifiers, _examples
from longloop.types import Fault, Message, Step, StopReason, Task, UserError

HUB = Path(__file__).parents[1] / "support" / "hub"


KINDS = ("guess", "forgetful", "tools", "single", "broken judge")
"""In this order, with twenty examples each."""


def world(**options: object) -> build.Environments:
    given = {"name": "verifiers", "id": "small", "workers": 1, **options}
    return build.world(config.Config.model_validate({"env": given}))


@pytest.fixture(scope="module")
def place():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HUB)  # where the module is found
        try:
            found = world()
            found.tasks("dev")
        except UserError as error:
            pytest.skip(str(error))
        yield found


def task(place: build.Environments, kind: str, number: int) -> Task:
    wanted = f"train/{20 * KINDS.index(kind) + number}"
    return next(one for one in place.tasks("train") if one.id == wanted)


def played(place: build.Environments, kind: str, number: int, *actions: str, turns: int = 9) -> Played:
    return asyncio.run(play(place.make(), task(place, kind, number), Script(actions), max_turns=turns))


async def steps(place: build.Environments, chosen: Task, *actions: str) -> list[Step]:
    """What an attempt is told, step by step."""
    env = place.make()
    await env.ready()
    found = [Step.of(await env.start(chosen))]
    for said in actions:
        found.append(await env.step(Message("assistant", said)))
    await env.finish()
    return found


def test_its_own_loop_tells_and_its_own_rubric_scores(place):
    won = played(place, "guess", 3, "2", "9", "4", "never said")
    assert [(one.role, one.content) for one in won.messages] == [
        ("system", "Say a number."),
        ("user", "guess 1-9, number 3"),
        ("assistant", "2"),
        ("user", "higher"),
        ("assistant", "9"),
        ("user", "lower"),
        ("assistant", "4"),
    ], "after its third try it is over, and nothing more is said"
    assert (won.turns, won.outcome.reward, won.outcome.success) == (3, 0.5, False)
    assert won.outcome.info["metrics"] | {"right": 0.5, "tries": 2.0, "num_turns": 3.0} == won.outcome.info["metrics"]
    assert won.outcome.info["stop"] == "max_turns_reached"
    quick = played(place, "guess", 3, "4")
    assert (quick.outcome.reward, quick.outcome.success, quick.messages[-1].content) == (1.0, True, "right")
    assert quick.outcome.info["stop"] == "has_final_env_response"


def test_an_attempt_that_is_cut_off_is_scored(place):
    cut = played(place, "guess", 3, "4", "9", turns=1)
    assert cut.outcome.reward == 1.0
    cut = played(place, "guess", 3, "2", "9", turns=1).outcome
    assert (cut.reward, cut.info["metrics"]["num_turns"], cut.info["stop"]) == (0.0, 1.0, "prompt_too_long")
    assert played(place, "guess", 3).outcome.reward == 0.0, "who says nothing"


def test_a_history_that_is_rewritten_begins_a_conversation(place):
    first, second, third, last = asyncio.run(steps(place, task(place, "forgetful", 3), "1", "2", "3"))
    assert [one.content for one in first.messages] == ["Say a number.", "guess 1-9, number 3"]
    assert [one.content for one in second.messages] == ["higher"] and second.thread == ""
    assert [one.content for one in third.messages] == ["Say a number.", "higher"] and third.thread != ""
    assert last.done and not last.messages


def test_tools_are_called_and_their_errors_answered(place):
    lost = called("add", {"a": 1}), called("fly", {})
    done = played(place, "tools", 4, *lost, f"Let me see. {called('add', {'a': 4, 'b': 5})}", "9")
    answers = [one for one in done.messages if one.role == "tool"]
    assert "missing" in answers[0].content and "fly" in answers[1].content and answers[2].content == "9"
    assert (done.outcome.reward, done.outcome.success) == (1.0, True)
    assert done.outcome.info["metrics"]["total_tool_calls"] == 3.0
    (opening,) = asyncio.run(steps(place, task(place, "tools", 0)))
    (tool,) = opening.tools
    assert tool["function"]["name"] == "add" and set(tool["function"]["parameters"]["required"]) == {"a", "b"}
    assert tool["function"]["description"].startswith("Add two numbers.")


def test_single_turns(place):
    single = played(place, "single", 3, "4", "never said")
    assert (single.turns, single.outcome.reward) == (1, 1.0)


@pytest.mark.parametrize(
    ("kind", "said", "what"),
    [
        ("guess", "break", "the table fell over"),
        ("guess", "bug", "nobody expected this"),
        ("broken judge", "4", "a judge that fails"),
    ],
)
def test_what_fails_is_no_reward(place, kind, said, what):
    with pytest.raises(Fault, match=what) as raised:
        asyncio.run(play(place.guarded(60)(), task(place, kind, 3), Script([said])))
    assert raised.value.stop is StopReason.ENV_ERROR


def test_it_keeps_the_contract(place):
    assert asyncio.run(violations(place.guarded(60), task(place, "guess", 0))) == []


def test_one_example_in_ten_is_held_out(place):
    train, dev = place.tasks("train"), place.tasks("dev")
    assert [one.id for one in dev[:3]] == ["dev/9", "dev/19", "dev/29"] and (len(train), len(dev)) == (90, 10)
    assert dev[0].data == {"index": 9, "answers": ["1"]}
    with pytest.raises(UserError, match="no tasks in the split 'test'"):
        place.tasks("test")


def test_data_for_evaluation_is_dev():
    class Both:
        def build_dataset(self):
            return ["a"] * 30

        def build_eval_dataset(self):
            return ["b"] * 4

    assert _examples(Both(), "train") == (["a"] * 30, range(30))
    assert _examples(Both(), "dev") == (["b"] * 4, range(4))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"id": ""}, "env.id must name an environment"),
        ({"id": "nowhere"}, "Could not import 'nowhere'"),
    ],
)
def test_bad_options_are_refused(place, options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("dev")


def test_a_rubric_that_scores_attempts_together_is_refused(monkeypatch):
    class Together:
        requires_group_rollouts = True

    monkeypatch.setattr(verifiers, "_loaded", lambda options: Together())
    with pytest.raises(UserError, match="scores several attempts together"):
        Verifiers.tasks("dev", Verifiers.Options("small"))
