"""Projections that read the same input are computed together while sampling, and as ever otherwise."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.learners.local import LocalLearner
from longloop.model import checkpoint
from longloop.model.fused_projections import Adapter, DeduplicateNodes, Projection, fuse
from tests.support.families import plain_module, policy_of


class Projections(torch.nn.Module):
    def __init__(self, biases: str) -> None:
        super().__init__()
        self.q_proj = torch.nn.Linear(12, 8, bias="q" in biases)
        self.k_proj, self.v_proj = (torch.nn.Linear(12, 4, bias=name in biases) for name in "kv")
        self.o_proj = torch.nn.Linear(12, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x), self.o_proj(x)


def adapted(biases: str = "") -> Any:
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
    module = get_peft_model(Projections(biases), config)
    for name, weight in module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    return module


@pytest.fixture
def products() -> Iterator[list[int]]:
    """How many products of matrices each compiled graph has."""
    torch.manual_seed(0)
    yield []
    torch._dynamo.reset()


def compiled(module: Any, products: list[int]) -> Any:
    counted = torch.ops.aten.mm.default, torch.ops.aten.addmm.default

    def count(graph: Any, inputs: Any) -> Any:
        DeduplicateNodes()(graph.graph)
        graph.recompile()
        products.append(sum(node.target in counted for node in graph.graph.nodes))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=count, bw_compiler=lambda graph, inputs: make_boxed_func(graph.forward))
    return torch.compile(module, backend=backend, fullgraph=True)


@pytest.mark.parametrize(
    ("module", "wanted"),
    [
        (lambda: Projections(""), 1 + 1),
        (lambda: Projections("qkv"), 1 + 1),
        (lambda: Projections("q"), 1 + 1),
        (adapted, 2 + 2),
        (lambda: adapted("q"), 2 + 2),
    ],
)
def test_sampling_takes_one_product_for_all_three(module: Any, wanted: int, products: list[int]) -> None:
    """Two with adapters; and o, which is alone, its own. What is trained in place is what is computed with."""
    both = module()
    x = torch.randn(5, 12)
    before, named = both(x), dict(both.named_parameters())
    with torch.inference_mode():
        fuse(both)
    assert all(weight is named[name] for name, weight in both.named_parameters())
    with torch.no_grad():
        for old, new in zip(before, both(x), strict=True):
            assert torch.equal(old, new)
        run = compiled(both, products)
        for _ in range(2):
            for ours, theirs in zip(run(x), both(x), strict=True):
                assert torch.allclose(ours, theirs, atol=1e-5)
            for weight in both.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    assert products == [wanted]


@pytest.mark.parametrize(("module", "wanted"), [(lambda: Projections("qkv"), [4]), (adapted, [4 + 2 * 4, 1 + 1])])
def test_training_is_as_ever_and_the_model_without_adapters_is_there(
    module: Any, wanted: Any, products: list[int]
) -> None:
    both = module()
    x = torch.randn(5, 12)
    sum(out.sum() for out in both(x)).backward()
    gradients = {name: weight.grad.clone() for name, weight in both.named_parameters() if weight.requires_grad}
    both.zero_grad()
    with torch.inference_mode():
        fuse(both)
    run = compiled(both, products)
    sum(out.sum() for out in run(x)).backward()
    for name, gradient in gradients.items():
        assert torch.allclose(both.get_parameter(name).grad, gradient, atol=1e-6)
    if hasattr(both, "disable_adapter"):
        with torch.no_grad(), both.disable_adapter():
            for ours, theirs in zip(run(x), both(x), strict=True):
                assert torch.allclose(ours, theirs, atol=1e-6)
    assert products == wanted


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_a_fused_model_is_saved_and_exported_as_it_was(family: str, rank: int, tmp_path: Any) -> None:
    """Weights that lie one after the other are still weights of their own, and what is loaded goes where they lie."""
    one, other = (policy_of(plain_module(family), lora_rank=rank) for _ in range(2))
    with torch.no_grad():
        for mine, theirs in zip(one.module.parameters(), other.module.parameters(), strict=True):
            theirs.copy_(mine.normal_())
    fuse(one.module)
    assert sum(isinstance(part, Projection) for part in one.module.modules()) == one.layers * (7 if rank else 5)
    for policy, folder in ((one, tmp_path / "one"), (other, tmp_path / "other")):
        learner = LocalLearner(policy, Loop().needs, LearnerConfig(), 1.0, 0)
        checkpoint.save(folder, policy, {}, learner.optimizer_tensors())
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.safetensors")]
    assert len(files) == 2
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "other" / path).read_bytes()
    with torch.no_grad():
        for weight in one.trainable().values():
            weight.add_(1)
    checkpoint.load_weights(tmp_path / "other", one)
    for part in one.module.modules():
        plain = part.base_layer if isinstance(part, Adapter) else part
        if isinstance(plain, Projection):
            weights = [plain.weight, part.lora_A["default"].weight] if isinstance(part, Adapter) else [plain.weight]
            assert {weight.untyped_storage().data_ptr() for weight in weights} == {plain.all_weights.data_ptr()}
    for policy in (one, other):
        checkpoint.export(tmp_path / "plain", policy, "float32")
        (tmp_path / "plain" / "model.safetensors").rename(tmp_path / str(id(policy)))
    assert (tmp_path / str(id(one))).read_bytes() == (tmp_path / str(id(other))).read_bytes()


def test_experts_whose_weights_are_one_tensor_are_left_alone() -> None:
    module = AutoModelForCausalLM.from_config(
        Qwen3MoeConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            moe_intermediate_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
        )
    )
    fuse(module)
    assert sum(isinstance(part, Projection) for part in module.modules()) == 2 * 3


def test_only_what_is_the_same_is_left_out() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = [graph.call_function(torch.ops.aten.add.Tensor, (x, number)) for number in (1, 1.0, True, 1)]
    graph.output(made)
    DeduplicateNodes()(graph)
    assert graph.find_nodes(op="output")[0].args[0] == [*made[:3], made[0]]
