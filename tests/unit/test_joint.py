"""Adapters that read the same input are computed together while sampling, and as PEFT does it otherwise."""

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

from longloop.learners.joint import Once, join


class Projections(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj = torch.nn.Linear(12, 8), torch.nn.Linear(12, 4, bias=False)
        self.v_proj, self.o_proj = torch.nn.Linear(12, 4, bias=False), torch.nn.Linear(12, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.q_proj(x), self.k_proj(x), self.v_proj(x), self.o_proj(x)


@pytest.fixture
def adapted() -> Any:
    torch.manual_seed(0)
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
    module = get_peft_model(Projections(), config)
    for name, weight in module.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    join(module)
    return module


@pytest.fixture
def compiled(adapted: Any) -> Any:
    """The module through torch.compile, and for each graph how many products it has left."""
    products = []

    def count(graph: Any, inputs: Any) -> Any:
        Once()(graph.graph)
        graph.recompile()
        products.append(sum(node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
                            for node in graph.graph.nodes))  # fmt: skip
        return make_boxed_func(graph.forward)

    yield torch.compile(adapted, backend=aot_autograd(fw_compiler=count), fullgraph=True), products
    torch._dynamo.reset()


def test_sampling_takes_two_products_for_all_three(adapted: Any, compiled: Any) -> None:
    """And one adapter that is alone has two as before. What is trained in place is what is computed with."""
    run, products = compiled
    x = torch.randn(5, 12)
    with torch.no_grad():
        for _ in range(2):
            for ours, theirs in zip(run(x), adapted(x), strict=True):
                assert torch.allclose(ours, theirs, atol=1e-5)
            for weight in adapted.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
    assert products == [4 + 2 + 2]


def test_training_and_the_model_without_adapters_are_as_ever(adapted: Any, compiled: Any) -> None:
    run, products = compiled
    x = torch.randn(5, 12)
    for ours, theirs in zip(run(x), adapted(x), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    with torch.no_grad(), adapted.disable_adapter():
        for ours, theirs in zip(run(x), adapted(x), strict=True):
            assert torch.equal(ours, theirs)
    assert products == [4 + 2 * 4, 4]


def test_only_what_is_the_same_is_left_out() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = [graph.call_function(torch.ops.aten.add.Tensor, (x, number)) for number in (1, 1.0, True, 1)]
    graph.output(made)
    Once()(graph)
    assert graph.find_nodes(op="output")[0].args[0] == [*made[:3], made[0]]
