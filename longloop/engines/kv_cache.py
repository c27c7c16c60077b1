"""The keys and values of the engine's slots, and the attention plan that reads and writes them in plain torch.

Shapes: L layers (or keys), S slots, C capacity in tokens, R spans in a row, T tokens in it, B of its spans single
tokens, H query heads, K key/value heads, G query heads per key head, D head size, N tiles of Q queries.
"""

import time
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from longloop.engines.slots import Row

_TILE, _KEYS = 32, 256
"""Queries in a tile, and the step by which the number of keys grows that a query is given."""

_PATIENCE = 60
"""Seconds to wait for memory on a full device."""


class KVCache:
    """One tensor with the keys and values of all layers and slots. It is allocated at first use, and can grow.

    There is one slot more than asked for: the idle part of a padded row writes there. Unwritten memory is zero, never
    garbage: masked keys still take part in the arithmetic, and garbage may be NaN.
    """

    def __init__(self, slots: int, layers: int) -> None:
        self.slots, self.layers = slots, layers
        self.kv_address: Tensor | None = None
        """On the device: the tensor's address and its capacity. This tensor stays when the cache moves."""
        self._like: Tensor | None = None
        self.clear()

    def clear(self) -> None:
        """Give the memory back."""
        self._capacity = 0
        self._kv: Tensor | None = None

    @property
    def bytes(self) -> int:
        return 0 if self._kv is None else self._kv.nbytes

    def reserve(self, tokens: int) -> None:
        """Make room for this many tokens in each slot, and keep what is there."""
        if tokens <= self._capacity:
            return
        held, self._capacity = self._capacity, tokens
        old = self._kv
        if old is None:
            return
        try:
            self._allocate()[..., :held, :] = old
        except torch.OutOfMemoryError:
            # The device has no room for both: by way of the machine's memory, some seconds for ten gigabytes.
            old, self._kv = old.cpu(), None
            self._allocate(patience=_PATIENCE)[..., :held, :] = old

    def copy(self, source: int, slot: int, tokens: int) -> None:
        """Copy the first tokens of one slot to another."""
        if self._kv is not None:  # else no layer has written any
            self._kv[:, :, slot, :, :tokens] = self._kv[:, :, source, :, :tokens]

    def tensor(self, like_KTD: Tensor | None = None) -> Tensor:
        """The KV tensor, [L, 2, S + 1, K, C, D]. The first call must pass keys, whose dtype and sizes it takes."""
        if like_KTD is not None and self._like is None:
            self._like = like_KTD.new_empty(like_KTD.shape[0], 0, like_KTD.shape[2])
        return self._allocate(patience=_PATIENCE) if self._kv is None else self._kv

    def _allocate(self, patience: int = 0) -> Tensor:
        """Allocate for the present capacity. If the device is full, try for `patience` seconds: another process may
        give memory back when it changes between sampling and learning."""
        assert self._like is not None
        K, _, D = self._like.shape
        while self._kv is None or self._kv.shape[4] != self._capacity:
            try:
                self._kv = self._like.new_zeros(self.layers, 2, self.slots + 1, K, self._capacity, D)
            except torch.OutOfMemoryError:
                if not patience:
                    raise
                if patience == _PATIENCE:
                    warnings.warn(f"The card is full: waiting up to {patience} s for another process.", stacklevel=2)
                patience -= 1
                time.sleep(1.0)
        kv_address = torch.tensor([self._kv.data_ptr(), self._capacity])
        if self.kv_address is None:
            self.kv_address = kv_address.to(self._kv.device)
        self.kv_address.copy_(kv_address)
        return self._kv


