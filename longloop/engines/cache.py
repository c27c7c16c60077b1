"""The engine's memory of what it has read: a slot per session, and the plan that reads and writes it.

A slot keeps the keys, values and token ids of one sequence. Its ids say exactly what the keys and values are of, so
reuse is a comparison of ids and can never be wrong: a session finds its own past, a group's second attempt finds the
opening that the first has read.

Shapes: L layers, S slots, C capacity in tokens, R spans in a row, T tokens in it, B of its spans single tokens, H query
heads, K key/value heads, G query heads per key head, D head size.
"""

import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longloop.engines.attention import causal

UNKNOWN = -1
"""In place of a token that has been drawn on the device but not yet been looked at."""

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
        grown = max(tokens, min(self.most, max(tokens + 256, self.capacity * 3 // 2)))
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

    @property
    def last_R(self) -> np.ndarray:
        """Where in the row each span ends."""
        return np.cumsum(self.count_R) - 1

    def tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """The slot of every token of the row, and its position there."""
        before = np.repeat(np.cumsum(self.count_R) - self.count_R - self.start_R, self.count_R)
        return np.repeat(self.slot_R, self.count_R), np.arange(int(self.count_R.sum())) - before


class Reading:
    """The plan of one pass in plain torch: the single tokens by one call of attention, every longer span by its own."""

    def __init__(self, slots: Slots, row: Row, device: torch.device) -> None:
        self._slots = slots
        self._count = B = row.singles
        self._spans = list(
            zip(row.slot_R[B:].tolist(), row.start_R[B:].tolist(), row.count_R[B:].tolist(), strict=True)
        )
        if not B:
            return
        at, start = row.slot_R[:B], row.start_R[:B]
        self._slot_B, self._start_B = torch.from_numpy(at).to(device), torch.from_numpy(start).to(device)
        self._keys = int(start.max()) + 1
        # Slots that lie together are read in place; scattered ones are gathered first.
        together = at[-1] - at[0] == B - 1
        self._rows: slice | Tensor = slice(int(at[0]), int(at[-1]) + 1) if together else self._slot_B
        self._masks: dict[int, Tensor] = {}

    def _mask(self, window: int) -> Tensor:
        if window not in self._masks:
            key_at = torch.arange(self._keys, device=self._start_B.device)
            seen = key_at <= self._start_B[:, None]
            if window:
                seen &= key_at > self._start_B[:, None] - window
            self._masks[window] = seen[:, None, None, :]
        return self._masks[window]

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        k_SKCD, v_SKCD = self._slots.memory(k_KTD)[layer]
        outputs = []
        if self._count:
            B = self._count
            k_SKCD[self._slot_B, :, self._start_B] = k_KTD[:, :B].transpose(0, 1)
            v_SKCD[self._slot_B, :, self._start_B] = v_KTD[:, :B].transpose(0, 1)
            keys, values = (x[self._rows, :, : self._keys] for x in (k_SKCD, v_SKCD))
            # The G query heads that share a key head are G queries of it: no head is copied.
            q_BKGD = q_HTD[:, :B].transpose(0, 1).unflatten(1, (k_KTD.shape[0], -1))
            out = scaled_dot_product_attention(q_BKGD, keys, values, attn_mask=self._mask(window), scale=scale)
            outputs.append(out.flatten(1, 2))
        at = self._count
        for slot, start, count in self._spans:
            row, end = slice(at, at + count), start + count
            k_SKCD[slot, :, start:end] = k_KTD[:, row]
            v_SKCD[slot, :, start:end] = v_KTD[:, row]
            keys, values = (x[None, slot, :, :end] for x in (k_SKCD, v_SKCD))
            outputs.append(causal(q_HTD[None, :, row], keys, values, scale, window)[0].transpose(0, 1))
            at += count
        return torch.cat(outputs)
