"""ScienceWorld, the real one: in this Python if the package is there, else in the environment's own virtualenv."""

import asyncio
import functools
import json
import lzma
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longloop import build, config
from longloop.diagnose.trial import players, violations
from longloop.envs.play import Script, Silent, play
from longloop.envs.scienceworld import ScienceWorld
from longloop.isolation import virtualenv
from longloop.types import Task, UserError
from tests.support import published

ROOT = Path(__file__).parents[2]
SPLITS = ("train", "dev", "test")
LISTING = """
import json, sys
from longloop.envs.scienceworld import ScienceWorld
from longloop.types import UserError

for line in sys.stdin:
    split, options = json.loads(line)
    try:
        answer = [task.id for task in ScienceWorld.tasks(split, ScienceWorld.Options(**options))]
    except UserError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""
"""Answers each (split, options) with the tasks, or with why there are none."""


def world(**options: object) -> build.Environments:
    return build.world(config.Config.model_validate({"env": {"name": "scienceworld", **options}}))


@pytest.fixture(scope="module")
def place() -> build.Environments:
    try:
        place = world()
        place.tasks("dev")
    except UserError as error:
        pytest.skip(str(error))
    return place


def task(kind: str, variation: int) -> Task:
    return Task(f"{kind}/{variation}", "train", {"kind": kind, "variation": variation})


def attempt(place: build.Environments, task: Task, *lines: str):
    return asyncio.run(play(place.make(), task, Script(lines), max_turns=1000))


def test_splits_are_the_simulators_own(place):
    ids = {split: {task.id for task in place.tasks(split)} for split in SPLITS}
    assert [len(ids[split]) for split in SPLITS] == [3592, 1796, 1819]
    assert len(set.union(*ids.values())) == 7207
    assert "boil/13" in ids["train"] and "boil/14" in ids["dev"] and "boil/21" in ids["test"]


@pytest.fixture(scope="module")
def tasks(place) -> Iterator[Callable[..., list[str]]]:
    """Asks for tasks under any options, in one process: the simulator takes seconds to find out what it has."""
    command = [virtualenv.python("scienceworld", ScienceWorld), "-c", LISTING]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asked(split: str, **options: object) -> list[str]:
        print(json.dumps([split, options]), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
        if isinstance(answer, str):
            raise UserError(answer)
        return answer

    with process:
        yield asked


@published.needed("splits")
def test_index_lists_replace_the_splits(tasks):
    splits = published.folder("splits")
    lists = {split: tasks(split, indices=f"{splits}/eto_sciworld_{{split}}_indices.json") for split in SPLITS}
    assert [len(lists[split]) for split in SPLITS] == [1483, 194, 211]
    assert lists["test"][0] == "boil/21"
    first = json.loads((splits / "eto_sciworld_train_indices.json").read_text())[0]
    assert first == ["task-2a-test-conductivity", 412] and lists["train"][0] == "test-conductivity/412"


@pytest.mark.parametrize(
    ("content", "name", "complaint"),
    [
        ('[["boil", 0]]', "mine.json", "{split}"),
        ('[["boil", 0]]', "none_{split}.json", "cannot read"),
        ('{"boil": 0}', "{split}.json", "not a JSON list"),
        ('[["boil", 30]]', "{split}.json", "boil 30"),
        ('[["fly", 0]]', "{split}.json", "fly 0"),
    ],
)
def test_bad_index_lists_are_refused(tasks, tmp_path, content, name, complaint):
    (tmp_path / ("mine.json" if "{split}" not in name else "train.json")).write_text(content)
    with pytest.raises(UserError, match=complaint):
        tasks("train", indices=str(tmp_path / name))


def test_an_unknown_simplification_is_refused(tasks):
    with pytest.raises(UserError, match="there is no 'easier'"):
        tasks("dev", simplification="easier")


@published.needed("scienceworld")
def test_stored_gold_paths_arrive(place):
    """Three kinds of tasks, as the published wrapper recorded them: the fast path pays the same."""
    with lzma.open(published.folder("scienceworld") / "gold_easy.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    for kind in ("lifespan-longest-lived", "chemistry-mix", "find-plant"):
        row = next(row for row in rows if row["task"] == kind)
        played = attempt(place, task(kind, row["variation"]), *(step["action"] for step in row["steps"]))
        assert played.outcome.success and played.outcome.reward == 1.0 and played.outcome.info == {"score": 100}
        assert played.turns == 1 + [step["done"] for step in row["steps"]].index(True)


def test_the_expert_arrives_and_half_its_way_is_paid_less(place):
    env = place.make()
    where = task("find-animal", 3)
    played = asyncio.run(play(env, where, env.expert(where), max_turns=1000))
    assert played.outcome.success and played.outcome.reward == 1.0
    said = [message.content for message in played.messages if message.role == "assistant"]
    half = attempt(place, where, *said[: len(said) // 2])
    assert 0 < half.outcome.reward < 1 and half.outcome.reward == half.outcome.info["score"] / 100


def test_a_wrong_focus_ends_it_with_nothing(place):
    played = attempt(place, task("boil", 0), "look around", "focus on air", "look around")
    assert played.turns == 2 and played.outcome.reward == 0.0 and played.outcome.info == {"score": -100}


def test_what_the_reset_scores_is_not_paid(place):
    """find-* begin with 8 of 100 points: neither nothing nor looking around is worth anything."""
    where = task("find-plant", 0)
    assert asyncio.run(play(place.make(), where, Silent())).outcome.reward == 0.0
    looked = attempt(place, where, "look around")
    assert looked.outcome.reward == 0.0 and looked.outcome.info == {"score": 8}


def test_the_same_task_starts_and_goes_on_the_same(place):
    """The order of things in this room changes from load to load in a JVM without our options."""
    where = task("boil", 14)

    async def random_attempt():
        env = place.make()
        return await play(env, where, (await players(env, where))["random"], max_turns=5)

    attempts = [asyncio.run(random_attempt()) for _ in range(4)]
    assert attempts[0].turns > 1 and all(other == attempts[0] for other in attempts[1:])


def test_equal_states_have_equal_keys(place):
    where = task("boil", 0)
    *_, there = attempt(place, where, "teleport to kitchen", "look around").states
    *_, back = attempt(place, where, "teleport to foundry", "teleport to kitchen", "look around").states
    *_, other = attempt(place, where, "teleport to foundry", "look around").states
    assert there == back != other


def test_steps_end_an_attempt(place):
    played = attempt(world(steps=2), task("boil", 0), *["look around"] * 5)
    assert played.turns == 2 and not played.outcome.success


def test_any_text_is_an_action(place):
    assert asyncio.run(violations(place.make, task("boil", 0))) == []
    played = attempt(place, task("boil", 0), "Thought: hm\nAction: gobble")
    assert played.messages[-1].content == "No known action matches that input."


class Late:
    """An expert who is only called when the game has begun, as one in a worker is."""

    def __init__(self, env, task):
        self._called = functools.cache(lambda: env.expert(task))

    def act(self, messages):
        return self._called().act(messages)


def test_an_expert_may_come_late(place):
    env, where = place.make(), task("find-plant", 5)
    assert asyncio.run(play(env, where, Late(env, where))).outcome.success
