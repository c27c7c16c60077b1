"""On a CUDA device: the same code samples and learns, in float32 and in bfloat16."""

import asyncio

import pytest
import torch

from longloop import api
from longloop.diagnose.preflight import preflight
from longloop.store.run import Run
from longloop.types import UserError
from tests.support.helpers import Silent, load_config, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def gaps(steps: list[dict]) -> list[float]:
    return [step["update"]["ratio_gap"] for step in steps if "ratio_gap" in step["update"]]


def test_float32_agrees_to_rounding(tmp_path):
    parts, _, steps = train(tmp_path, "model.dtype=float32", "algo.name=reinforce", "steps=5")
    assert parts.policy.device.type == "cuda"
    assert gaps(steps) and max(gaps(steps)) < 1e-4


@pytest.mark.parametrize("settings", [[], ["model.lora_rank=4"], ["learner.checkpointing=true"]])
def test_bfloat16_trains(tmp_path, settings):
    """Engine and learner agree on average (the run would refuse otherwise), and what is trained is float32."""
    parts, _, steps = train(tmp_path, "algo.name=reinforce", "steps=5", *settings)
    assert parts.policy.bf16
    assert len(gaps(steps)) == 5
    assert {p.dtype for p in parts.learner.parameters.values()} == {torch.float32}


def test_learns_in_bfloat16(tmp_path):
    settings = [
        "algo.lr=1.5e-3",
        "algo.k=8",
        "tasks_per_step=6",
        "steps=100",
        "save.every=100",
        "rollout.turn_tokens=1",
    ]
    _, _, steps = train(tmp_path, *settings)
    success = [step["success"] for step in steps]
    assert sum(success[-10:]) / 10 > sum(success[:5]) / 5 + 0.4


def test_engine_gives_memory_back_before_the_update(tmp_path):
    parts, _, _ = train(tmp_path, "steps=1")
    assert parts.rollouts.context.engine.cache.bytes == 0


def test_memory_check_runs_the_longest_trajectory(tmp_path):
    def checked(*settings):
        parts = api.prepared(load_config(tmp_path, *settings))
        return asyncio.run(
            preflight(parts.config, parts.world, parts.rollouts, parts.algo, parts.learner, parts.tasks, print)
        )

    assert checked() is not None
    with pytest.raises(UserError, match="will not fit"):
        checked("rollout.context=300000000")


@pytest.mark.parametrize("settings", [[], ["model.lora_rank=4"]])
def test_a_run_can_be_resumed(tmp_path, settings):
    """The optimizer's state, its step count included, is where the parameters are, and the next update goes on."""
    parts, run, _ = train(tmp_path, "steps=2", *settings)
    resumed = api.prepared(parts.config.model_copy(update={"steps": 4}))
    report = Silent()
    with Run.reopen(run.folder) as again:
        asyncio.run(api.run_loop(resumed, again, report))
    assert [step["step"] for step in report.steps] == [3, 4]
    state = resumed.learner.optimizer.state
    assert {value.device.type for kinds in state.values() for value in kinds.values()} == {"cuda"}
    assert {float(kinds["step"]) for kinds in state.values()} == {float(sum(s["updates"] for s in all_steps(run)))}


def all_steps(run: Run) -> list[dict]:
    return [line for line in run.metrics.read() if line["step"]]
