"""The doctor leaves no trace: the run after it is, to the bit, the run without it."""

import asyncio
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from longloop import api, build
from longloop.store.run import Run
from tests.support.helpers import Silent, load_config

DICING = ["env.name=tests.support.broken:Dicing", "steps=2"]


def timeless(line: str) -> object:
    def without(value: object) -> object:
        if isinstance(value, dict):
            return {key: without(v) for key, v in value.items() if key not in ("time", "seconds", "memory")}
        return [without(v) for v in value] if isinstance(value, list) else value

    return without(json.loads(line))


def contents(run: Path) -> dict[str, object]:
    """All that a run wrote, but for how long things took."""
    found: dict[str, object] = {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*.safetensors")}
    for path in run.rglob("0*.jsonl"):
        found[str(path.relative_to(run))] = [timeless(line) for line in path.read_text().splitlines()]
    found["metrics"] = [timeless(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(found) > 4 and "drawn" in str(found)
    return found


def generators() -> tuple:
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()


def trained(parts: build.Training) -> dict[str, object]:
    random.seed(5)  # what the environment draws
    with Run.create(parts.config, {}) as run:
        asyncio.run(api.run_loop(parts, run, Silent()))
    return contents(run.folder)


def test_train_with_and_without(tmp_path):
    """What `longloop train` does, in an environment that draws from the common random numbers."""
    runs = []
    for doctor in ("true", "false"):
        random.seed(5)
        config = load_config(tmp_path, *DICING, f"name=doctor-{doctor}", f"doctor={doctor}")
        runs.append(contents(api.train(config, progress=False).folder))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("more", [[], ["model.lora_rank=4"], ["algo.name=ppo"], ["model.dtype=bfloat16"]])
def test_a_run_after_all_of_it(tmp_path, more):
    config = load_config(tmp_path, *DICING, *more)
    parts = api.prepared(config.model_copy(update={"name": "after"}))
    weights = {name: p.detach().clone() for name, p in parts.policy.module.named_parameters()}
    before = generators()

    async def examine() -> list[str]:
        return [finding.verdict async for finding in api.checkup(parts)]

    assert asyncio.run(examine()) == ["pass"] * 16
    assert generators() == before and not parts.learner.optimizer.state
    assert all(torch.equal(p, weights[name]) for name, p in parts.policy.module.named_parameters())
    assert trained(parts) == trained(api.prepared(config))
