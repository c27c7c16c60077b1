"""The settings of worker processes, which stand beside an environment's own."""

import asyncio
from dataclasses import replace

import pytest

from longloop import build, config
from longloop.envs.guess import Guess
from longloop.types import Message, Step, UserError


@pytest.mark.parametrize("kind", ["process", "inline"])
def test_the_settings_are_not_the_environments(kind: str) -> None:
    """They stand beside its options, and a run is the same with either."""
    table = {"name": "guess", "highest": 4, "isolation": kind, "workers": 1, "worker_memory": 1000}
    world = build.world(config.resolve({"env": table}, "test"))
    assert world.options == Guess.Options(highest=4) and (world.pool is not None) == (kind == "process")
    assert [task.id for task in world.tasks("dev")] == [f"guess-{n}-of-4" for n in (1, 2, 3, 4)]
    with pytest.raises(UserError, match="Guess has no tasks in the split 'nowhere'"):
        world.tasks("nowhere")
    step = asyncio.run(_first_step(world))
    assert step == Step([Message("user", "higher")], info={"state": "2-4, 2 left", "failed": False})


async def _first_step(world: build.Environments) -> Step:
    env = world.make()
    await env.start(world.tasks("dev")[1])
    step = await env.step(Message("assistant", "1"))
    await env.finish()
    return replace(step, messages=list(step.messages))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("isolation='thread'", "env.isolation = 'thread': Input should be '', 'inline', 'process' or 'venv'."),
        ("workers=-1", "env.workers = -1: Input should be greater than or equal to 0."),
        ("worker_memory=0", "env.worker_memory = 0: Input should be greater than 0."),
        ("worker_pages=3", "Unknown key 'env.worker_pages'"),
    ],
)
def test_wrong_settings_are_refused(setting: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        build.world(config.resolve({"env": {"name": "guess"}}, "test", [f"env.{setting}"]))
    assert str(refused.value).startswith(said)
