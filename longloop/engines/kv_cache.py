"""The engine's memory of what it has read: a slot per session, and the plan that reads and writes it.

A slot keeps the keys, values and token ids of one sequence. Its ids say exactly what the keys and values are of, so
reuse is a comparison of ids and can never be wrong: a session finds its own past, a group's second attempt finds the
opening that the first has read.

Shapes: L layers (or keys), S slots, C capacity in tokens, R spans in a row, T tokens in it, B of its spans single
tokens, H query heads, K key/value heads, G query heads per key head, D head size, N tiles of Q queries.
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

UNKNOWN = -1
"""In place of a token that has been drawn on the device but not yet been looked at."""

_TILE, _KEYS = 32, 256
"""Queries in a tile, and the step by which the number of keys grows that a query is given."""

_PATIENCE = 60
"""Seconds that memory is waited for."""


class Slots:
    """Up to S sequences: what is known of them, and the keys and values of what was read, in tensors that grow.

    They grow up to `most` tokens each, and beyond it only as far as a sequence really goes. One slot more than asked
    for takes what is written by the idle part of a padded row. Unwritten memory is zero, never garbage: masked keys
    still take part in the arithmetic, and garbage may be NaN.
    """

    def __init__(self, count: int, layers: int, most: int) -> None:
        self.count, self.layers, self.most = count, layers, most
        self.place: Tensor | None = None
        """On the device: where the keys and values lie, and the capacity. It stays when they move."""
        self._like: Tensor | None = None
        self.clear()

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self.capacity = 0
        self.length = np.zeros(self.count, dtype=np.int64)
        """Tokens whose keys and values are held."""
        self.known = np.zeros(self.count, dtype=np.int64)
        """Tokens that are known; those beyond `length` are still to be read."""
        self.ids = np.zeros((self.count, 0), dtype=np.int64)
        self.logp = np.zeros((self.count, 0), dtype=np.float64)
        self._kv: Tensor | None = None

    @property
    def bytes(self) -> int:
        return 0 if self._kv is None else self._kv.nbytes

    def reserve(self, tokens: int) -> None:
        """Make room for sequences of this many tokens."""
        if tokens <= self.capacity:
            return
        grown = max(tokens, min(self.most, _upto(max(tokens + 256, self.capacity * 3 // 2))))
        more = ((0, 0), (0, grown - self.capacity))
        self.ids, self.logp = np.pad(self.ids, more), np.pad(self.logp, more)
        before, self.capacity = self.capacity, grown
        if self._kv is not None:
            self._move(before)

    def _move(self, held: int) -> None:
        """Into a larger tensor. Where a device has no room for both, by way of the machine's memory, which takes some
        seconds for ten gigabytes."""
        old = self._kv
        assert old is not None
        try:
            self._take()[..., :held, :] = old
        except torch.OutOfMemoryError:
            old, self._kv = old.cpu(), None
            self._take(patience=_PATIENCE)[..., :held, :] = old

    def memory(self, like_KTD: Tensor | None = None) -> Tensor:
        """The keys and values of all layers, [L, 2, S + 1, K, C, D]; only the first time must it be said what like."""
        if like_KTD is not None and self._like is None:
            self._like = like_KTD.new_empty(like_KTD.shape[0], 0, like_KTD.shape[2])
        return self._take(patience=_PATIENCE) if self._kv is None else self._kv

    def _take(self, patience: int = 0) -> Tensor:
        """Memory for all slots. Another process on the card may give some back in a moment, after its own turn of
        collecting or learning: so many seconds are waited for that."""
        assert self._like is not None
        K, _, D = self._like.shape
        while self._kv is None or self._kv.shape[4] != self.capacity:
            try:
                self._kv = self._like.new_zeros(self.layers, 2, self.count + 1, K, self.capacity, D)
            except torch.OutOfMemoryError:
                if not patience:
                    raise
                if patience == _PATIENCE:
                    warnings.warn(f"The card is full: waiting up to {patience} s for another process.", stacklevel=2)
                patience -= 1
                time.sleep(1.0)
        place = torch.tensor([self._kv.data_ptr(), self.capacity])
        if self.place is None:
            self.place = place.to(self._kv.device)
        self.place.copy_(place)
        return self._kv

    def common(self, ids: np.ndarray) -> np.ndarray:
        """For every slot, with how many of these ids its sequence begins, as far as it is known."""
        width = min(len(ids), self.capacity)
        same = self.ids[:, :width] == ids[:width]
        first_difference = np.where(same.all(axis=1), width, same.argmin(axis=1) if width else 0)
        return np.minimum(first_difference, self.known)

    def begins(self, slot: int, ids: np.ndarray) -> bool:
        """Whether these ids go on from all that the slot knows."""
        known = self.known[slot]
        return bool(0 < known < len(ids) and (self.ids[slot, :known] == ids[:known]).all())

    def begin(self, slot: int, ids: np.ndarray, source: int, tokens: int) -> None:
        """Put a sequence into a slot, whose first tokens were read in another (or in this one)."""
        if source != slot and self._kv is not None:
            self._kv[:, :, slot, :, :tokens] = self._kv[:, :, source, :, :tokens]
        self.ids[slot, : len(ids)] = ids
        self.length[slot] = tokens
        self.known[slot] = len(ids)


@dataclass(frozen=True)
class Row:
    """What one forward pass reads: a span of new tokens from each of some slots, end to end, single tokens first."""

    slot_R: np.ndarray
    start_R: np.ndarray
    count_R: np.ndarray
    singles: int
    goes_on: bool = False
    """Whether the last span has its end in another part of the row."""

    @property
    def last_R(self) -> np.ndarray:
        """Where in the row each span ends."""
        return np.cumsum(self.count_R) - 1

    @property
    def whole_R(self) -> np.ndarray:
        """Which spans have their end here: all but the last, where that goes on."""
        return np.arange(len(self.slot_R)) < len(self.slot_R) - self.goes_on

    def cut(self, size: int) -> "list[Row]":
        """The row in parts of at most `size` tokens, in their order."""
        parts, end_R = [], np.cumsum(self.count_R)
        for begin in range(0, int(end_R[-1]), size):
            from_R = np.maximum(end_R - self.count_R, begin)
            upto_R = np.minimum(end_R, begin + size)
            here = np.flatnonzero(from_R < upto_R)
            start_R = self.start_R + from_R - (end_R - self.count_R)
            goes_on = bool(upto_R[here[-1]] < end_R[here[-1]])
            singles = int((here < self.singles).sum())
            parts.append(Row(self.slot_R[here], start_R[here], (upto_R - from_R)[here], singles, goes_on))
        return parts

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """The slot of every token of the row, and its position there."""
        before = np.repeat(np.cumsum(self.count_R) - self.count_R - self.start_R, self.count_R)
        return np.repeat(self.slot_R, self.count_R), np.arange(int(self.count_R.sum())) - before


class Reading:
    """The plan of one pass in plain torch.

    On a CPU, what a token gets must not depend, to the last bit, on what else is in the pass, nor on where a prompt was
    cut. A product of matrices adds up in an order that depends on its shape, so every call of attention has a shape
    that follows from positions alone. Queries come one by one (single tokens) or in tiles that begin at multiples of
    _TILE, and are given keys up to the next multiple of _KEYS, masked beyond their own position.

    The row may be longer than its spans: the rest is padding, whose output is zero.
    """

    def __init__(self, slots: Slots, row: Row, device: torch.device) -> None:
        self._slots, self._device = slots, device
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
        k_SKCD, v_SKCD = self._slots.memory(k_KTD)[layer]
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
        """Tile after tile, those together that see the same keys. `at` is where the span lies in the row."""
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
        """What the queries of some tiles see, [N, 1, G * _TILE, L]."""
        if (tile, tiles, window) not in self._masks:
            query_at = torch.arange(tile, tile + tiles * _TILE, device=self._device)
            seen = _sees(query_at, keys, window).unflatten(0, (tiles, 1, _TILE))
            self._masks[tile, tiles, window] = seen.repeat(1, 1, G, 1)
        return self._masks[tile, tiles, window]


class _Singles:
    """Single tokens of a row that see the same number of keys. `at` is where they lie in the row."""

    def __init__(self, at: np.ndarray, slot: np.ndarray, start: np.ndarray, keys: int, device: torch.device) -> None:
        self._at_B, self._slot_B, self._start_B = (torch.from_numpy(x).to(device) for x in (at, slot, start))
        self._keys = int(keys)
        # Slots that lie together are read in place; scattered ones are gathered first.
        together = slot[-1] - slot[0] == len(slot) - 1
        self._rows: slice | Tensor = slice(int(slot[0]), int(slot[-1]) + 1) if together else self._slot_B
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
    """The first keys or values; zeros beyond the capacity."""
    more = keys - x_CD.shape[-2]
    return x_CD[..., :keys, :] if more <= 0 else pad(x_CD, (0, 0, 0, more))


def _sees(query_at: Tensor, keys: int, window: int) -> Tensor:
    """Which of the keys 0, 1, ... each query attends to, [Q, L]."""
    key_at = torch.arange(keys, device=query_at.device)
    seen = key_at <= query_at[:, None]
    return seen & (key_at > query_at[:, None] - window) if window else seen
