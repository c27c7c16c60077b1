"""Which models are accepted, and what a policy and its learner are after they were saved and loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from longloop.algos.grpo import Grpo
from longloop.config import LearnerConfig
from longloop.learners.agreement import Agreement
from longloop.learners.local import LocalLearner
from longloop.types import Batch, Metrics, Minibatch, Needs, Sample, Scored, UserError
from tests.support.families import TOKENIZER, plain_module, policy_of, prompt

LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def random_module(family: str, **sizes: Any) -> Any:
    """A random model of four layers, its weights large enough to tell models apart."""
    plain = {"vocab_size": len(TOKENIZER), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    settings = AutoConfig.for_model(family, **plain | heads | ends | sizes)
    module = AutoModelForCausalLM.from_config(settings)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
    return module.eval()


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("lfm2", {"layer_types": ["conv", "full_attention"] * 2}),
        ("granitemoehybrid", {"layer_types": ["mamba", "attention"] * 2, "mamba_n_heads": 4, "mamba_d_head": 16}),
        ("falcon_h1", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}),
        ("qwen3_next", LINEAR | EXPERTS | {"shared_expert_intermediate_size": 16}),
        ("qwen3_5_text", LINEAR),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_that_carry_a_state_are_refused(family: str, sizes: dict[str, Any], dtype: str) -> None:
    """A packed row would be one sequence to them, and the engine keeps no such state."""
    with pytest.raises(UserError, match="layers other than attention"):
        policy_of(random_module(family, **sizes), dtype=dtype)


LATENT = {"q_lora_rank": None, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
FEW = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        ("gemma2", {}),
        ("gpt_oss", EXPERTS),
        ("deepseek_v3", LATENT | FEW),
        ("llama4_text", {"num_local_experts": 2, "num_experts_per_tok": 1, "intermediate_size_mlp": 32}),
        ("mamba2", {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1}),
        ("gpt_neo", {"num_layers": 4, "num_heads": 2, "attention_types": [[["global"], 4]]}),
    ],
)
def test_attention_of_another_kind_is_refused_in_a_sentence(family: str, sizes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"longloop lacks|does not run under longloop|attention interface|not support"):
        policy_of(random_module(family, **sizes))


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_experts_are_none_of_them(family: str, dtype: str) -> None:
    policy_of(random_module(family, **EXPERTS), dtype=dtype)


# --- saved and loaded ---

IDS = np.array(prompt(5, 24))
MINIBATCH = Minibatch(
    [Sample(IDS, np.arange(24) > 3, np.zeros(24), np.zeros(24, int), np.ones(24), np.ones(24), own=False)],
    20.0,
    1,
    False,
)


def likelier(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
    return -scored.logp_N.sum(), {}


def learner_of(module: Any, dtype: str = "float32", lora: int = 0) -> LocalLearner:
    needs = Needs(lr=1e-2, weight_decay=0.0, max_grad_norm=1.0, kl_guard=1e9)
    return LocalLearner(policy_of(module, lora, dtype=dtype), needs, LearnerConfig(), 1.0, seed=0)


def logprob(learner: LocalLearner) -> float:
    return float(learner.logprobs(MINIBATCH.samples)[0].sum())


def trained(learner: LocalLearner, steps: int) -> LocalLearner:
    for _ in range(steps):
        learner.update(MINIBATCH, likelier)
    return learner


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize(("saved", "resumed"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_a_run_goes_on_in_another_precision(tmp_path: Path, saved: str, resumed: str, lora: int) -> None:
    """`dtype=auto` is float32 on a CPU and bfloat16 on a card. What was learned is there, also after the next step, and
    whose log-probs count is decided anew: other kernels compute them."""
    module = plain_module("llama")
    one = trained(learner_of(module, saved, lora), 12)
    one.agreement = Agreement(9, 0.0, 0.0, 0.0, 0.0, "", 0.0, "sampler")
    one.save(tmp_path)
    before, after = logprob(learner_of(module, saved, lora)), logprob(one)
    assert after > before + 20
    other = learner_of(module, resumed, lora)
    other.load(tmp_path)
    assert other.agreement is None
    assert logprob(other) == pytest.approx(after, abs=2.0)
    assert logprob(trained(other, 1)) > after - 2.0
    same = learner_of(module, saved, lora)
    same.load(tmp_path)
    assert same.agreement == one.agreement and logprob(same) == after
    assert logprob(trained(same, 2)) == logprob(trained(one, 2))


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
def test_experts_are_resumed(tmp_path: Path, family: str) -> None:
    """transformers stores experts under other names than the module's."""
    module = random_module(family, **EXPERTS)
    one = trained(learner_of(module), 3)
    one.save(tmp_path)
    other = learner_of(module)
    assert logprob(other) != logprob(one)
    other.load(tmp_path)
    assert logprob(other) == logprob(one)
    for name, weight in one.policy.module.state_dict().items():
        assert torch.equal(other.policy.module.state_dict()[name], weight), name


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    one = learner_of(plain_module("llama"))
    one.save(tmp_path)
    file = tmp_path / "model" / "model.safetensors"
    save_file({name: value for name, value in load_file(file).items() if "layers.1.mlp.up" not in name}, file)
    with pytest.raises(UserError, match=r"lacks weights of the model: model\.layers\.1\.mlp\.up_proj\.weight"):
        one.load(tmp_path)


# --- compiled ---


@pytest.mark.parametrize("reference_first", [False, True])
def test_policy_and_reference_are_compiled_apart(monkeypatch: pytest.MonkeyPatch, reference_first: bool) -> None:
    """Each runs its own compiled layers, whichever came first: a reference in other kernels would be apart by them."""
    calls: list[Any] = []

    def compiled(call: Any, **options: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            calls.append(call.__self__)
            return call(*arguments, **named)

        return counted

    monkeypatch.setattr(torch, "compile", compiled)
    learner = LocalLearner(policy_of(plain_module("llama")), Grpo(kl=0.1).needs, LearnerConfig(compile=True), 1.0, 0)
    layers = {"logprobs": learner.policy.module.model.layers, "reference": learner.second_copy.model.layers}
    for column in sorted(layers, reverse=reference_first):
        calls.clear()
        learner.read(MINIBATCH.samples, column)
        assert calls == list(layers[column])
