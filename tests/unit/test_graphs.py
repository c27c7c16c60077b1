"""The CUDA path of the engine: its Triton kernels, and rows padded and replayed.

Without a GPU, Triton's interpreter runs the kernels and a recording is simply done again: the same numbers, slowly.
"""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

pytest.importorskip("triton", reason="needs Triton, which pip install triton brings")

from longloop.engines import cuda_graphs, triton_kernels
from longloop.engines.engine import NativeEngine
from longloop.engines.passes import Eager
from longloop.engines.slots import Slots
from longloop.types import Sampled, UserError
from tests.support.families import CHAT, assert_same, engine_of, plain_module, policy_of, prompt, sample, talk

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(9, 3, 64), (4, 4, 80), (8, 1, 16), (2, 1, 256)]
"""Query heads, key heads, head size."""


class Again:
    """Stands for a recording where there is no GPU."""

    def __init__(self, work: Any, pool: Any) -> None:
        self._work = work
        work()

    def replay(self) -> Any:
        return self._work(), lambda: None


def memory(heads: int, slots: int, capacity: int, size: int) -> tuple[Tensor, Tensor]:
    """Random keys and values of two layers, and what tells the kernels where they are."""
    kv = torch.randn(2, 2, slots, heads, capacity, size, device=DEVICE)
    return kv, torch.tensor([kv.data_ptr(), capacity], device=DEVICE)


def plain(q_HTD: Tensor, k_KCD: Tensor, v_KCD: Tensor, start: int, scale: float, window: int) -> Tensor:
    """The attention of a span by torch, [T, H, D]."""
    end = start + q_HTD.shape[1]
    query, key = torch.arange(start, end)[:, None], torch.arange(end)[None, :]
    seen = (key <= query) & (key > query - window) if window else key <= query
    keys, values = k_KCD[None, :, :end], v_KCD[None, :, :end]
    out = scaled_dot_product_attention(
        q_HTD[None], keys, values, attn_mask=seen.to(DEVICE), scale=scale, enable_gqa=True
    )
    return out[0].transpose(0, 1)


