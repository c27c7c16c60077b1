"""The forward pass on a CUDA device: recorded once for each size of row, then replayed with other inputs.

A CUDA graph holds the whole pass, from ids to drawn tokens and their log-probs; replaying it costs one call where the
pass itself costs a thousand. A row is padded to the next recorded size; the padding reads and writes the spare slot.
All that varies lies in buffers that are filled before a replay: the graph knows neither how long a sequence is nor
where the KV cache is. So a recording stays valid for the whole run: the weights are trained in place, and the cache may
be freed and allocated again.

Only public torch: `torch.cuda.CUDAGraph`, `torch.cuda.graph` and pinned memory.

Shapes: T tokens in the row, R spans, N blocks of queries, each padded; P numbers for each span (sampler.py).
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longloop.engines import triton_kernels
from longloop.engines.kv_cache import KVCache
from longloop.engines.passes import Drawn, Model
from longloop.engines.sampler import NUMBERS, draw, truncates
from longloop.engines.slots import UNKNOWN, Row

_SPANS = 256
"""Tokens in the smallest recorded row with longer spans: smaller ones cost hardly less, and each size is recorded."""


class Recording:
    """Records what a function does on the device, to do it again."""

    def __init__(self, work: Callable[[], Tensor], pool: Any) -> None:
        work()  # once before recording: kernels are compiled at first use
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
        return result, done.synchronize


class Graphs:
    """The pass as recordings: one for each padded size of row, with or without longer spans, truncated or not."""

    ahead = 1

    def __init__(
        self, model: Model, cache: KVCache, recording: type[Recording] = Recording, compile: bool = False
    ) -> None:
        self._model, self._cache, self._recording, self._compile = model, cache, recording, compile
        self._graphs: dict[tuple[int, bool, bool], _Graph] = {}
        self._last_S = torch.zeros(cache.slots + 1, dtype=torch.int32, device=model.device)
        """The token that was drawn last in each slot."""
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None

    def __call__(self, row: Row, numbers_PR: np.ndarray) -> Drawn:
        single = row.singles == len(row.slot_R)
        size = _padded(len(row.slot_R)) if single else _padded(len(row.ids_T), _SPANS)
        kind = size, single, truncates(numbers_PR)
        if kind not in self._graphs:
            spans = size if single else min(size, _padded(self._cache.slots))
            self._graphs[kind] = _Graph(
                self._model, self._cache, self._last_S, *kind, spans, self._recording, self._pool, self._compile
            )
        return self._graphs[kind].replay(row, numbers_PR)

    def release(self) -> None:
        """Give the freed cache back to the device. Recordings stay: making them again takes longer than a step."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class _Graph:
    """The pass for rows of up to `tokens` tokens in up to `spans` spans; `single`: of single tokens only."""

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        last_S: Tensor,
        tokens: int,
        single: bool,
        truncate: bool,
        spans: int,
        recording: type[Recording],
        pool: Any,
        compile: bool,
    ) -> None:
        parts = [1, tokens, tokens, tokens, spans, spans, 0 if single else 4 * (spans + tokens // triton_kernels.BLOCK)]
        self._cache = cache
        self._cuts = np.cumsum(parts)[:-1]
        self._whole = torch.zeros(sum(parts), dtype=torch.int32, device=model.device)
        """All integers of a row: the number of single tokens; ids, positions and slots of its tokens; slots and ends of
        its spans; blocks."""
        self._numbers_PR = torch.zeros(NUMBERS, spans, dtype=torch.float64, device=model.device)
        singles, ids_T, position_T, slot_T, slot_R, end_R, block_4N = self._whole.split(parts)
        slot_T.fill_(cache.slots)
        slot_R.fill_(cache.slots)
        plan = _InPlace(cache, slot_T, position_T, singles, spans, block_4N.view(-1, 4))

        def drawn(hidden_RD: Tensor, *numbers: Tensor) -> tuple[Tensor, Tensor]:
            return draw(model.logits(hidden_RD), *numbers, truncate=truncate)

        if compile:  # together with the logits: then these are never written in float32
            drawn = torch.compile(drawn, dynamic=True)

        def work() -> Tensor:
            known_T = torch.where(ids_T == UNKNOWN, last_S[slot_T], ids_T)
            hidden_TD = model.hidden(known_T, position_T, plan)
            token_R, logp_R = drawn(hidden_TD if single else hidden_TD[end_R], *self._numbers_PR)
            last_S[slot_R] = token_R.int()
            return torch.stack([token_R.double(), logp_R.double()])

        if cache.kv_address is None:
            work()  # allocates the cache, which must be there before anything is compiled or recorded
        cache.tensor()
        with model.compiled() if compile else nullcontext():
            self._recording = recording(work, pool)

    def replay(self, row: Row, numbers_PR: np.ndarray) -> Drawn:
        self._cache.tensor()
        buffers = self._whole, self._numbers_PR
        given = [torch.zeros_like(x, device="cpu", pin_memory=x.is_cuda) for x in buffers]
        whole, numbers = (x.numpy() for x in given)
        singles, ids, position, slot, of_span, end, blocks = np.split(whole, self._cuts)
        t, r = len(row.ids_T), len(row.slot_R)
        singles[:], slot[:], of_span[:] = row.singles, self._cache.slots, self._cache.slots
        ids[:t], position[:t], slot[:t] = row.ids_T, row.position_T, row.slot_T
        of_span[:r], end[:r] = row.slot_R, row.last_R
        if len(blocks):
            made = _blocks(row)
            blocks[: made.size] = made.ravel()
        numbers[:, :r] = numbers_PR
        for there, here in zip(buffers, given, strict=True):
            there.copy_(here, non_blocking=True)
        result, wait = self._recording.replay()
        return Drawn(result[0, :r], result[1, :r], wait)


class _InPlace:
    """The attention plan of a recorded pass: it writes new keys and values into the cache, and reads them there."""

    def __init__(
        self, cache: KVCache, slot_T: Tensor, position_T: Tensor, singles: Tensor, max_singles: int, block_N4: Tensor
    ) -> None:
        self._cache, self._row = cache, (slot_T, position_T, singles, max_singles, block_N4)

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        q_THD, k_TKD, v_TKD = (x.transpose(0, 1) for x in (q_HTD, k_KTD, v_KTD))
        if self._cache.kv_address is None:
            self._cache.tensor(k_KTD)
        kv_address, slots = self._cache.kv_address, self._cache.slots + 1
        return triton_kernels.attend(q_THD, k_TKD, v_TKD, kv_address, slots, layer, *self._row, scale, window)


def _padded(count: int, least: int = 8) -> int:
    """The next recorded size: a power of two, or one and a half times one."""
    size = least
    while size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def _blocks(row: Row) -> np.ndarray:
    """The longer spans in blocks of queries: (index of the first in the row, number, slot, position of the first)."""
    many_R = -(-row.count_R // triton_kernels.BLOCK)
    many_R[: row.singles] = 0
    span_N = np.repeat(np.arange(len(many_R)), many_R)
    offset_N = (np.arange(len(span_N)) - np.repeat(np.cumsum(many_R) - many_R, many_R)) * triton_kernels.BLOCK
    first_R = np.cumsum(row.count_R) - row.count_R
    left_N = np.minimum(row.count_R[span_N] - offset_N, triton_kernels.BLOCK)
    return np.stack([first_R[span_N] + offset_N, left_N, row.slot_R[span_N], row.start_R[span_N] + offset_N], axis=1)
