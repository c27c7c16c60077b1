"""TextWorldExpress, the real one: in this Python if the package is there, else in its own virtualenv."""

import asyncio
import functools

import pytest

from longloop import build, config
from longloop.diagnose.trial import players, violations
from longloop.envs.play import Script, Silent, play
from longloop.types import UserError


def world(**options: object) -> build.Environments:
    return build.world(config.Config.model_validate({"env": {"name": "textworld_express", **options}}))


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        world().tasks("dev")
    except UserError as error:
        pytest.skip(str(error))


def test_each_split_has_seeds_of_its_own():
    place = world(game="twc")
    ids = {split: {task.id for task in place.tasks(split)} for split in ("train", "dev", "test")}
    assert [len(some) for some in ids.values()] == [1000] * 3 and len(set.union(*ids.values())) == 3000


@pytest.mark.parametrize(
    "game", ["coin", "cookingworld", "twc", "mapreader", "arithmetic", "sorting", "simonsays", "peckingorder"]
)
def test_experts_win_and_idlers_do_not(game):
    place = world(game=game)
    for task in place.tasks("dev")[:2]:
        env = place.make()
        won = asyncio.run(play(env, task, env.expert(task), max_turns=1000))
        assert won.outcome.success and won.outcome.reward == 1.0
        assert asyncio.run(play(place.make(), task, Silent())).outcome.reward == 0.0
        said = [message.content for message in won.messages if message.role == "assistant"]
        half = asyncio.run(play(place.make(), task, Script(said[: len(said) // 2])))
        assert not half.outcome.success and half.outcome.reward < 1.0


def test_the_same_seed_is_the_same_game():
    place = world()
    task = place.tasks("train")[7]

    async def random_attempt():
        env = place.make()
        return await play(env, task, (await players(env, task))["random"], max_turns=15)

    first = asyncio.run(random_attempt())
    assert first.turns == 15 and asyncio.run(random_attempt()) == first


def test_disobeying_simon_ends_it():
    place = world(game="simonsays")
    task = place.tasks("train")[0]
    played = asyncio.run(play(place.make(), task, Script(["slice banana", "slice banana"])))
    assert played.turns == 1 and played.outcome.reward == 0.0 and not played.outcome.success


def test_params_and_steps():
    """Without doors nothing is closed between rooms; two steps are two steps."""
    place = world(params="numLocations=3,includeDoors=0", steps=2)
    played = asyncio.run(play(place.make(), place.tasks("train")[1], Script(["inventory"] * 3)))
    assert "door" not in played.messages[1].content and played.turns == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"game": "chess"}, "Unknown game"),
        ({"params": "numLocations=99"}, "Number of locations"),
        ({"params": "rooms=3"}, "numDistractorItems"),
    ],
)
def test_bad_options_are_refused(options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("train")


def test_any_text_is_an_action():
    place = world()
    assert asyncio.run(violations(place.make, place.tasks("train")[0])) == []


class Late:
    """An expert who is only called when the game has begun, as one in a worker is."""

    def __init__(self, env, task):
        self._called = functools.cache(lambda: env.expert(task))

    def act(self, messages):
        return self._called().act(messages)


def test_an_expert_may_come_late():
    place = world(game="twc")
    env, task = place.make(), place.tasks("train")[3]
    assert asyncio.run(play(env, task, Late(env, task))).outcome.success


def test_equal_states_have_equal_keys():
    place = world()
    task = place.tasks("train")[3]

    def keys(*actions):
        return asyncio.run(play(place.make(), task, Script(actions))).states

    one, two, other = keys("inventory", "inventory", "look around")
    assert one == two == keys("look around", "inventory")[1] != other