class Reading:
    """The attention plan of one pass in plain torch.

    On a CPU, a token's output must not depend, to the last bit, on what else is in the pass, nor on where a prompt was
    cut. A matrix product adds up in an order that depends on its shape, so the shape of every attention call follows
    from positions alone. Queries come one by one (single tokens) or in tiles that begin at multiples of _TILE, and are
    given keys up to the next multiple of _KEYS, masked beyond their own position.

    The row may be longer than its spans: the rest is padding, whose output is zero.
    """

    def __init__(self, cache: KVCache, row: Row, device: torch.device) -> None:
        self._cache, self._device = cache, device
        self._singles = [
            _Singles(at, row.slot_R[at], row.start_R[at], keys, device)
            for keys in np.unique(_upto(row.start_R[: row.singles]))
            for at in [np.flatnonzero(_upto(row.start_R[: row.singles]) == keys)]
        ]
        first_R = np.cumsum(row.count_R) - row.count_R
        spans = zip(*(x[row.singles :].tolist() for x in (first_R, row.slot_R, row.start_R, row.count_R)), strict=True)
        self._spans = list(spans)
        self._masks: dict[tuple[int, int, int], Tensor] = {}

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        k_SKCD, v_SKCD = self._cache.tensor(k_KTD)[layer]
        # The G query heads that share a key head are G queries of it: no head is copied.
        q_KGTD = q_HTD.unflatten(0, (k_KTD.shape[0], -1))
        out_KGTD = torch.zeros_like(q_KGTD)
        for some in self._singles:
            some.attend(q_KGTD, k_KTD, v_KTD, k_SKCD, v_SKCD, out_KGTD, scale, window)
        for at, slot, start, count in self._spans:
            k_SKCD[slot, :, start : start + count] = k_KTD[:, at : at + count]
            v_SKCD[slot, :, start : start + count] = v_KTD[:, at : at + count]
            self._span(q_KGTD, k_SKCD[slot], v_SKCD[slot], out_KGTD, at, start, count, scale, window)
        return out_KGTD.flatten(0, 1).transpose(0, 1)

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
            k_NKLD, v_NKLD = (_first(x, keys).expand(tiles, -1, -1, -1) for x in (k_KCD, v_KCD))
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
    """Single tokens of a row that are given the same number of keys. `at` is their indices in the row."""

    def __init__(self, at: np.ndarray, slot: np.ndarray, start: np.ndarray, keys: int, device: torch.device) -> None:
        self._at_B, self._slot_B, self._start_B = (torch.from_numpy(x).to(device) for x in (at, slot, start))
        self._keys = int(keys)
        # Neighboring slots are read in place; scattered ones are gathered first.
        neighbors = slot[-1] - slot[0] == len(slot) - 1
        self._rows: slice | Tensor = slice(int(slot[0]), int(slot[-1]) + 1) if neighbors else self._slot_B
        self._masks: dict[int, Tensor] = {}

    def attend(
        self,
        q_KGTD: Tensor,
        k_KTD: Tensor,
        v_KTD: Tensor,
        k_SKCD: Tensor,
        v_SKCD: Tensor,
        out_KGTD: Tensor,
        scale: float,
        window: int,
    ) -> None:
        if window not in self._masks:
            self._masks[window] = _sees(self._start_B, self._keys, window)[:, None, None, :]
        k_SKCD[self._slot_B, :, self._start_B] = k_KTD[:, self._at_B].transpose(0, 1)
        v_SKCD[self._slot_B, :, self._start_B] = v_KTD[:, self._at_B].transpose(0, 1)
        keys, values = (_first(x[:, :, : self._keys][self._rows], self._keys) for x in (k_SKCD, v_SKCD))
        q_BKGD = q_KGTD[:, :, self._at_B].permute(2, 0, 1, 3)
        out = scaled_dot_product_attention(q_BKGD, keys, values, attn_mask=self._masks[window], scale=scale)
        out_KGTD[:, :, self._at_B] = out.permute(1, 2, 0, 3)


def _upto(position: Any) -> Any:
    """The number of keys that a query at a position is given."""
    return (position // _KEYS + 1) * _KEYS


def _first(x_CD: Tensor, keys: int) -> Tensor:
    """The first keys or values, with zeros beyond the capacity."""
    more = keys - x_CD.shape[-2]
    return x_CD[..., :keys, :] if more <= 0 else pad(x_CD, (0, 0, 0, more))


def _sees(query_at: Tensor, keys: int, window: int) -> Tensor:
    """Which of the keys 0, 1, ... each query attends to, [Q, L]."""
    key_at = torch.arange(keys, device=query_at.device)
    seen = key_at <= query_at[:, None]
    return seen & (key_at > query_at[:, None] - window) if window else seen
