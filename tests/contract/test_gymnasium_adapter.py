"""Gymnasium's environments as ours: one with texts, written here, and one of the library's own with numbered moves."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longloop import build, config
from longloop.diagnose.trial import difference, violations
from longloop.envs.play import Script, Silent, play
from longloop.types import UserError

pytest.importorskip("gymnasium", reason="gymnasium is not installed")

ECHO = '''
"""Say the word that is shown: half a point each time, three turns, and a point less for saying "bad"."""

import gymnasium
from gymnasium.spaces import Text

WORDS = ["red", "green", "blue", "white"]


class Echo(gymnasium.Env):
    observation_space = action_space = Text(8)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        paid = -1.0 if action == "bad" else 0.5 * (action == self.word)
        return self._show(), paid, False, False, {}

    def _show(self):
        self.word = WORDS[self.np_random.integers(len(WORDS))]
        return f"say {self.word}"


class Box(Echo):
    action_space = gymnasium.spaces.Box(0, 1)


gymnasium.register("Echo-v0", Echo, max_episode_steps=3)
gymnasium.register("Box-v0", Box)
'''
LAKE = {"id": "FrozenLake-v1", "options": {"is_slippery": False, "render_mode": "ansi"}}
MOVES = ["left", "down", "right", "up"]


class Obedient:
    def act(self, messages):
        return f"Thought: easy\nAction: {messages[-1].content.removeprefix('say ')}"


@pytest.fixture
def world(tmp_path, monkeypatch):
    (tmp_path / "echo_worlds.py").write_text(ECHO)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda **options: build.world(config.Config.model_validate({"env": {"name": "gymnasium", **options}}))


def attempt(place, player, number=0):
    return asyncio.run(play(place.make(), place.tasks("train")[number], player))


def test_texts_go_both_ways(world):
    place = world(id="echo_worlds:Echo-v0", about="You are a parrot.")
    played = attempt(place, Obedient())
    assert played.turns == 3 and played.outcome.success and played.outcome.reward == 1.0, "1.5, clipped"
    assert played.messages[0].content.startswith("You are a parrot.") and played.messages[1].content.startswith("say ")
    assert attempt(place, Silent()).outcome.reward == 0.0


def test_how_rewards_become_one(world):
    """Two words said, then a bad one: 0.5 + 0.5 - 1 is 0, and the last reward, -1, is clipped to it."""
    place = world(id="echo_worlds:Echo-v0", success=0.5)
    words = [message.content[4:] for message in attempt(place, Obedient()).messages if message.role == "user"]
    for said, by_sum, by_last in [
        ((*words[:2], "bad"), 0.0, 0.0),
        (("no", "no", words[2]), 0.5, 0.5),
        (words[:2], 1.0, 0.5),
    ]:
        assert attempt(place, Script(said)).outcome.reward == by_sum
        last = attempt(world(id="echo_worlds:Echo-v0", reward="last", success=0.5), Script(said)).outcome
        assert last.reward == by_last and last.success == (by_last >= 0.5)


def test_seeds_are_tasks(world):
    place = world(id="echo_worlds:Echo-v0", count=10)
    assert len({task.data["seed"] for split in ("train", "dev", "test") for task in place.tasks(split)}) == 30
    assert len({attempt(place, Silent(), number).messages[1].content for number in range(10)}) > 1
    assert not asyncio.run(difference(place.make, place.tasks("train")[0]))


@pytest.mark.parametrize("said", [["down", "down", "right", "right", "down", "right"], ["1", "1", "2", "2", "1", "2"]])
def test_moves_by_name_and_by_number(world, said):
    """The one safe way over a lake that is not slippery."""
    played = attempt(world(**LAKE, actions=MOVES), Script(said))
    assert played.outcome.success and played.turns == 6
    assert "left, down, right, up" in played.messages[0].content
    assert played.messages[1].content == "\n[S]FFF\nFHFH\nFFFH\nHFFG\n", "where it stands is in brackets"


def test_what_is_no_move_is_answered(world):
    place = world(**LAKE, actions=MOVES)
    played = attempt(place, Script(["fly"]))
    assert played.messages[-1].content == "There is no action 'fly'. The actions are: left, down, right, up."
    for some in (place, world(id="echo_worlds:Echo-v0")):
        assert asyncio.run(violations(some.make, some.tasks("train")[0])) == []
    env = place.make()
    task = place.tasks("train")[0]
    assert asyncio.run(play(env, task, env.baselines(task)["random"])).turns > 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "needs env.id"),
        ({"id": "NoSuchWorld-v0"}, "cannot be made"),
        ({"id": "no_such_module:Echo-v0"}, "cannot be made"),
        ({"id": "echo_worlds:Echo-v0", "options": {"speed": 3}}, "cannot be made"),
        ({"id": "echo_worlds:Box-v0"}, "only text and discrete"),
        ({**LAKE, "actions": ["left", "right"]}, "2 names"),
    ],
)
def test_bad_options_are_refused(world, options, complaint):
    with pytest.raises(UserError, match=complaint):
        world(**options).tasks("train")


def test_our_module_does_not_hide_the_library(tmp_path):
    """In a bare process, as a worker is one."""
    code = (
        "import asyncio, longloop.envs.gymnasium as ours\n"
        "assert ours.Gymnasium.tasks('dev', ours.Gymnasium.Options(id='FrozenLake-v1', count=3))\n"
        "import gymnasium; assert gymnasium.__file__ != ours.__file__ and 'torch' not in __import__('sys').modules"
    )
    root = str(Path(build.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, check=True)
