"""The CUDA path of the engine: its Triton kernels, and rows padded and replayed.

Without a GPU, Triton's interpreter runs the kernels and a recording is simply done again: the same numbers, slowly.
"""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

pytest.importorskip("triton", reason="needs Triton, which pip install triton brings")

from longloop.cluster.exchange import Exchange, raised_by_connection
from longloop.engines import cuda_graphs, triton_kernels, work_items
from longloop.engines.engine import NativeEngine
from longloop.engines.pages import PAGE
from longloop.engines.passes import Eager
from longloop.engines.slots import Slots
from longloop.types import Sampled, UserError
from tests.support.families import (
    CHAT,
    Rehearsed,
    assert_same,
    engine_of,
    plain_module,
    policy_of,
    prompt,
    sample,
    talk,
)
from tests.support.gloo import together
from tests.support.interpreter import patch_once
from tests.support.shards import compiled, recorded, recorded_together, talks, whole

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    patch_once()
SHAPES = [(6, 2, 64), (2, 2, 80), (8, 1, 16), (2, 1, 256)]
"""Query heads, key heads, head size."""


class Memory:
    """Pages of two layers with random keys and values, and spans whose pages are scattered among them."""

    def __init__(self, heads: int, size: int, pages: list[int]) -> None:
        """`pages`: how many each span has."""
        many = sum(pages)
        self.kv = torch.randn(many + 1, 2, 2, heads, PAGE, size, device=DEVICE)
        order = np.random.default_rng(0).permutation(np.arange(1, many + 1))
        self.page_RW = np.zeros((len(pages), max(pages)), dtype=np.int64)
        for span, (number, upto) in enumerate(zip(pages, np.cumsum(pages), strict=True)):
            self.page_RW[span, :number] = order[upto - number : upto]
        address_P = self.kv.data_ptr() + np.arange(many + 1) * self.kv[0].nbytes
        spare = np.zeros((1, self.page_RW.shape[1]), dtype=np.int64)
        self._addresses = torch.from_numpy(address_P[np.concatenate([spare, self.page_RW])]).to(DEVICE)
        self.table = torch.tensor([self._addresses.data_ptr(), self._addresses.shape[1]], device=DEVICE)

    def of(self, span: int, kv: Tensor | None = None) -> Tensor:
        """A span's keys and values in the second layer, a copy: [2, K, C, D]."""
        pages = (self.kv if kv is None else kv)[self.page_RW[span], 1]
        return pages.permute(1, 2, 0, 3, 4).flatten(2, 3)

    def at(self, span: int, position: int) -> Tensor:
        """The key and value of one token in the second layer, in place: [2, K, D]."""
        return self.kv[self.page_RW[span, position // PAGE], 1, :, :, position % PAGE]


def work(
    memory: Memory, starts: list[int], counts: list[int], qkv: list[Tensor], queries: int, window: int
) -> tuple[Tensor, work_items.Work]:
    """What the kernels make of a row, with a few idle programs; rows that are nobody's stay 7."""
    table = Slots(len(starts))
    table.reserve(1000)
    table.length[:] = starts
    singles = sum(count == 1 for count in counts)
    row = table.row(np.arange(len(starts)), np.array(counts), singles, memory.page_RW)
    done = work_items.divide(row, queries, qkv[1].shape[1])

    def padded(items: np.ndarray) -> Tensor:
        idle = np.zeros((3, items.shape[1]), dtype=np.int64)
        return torch.from_numpy(np.concatenate([items, idle])).int().to(DEVICE)

    out = torch.full_like(qkv[0], 7)
    part = torch.full((1000, *out.shape[1:]), torch.nan, device=DEVICE)
    given = *qkv, out, part, part[..., 0].contiguous(), memory.table
    triton_kernels.work(*given, padded(done.single_I8), 1, 0.3, window, single=True)
    triton_kernels.work(*given, padded(done.block_I8), 1, 0.3, window, single=False)
    triton_kernels.merge(part, given[5], out, padded(done.merge_M4))
    return out, done


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


@pytest.mark.parametrize(("shape", "window", "programs"), zip(SHAPES, (0, 37, 200, 0), (1, 64, 64, 64), strict=True))
def test_attention_of_single_tokens(
    shape: tuple[int, int, int], window: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For sequences of many lengths in scattered pages, with keys divided or not; the new key and value are put down,
    and whatever lies where they come or behind them is not seen."""
    torch.manual_seed(0)
    monkeypatch.setattr(work_items, "_PROGRAMS", programs)
    monkeypatch.setattr(work_items, "_LEAST", PAGE)
    H, K, D = shape
    memory = Memory(K, D, [1, 1, 2, 5, 5])
    starts = [0, 63, 64, 280, 299]
    q, k, v = (torch.randn(h, len(starts) + 2, D, device=DEVICE).transpose(0, 1) for h in (H, K, K))  # as they come
    whole = memory.kv.clone()
    for b, start in enumerate(starts):
        for position in range(start, PAGE * (start // PAGE + 1)):
            memory.at(b, position).fill_(torch.nan)
        whole[memory.page_RW[b, start // PAGE], 1, :, :, start % PAGE] = torch.stack([k[b], v[b]])
    out, done = work(memory, starts, [1] * len(starts), [q, k, v], queries=64, window=window)
    assert (len(done.merge_M4) > 0) == (programs > 1)
    for b, start in enumerate(starts):
        wanted = plain(q[b][:, None], *memory.of(b, whole), start, 0.3, window)[0]
        assert torch.allclose(out[b], wanted, atol=2e-5)
        assert torch.equal(memory.of(b)[:, :, : start + 1], memory.of(b, whole)[:, :, : start + 1])
        assert memory.of(b)[:, :, start + 1 : PAGE * (start // PAGE + 1)].isnan().all()
    assert (out[len(starts) :] == 7).all()  # those are not there, and are somebody else's


@pytest.mark.parametrize(("shape", "window", "programs"), [(SHAPES[0], 0, 1), (SHAPES[1], 37, 64), (SHAPES[0], 90, 64)])
def test_attention_of_spans(
    shape: tuple[int, int, int], window: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans that begin anywhere, of one block or several, beside a single token, and padding at the end."""
    torch.manual_seed(1)
    monkeypatch.setattr(work_items, "_PROGRAMS", programs)
    monkeypatch.setattr(work_items, "_LEAST", PAGE)
    H, K, D = shape
    queries = triton_kernels.queries(H // K)
    starts, counts = [199, 0, 50, 3, 230], [1, 3 * queries // 2, queries + 6, queries, 2]
    memory = Memory(K, D, [4, 2, 2, 2, 4])
    q, k, v = (torch.randn(h, sum(counts) + 9, D, device=DEVICE).transpose(0, 1) for h in (H, K, K))
    memory.at(0, 199).copy_(torch.stack([k[0], v[0]]))  # which the others' `write` has done before
    out, done = work(memory, starts, counts, [q, k, v], queries, window)
    assert (len(done.merge_M4) > 0) == (programs > 1)
    sizes = [*counts, 9]
    for span, (start, mine, got) in enumerate(zip(starts, q.split(sizes), out.split(sizes), strict=False)):
        wanted = plain(mine.transpose(0, 1), *memory.of(span), start, 0.3, window)
        assert torch.allclose(got, wanted, atol=2e-5)
    assert (out[sum(counts) :] == 7).all()


def test_keys_and_values_are_written_where_they_belong() -> None:
    """Padding in the spare page."""
    memory = Memory(2, 24, [2, 1])
    before = memory.kv.clone()
    new = torch.randn(2, 2, 4, 24, device=DEVICE).transpose(1, 2)  # as attention gives them: heads before tokens
    span, position = (torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([1, 1, 2, 0], [63, 64, 5, 0]))
    triton_kernels.write(new[0], new[1], memory.table, 1, span, position)
    for n, (s, p) in enumerate([(0, 63), (0, 64), (1, 5)]):
        assert torch.equal(memory.at(s, p), new[:, n])
    assert torch.equal(memory.kv[0, 1, :, :, 0], new[:, 3])
    assert (memory.kv != before).sum() == new.numel()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    _shrink(monkeypatch)


def _shrink(patch: pytest.MonkeyPatch) -> None:
    """Rows are padded from two tokens on: the interpreter takes milliseconds for each program, also of padding."""
    padded = cuda_graphs._padded
    patch.setattr(work_items, "_PROGRAMS", 8)
    patch.setattr(work_items, "_LEAST", 8)
    patch.setattr(cuda_graphs, "_padded", lambda count, least=2: padded(count, 2))
    patch.setattr(cuda_graphs, "_STEP", 6)  # not the head size, for which torch.compile would make code of its own


@pytest.mark.parametrize(("family", "options"), [("llama", {"slots": 4}), ("gemma3", {"slots": 2, "step_tokens": 9})])
def test_replayed_passes_sample_what_plain_ones_do(family: str, options: dict[str, int], small: None) -> None:
    """Sessions of many lengths that join and leave, over several turns, with prompts read whole or in pieces, sampled
    from all tokens or from a nucleus."""
    module = plain_module(family, num_hidden_layers=2)
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
    engine.cache._moves = False  # as on a card, where a page is one piece of memory
    engine._pass = cuda_graphs.Graphs(engine.model, engine.cache, engine.slots.count, 2, Rehearsed)
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
    """Layers once for single tokens and spans alike, adapters and all, and what comes before and after them once.

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

    class Compiled(Rehearsed):
        """What a GPU replays is what was compiled."""

        def replay(self) -> Any:
            with policy.compiled():
                return super().replay()

    engine.cache._moves = False  # as on a card, where a page is one piece of memory
    engine._pass = cuda_graphs.Graphs(engine.model, engine.cache, 64, 2, Compiled, compile=True)
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
    assert len(compiled) == 1 + 3 and engine.model.layers == 3
    assert not [node for graph in compiled for node in graph.graph.nodes if "head_dim" in node.name]


@pytest.mark.parametrize("count", [1, 8, 9, 12, 13, 100, 129, 4000])
def test_a_row_is_padded_by_less_than_half(count: int) -> None:
    padded = cuda_graphs._padded(count)
    assert count <= padded <= max(8, 1.5 * count)
    assert cuda_graphs._padded(padded) == padded
    rounded = cuda_graphs._rounded(count)
    assert count <= rounded <= max(64 + count, 1.25 * count) and cuda_graphs._rounded(rounded) == rounded


# --- With a model in shards.

SHORT = {0: [6, 4], 2: [3, 7], 4: [11]}
"""Conversations, and the lengths of what is said in them."""


def _small(exchange: Exchange, work: Any, *arguments: Any) -> Any:
    """The same in a rank's process."""
    with pytest.MonkeyPatch.context() as patch:
        _shrink(patch)
        return work(exchange, *arguments)


def test_ranks_record_and_replay_together() -> None:
    """The same passes, and the same tokens: what a rank draws itself does not matter, if it is not the first."""
    (kinds, said), (others, _) = together(2, _small, recorded_together, "llama", SHORT, 3)
    assert kinds == others and len(kinds) > 1
    for mine, theirs in zip(talks(NativeEngine(whole("llama"), CHAT, slots=4), SHORT, 3), said, strict=True):
        for (ids, logprobs), (other_ids, other_logprobs) in zip(mine, theirs, strict=True):
            assert ids == other_ids
            assert logprobs == pytest.approx(other_logprobs, abs=1e-4)


def test_a_rank_alone_records_its_passes() -> None:
    """With adapters as they were and as they become, and the learner agrees. (On a card: tests/gpu/test_sharded.py.)"""
    ((_, gaps, made, _),) = together(1, _small, recorded, "gemma3", "cpu", False, SHORT, 3)
    assert max(gaps) < 2e-3 and made > 1


def test_compiled_passes_hold_the_sums_over_ranks() -> None:
    """Each layer two, without a break; and the logits are gathered where they are drawn from."""
    (((mine,), (theirs,), graphs),) = together(1, _small, compiled, "llama")
    assert [ids for ids, _ in mine] == [ids for ids, _ in theirs]
    assert mine[0][1] == pytest.approx(theirs[0][1], abs=1e-4)
    sums = [graph.count("_c10d_functional.all_reduce]") for graph in graphs]
    gathers = [graph.count("_c10d_functional.all_gather_into_tensor]") for graph in graphs]
    assert sorted(sums) == [0, 0, 0, 2] and sorted(gathers) == [0, 0, 0, 1]


def test_a_recorded_pass_of_several_ranks_has_a_deadline() -> None:
    class Event:
        """Is over when it has been looked at so often."""

        def __init__(self, looks: int) -> None:
            self._looks = looks

        def query(self) -> bool:
            self._looks -= 1
            return self._looks < 0

    event: Any = Event(3)
    cuda_graphs.wait(event, timeout=5.0)
    event = Event(10**9)
    with pytest.raises(dist.DistError, match=r"has not ended within 0.01 s") as raised:
        cuda_graphs.wait(event, timeout=0.01)
    assert raised_by_connection(raised.value)
