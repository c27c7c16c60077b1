"""Frozen weights in 4 bits: the same function as the unpacked weights, for the engine, the learner and gradients."""

import asyncio
import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from longloop import api, build
from longloop.algos.loop import Loop
from longloop.config import LearnerConfig, ModelConfig
from longloop.engines.engine import NativeEngine
from longloop.memory import forecast
from longloop.model import quantized
from longloop.model.attention import VarlenPlan
from longloop.model.policy import Policy
from longloop.types import UserError
from tests.support.families import (
    CHAT,
    FAMILIES,
    TOKENIZER,
    config,
    plain_logprobs,
    policy_of,
    prompt,
    talk,
)
from tests.support.helpers import load_config, train

CLOSE = 2e-5
NF4 = (
    *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
)
"""The sixteen values of the format (QLoRA, appendix E)."""


@pytest.fixture
def bits() -> Any:
    return pytest.importorskip("bitsandbytes", reason="needs bitsandbytes: pip install bitsandbytes")


def plain_module(family: str) -> Any:
    """A random model whose matrices have whole blocks."""
    shape = config(family)
    shape.hidden_size, shape.intermediate_size = 64, 128
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(shape, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.randn_like(parameter) * 0.1
    return module


def quantized_policy(module: Any, device: str = "cpu", dtype: Any = "float32") -> Policy:
    settings = ModelConfig(device=device, dtype=dtype, lora_rank=4, quantize="nf4")
    torch.manual_seed(3)
    return Policy(copy.deepcopy(module), TOKENIZER, settings)


def unpacked(module: Any, policy: Policy, bits: Any) -> Any:
    """The plain module with the weights that the policy's 4 bits stand for."""
    whole = copy.deepcopy(module).to(policy.device)
    for name, part in policy.module.named_modules():
        if isinstance(part, bits.nn.Linear4bit) and name.endswith("base_layer"):
            weight = bits.functional.dequantize_4bit(part.weight.data, part.weight.quant_state)
            whole.get_submodule(name.removesuffix(".base_layer")).weight.data = weight
    return whole


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    ids = torch.tensor(prompt(5, 20), device=policy.device)
    hidden = policy.hidden(ids, torch.arange(20, device=policy.device), VarlenPlan([20]))
    policy.score(hidden[:-1], ids[1:], 1.0, chunk=8)[0].sum().backward()
    return {name: p.grad.clone() for name, p in policy.trainable().items() if p.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_engine_and_learner_see_the_unpacked_weights(family: str, bits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU that multiplies in bfloat16, too, where bitsandbytes has another way for what has no gradient."""
    monkeypatch.setattr(bits.nn.modules, "has_avx512bf16", lambda: True)
    module = plain_module(family)
    policy = quantized_policy(module)
    whole = unpacked(module, policy, bits)
    for _, path, linear in quantized.matrices(module):
        assert not torch.equal(linear.weight, whole.get_submodule(path_of(module, linear)).weight), path
    said = asyncio.run(talk(NativeEngine(policy, CHAT, slots=4), "s", 1, [9, 4]))
    ids = prompt(100, 9) + said[0].ids.tolist() + prompt(101, 4) + said[1].ids.tolist()
    expected = plain_logprobs(whole, ids, len(said[1].ids))
    assert said[1].logprobs.tolist() == pytest.approx(expected, abs=CLOSE)
    torch.manual_seed(3)  # the same random halves of the adapters
    mine, theirs = gradients(policy), gradients(policy_of(whole, lora_rank=4))
    assert mine.keys() == theirs.keys() and len(mine) == 2 * 7 * 3
    for name, gradient in mine.items():
        torch.testing.assert_close(gradient, theirs[name], rtol=1e-3, atol=1e-4, msg=name)


def path_of(module: Any, part: Any) -> str:
    return next(name for name, one in module.named_modules() if one is part)


def test_a_weight_is_the_nearest_of_sixteen_values_in_its_block(bits: Any) -> None:
    module = plain_module("llama")
    whole = unpacked(module, quantized_policy(module), bits)
    for _, _, linear in quantized.matrices(module):
        blocks = linear.weight.data.reshape(-1, 64)
        scale = blocks.abs().amax(1, keepdim=True)
        nearest = ((blocks / scale)[..., None] - torch.tensor(NF4)).abs().argmin(-1)
        expected = (torch.tensor(NF4)[nearest] * scale).view_as(linear.weight)
        found = whole.get_submodule(path_of(module, linear)).weight
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)  # scales are rounded to 8 bits themselves


def test_the_ledger_counts_four_bits(bits: Any) -> None:
    shape = config("llama")
    shape.hidden_size, shape.intermediate_size = 256, 512
    model = ModelConfig(device="cpu", dtype="float32", lora_rank=4, quantize="nf4")
    learner = LearnerConfig(micro_tokens=64)
    book = forecast.forecast(shape, model, learner, Loop().needs, 64, sessions=4)
    plain = forecast.forecast(shape, model.model_copy(update={"quantize": ""}), learner, Loop().needs, 64, sessions=4)
    policy = Policy(AutoModelForCausalLM.from_config(shape), TOKENIZER, model)
    held = sum(p.nbytes for name, p in policy.module.named_parameters() if "lora_" not in name)
    for part in policy.module.modules():
        if isinstance(part, bits.nn.Linear4bit):
            state = part.weight.quant_state
            held += state.absmax.nbytes + state.state2.absmax.nbytes
    assert book.weights == pytest.approx(held, rel=0.01) and book.weights < 0.4 * plain.weights
    assert book.working - plain.working == 4 * 256 * 512, "one matrix, unpacked"
    assert (book.adapters, book.optimizer, book.kv, book.copies) == (plain.adapters, plain.optimizer, plain.kv, 1.0)


def test_loop_trains_adapters_on_it_and_exports_whole_weights(bits: Any, tmp_path: Path) -> None:
    words = ("model.lora_rank=4", "model.quantize=nf4", "algo.lr=0.01")
    parts, run, steps = train(tmp_path, *words, "steps=2")
    assert isinstance(parts.learner.policy.module.model.layers[0].mlp.up_proj.base_layer, bits.nn.Linear4bit)
    assert all(step["update"]["ratio_gap"] < 1e-4 for step in steps if "ratio_gap" in step.get("update", {}))
    checkpoint = run.folder / "checkpoints" / "000002"
    settings = load_config(tmp_path, *words, "name=other")
    measured = api.measure(settings, checkpoint, ["dev"])["dev"][0]
    assert measured.tasks == 3
    api.export(settings, checkpoint, tmp_path / "out", "float32")
    exported = load_file(tmp_path / "out" / "model.safetensors")
    adapters = load_file(checkpoint / "model" / "adapter_model.safetensors")
    name = "model.layers.0.mlp.up_proj"
    a, b = (adapters[f"base_model.model.{name}.lora_{half}.weight"] for half in "AB")
    before = build.policy_of([build_stage(settings)]).module.get_submodule(name).weight
    torch.testing.assert_close(exported[f"{name}.weight"], before + b @ a * (32 / 4), rtol=0, atol=1e-6)
    assert b.abs().sum() > 0


def build_stage(settings: Any) -> Any:
    """The model that the run began with, whole."""
    from longloop.store.lineage import Stage

    return Stage(settings.model.model_copy(update={"quantize": "", "lora_rank": 0}), settings.seed)


def test_what_cannot_be_quantized_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="empty where every weight is trained: set lora_rank"):
        load_config(tmp_path, "model.quantize=nf4")
    with pytest.raises(UserError, match=r"leave model\.quantize out, or set ranks\.shard=1"):
        build.check_shards(
            load_config(tmp_path, "model.lora_rank=4", "model.quantize=nf4", "ranks.count=2", "ranks.shard=2")
        )
    for name in ("bitsandbytes", "bitsandbytes.nn"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"needs bitsandbytes.*longloop\[quantized\]"):
        quantized_policy(plain_module("llama"))
