"""On a CUDA device: frozen weights in 4 bits. Recorded passes, the learner and its gradients are those of the weights
that the 4 bits stand for."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longloop.engines.engine import NativeEngine
from longloop.model.attention import VarlenPlan
from longloop.model.policy import Policy
from longloop.types import Sampled
from tests.support.families import CHAT, FAMILIES, policy_of, prompt, talk
from tests.support.helpers import train
from tests.unit.test_quantized import gradients, plain_module, quantized_policy, unpacked

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def bits() -> Any:
    return pytest.importorskip("bitsandbytes", reason="needs bitsandbytes: pip install bitsandbytes")


@torch.no_grad()
def gap(policy: Policy, said: list[list[Sampled]]) -> float:
    """The largest between what the engine and a plain forward pass of the policy say of a token."""
    worst = 0.0
    for number, (first, second) in enumerate(said, 1):
        whole = prompt(100 * number, 9) + first.ids.tolist() + prompt(100 * number + 1, 4) + second.ids.tolist()
        ids = torch.tensor(whole, device=policy.device)
        hidden = policy.hidden(ids, torch.arange(len(ids), device=policy.device), VarlenPlan([len(ids)]))
        last = len(second.ids)
        logp = policy.logits(hidden).log_softmax(-1)[-last - 1 : -1].gather(1, ids[-last:, None])[:, 0]
        worst = max(worst, float(np.abs(logp.float().cpu().numpy() - second.logprobs).max()))
    return worst


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize(("dtype", "near"), [("float32", 2e-3), ("bfloat16", 1.0)])
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_passes_are_the_learners(family: str, dtype: str, near: float, compile: bool, bits: Any) -> None:
    policy = quantized_policy(plain_module(family), "cuda", dtype)
    engine = NativeEngine(policy, CHAT, slots=4, compile=compile)

    async def everyone() -> list[list[Sampled]]:
        return await asyncio.gather(*(talk(engine, str(seed), seed, [9, 4]) for seed in (1, 2, 3)))

    assert gap(policy, asyncio.run(everyone())) < near


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_the_unpacked_weights(family: str, bits: Any) -> None:
    module = plain_module(family)
    policy = quantized_policy(module, "cuda")
    whole = unpacked(module, policy, bits)
    torch.manual_seed(3)  # the same random halves of the adapters
    mine, theirs = gradients(policy), gradients(policy_of(whole, lora_rank=4, device="cuda"))
    assert mine.keys() == theirs.keys() and len(mine) == 2 * 7 * 3
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-2, atol=1e-3, msg=name)


def test_loop_trains_adapters_on_it(bits: Any, tmp_path: Path) -> None:
    words = ("model.lora_rank=4", "model.quantize=nf4", "algo.lr=0.01", "steps=3")
    parts, _, steps = train(tmp_path, *words)
    assert isinstance(parts.learner.policy.module.model.layers[0].mlp.up_proj.base_layer, bits.nn.Linear4bit)
    gaps = [step["update"]["ratio_gap"] for step in steps if "ratio_gap" in step.get("update", {})]
    assert gaps and max(gaps) < 0.2
