"""On a CUDA device: with engine.batch_invariant, equal seeds give equal runs, to the bit."""

import asyncio
import random
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from longloop.engines.engine import NativeEngine
from longloop.engines.row_invariant import RowInvariant, product
from longloop.engines.sampler import draw
from longloop.model.attention import VarlenPlan
from longloop.types import Sampled
from tests.support.families import CHAT, FAMILIES, ask, plain_module, policy_of, prompt
from tests.support.helpers import train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
COMPANY = {str(n): prompt(n, length) for n, length in enumerate([1, 2, 31, 64, 65, 150, 300] * 5 + [440, 9])}
"""37 prompts."""
SHAPES = [(576, 576), (18944, 3584), (3584, 18944), (512, 3584), (16, 5120), (5120, 16), (49152, 576)]
"""Outputs and inputs of projections, those of adapters among them."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("columns", "depth"), SHAPES)
def test_a_row_of_a_product_does_not_depend_on_the_others(columns: int, depth: int, dtype: torch.dtype) -> None:
    """Alone and among any number of others; and it is the product, as well as cuBLAS computes it."""
    torch.manual_seed(0)
    x, bias = torch.randn(1500, depth, device="cuda", dtype=dtype), torch.randn(columns, device="cuda", dtype=dtype)
    weight = torch.randn(columns, depth, device="cuda", dtype=dtype) / depth**0.5
    whole = product(x, weight, bias)
    for first, count in ((0, 1), (5, 8), (70, 37), (100, 64), (3, 200), (0, 1000)):
        assert torch.equal(product(x[first : first + count], weight, bias), whole[first : first + count])
    exact = linear(x[:100].double(), weight.double(), bias.double())
    assert (whole[:100] - exact).abs().max() < (1e-4 if dtype == torch.float32 else 5e-2)


@pytest.mark.parametrize("truncate", [False, True])
def test_what_is_drawn_does_not_depend_on_the_others(truncate: bool) -> None:
    torch.manual_seed(0)
    logits = torch.randn(200, 152064, device="cuda") * 3
    given = [torch.full((200,), value, device="cuda", dtype=torch.float64) for value in (0.7, 0.9)]
    given.append(torch.rand(200, device="cuda", dtype=torch.float64))
    with RowInvariant():
        whole = draw(logits, *given, truncate=truncate)
        for first, count in ((0, 1), (7, 37), (64, 136)):
            part = draw(*(x[first : first + count] for x in (logits, *given)), truncate=truncate)
            assert all(torch.equal(a, b[first : first + count]) for a, b in zip(part, whole, strict=True))


def answers(policy: Any, names: list[str], **options: Any) -> dict[str, Sampled]:
    """What an engine says to some of the prompts, all at once."""
    engine = NativeEngine(policy, CHAT, batch_invariant=True, **options)

    async def together() -> list[Sampled]:
        return await asyncio.gather(*(ask(engine, COMPANY[n], n, seed=int(n), max_tokens=12) for n in names))

    return dict(zip(names, asyncio.run(together()), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_alone_and_among_others(family: str, lora_rank: int, dtype: str) -> None:
    """Tokens and log-probs to the bit: alone and among 36, in any order, prompts read whole and in pieces, and with so
    few pages that conversations are taken out in the middle of an answer and read again."""
    policy = policy_of(plain_module(family), lora_rank=lora_rank, device="cuda", dtype=dtype)
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in policy.trainable().items():
            if "lora_B" in name:
                weight.normal_(0, 0.05)
    names = list(COMPANY)
    together = answers(policy, names)
    for name in ("0", "2", "5", "35", "36"):
        assert answers(policy, [name], slots=1)[name] == together[name]
    random.Random(0).shuffle(names)
    for options in ({"slots": 5, "step_tokens": 50}, {"step_tokens": 133}, {"tokens": 1024}):
        assert answers(policy, names, **options) == together, options


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_the_model(dtype: str) -> None:
    """Log-probs are those of a plain forward pass, to rounding."""
    policy = policy_of(plain_module("qwen2"), device="cuda", dtype=dtype)
    said = answers(policy, ["5"])["5"]
    ids = torch.tensor([*COMPANY["5"], *said.ids], device="cuda")
    with torch.no_grad():
        hidden = policy.hidden(ids, torch.arange(len(ids), device="cuda"), VarlenPlan([len(ids)]))
        logp = policy.logits(hidden).log_softmax(-1)[-len(said.ids) - 1 : -1].gather(1, ids[-len(said.ids) :, None])
    gap = (logp[:, 0].cpu() - torch.from_numpy(said.logprobs)).abs()
    assert gap.max() < (2e-3 if dtype == "float32" else 1.0) and gap.mean() < 0.15


@pytest.mark.parametrize(
    "settings", [[], ["model.lora_rank=4"], ["learner.checkpointing=true"], ["model.dtype=float32"]]
)
def test_equal_seeds_give_equal_runs(tmp_path: Any, settings: list[str]) -> None:
    """A short LOOP run on the guessing game, twice; another seed gives another run."""
    runs = []
    for seed in (0, 0, 1):
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        parts, _, steps = train(folder, "engine.batch_invariant=true", "steps=4", f"seed={seed}", *settings)
        runs.append(({name: p.detach().clone() for name, p in parts.learner.parameters.items()}, steps))
        assert not torch.are_deterministic_algorithms_enabled()
    (one, steps), (same, again), (other, _) = runs
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert [step["update"] for step in steps] == [step["update"] for step in again]
    assert not all(torch.equal(one[name], other[name]) for name in one)
