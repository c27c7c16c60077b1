"""The engine's table of sequences: one slot per session, with its token ids and how many of them were read.

A slot's ids say exactly what its keys and values (kv_cache.py) belong to. So reusing them is a comparison of ids and
can never be wrong: a session finds its own past, and a group's second attempt finds the opening that the first has
read.

Shapes: S slots, C capacity in tokens, R spans in a row, T tokens in it.
"""

from dataclasses import dataclass

import numpy as np

UNKNOWN = -1
"""Stands for a token that was drawn on the device but not yet copied from it."""

_GROWTH = 256
"""The capacity is a multiple of this many tokens, unless the longest allowed sequence is shorter."""


@dataclass(frozen=True)
class Row:
    """What one forward pass reads: a span of unread tokens from each of some slots, end to end, single tokens first."""

    slot_R: np.ndarray
    start_R: np.ndarray
    """The position in its slot at which each span begins."""
    count_R: np.ndarray
    """The number of tokens of each span."""
    singles: int
    """How many of the spans, the first ones, are single tokens."""
    slot_T: np.ndarray
    position_T: np.ndarray
    ids_T: np.ndarray
    """The token ids, or UNKNOWN: then it is the token that was drawn last in that slot."""
    ends_elsewhere: bool = False
    """Whether the last span continues in the next part of a row that was cut."""

    @property
    def next_R(self) -> np.ndarray:
        """The position that follows each span."""
        return self.start_R + self.count_R

    @property
    def last_R(self) -> np.ndarray:
        """The index in the row of each span's last token."""
        return np.cumsum(self.count_R) - 1

    @property
    def whole_R(self) -> np.ndarray:
        """Which spans end in this part: all, or all but the last."""
        return np.arange(len(self.slot_R)) < len(self.slot_R) - self.ends_elsewhere

    def cut(self, size: int) -> "list[Row]":
        """The row in consecutive parts of at most `size` tokens."""
        parts, end_R = [], np.cumsum(self.count_R)
        for begin in range(0, int(end_R[-1]), size):
            from_R = np.maximum(end_R - self.count_R, begin)
            upto_R = np.minimum(end_R, begin + size)
            here = np.flatnonzero(from_R < upto_R)
            start_R = self.start_R + from_R - (end_R - self.count_R)
            slot_T, position_T, ids_T = (x[begin : begin + size] for x in (self.slot_T, self.position_T, self.ids_T))
            spans = self.slot_R[here], start_R[here], (upto_R - from_R)[here], int((here < self.singles).sum())
            ends_elsewhere = bool(upto_R[here[-1]] < end_R[here[-1]])
            parts.append(Row(*spans, slot_T, position_T, ids_T, ends_elsewhere))
        return parts


class Slots:
    """Up to `count` sequences. The table grows up to `max_tokens` a sequence, beyond that only as far as one needs."""

    def __init__(self, count: int, max_tokens: int) -> None:
        self.count, self.max_tokens = count, max_tokens
        self.clear()

    def clear(self) -> None:
        """Forget all sequences."""
        self.capacity = 0
        self.known = np.zeros(self.count, dtype=np.int64)
        """The number of tokens of each sequence."""
        self.length = np.zeros(self.count, dtype=np.int64)
        """The number of tokens, from the first, whose keys and values are in the cache; the others are unread."""
        self.ids = np.zeros((self.count, 0), dtype=np.int64)
        self.logp = np.zeros((self.count, 0), dtype=np.float64)

    def reserve(self, tokens: int) -> None:
        """Make room for sequences of this many tokens."""
        if tokens <= self.capacity:
            return
        grown = (max(tokens + _GROWTH, self.capacity * 3 // 2) // _GROWTH + 1) * _GROWTH
        grown = max(tokens, min(self.max_tokens, grown))
        more = ((0, 0), (0, grown - self.capacity))
        self.ids, self.logp = np.pad(self.ids, more), np.pad(self.logp, more)
        self.capacity = grown

    def common(self, ids: np.ndarray) -> np.ndarray:
        """The length of the prefix that each slot's sequence shares with these ids."""
        width = min(len(ids), self.capacity)
        same = self.ids[:, :width] == ids[:width]
        first_difference = np.where(same.all(axis=1), width, same.argmin(axis=1) if width else 0)
        return np.minimum(first_difference, self.known)

    def extends(self, slot: int, ids: np.ndarray) -> bool:
        """Whether these ids are the slot's whole sequence and more."""
        known = self.known[slot]
        return bool(0 < known < len(ids) and (self.ids[slot, :known] == ids[:known]).all())

    def assign(self, slot: int, ids: np.ndarray, read: int) -> None:
        """Put a sequence into a slot whose cache holds its first `read` tokens."""
        self.ids[slot, : len(ids)] = ids
        self.length[slot] = read
        self.known[slot] = len(ids)

    def row(self, slot_R: np.ndarray, count_R: np.ndarray, singles: int) -> Row:
        """The next unread tokens of some slots, so many of each."""
        start_R = self.length[slot_R]
        slot_T = np.repeat(slot_R, count_R)
        position_T = np.arange(len(slot_T)) - np.repeat(np.cumsum(count_R) - count_R - start_R, count_R)
        return Row(slot_R, start_R, count_R, singles, slot_T, position_T, self.ids[slot_T, position_T])
