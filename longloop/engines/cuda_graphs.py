"""The forward pass on a CUDA device: recorded once for each size of row, then replayed with other numbers.

A graph holds the whole pass, from ids to drawn tokens and their log-probs; replaying it costs one call where the pass
itself would cost a thousand. A row is padded to the next recorded size; the padding reads and writes the spare slot.
What varies lies in buffers that are filled before a replay: no graph knows how long a sequence is, nor where the keys
and values lie. So a recording lasts as long as the run: the weights are trained in place, and the slots' memory may be
given back and taken anew.

Shapes: T tokens in the row, R spans, N blocks of queries, each padded.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longloop.engines import triton_kernels
from longloop.engines.kv_cache import UNKNOWN, Row, Slots
from longloop.engines.passes import Drawn, Model, draw

_SPANS = 256
"""Tokens in the smallest recorded row of spans: shorter ones cost hardly less, and each size must be recorded."""


class Recording:
    """A function whose work on the device is recorded at once and can be done again."""

    def __init__(self, work: Callable[[], Tensor], pool: Any) -> None:
        work()  # once outside the recording: kernels are compiled at first use
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._result = work()

    def replay(self) -> tuple[Tensor, Callable[[], None]]:
        """Begin it. What will be the result, and what to call before looking at it."""
        self._graph.replay()
        result = torch.empty_like(self._result, device="cpu", pin_memory=True)
        result.copy_(self._result, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return result, done.synchronize


class Graphs:
    ahead = 1

    def __init__(
        self, model: Model, slots: Slots, recording: type[Recording] = Recording, compile: bool = False
    ) -> None:
        self._model, self._slots, self._recording, self._compile = model, slots, recording, compile
        self._graphs: dict[tuple[int, bool], _Graph] = {}
        self._last_S = torch.zeros(slots.count + 1, dtype=torch.int32, device=model.device)
        """The token that was drawn last in each slot."""
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None

    def __call__(self, row: Row, temperature_R: np.ndarray, uniform_R: np.ndarray) -> Drawn:
        single = row.singles == len(row.slot_R)
        size = _padded(len(row.slot_R)) if single else _padded(int(row.count_R.sum()), _SPANS)
        if (size, single) not in self._graphs:
            spans = size if single else min(size, _padded(self._slots.count))
            sizes = size, spans, single
            self._graphs[size, single] = _Graph(
                self._model, self._slots, self._last_S, *sizes, self._recording, self._pool, self._compile
            )
        return self._graphs[size, single].replay(row, temperature_R, uniform_R)

    def release(self) -> None:
        """Recordings stay: to make them again would take longer than a step. What lay in the slots goes back."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class _Graph:
    """The pass for rows of up to so many tokens in up to so many spans; of single tokens only, or of any."""

    def __init__(
        self,
        model: Model,
        slots: Slots,
        last_S: Tensor,
        tokens: int,
        spans: int,
        single: bool,
        recording: type[Recording],
        pool: Any,
        compile: bool,
    ) -> None:
        parts = [1, tokens, tokens, tokens, spans, spans, 0 if single else 4 * (spans + tokens // triton_kernels.BLOCK)]
        self._slots = slots
        self._cuts = np.cumsum(parts)[:-1]
        self._whole = torch.zeros(sum(parts), dtype=torch.int32, device=model.device)
        """All whole numbers of a row: how many single tokens; ids, positions and slots of its tokens; slots and ends of
        its spans; blocks."""
        self._reals = torch.zeros(2, spans, dtype=torch.float64, device=model.device)
        """Temperature and random number of each span."""
        singles, ids_T, position_T, slot_T, slot_R, end_R, block_4N = self._whole.split(parts)
        slot_T.fill_(slots.count)
        slot_R.fill_(slots.count)
        plan = _InPlace(slots, slot_T, position_T, singles, spans, block_4N.view(-1, 4))

        def drawn(hidden_RD: Tensor, temperature_R: Tensor, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
            return draw(model.logits(hidden_RD), temperature_R, uniform_R)

        if compile:  # together with the logits: then these are never written in float32
            drawn = torch.compile(drawn, dynamic=True)

        def work() -> Tensor:
            told_T = torch.where(ids_T == UNKNOWN, last_S[slot_T], ids_T)
            hidden_TD = model.hidden(told_T, position_T, plan)
            token_R, logp_R = drawn(hidden_TD if single else hidden_TD[end_R], *self._reals)
            last_S[slot_R] = token_R.int()
            return torch.stack([token_R.double(), logp_R.double()])

        if slots.place is None:
            work()  # takes the slots' memory, which must be there before anything is compiled or recorded
        slots.memory()
        with model.compiled() if compile else nullcontext():
            self._recording = recording(work, pool)

    def replay(self, row: Row, temperature_R: np.ndarray, uniform_R: np.ndarray) -> Drawn:
        slots = self._slots
        slots.memory()
        given = [torch.zeros_like(x, device="cpu", pin_memory=x.is_cuda) for x in (self._whole, self._reals)]
        whole, reals = (x.numpy() for x in given)
        singles, ids, position, slot, of_span, end, blocks = np.split(whole, self._cuts)
        slot_T, position_T = row.tokens()
        t, r = len(slot_T), len(row.slot_R)
        singles[:], slot[:], of_span[:] = row.singles, slots.count, slots.count
        ids[:t], position[:t], slot[:t] = slots.ids[slot_T, position_T], position_T, slot_T
        of_span[:r], end[:r] = row.slot_R, row.last_R
        if len(blocks):
            made = _blocks(row)
            blocks[: made.size] = made.ravel()
        reals[0, :r], reals[1, :r] = temperature_R, uniform_R
        for there, here in zip((self._whole, self._reals), given, strict=True):
            there.copy_(here, non_blocking=True)
        result, wait = self._recording.replay()
        return Drawn(result[0, :r], result[1, :r], wait)


class _InPlace:
    """The plan of a recorded pass: new keys and values go into their slots, and attention reads them there."""

    def __init__(
        self, slots: Slots, slot_T: Tensor, position_T: Tensor, singles: Tensor, most: int, block_N4: Tensor
    ) -> None:
        self._slots, self._where = slots, (slot_T, position_T, singles, most, block_N4)

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        q_THD, k_TKD, v_TKD = (x.transpose(0, 1) for x in (q_HTD, k_KTD, v_KTD))
        if self._slots.place is None:
            self._slots.memory(k_KTD)
        place, slots = self._slots.place, self._slots.count + 1
        return triton_kernels.attend(q_THD, k_TKD, v_TKD, place, slots, layer, *self._where, scale, window)


def _padded(count: int, least: int = 8) -> int:
    """The size that is recorded: powers of two and half-way between them."""
    size = least
    while size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size


def _blocks(row: Row) -> np.ndarray:
    """Every span but the single tokens in blocks of queries: (first in the row, how many, slot, first's position)."""
    many_R = -(-row.count_R // triton_kernels.BLOCK)
    many_R[: row.singles] = 0
    span_N = np.repeat(np.arange(len(many_R)), many_R)
    offset_N = (np.arange(len(span_N)) - np.repeat(np.cumsum(many_R) - many_R, many_R)) * triton_kernels.BLOCK
    first_R = np.cumsum(row.count_R) - row.count_R
    left_N = np.minimum(row.count_R[span_N] - offset_N, triton_kernels.BLOCK)
    return np.stack([first_R[span_N] + offset_N, left_N, row.slot_R[span_N], row.start_R[span_N] + offset_N], axis=1)
