"""What a score depends on stays as it is: tasks, worlds, instructions, documentation, what an agent reads, the judge.

A change that alters one of these digests alters what a figure measured before it means."""

import asyncio
import hashlib
import json

import pytest

import errands
from errands.apps import APPS
from errands.audit import variants
from errands.catalog import setting
from errands.env import SYSTEM, Errands
from errands.example import after_example
from errands.judge import judge
from errands.world import World
from longloop import Message
from longloop.envs.play import play

DIGESTS = {
    "1.0": {
        "train": "8a2c2f610f60da66",
        "unseen_worlds": "10529fab02d5c4fd",
        "practice": "66a5b7ff12cf2110",
        "dev": "11e5e41e3ebbd93e",
        "validation": "9c088903bf1cf890",
        "test_normal": "5008ec2a3c3497d7",
        "test_challenge": "8e0b10c8a139707c",
        "documentation": "881fe4e0c853ce37",
        "opening": "fb2f677aa2818a8b",
    },
    "1.1": {
        "train": "8a2c2f610f60da66",
        "unseen_worlds": "10529fab02d5c4fd",
        "practice": "66a5b7ff12cf2110",
        "dev": "11e5e41e3ebbd93e",
        "validation": "9c088903bf1cf890",
        "test_normal": "5008ec2a3c3497d7",
        "test_challenge": "8e0b10c8a139707c",
        "documentation": "236157d726ecab32",
        "opening": "5e1cb0a3b65e931b",
    },
    "1.2": {
        "train": "8a2c2f610f60da66",
        "unseen_worlds": "10529fab02d5c4fd",
        "practice": "cdb00744a64fcbd2",
        "dev": "11e5e41e3ebbd93e",
        "validation": "9c088903bf1cf890",
        "test_normal": "5008ec2a3c3497d7",
        "test_challenge": "8e0b10c8a139707c",
        "documentation": "236157d726ecab32",
        "opening": "5e1cb0a3b65e931b",
    },
    "1.3": {
        "train": "65b4e90ea3ce25f3",
        "unseen_worlds": "42371d1154f2b1ce",
        "practice": "35376da500505261",
        "dev": "11e5e41e3ebbd93e",
        "validation": "9097a4c97514dcd1",
        "test_normal": "5008ec2a3c3497d7",
        "test_challenge": "8e0b10c8a139707c",
        "documentation": "236157d726ecab32",
        "opening": "5e1cb0a3b65e931b",
    },
}
"""Version -> what a score depends on -> its digest. The versions before the last stay, to tell what changed when."""
CHANGED = "this changes what a score means: raise errands.__version__, and pin the digests of the new version here"

EVERY = {"practice": 25}
"""Of practice, one kind of errand in so many: all of it would take minutes."""


def rows(world: World) -> str:
    """All that a world's database says."""
    names = world.all("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return json.dumps({row["name"]: world.all(f"SELECT * FROM {row['name']} ORDER BY 1") for row in names})


def pinned(name: str) -> str:
    assert errands.__version__ in DIGESTS, "a new version: pin its digests"
    return DIGESTS[errands.__version__][name]


@pytest.mark.parametrize("split", Errands.splits)
def test_a_split_is_as_it_was(split: str) -> None:
    """Ids, worlds and instructions of its tasks; what the expert does, reads and is paid; what wrong end states are."""
    digest = hashlib.sha256()
    for place, task in enumerate(Errands.tasks(split, Errands.Options())[:: EVERY.get(split, 1)]):
        data = {name: task.data[name] for name in sorted(task.data)}
        made = setting(task.data["scenario"], task.data["world"])
        env = Errands(Errands.Options(example=False))
        played = asyncio.run(play(env, task, env.expert(task)))
        read = [(message.role, message.content) for message in played.messages]
        said = (task.id, task.scenario, data, made.instruction, read, played.outcome)
        digest.update(repr(said).encode())
        digest.update(rows(made.goal.start).encode())
        for what, end in variants(made.goal) if place % 3 == 0 else ():
            digest.update(repr((what, judge(made.goal, end))).encode())
            end.close()
    assert digest.hexdigest()[:16] == pinned(split), CHANGED


def test_the_documentation_is_as_it_was() -> None:
    told = [
        (app.name, app.about, api.name, api.summary, api.documentation) for app in APPS for api in app.apis.values()
    ]
    assert hashlib.sha256(repr(told).encode()).hexdigest()[:16] == pinned("documentation"), CHANGED


def test_the_system_prompt_and_the_worked_example_are_as_they_were() -> None:
    opening = [(message.role, message.content) for message in (Message("system", SYSTEM), *after_example(""))]
    assert hashlib.sha256(repr(opening).encode()).hexdigest()[:16] == pinned("opening"), CHANGED
