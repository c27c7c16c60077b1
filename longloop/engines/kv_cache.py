"""The keys and values of the engine's slots, and the attention plan that reads and writes them in plain torch.

Shapes: L layers (or keys), S slots, C capacity in tokens, R spans in a row, T tokens in it, B of its spans single
tokens, H query heads, K key/value heads, G query heads per key head, D head size, N tiles of Q queries, X
queries in some tiles.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
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
        self._cache, self._tokens = cache, len(row.ids_T)
        self._slot_T, self._position_T = (torch.from_numpy(x).to(device) for x in (row.slot_T, row.position_T))
        self._calls: list[_Singles | _Tiles] = [
            _Singles(at, row.slot_R[at], row.start_R[at], keys, device)
            for keys in np.unique(_upto(row.start_R[: row.singles]))
            for at in [np.flatnonzero(_upto(row.start_R[: row.singles]) == keys)]
        ]
        self._calls += [_Tiles(pieces, keys, device) for keys, pieces in _pieces(row)]

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        k_SKCD, v_SKCD = self._cache.tensor(k_KTD)[layer]
        for cached, new_KTD in ((k_SKCD, k_KTD), (v_SKCD, v_KTD)):
            cached[self._slot_T, :, self._position_T] = new_KTD[:, : self._tokens].transpose(0, 1)
        # The G query heads that share a key head are G queries of it: no head is copied.
        q_KGTD = q_HTD.unflatten(0, (k_KTD.shape[0], -1))
        out_KGTD = torch.zeros_like(q_KGTD)
        for call in self._calls:
            call.attend(q_KGTD, k_SKCD, v_SKCD, out_KGTD, scale, window)
        return out_KGTD.flatten(0, 1).transpose(0, 1)


@dataclass(frozen=True)
class _Piece:
    """Tokens of one span that are given the same number of keys. `at` is the first one's index in the row."""

    at: int
    slot: int
    start: int
    end: int

    @property
    def tile(self) -> int:
        """The position at which the first of its tiles begins."""
        return self.start // _TILE * _TILE

    @property
    def tiles(self) -> int:
        return -(-(self.end - self.tile) // _TILE)


def _pieces(row: Row) -> list[tuple[int, list[_Piece]]]:
    """The pieces of a row's spans that share a call, and their number of keys.

    Pieces of one tile, such as short observations, are called together. The tiles of a longer piece share its keys.
    """
    calls: list[tuple[int, list[_Piece]]] = []
    short: dict[int, list[_Piece]] = {}
    first_R = np.cumsum(row.count_R) - row.count_R
    spans = (first_R, row.slot_R, row.start_R, row.next_R)
    for at, slot, start, end in zip(*(x[row.singles :].tolist() for x in spans), strict=True):
        while start < end:
            keys = _upto(start)
            piece = _Piece(at, slot, start, min(end, keys))
            if piece.tiles == 1:
                short.setdefault(keys, []).append(piece)
            else:
                calls.append((keys, [piece]))
            at, start = at + piece.end - start, piece.end
    return [*short.items(), *calls]


class _Tiles:
    """The tiles of one piece, or pieces of one tile each, that are given the same number of keys."""

    def __init__(self, pieces: Sequence[_Piece], keys: int, device: torch.device) -> None:
        first, count = pieces[0], sum(piece.tiles for piece in pieces)
        self._keys, self._device = keys, device
        self._tile_N = [piece.tile + _TILE * n for piece in pieces for n in range(piece.tiles)]
        self._slot_N: int | Tensor = first.slot
        self._row_X: slice | Tensor = slice(first.at, first.at + first.end - first.start)
        self._inside_X: slice | Tensor = slice(first.start - first.tile, first.end - first.tile)
        """Where the queries are in the row, and in the tiles end to end."""
        if len(pieces) > 1:
            at_N, start_N, end_N = (np.array([getattr(p, x) for p in pieces]) for x in ("at", "start", "end"))
            count_N = end_N - start_N
            within_X = np.arange(count_N.sum()) - np.repeat(np.cumsum(count_N) - count_N, count_N)
            inside_N = start_N % _TILE + _TILE * np.arange(count)
            self._slot_N = torch.tensor([piece.slot for piece in pieces], device=device)
            self._row_X, self._inside_X = (
                torch.from_numpy(np.repeat(x, count_N) + within_X).to(device) for x in (at_N, inside_N)
            )
        self._masks: dict[int, Tensor] = {}

    def attend(
        self, q_KGTD: Tensor, k_SKCD: Tensor, v_SKCD: Tensor, out_KGTD: Tensor, scale: float, window: int
    ) -> None:
        K, G, _, D = q_KGTD.shape
        tiles = len(self._tile_N)
        q_KGXD = q_KGTD.new_zeros(K, G, tiles * _TILE, D)
        q_KGXD[:, :, self._inside_X] = q_KGTD[:, :, self._row_X]
        q_NKQD = q_KGXD.unflatten(2, (tiles, _TILE)).permute(2, 0, 1, 3, 4).flatten(2, 3)
        k_NKLD, v_NKLD = (
            _first(x[:, :, : self._keys][self._slot_N], self._keys).expand(tiles, -1, -1, -1) for x in (k_SKCD, v_SKCD)
        )
        mask = self._mask(G, window)
        out = scaled_dot_product_attention(q_NKQD, k_NKLD, v_NKLD, attn_mask=mask, scale=scale)
        out_KGXD = out.unflatten(2, (G, _TILE)).permute(1, 2, 0, 3, 4).flatten(2, 3)
        out_KGTD[:, :, self._row_X] = out_KGXD[:, :, self._inside_X]

    def _mask(self, G: int, window: int) -> Tensor:
        """Which keys the queries see, [N, 1, G * _TILE, L], or the same for all tiles, [1, 1, G * _TILE, L]."""
        if window not in self._masks:
            tile_N = self._tile_N[:1] if len(set(self._tile_N)) == 1 else self._tile_N
            query_at = torch.cat([torch.arange(tile, tile + _TILE, device=self._device) for tile in tile_N])
            seen = _sees(query_at, self._keys, window).unflatten(0, (len(tile_N), 1, _TILE))
            self._masks[window] = seen.repeat(1, 1, G, 1)
        return self._masks[window]


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
        self, q_KGTD: Tensor, k_SKCD: Tensor, v_SKCD: Tensor, out_KGTD: Tensor, scale: float, window: int
    ) -> None:
        if window not in self._masks:
            self._masks[window] = _sees(self._start_B, self._keys, window)[:, None, None, :]
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
