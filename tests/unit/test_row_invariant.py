"""Passes in which a token's numbers depend on the tokens before it alone: the kernels, and the engine with them.

Without a GPU, Triton's interpreter runs the kernels (test_graphs.py). What it multiplies has the same shape for all
rows, as on a card, so what is equal there to the bit is equal here, if the kernels are right.
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

pytest.importorskip("triton", reason="needs Triton, which pip install triton brings")

from longloop import api
from longloop.engines import cuda_graphs, row_invariant, work_items
from longloop.engines.engine import NativeEngine
from longloop.engines.row_invariant import RowInvariant, product
from longloop.engines.slots import Row, Slots
from longloop.types import Minibatch, Sampled, UserError
from tests.support.families import CHAT, Again, ask, engine_of, plain_module, policy_of, prompt
from tests.support.helpers import load_config
from tests.support.samples import gradient
from tests.unit.test_graphs import DEVICE
from tests.unit.test_shared_openings import everything, weighted

DTYPES = {torch.float32: 1e-5, torch.bfloat16 if torch.cuda.is_available() else torch.float16: 1e-2}
"""And by how much of its largest number a product may be off. The interpreter cannot multiply in bfloat16."""


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(1, 40, 32), (70, 200, 48), (3, 16, 16), (64, 8, 33), (5, 130, 1200)]
)
def test_product(rows: int, columns: int, depth: int, dtype: torch.dtype) -> None:
    """With and without a bias, of weights as they lie and transposed ones."""
    torch.manual_seed(0)
    x, weight, bias = (randn(*shape, dtype=dtype) for shape in ((rows, depth), (columns, depth), (columns,)))
    exact = linear(x.double(), weight.double(), bias.double())
    got = product(x, weight, bias)
    assert got.dtype == dtype and (got - exact).abs().max() < DTYPES[dtype] * exact.abs().max()
    assert torch.equal(product(x, weight.t().contiguous().t(), bias), got)
    assert torch.equal(product(x[None], weight, None)[0], product(x, weight))
    assert (product(x, weight) - linear(x.double(), weight.double())).abs().max() < DTYPES[dtype] * exact.abs().max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_a_product_does_not_depend_on_the_others(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, among a few and among many, where one program adds up all parts of the depth."""
    torch.manual_seed(0)
    monkeypatch.setattr(row_invariant, "_LEAST", 64)
    monkeypatch.setattr(row_invariant, "_PROGRAMS", 6)
    monkeypatch.setattr(row_invariant, "_GROUP", 2)  # of four tiles above each other
    x, weight, bias = (randn(*shape, dtype=dtype) for shape in ((200, 320), (100, 320), (100,)))
    tile = row_invariant._tile(100, 320, dtype)
    assert row_invariant._parts(100, 320, tile["COLUMNS"], tile["DEPTH"])[0] > 2
    all_of_them = product(x, weight, bias)
    for first, last in ((0, 1), (17, 18), (60, 97), (130, 200)):
        assert torch.equal(product(x[first:last], weight, bias), all_of_them[first:last])


def test_parts_of_a_depth() -> None:
    """Those of the down projection of a 7B model; each part is a multiple of what is read at once."""
    assert row_invariant._parts(3584, 18944, 128, 64) == (4, 4736)
    assert row_invariant._parts(152064, 3584, 128, 64) == (1, 3584)
    assert row_invariant._parts(576, 576, 128, 64) == (1, 576)


@pytest.mark.parametrize("size", [3, 256, 1500])
def test_sums_along_rows(size: int) -> None:
    x = randn(4, 5, size)
    with RowInvariant():
        got = x.sum(-1, dtype=torch.float64), x.mean(-1, keepdim=True), x.double().cumsum(-1), x.sum(dim=(2,))
    wanted = x.double().sum(-1), x.mean(-1, keepdim=True), x.double().cumsum(-1), x.sum(-1)
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert torch.allclose(one, other, atol=1e-4 if one.dtype == torch.float32 else 1e-12)


def test_what_it_does_not_know_is_refused() -> None:
    x = randn(4, 4)
    with RowInvariant():
        assert torch.equal((x > 0).sum(0), (x > 0).long().sum(0)), "whole numbers are exact in any order"
        assert torch.equal(x[:, :1] @ x[:1], x[:, :1] * x[:1]), "nothing is added up"
        for unknown in (lambda: x @ x, lambda: torch.bmm(x[None], x[None]), lambda: x.sum(0), lambda: x.mean()):
            with pytest.raises(UserError, match="does not know how this model computes"):
                unknown()


