"""The engine's table of sequences: one slot per session, with its token ids and how many of them were read.

A slot's ids say exactly what its keys and values (pages.py, kv_cache.py) belong to. So reusing them is a comparison of
ids and can never be wrong: a session finds its own past, and a group's second attempt finds the opening that the first
has read.

Shapes: S slots, C capacity in tokens, R spans in a row, T tokens in it, W pages of the longest of its sequences.
"""

from dataclasses import dataclass

import numpy as np

from longloop.engines import pages

UNKNOWN = -1
"""Stands for a token that was drawn on the device but not yet copied from it."""

_GROWTH = 256
"""The capacity is a multiple of this many tokens."""


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
    drawn_R: np.ndarray
    """Which spans begin with a token that was drawn; the others, with one that a request brought."""
    page_RW: np.ndarray
    """The pages of each span's sequence, up to the span's last token and perhaps more."""
    span_T: np.ndarray
    """The span of each token."""
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
            span_T, position_T, ids_T = (x[begin : begin + size] for x in (self.span_T, self.position_T, self.ids_T))
            spans = self.slot_R[here], start_R[here], (upto_R - from_R)[here], int((here < self.singles).sum())
            drawn_R, page_RW, span_T = self.drawn_R[here], self.page_RW[here], span_T - here[0]
            ends_elsewhere = bool(upto_R[here[-1]] < end_R[here[-1]])
            parts.append(Row(*spans, drawn_R, page_RW, span_T, position_T, ids_T, ends_elsewhere))
        return parts


class Slots:
    """Up to `count` sequences of any length."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.clear()

    def clear(self) -> None:
        """Forget all sequences."""
        self.capacity = 0
        self.known = np.zeros(self.count, dtype=np.int64)
        """The number of tokens of each sequence."""
        self.length = np.zeros(self.count, dtype=np.int64)
        """The number of tokens, from the first, whose keys and values are in the cache; the others are unread."""
        self.brought = np.zeros(self.count, dtype=np.int64)
        """The number of tokens, from the first, that the latest request brought; the others were drawn for it."""
        self.ids = np.zeros((self.count, 0), dtype=np.int64)
        self.logp = np.zeros((self.count, 0), dtype=np.float64)

    def reserve(self, tokens: int) -> None:
        """Make room for sequences of this many tokens."""
        if tokens <= self.capacity:
            return
        grown = (max(tokens, self.capacity * 3 // 2) // _GROWTH + 1) * _GROWTH
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
        """Whether these ids are the slot's whole sequence, which was read but for its last token, and more."""
        known = self.known[slot]
        whole = 0 < known < len(ids) and self.length[slot] >= known - 1
        return bool(whole and (self.ids[slot, :known] == ids[:known]).all())

    def seen(self, slot: int) -> np.ndarray:
        """A sequence as far as its tokens have come from the device: all of it, or all but the last."""
        ids = self.ids[slot, : self.known[slot]]
        return ids[:-1] if ids[-1] == UNKNOWN else ids

    def assign(self, slot: int, ids: np.ndarray, read: int) -> None:
        """Put a sequence into a slot whose cache holds its first `read` tokens."""
        self.ids[slot, : len(ids)] = ids
        self.length[slot] = read
        self.known[slot] = self.brought[slot] = len(ids)

    def row(self, slot_R: np.ndarray, count_R: np.ndarray, singles: int, page_SW: np.ndarray) -> Row:
        """The next unread tokens of some slots, so many of each, which have the pages for them."""
        start_R = self.length[slot_R]
        span_T, number_T = repeated(count_R)
        position_T = start_R[span_T] + number_T
        page_RW = page_SW[slot_R, : pages.count(int((start_R + count_R).max(initial=0)))]
        drawn_R, ids_T = start_R >= self.brought[slot_R], self.ids[slot_R[span_T], position_T]
        return Row(slot_R, start_R, count_R, singles, drawn_R, page_RW, span_T, position_T, ids_T)


def repeated(count_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each index so many times, and for each time its number: of (2, 0, 1), these are (0, 0, 2) and (0, 1, 0)."""
    index = np.repeat(np.arange(len(count_N)), count_N)
    return index, np.arange(len(index)) - (np.cumsum(count_N) - count_N)[index]
