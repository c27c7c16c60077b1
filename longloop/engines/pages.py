"""Which pages of the KV cache hold which slot's tokens. Knows neither tensors nor the model.

A page holds PAGE tokens. What several sequences begin with lies in the same pages, which are never written again: a
slot that forks from another shares its full pages and gets a copy of the one that is only begun. A page is free when no
slot has it. So memory follows what is live, and a run's shared opening exists once.

Shapes: S slots, W pages of the longest sequence, P pages that there are.
"""

from collections.abc import Callable

import numpy as np

PAGE = 64
"""Tokens in a page. A tile of keys that the kernels read lies within one; a sequence wastes half of one."""

SPARE = 0
"""The page that stands where a slot has none: padding is written there."""


def count(tokens: int) -> int:
    """The number of pages that so many tokens of one sequence take."""
    return -(-tokens // PAGE)


def most_pages(slots: int, context: int, tokens: int) -> int:
    """How many pages an engine with these options takes, the spare one included, unless one sequence needs more."""
    every = slots * count(context)
    return 1 + (min(every, count(tokens)) if tokens else every)


class Pages:
    """The page table of `slots` sequences.

    limit: the most pages that are in use at once, unless one sequence alone needs more; None for any number.
    grow: called with a number of pages to make room for, the spare one included, and with whether to wait for it.
        Returns whether there is room.
    """

    def __init__(self, slots: int, limit: int | None, grow: Callable[[int, bool], bool]) -> None:
        self._slots, self._limit, self._grow = slots, limit, grow
        self.clear()

    def clear(self) -> None:
        """Free all pages."""
        self.table_SW = np.full((self._slots, 0), SPARE, dtype=np.int64)
        self.count_S = np.zeros(self._slots, dtype=np.int64)
        """How many pages each slot has."""
        self._users_P = np.zeros(1, dtype=np.int64)
        self._free: list[int] = []
        self._full = False
        """Whether the device had no room for more."""

    @property
    def made(self) -> int:
        """How many pages there are, the spare one included."""
        return len(self._users_P)

    @property
    def limited(self) -> bool:
        """Whether pages can run out."""
        return self._limit is not None or self._full

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        """How many pages hold tokens, shared ones counted once."""
        return self.made - 1 - self.free

    def supply(self, pages: int, anyway: bool = False) -> bool:
        """Have so many free pages; make new ones if need be. Returns False if there are too few.

        anyway: without regard to the limit, and waiting for memory.
        """
        more = pages - self.free
        beyond = self._limit is not None and self.used + pages > self._limit
        if not anyway and (beyond or (more > 0 and self._full)):
            return False
        if more <= 0:
            return True
        if not self._grow(self.made + more, anyway):
            self._full = True
            return False
        self._free += range(self.made + more - 1, self.made - 1, -1)
        self._users_P = np.append(self._users_P, np.zeros(more, dtype=np.int64))
        return True

    def extend(self, slot: int, tokens: int) -> bool:
        """Give a slot the pages for its first tokens. Returns False, and does nothing, if there are too few."""
        have, wanted = int(self.count_S[slot]), count(tokens)
        if wanted <= have:
            return True
        if self.free < wanted - have and not self.supply(wanted - have):
            return False
        self._widen(wanted)
        taken = [self._free.pop() for _ in range(wanted - have)]
        self._users_P[taken] = 1
        self.table_SW[slot, have:wanted] = taken
        self.count_S[slot] = wanted
        return True

    def kept(self, donor: int, slot: int, tokens: int) -> int:
        """With how many pages a slot begins that forks: the full ones, and its own if nobody shares it."""
        full, rest = divmod(tokens, PAGE)
        return full + bool(rest and donor == slot and self._users_P[self.table_SW[slot, full]] == 1)

    def fork(self, donor: int, slot: int, tokens: int) -> list[tuple[int, int]]:
        """Let a slot begin with the first tokens of another, or of its own, and give up all else that it had.

        Returns what to copy: (from page, to page), if the last of those pages is only begun and shared. There must be a
        free one for it.
        """
        kept = self.kept(donor, slot, tokens)
        pages = self.table_SW[donor, : count(tokens)].copy()
        if donor == slot:
            self.shrink(slot, kept)
        else:
            self._users_P[pages[:kept]] += 1
            self.shrink(slot, 0)
            self.table_SW[slot, :kept], self.count_S[slot] = pages[:kept], kept
        if kept == len(pages):
            return []
        self.extend(slot, tokens)
        return [(int(pages[kept]), int(self.table_SW[slot, kept]))]

    def shrink(self, slot: int, pages: int) -> None:
        """Take all but the first pages from a slot. They are free unless others share them."""
        have = int(self.count_S[slot])
        dropped = self.table_SW[slot, pages:have]
        self._users_P[dropped] -= 1
        self._free += dropped[self._users_P[dropped] == 0].tolist()
        self.table_SW[slot, pages:have] = SPARE
        self.count_S[slot] = min(pages, have)

    def _widen(self, pages: int) -> None:
        if (width := self.table_SW.shape[1]) < pages:
            more = max(pages - width, width // 2)
            self.table_SW = np.pad(self.table_SW, ((0, 0), (0, more)), constant_values=SPARE)