def test_no_keys_are_divided() -> None:
    """Single tokens are blocks too, each with all keys up to its own."""
    done = work_items.undivided(row_of([900, 3, 50], [1, 1, 70]), 32)
    assert len(done.single_I8) == len(done.merge_M4) == 0
    assert done.block_I8[:, :7].tolist() == [
        [0, 1, 1, 900, 0, 901, -1],
        [1, 1, 2, 3, 0, 4, -1],
        [2, 32, 3, 50, 0, 82, -1],
        [34, 32, 3, 82, 0, 114, -1],
        [66, 6, 3, 114, 0, 120, -1],
    ]


def row_of(starts: list[int], counts: list[int]) -> Row:
    table = Slots(len(starts))
    table.reserve(1000)
    table.length[:] = starts
    return table.row(np.arange(len(starts)), np.array(counts), 2, np.zeros((len(starts), 20), dtype=np.int64))


def invariant_engine(policy: Any, **options: Any) -> NativeEngine:
    engine = NativeEngine(policy, CHAT, graphs=False, **options)
    engine.cache._moves = False  # as on a card, where a page is one piece of memory
    engine._pass = cuda_graphs.Graphs(
        engine.model, engine.cache, engine.slots.count, engine._probed().group, Again, invariant=True
    )
    return engine


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tiles: the interpreter computes padding, too."""
    padded = cuda_graphs._padded
    monkeypatch.setattr(row_invariant, "_ROWS", 16)
    monkeypatch.setattr(cuda_graphs, "_padded", lambda count, least=2: padded(count, 2))
    monkeypatch.setattr(cuda_graphs, "_STEP", 8)


@pytest.mark.parametrize(("family", "lora_rank"), [("llama", 4), ("gemma3", 0)])
def test_whatever_the_company(family: str, lora_rank: int, small: None) -> None:
    """Alone and among others, prompts read whole or in pieces, a prompt whose last token alone is left to read, drawn
    tokens that are read again: the same tokens and log-probs to the bit, and those of the plain pass to rounding."""
    module = plain_module(family, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
    policy = policy_of(module, lora_rank=lora_rank, device=DEVICE)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    prompts = {"a": prompt(0, 5), "b": prompt(0, 5), "c": prompt(1, 7), "d": prompt(2, 2)}

    def said(names: str, **options: Any) -> dict[str, Sampled]:
        engine = invariant_engine(policy, **options)

        async def together() -> list[Sampled]:
            return await asyncio.gather(*(ask(engine, prompts[n], n, seed=3, max_tokens=2) for n in names))

        return dict(zip(names, asyncio.run(together()), strict=True))

    alone = said("a", slots=1) | said("c", slots=1) | said("d", slots=1)
    alone["b"] = alone["a"]
    for names, options in (("abcd", {"slots": 4}), ("dcab", {"slots": 2, "step_tokens": 4}), ("dc", {"tokens": 64})):
        assert said(names, **options) == {name: alone[name] for name in names}
    plain = NativeEngine(policy, CHAT, graphs=False)
    again = asyncio.run(ask(plain, prompts["c"], "c", seed=3, max_tokens=2))
    assert again.ids.tolist() == alone["c"].ids.tolist()
    assert again.logprobs == pytest.approx(alone["c"].logprobs, abs=1e-4)


def test_updates_are_deterministic_with_it(tmp_path: Path) -> None:
    """While they run, in the process of a run that asks for it; compiled ones cannot be."""
    seen: list[bool] = []

    def loss(scored: Any, batch: Any) -> Any:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return weighted(scored, batch)

    for option in ("true", "false"):
        learner = api.prepared(load_config(tmp_path, f"engine.batch_invariant={option}")).learner
        gradient(learner, Minibatch(everything(), 1.0, 1, False), loss)
        assert not torch.are_deterministic_algorithms_enabled()
    assert seen[0] and not seen[-1]
    with pytest.raises(UserError, match=r"learner\.compile=true cannot keep"):
        api.prepared(load_config(tmp_path, "engine.batch_invariant=true", "learner.compile=true"))


def test_weights_in_4_bits_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes, which pip install 'longloop[quantized]' brings")
    with pytest.raises(UserError, match=r"cannot be kept with model\.quantize"):
        api.prepared(load_config(tmp_path, "engine.batch_invariant=true", "model.quantize=nf4", "model.lora_rank=4"))


def test_on_a_cpu_it_is_always_so() -> None:
    """And on a GPU it is refused where it cannot be kept."""
    module = plain_module("llama")
    assert engine_of(module, batch_invariant=True, compile=True)
    policy = policy_of(module)
    policy_on_a_card = type(
        "OnACard", (), {"device": torch.device("cuda"), "layers": policy.layers, "version": 0, "shards": None}
    )()
    for options in ({"graphs": False}, {"graphs": True, "compile": True}):
        with pytest.raises(UserError, match="batch_invariant"):
            NativeEngine(policy_on_a_card, CHAT, batch_invariant=True, **options)