@pytest.mark.parametrize(
    ("shape", "window", "parts"), [(s, w, p) for s, w, p in zip(SHAPES, (0, 37, 37, 0), (1, 3, 1, 4), strict=True)]
)
def test_decode_attention_is_attention(
    shape: tuple[int, int, int], window: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For sequences of many lengths, in slots in any order; the new key and value are put down, and whatever lies where
    they come or behind them is not seen."""
    torch.manual_seed(0)
    monkeypatch.setattr(triton_kernels, "_PROGRAMS", parts * 7 * shape[1])
    H, K, D = shape
    kv, kv_address = memory(K, 6, 300, D)
    k, v = kv[1]
    slots, starts = [3, 0, 5, 1, 2], [0, 63, 64, 280, 299]
    whole = kv.clone()
    new = torch.randn(2, K, len(slots) + 2, D, device=DEVICE).transpose(1, 2)  # as attention gives them
    for b, (slot, start) in enumerate(zip(slots, starts, strict=True)):
        k[slot, :, start:], v[slot, :, start:] = torch.nan, torch.nan
        whole[1, :, slot, :, start] = new[:, b]
    q_BHD = torch.randn(len(slots) + 2, H, D, device=DEVICE)
    out_BHD = torch.full_like(q_BHD, 7)
    slot_B, start_B = (torch.tensor([*x, 0, 0], dtype=torch.int32, device=DEVICE) for x in (slots, starts))
    count = torch.tensor([len(slots)], dtype=torch.int32, device=DEVICE)
    triton_kernels.decode(q_BHD, *new, out_BHD, kv_address, 6, 1, slot_B, start_B, count, 0.3, window)
    for b, (slot, start) in enumerate(zip(slots, starts, strict=True)):
        wanted = plain(q_BHD[b][:, None], *whole[1, :, slot], start, 0.3, window)[0]
        assert torch.allclose(out_BHD[b], wanted, atol=2e-5)
        assert torch.equal(kv[1, :, slot, :, : start + 1], whole[1, :, slot, :, : start + 1])
        assert kv[1, :, slot, :, start + 1 :].isnan().all()
    assert (out_BHD[len(slots) :] == 7).all()  # those are not there, and are somebody else's


@pytest.mark.parametrize(("shape", "window"), [(SHAPES[0], 0), (SHAPES[1], 37)])
def test_extend_attention_is_attention(shape: tuple[int, int, int], window: int) -> None:
    """Spans that begin anywhere, of one block or several or a single token, and padding at the end."""
    torch.manual_seed(1)
    H, K, D = shape
    kv, kv_address = memory(K, 5, 200, D)
    k, v = kv[1]
    spans = [(2, 0, 100), (0, 50, 70), (4, 199, 1), (1, 3, 64)]
    counts = [count for *_, count in spans]
    table = Slots(5, max_tokens=200)
    table.reserve(200)
    slot_R, table.length[[slot for slot, *_ in spans]], count_R = (np.array(x) for x in zip(*spans, strict=True))
    row = table.row(slot_R, count_R, singles=0)
    blocks = torch.from_numpy(cuda_graphs._blocks(row)).int().to(DEVICE)
    q_THD = torch.randn(sum(counts) + 9, H, D, device=DEVICE)
    idle = torch.zeros(3, 4, dtype=torch.int32, device=DEVICE)
    out = torch.full_like(q_THD, 7)
    triton_kernels.extend(q_THD, out, K, kv_address, 5, 1, torch.cat([blocks, idle]), 0.3, window)
    for (slot, start, _), q, got in zip(spans, q_THD.split([*counts, 9]), out.split([*counts, 9]), strict=False):
        assert torch.allclose(got, plain(q.transpose(0, 1), k[slot], v[slot], start, 0.3, window), atol=2e-5)
    assert (out[sum(counts) :] == 7).all()


def test_keys_and_values_are_written_where_they_belong() -> None:
    kv, kv_address = memory(2, 4, 10, 24)
    before = kv.clone()
    new = torch.randn(2, 2, 3, 24, device=DEVICE).transpose(1, 2)  # as attention gives them: heads before tokens
    slot, position = (torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([3, 0, 0], [9, 4, 5]))
    triton_kernels.write(new[0], new[1], kv_address, 4, 1, slot, position)
    for n, (s, p) in enumerate([(3, 9), (0, 4), (0, 5)]):
        assert torch.equal(kv[1, :, s, :, p], new[:, n])
    assert (kv != before).sum() == new.numel()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are padded from two tokens on: the interpreter takes milliseconds for each program, also of padding."""
    padded = cuda_graphs._padded
    monkeypatch.setattr(triton_kernels, "_PROGRAMS", 1)
    monkeypatch.setattr(cuda_graphs, "_padded", lambda count, least=2: padded(count, 2))


@pytest.mark.parametrize(("family", "options"), [("llama", {"slots": 4}), ("gemma3", {"slots": 2, "step_tokens": 9})])
def test_replayed_passes_sample_what_plain_ones_do(family: str, options: dict[str, int], small: None) -> None:
    """Sessions of many lengths that join and leave, over several turns, with prompts read whole or in pieces, sampled
    from all tokens or from a nucleus."""
    module = plain_module(family)
    lengths = {"a": (6, 4), "b": (3, 7), "c": (11,)}

    async def talks(engine: Any) -> list[list[Sampled]]:
        return await asyncio.gather(
            *(
                talk(engine, s, n, lengths[s], max_tokens=2 + n, temperature=0.8, top_p=1 - 0.3 * n)
                for n, s in enumerate(lengths)
            )
        )

    wanted = asyncio.run(talks(engine_of(module)))
    engine = NativeEngine(policy_of(module, device=DEVICE), CHAT, graphs=False, **options)
    engine._pass = cuda_graphs.Graphs(engine.model, engine.cache, Again)
    for one, other in zip(asyncio.run(talks(engine)), wanted, strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same, 1e-4)
    engine.release()
    assert engine.cache.bytes == 0


def test_recording_is_for_a_gpu() -> None:
    """And compiling is for recordings: elsewhere the same config runs without."""
    module = plain_module("llama")
    with pytest.raises(UserError, match="needs a CUDA device"):
        engine_of(module, graphs=True)
    assert isinstance(engine_of(module, compile=True)._pass, Eager)


def test_a_compiled_pass_is_compiled_once_for_all_layers(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers once for single tokens and once for spans, adapters and all, and what comes before and after them once.

    Only sizes of rows and the number of the layer stay open: a head size that is not known makes kernels slow. It
    samples as the plain one.
    """
    module = plain_module("llama")
    policy = policy_of(module, lora_rank=4, device=DEVICE)
    for name, weight in policy.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    wanted = sample(NativeEngine(policy, CHAT, graphs=False), prompt(0, 5), max_tokens=4)
    engine = NativeEngine(policy, CHAT, graphs=False)

    class Compiled(Again):
        """What a GPU replays is what was compiled."""

        def replay(self) -> Any:
            with policy.compiled():
                return super().replay()

    engine._pass = cuda_graphs.Graphs(engine.model, engine.cache, Compiled, compile=True)
    compiled = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    plain = torch.compile
    how = {"backend": backend, "options": None}
    monkeypatch.setattr(torch, "compile", lambda call, **options: plain(call, **options | how))
    try:
        said = sample(engine, prompt(0, 5), max_tokens=4)
    finally:
        torch._dynamo.reset()
    assert_same(said, wanted, 1e-4)
    assert len(compiled) == 2 + 3 and engine.model.layers == 3
    assert not [node for graph in compiled for node in graph.graph.nodes if "head_dim" in node.name]


@pytest.mark.parametrize("count", [1, 8, 9, 12, 13, 100, 129, 4000])
def test_a_row_is_padded_by_less_than_half(count: int) -> None:
    padded = cuda_graphs._padded(count)
    assert count <= padded <= max(8, 1.5 * count)
    assert cuda_graphs._padded(padded) == padded
