"""What a score depends on stays as it is: tasks, worlds, instructions, documentation, what an agent reads, the judge.

A change that alters one of these digests alters what a figure measured before it means."""

import asyncio
import hashlib
import json

import pytest

from errands.apps import APPS
from errands.audit import variants
from errands.catalog import setting
from errands.env import Errands
from errands.judge import judge
from errands.world import World
from longloop.envs.play import play

DIGESTS = {
    "train": "11865f4f967c4297",
    "unseen_worlds": "bf37e5d350cdfaa5",
    "dev": "51e0e703345afd3a",
    "validation": "86ae12f002ebb936",
    "test_normal": "",
    "test_challenge": "",
}
DOCUMENTATION = "ed6653f21ccb9f17"


def rows(world: World) -> str:
    """All that a world's database says."""
    names = world.all("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return json.dumps({row["name"]: world.all(f"SELECT * FROM {row['name']} ORDER BY 1") for row in names})


@pytest.mark.parametrize("split", DIGESTS)
def test_a_split_is_as_it_was(split: str) -> None:
    digest = hashlib.sha256()
    for place, task in enumerate(Errands.tasks(split, Errands.Options())):
        data = {name: task.data[name] for name in sorted(task.data)}
        made = setting(task.data["scenario"], task.data["world"])
        env = Errands(Errands.Options())
        played = asyncio.run(play(env, task, env.expert(task)))
        read = [(message.role, message.content) for message in played.messages]
        said = (task.id, task.scenario, data, made.instruction, read, played.outcome)
        digest.update(repr(said).encode())
        digest.update(rows(made.goal.start).encode())
        for what, end in variants(made.goal) if place % 3 == 0 else ():
            digest.update(repr((what, judge(made.goal, end))).encode())
            end.close()
    assert digest.hexdigest()[:16] == DIGESTS[split]


def test_the_documentation_is_as_it_was() -> None:
    told = [
        (app.name, app.about, api.name, api.summary, api.documentation()) for app in APPS for api in app.apis.values()
    ]
    assert hashlib.sha256(repr(told).encode()).hexdigest()[:16] == DOCUMENTATION
