"""The forward pass on a CUDA device: recorded once for each size of row, then replayed with other inputs.

A CUDA graph holds the whole pass, from ids to drawn tokens and their log-probs; replaying it costs one call where the
pass itself costs a thousand. Single tokens and spans to be read share a pass. A row is padded to the next recorded
size; the padding reads and writes the spare page. All that varies lies in buffers that are filled before a replay: the
graph knows neither how long a sequence is nor where its pages are. So a recording stays valid for the whole run: the
weights are trained in place, and the cache may grow, be freed and be allocated again.

With a model in shards all ranks get the same rows in the same order (orders.py), and what is recorded for a row depends
on nothing else: so they record together, and replay together. A recording holds the sums over ranks, too. The token
that a rank reads next is the one that the first rank has drawn.

Only public torch: `torch.cuda.CUDAGraph`, `torch.cuda.graph` and pinned memory.

Shapes: T tokens in the row, R spans, W pages of the longest, S slots, I work items and M rows to merge (work_items.py),
each padded; P numbers for each span (sampler.py).
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from longloop.engines import triton_kernels, work_items
from longloop.engines.kv_cache import KVCache
from longloop.engines.pages import SPARE
from longloop.engines.passes import Drawn, Model
from longloop.engines.row_invariant import RowInvariant
from longloop.engines.sampler import NUMBERS, draw, truncates
from longloop.engines.slots import UNKNOWN, Row
from longloop.engines.triton_kernels import Places

_GLANCE = 5e-5
"""Seconds between two looks at whether a pass has ended."""
_STEP = 64
"""Sizes of rows with longer spans are multiples of this, as matrix products are computed in tiles of such a size."""


class Recording:
    """Records what a function does on the device, to do it again. `timeout`: how long it may take, in seconds."""

    def __init__(self, work: Callable[[], Tensor], pool: Any, timeout: float = math.inf) -> None:
        self._timeout = timeout
        work()  # once before recording: kernels are compiled, and ranks connected, at first use
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._result = work()

    def replay(self) -> tuple[Tensor, Callable[[], None]]:
        """Begin. Returns where the result will be, and what to call before reading it."""
        self._graph.replay()
        result = torch.empty_like(self._result, device="cpu", pin_memory=True)
        result.copy_(self._result, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return result, done.synchronize if self._timeout == math.inf else partial(wait, done, self._timeout)


def wait(done: torch.cuda.Event, timeout: float) -> None:
    """Wait for a pass of several ranks. One that is lost leaves the others' kernels waiting, and nobody is told."""
    until = time.monotonic() + timeout
    while not done.query():
        if time.monotonic() > until:
            raise dist.DistError(f"A recorded pass of several ranks has not ended within {timeout:g} s.")
        time.sleep(_GLANCE)


class Graphs:
    """The pass as recordings: one for each padded size of row, with or without longer spans, truncated or not, with
    keys divided or not. `group` is the number of query heads that share a key head. `invariant`: what is computed for a
    token does not depend on the others in the row (row_invariant.py)."""

    ahead = 1

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        slots: int,
        group: int,
        recording: type[Recording] = Recording,
        compile: bool = False,
        invariant: bool = False,
    ) -> None:
        self._model, self._slots, self._heads, self._queries = model, slots, cache.heads, triton_kernels.queries(group)
        self._recording = recording if model.shards is None else partial(recording, timeout=model.shards.timeout)
        self._compile, self._invariant = compile, invariant
        self._graphs: dict[tuple[int, bool, bool, bool], _Graph] = {}
        self._last_S = torch.zeros(slots + 1, dtype=torch.int32, device=model.device)
        """The token that was drawn last in each slot."""
        self._table = _Table(cache, model.device)
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None

    def __call__(self, row: Row, numbers_PR: np.ndarray) -> Drawn:
        single = row.singles == len(row.slot_R)
        size = _padded(len(row.slot_R)) if single else _rounded(len(row.ids_T))
        work = (
            work_items.undivided(row, self._queries)
            if self._invariant
            else work_items.divide(row, self._queries, self._heads)
        )
        kind = size, single, truncates(numbers_PR), len(work.merge_M4) > 0
        self._table.fill(row.page_RW)
        if kind not in self._graphs:
            spans = size if single else min(size, _padded(self._slots))
            shape = *kind, spans, self._queries, self._heads
            self._graphs[kind] = _Graph(
                *(self._model, self._last_S, self._table.table, *shape),
                *(self._recording, self._pool, self._compile, self._invariant),
            )
        return self._graphs[kind].replay(row, work, numbers_PR)

    def release(self) -> None:
        """Give the freed cache back to the device. Recordings stay: making them again takes longer than a step."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def close(self) -> None:
        self._graphs.clear()


class _Table:
    """The page table of a row on the device: the address of the spare page, for padding, then those of each span's."""

    def __init__(self, cache: KVCache, device: torch.device) -> None:
        self._cache = cache
        self.table = torch.zeros(2, dtype=torch.int64, device=device)
        """The address and the width of the page table. This tensor stays when the page table moves."""
        self._address_RW = torch.zeros(0, dtype=torch.int64, device=device)

    def fill(self, page_RW: np.ndarray) -> None:
        spans, width = page_RW.shape
        size = (spans + 1) * width
        if len(self._address_RW) < size:
            self._address_RW = self._address_RW.new_zeros(2 * size)
        given = torch.empty(size + 2, dtype=torch.int64, pin_memory=self.table.is_cuda)
        numbers = given.numpy()
        numbers[:2] = self._address_RW.data_ptr(), width
        numbers[2 : 2 + width] = self._cache.address_P[SPARE]
        numbers[2 + width :] = self._cache.address_P[page_RW.ravel()]
        self.table.copy_(given[:2], non_blocking=True)
        self._address_RW[:size].copy_(given[2:], non_blocking=True)


