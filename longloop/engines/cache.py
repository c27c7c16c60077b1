"""The engine's memory of what it has read: a slot per session, and the plan that reads and writes it.

A slot keeps the keys, values and token ids of one sequence. Its ids say exactly what the keys and values are of, so
reuse is a comparison of ids and can never be wrong: a session finds its own past, a group's second attempt finds the
opening that the first has read.

Shapes: S slots, C capacity in tokens, B decoding sequences, K key/value heads, G query heads per key head, D head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longloop.engines.attention import causal


class Slots:
    """Keys and values of up to S sequences, in tensors that grow to the longest.

    Unwritten memory is zero, never garbage: masked keys still take part in the arithmetic, and garbage may be NaN.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.clear()

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self.capacity = 0
        self.length = np.zeros(self.count, dtype=np.int64)
        self._ids = np.zeros((self.count, 0), dtype=np.int64)
        self._k: dict[int, Tensor] = {}
        self._v: dict[int, Tensor] = {}

    @property
    def bytes(self) -> int:
        return sum(x.nbytes for side in (self._k, self._v) for x in side.values())

    def reserve(self, tokens: int) -> None:
        """Make room for sequences of this many tokens."""
        if tokens <= self.capacity:
            return
        grown = max(tokens, min(2 * self.capacity, tokens + 256))
        self._ids = np.pad(self._ids, ((0, 0), (0, grown - self.capacity)))
        for side in (self._k, self._v):
            for layer, old in side.items():
                new = old.new_zeros(old.shape[0], old.shape[1], grown, old.shape[3])
                new[:, :, : self.capacity] = old
                side[layer] = new
        self.capacity = grown

    def layer(self, layer: int, like_KTD: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's keys and values, [S, K, C, D]."""
        if layer not in self._k:
            shape = (self.count, like_KTD.shape[0], self.capacity, like_KTD.shape[2])
            self._k[layer] = like_KTD.new_zeros(shape)
            self._v[layer] = like_KTD.new_zeros(shape)
        return self._k[layer], self._v[layer]

    def shared(self, ids: np.ndarray) -> np.ndarray:
        """For every slot, how many of these ids its sequence begins with."""
        width = min(len(ids), self.capacity)
        same = self._ids[:, :width] == ids[:width]
        first_difference = np.where(same.all(axis=1), width, same.argmin(axis=1) if width else 0)
        return np.minimum(first_difference, self.length)

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Begin `target` with the first tokens of `source`."""
        if source != target:
            self._ids[target, :tokens] = self._ids[source, :tokens]
            for side in (self._k, self._v):
                for x in side.values():
                    x[target, :, :tokens] = x[source, :, :tokens]
        self.length[target] = tokens

    def append(self, slot: int, ids: Sequence[int]) -> None:
        """Note the ids whose keys and values a plan has written."""
        start = self.length[slot]
        self._ids[slot, start : start + len(ids)] = ids
        self.length[slot] += len(ids)


@dataclass(frozen=True)
class Span:
    """Consecutive new tokens of one slot."""

    slot: int
    start: int
    count: int


class Decode:
    """The plan of one engine step: some slots add one token, others a span. Single tokens come first in the row."""

    def __init__(self, slots: Slots, singles: Sequence[Span], spans: Sequence[Span], device: torch.device) -> None:
        self._slots, self._spans = slots, spans
        self._count = len(singles)
        if not singles:
            return
        at = [span.slot for span in singles]
        start = [span.start for span in singles]
        self._slot_B = torch.tensor(at, device=device)
        self._start_B = torch.tensor(start, device=device)
        self._keys = max(start) + 1
        # Slots that lie together are read in place; scattered ones are gathered first.
        together = at == list(range(at[0], at[0] + len(at)))
        self._rows: slice | Tensor = slice(at[0], at[0] + len(at)) if together else self._slot_B
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
        # Under autocast, rotated keys and queries come in float32; the cache holds the computing precision.
        q_HTD, k_KTD = q_HTD.to(v_KTD.dtype), k_KTD.to(v_KTD.dtype)
        k_SKCD, v_SKCD = self._slots.layer(layer, k_KTD)
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
        for span in self._spans:
            end = span.start + span.count
            row = slice(at, at + span.count)
            k_SKCD[span.slot, :, span.start : end] = k_KTD[:, row]
            v_SKCD[span.slot, :, span.start : end] = v_KTD[:, row]
            keys, values = (x[None, span.slot, :, :end] for x in (k_SKCD, v_SKCD))
            outputs.append(causal(q_HTD[None, :, row], keys, values, scale, window)[0].transpose(0, 1))
            at += span.count
        return torch.cat(outputs)
