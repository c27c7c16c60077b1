"""The keys and values of the engine's sequences in pages, and the attention plan that reads and writes them in plain
torch.

Shapes: N pages in a slab, P pages in all, L layers (or keys), R spans in a row, T tokens in it, B of its spans single
tokens, H query heads, K key/value heads, G query heads per key head, D head size, Q queries of some tiles.
"""

import time
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longloop.engines.pages import PAGE
from longloop.engines.slots import Row

_TILE, _KEYS = 32, 256
"""Queries in a tile, and the step by which the number of keys grows that a query is given."""

_GATHERED = 2**19
"""Keys times head size that are gathered for single tokens at once on a CPU: they should still be in its cache when
attention reads them."""

_PATIENCE = 60
"""Seconds to wait for memory on a full device."""


class KVCache:
    """Pages, each with the keys and values of PAGE tokens in all layers, [L, 2, K, PAGE, D]; many of them in a slab.

    like_KD: a key of all heads, from which dtype, sizes and device are taken.
    most: growing stops at so many pages, unless more are asked for.
    moves: keep all pages in one slab, which grows by half and is copied. Else further slabs are added, each an eighth
        of what there is, and a page keeps its address.

    Unwritten memory is zero, never garbage: masked keys still take part in the arithmetic, and garbage may be NaN.
    """

    def __init__(self, like_KD: Tensor, layers: int, most: int, moves: bool = True) -> None:
        self._like, self._layers, self._most, self._moves = like_KD, layers, most, moves
        self.clear()

    def clear(self) -> None:
        """Give the memory back."""
        self._slabs: list[Tensor] = []
        self.address_P = np.zeros(0, dtype=np.int64)
        """The address of each page."""

    @property
    def heads(self) -> int:
        return len(self._like)

    @property
    def bytes(self) -> int:
        return sum(slab.nbytes for slab in self._slabs)

    def grow(self, pages: int, wait: bool) -> bool:
        """Make room for this many pages, and keep what is there. Returns False if the device is full.

        wait: another process may give memory back when it changes between sampling and learning. Try for a minute, then
        raise the device's error.
        """
        have = len(self.address_P)
        if pages <= have:
            return True
        grown = max(pages, min(self._most, have + have // (2 if self._moves else 8)))
        try:
            slab = self._allocated(grown if self._moves else grown - have, _PATIENCE if wait else 0)
        except torch.OutOfMemoryError:
            if wait:
                raise
            return False
        if self._moves and self._slabs:
            slab[:have] = self._slabs.pop()
            self.address_P = self.address_P[:0]
        self._slabs.append(slab)
        address_N = slab.data_ptr() + np.arange(len(slab)) * slab[0].nbytes
        self.address_P = np.concatenate([self.address_P, address_N])
        return True

    def copy(self, source: int, target: int) -> None:
        """Copy one page to another."""
        self.page(target).copy_(self.page(source))

    def page(self, number: int) -> Tensor:
        """[L, 2, K, PAGE, D]."""
        for slab in self._slabs:
            if number < len(slab):
                return slab[number]
            number -= len(slab)
        raise IndexError(number)

    def slab(self) -> Tensor:
        """All pages of a cache that moves, [P, L, 2, K, PAGE, D]."""
        (slab,) = self._slabs
        return slab

    def _allocated(self, pages: int, patience: int) -> Tensor:
        K, D = self._like.shape
        left = patience
        while True:
            try:
                return self._like.new_zeros(pages, self._layers, 2, K, PAGE, D)
            except torch.OutOfMemoryError:
                if not left:
                    raise
                if left == patience:
                    warnings.warn(f"The card is full: waiting up to {patience} s for another process.", stacklevel=2)
                left -= 1
                time.sleep(1.0)


class Probe:
    """The plan of a pass that only shows what keys are like. Its attention outputs are zero."""

    like_KD: Tensor
    group: int
    """Query heads that share a key head."""

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        self.like_KD, self.group = k_KTD[:, 0].clone(), len(q_HTD) // len(k_KTD)
        return torch.zeros_like(q_HTD).transpose(0, 1)


class Reading:
    """The attention plan of one pass in plain torch.

    On a CPU, a token's output must not depend, to the last bit, on what else is in the pass, nor on where a prompt was
    cut. A matrix product adds up in an order that depends on its shape, so the shape of every attention call follows
    from positions alone. Queries come one by one (single tokens) or in tiles that begin at multiples of _TILE, and are
    given keys up to the next multiple of _KEYS, masked beyond their own position.

    Keys and values are gathered from their pages first. The row may be longer than its spans: the rest is padding,
    whose output is zero.
    """

    def __init__(self, cache: KVCache, row: Row, device: torch.device) -> None:
        self._slab, self._device, self._tokens = cache.slab(), device, len(row.ids_T)
        page_T = row.page_RW[row.span_T, row.position_T // PAGE]
        self._page_T, self._offset_T = (torch.from_numpy(x).to(device) for x in (page_T, row.position_T % PAGE))
        upto_R = _upto(row.next_R - 1)
        single_R = np.arange(len(row.slot_R)) < row.singles
        self._singles = [
            _Singles(torch.from_numpy(at).to(device), row.start_R[at], self._rows(row.page_RW[at], keys), keys, device)
            for keys in np.unique(upto_R[single_R]).tolist()
            for at in self._portions(np.flatnonzero(single_R & (upto_R == keys)), keys)
        ]
        first_R = np.cumsum(row.count_R) - row.count_R
        self._spans = [
            (int(first_R[r]), int(row.start_R[r]), int(row.count_R[r]), self._rows(row.page_RW[[r]], int(upto_R[r])))
            for r in range(row.singles, len(row.slot_R))
        ]
        self._masks: dict[tuple[int, int, int], Tensor] = {}

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        for side, new_KTD in enumerate((k_KTD, v_KTD)):
            new_TKD = new_KTD[:, : self._tokens].transpose(0, 1)
            self._slab[:, layer, side][self._page_T, :, self._offset_T] = new_TKD
        # The G query heads that share a key head are G queries of it: no head is copied.
        q_KGTD = q_HTD.unflatten(0, (k_KTD.shape[0], -1))
        out_KGTD = torch.zeros_like(q_KGTD)
        for some in self._singles:
            k_BKCD, v_BKCD = self._gathered(some.rows, layer)
            some.attend(q_KGTD, k_BKCD, v_BKCD, out_KGTD, scale, window)
        for at, start, count, rows in self._spans:
            k_BKCD, v_BKCD = self._gathered(rows, layer)
            self._span(q_KGTD, k_BKCD[0], v_BKCD[0], out_KGTD, at, start, count, scale, window)
        return out_KGTD.flatten(0, 1).transpose(0, 1)

    def _portions(self, at_B: np.ndarray, keys: int) -> list[np.ndarray]:
        """Sequences whose keys are gathered together."""
        if self._device.type != "cpu":
            return [at_B]
        each = max(1, _GATHERED // (self._slab.shape[3] * keys * self._slab.shape[5]))
        return np.split(at_B, range(each, len(at_B), each))

    def _rows(self, page_BW: np.ndarray, keys: int) -> Tensor:
        """Where the keys and values of the first layer are in the slab, as rows of one page and head: [2, B, K, W].

        Pages that a sequence lacks are the spare one.
        """
        _, layers, _, K, *_ = self._slab.shape
        wide_BW = np.pad(page_BW, ((0, 0), (0, max(0, keys // PAGE - page_BW.shape[1]))))[:, : keys // PAGE]
        row_2K = np.arange(2 * K).reshape(2, 1, K, 1)
        return torch.from_numpy(2 * K * layers * wide_BW[None, :, None, :] + row_2K).to(self._device)

    def _gathered(self, rows_2BKW: Tensor, layer: int) -> Tensor:
        """[2, B, K, C, D], with C tokens of W pages."""
        _, _, _, K, _, D = self._slab.shape
        rows = (rows_2BKW + 2 * K * layer).flatten()
        return self._slab.view(-1, PAGE * D).index_select(0, rows).view(*rows_2BKW.shape[:3], -1, D)

    def _span(
        self,
        q_KGTD: Tensor,
        k_KCD: Tensor,
        v_KCD: Tensor,
        out_KGTD: Tensor,
        at: int,
        start: int,
        count: int,
        scale: float,
        window: int,
    ) -> None:
        """Attend tile by tile; tiles that see the same keys share a call. `at` is the span's first index in the row."""
        K, G, _, D = q_KGTD.shape
        end = start + count
        while start < end:
            tile = start // _TILE * _TILE
            keys = int(_upto(start))
            upto = min(end, keys)
            tiles = -(-(upto - tile) // _TILE)
            row, inside = slice(at, at + upto - start), slice(start - tile, upto - tile)
            q_KGQD = q_KGTD.new_zeros(K, G, tiles * _TILE, D)
            q_KGQD[:, :, inside] = q_KGTD[:, :, row]
            q_NKQD = q_KGQD.unflatten(2, (tiles, _TILE)).permute(2, 0, 1, 3, 4).flatten(2, 3)
            k_NKLD, v_NKLD = (x[:, :keys].expand(tiles, -1, -1, -1) for x in (k_KCD, v_KCD))
            mask = self._mask(tile, tiles, keys, G, window)
            out = scaled_dot_product_attention(q_NKQD, k_NKLD, v_NKLD, attn_mask=mask, scale=scale)
            out_KGQD = out.unflatten(2, (G, _TILE)).permute(1, 2, 0, 3, 4).flatten(2, 3)
            out_KGTD[:, :, row] = out_KGQD[:, :, inside]
            at, start = at + upto - start, upto

    def _mask(self, tile: int, tiles: int, keys: int, G: int, window: int) -> Tensor:
        """Which keys the queries of some tiles see, [N, 1, G * _TILE, L]."""
        if (tile, tiles, window) not in self._masks:
            query_at = torch.arange(tile, tile + tiles * _TILE, device=self._device)
            seen = _sees(query_at, keys, window).unflatten(0, (tiles, 1, _TILE))
            self._masks[tile, tiles, window] = seen.repeat(1, 1, G, 1)
        return self._masks[tile, tiles, window]


class _Singles:
    """Single tokens of a row that are given the same number of keys. `at_B` is their indices in the row."""

    def __init__(self, at_B: Tensor, start_B: np.ndarray, rows: Tensor, keys: int, device: torch.device) -> None:
        self._at_B, self._start_B, self._keys, self.rows = at_B, torch.from_numpy(start_B).to(device), keys, rows
        self._masks: dict[int, Tensor] = {}

    def attend(
        self, q_KGTD: Tensor, k_BKCD: Tensor, v_BKCD: Tensor, out_KGTD: Tensor, scale: float, window: int
    ) -> None:
        if window not in self._masks:
            self._masks[window] = _sees(self._start_B, self._keys, window)[:, None, None, :]
        q_BKGD = q_KGTD[:, :, self._at_B].permute(2, 0, 1, 3)
        out = scaled_dot_product_attention(q_BKGD, k_BKCD, v_BKCD, attn_mask=self._masks[window], scale=scale)
        out_KGTD[:, :, self._at_B] = out.permute(1, 2, 0, 3)


def _upto(position: Any) -> Any:
    """The number of keys that a query at a position is given."""
    return (position // _KEYS + 1) * _KEYS


def _sees(query_at: Tensor, keys: int, window: int) -> Tensor:
    """Which of the keys 0, 1, ... each query attends to, [Q, L]."""
    key_at = torch.arange(keys, device=query_at.device)
    seen = key_at <= query_at[:, None]
    return seen & (key_at > query_at[:, None] - window) if window else seen