class _Graph:
    """The pass for rows of up to `tokens` tokens in up to `spans` spans.

    single: of single tokens only. divided: with keys that are divided among programs.
    """

    def __init__(
        self,
        model: Model,
        last_S: Tensor,
        table: Tensor,
        tokens: int,
        single: bool,
        truncate: bool,
        divided: bool,
        spans: int,
        queries: int,
        heads: int,
        recording: Callable[..., Recording],
        pool: Any,
        compile: bool,
        invariant: bool,
    ) -> None:
        singles, blocks = spans, 0 if single else tokens // queries + spans
        if invariant:
            singles, blocks = 0, blocks or spans
        if divided:
            singles, blocks = (number and work_items.most_items(number, heads) for number in (singles, blocks))
        units = singles + blocks * queries if divided else 0
        of_work = singles * work_items.FIELDS, blocks * work_items.FIELDS, tokens * work_items.MERGED * divided
        parts = [tokens, tokens, tokens, 1 + spans, spans, *of_work]
        self._cuts = np.cumsum(parts)[:-1]
        self._spare_slot = len(last_S) - 1
        self._whole = torch.zeros(sum(parts), dtype=torch.int32, device=model.device)
        """All integers of a row: ids, positions and spans of its tokens, from 1; slots of its spans, before them the
        spare slot; ends of its spans; its work."""
        self._numbers_PR = torch.zeros(NUMBERS, spans, dtype=torch.float64, device=model.device)
        ids_T, position_T, span_T, slots, end_R, single_items, block_items, merged = self._whole.split(parts)
        slots.fill_(self._spare_slot)
        single_I8, block_I8 = (x.view(-1, work_items.FIELDS) for x in (single_items, block_items))
        merge_M4 = merged.view(-1, work_items.MERGED)
        plan = _InPlace(Places(table, span_T, position_T, single_I8, block_I8, merge_M4, units))

        def drawn(hidden_RD: Tensor, *numbers: Tensor) -> tuple[Tensor, Tensor]:
            return draw(model.logits(hidden_RD), *numbers, truncate=truncate)

        if compile:  # together with the logits: then these are never written in float32
            drawn = torch.compile(drawn, dynamic=True)

        def work() -> Tensor:
            known_T = torch.where(ids_T == UNKNOWN, last_S[slots[span_T]], ids_T)
            with RowInvariant() if invariant else nullcontext():
                hidden_TD = model.hidden(known_T, position_T, plan)
                token_R, logp_R = drawn(hidden_TD if single else hidden_TD[end_R], *self._numbers_PR)
            if model.shards is not None:
                token_R = model.shards.of_first(token_R)
            last_S[slots[1:]] = token_R.int()
            return torch.stack([token_R.double(), logp_R.double()])

        with model.compiled() if compile else nullcontext():
            self._recording = recording(work, pool)

    def replay(self, row: Row, work: work_items.Work, numbers_PR: np.ndarray) -> Drawn:
        buffers = self._whole, self._numbers_PR
        given = [torch.zeros_like(x, device="cpu", pin_memory=x.is_cuda) for x in buffers]
        whole, numbers = (x.numpy() for x in given)
        ids, position, span, slots, end, *of_work = np.split(whole, self._cuts)
        t, r = len(row.ids_T), len(row.slot_R)
        ids[:t], position[:t], span[:t] = row.ids_T, row.position_T, row.span_T + 1
        slots[:] = self._spare_slot
        slots[1 : r + 1], end[:r] = row.slot_R, row.last_R
        for places, items in zip(of_work, (work.single_I8, work.block_I8, work.merge_M4), strict=True):
            places[: items.size] = items.ravel()
        numbers[:, :r] = numbers_PR
        for there, here in zip(buffers, given, strict=True):
            there.copy_(here, non_blocking=True)
        result, wait = self._recording.replay()
        return Drawn(result[0, :r], result[1, :r], wait)


class _InPlace:
    """The attention plan of a recorded pass: it writes new keys and values into the cache, and reads them there."""

    def __init__(self, places: Places) -> None:
        self._places, self._number = places, triton_kernels.register(places)

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        q_THD, k_TKD, v_TKD = (x.transpose(0, 1) for x in (q_HTD, k_KTD, v_KTD))
        return triton_kernels.attend(q_THD, k_TKD, v_TKD, self._number, layer, scale, window)


def _padded(count: int, least: int = 8) -> int:
    """The next recorded number of single tokens: a power of two, or one and a half times one."""
    size = least
    while size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def _rounded(count: int) -> int:
    """The next recorded size of a row with longer spans: a multiple of _STEP, or of a quarter of a power of two."""
    step = max(_STEP, 2 ** (count - 1).bit_length() // 8)
    return -(-count // step) * step
