"""How the attention of a row is divided among the programs of a card.

A work item is a block of queries of one span, with a part of the keys that they see; one program computes it for one
key head. Agents' contexts differ in length, and a pass often reads only one or two observations. If each block of
queries were one program, most of the card would wait for the longest. So where programs would be few or uneven, keys
are divided into parts, and the results of the parts are merged afterwards.

Shapes: N blocks of queries, I items, M rows to merge, T tokens in the row.
"""

from dataclasses import dataclass

import numpy as np

from longloop.engines.pages import PAGE
from longloop.engines.slots import Row, repeated

FIELDS = 8
"""Numbers of an item: the first row of its queries, how many queries (0: none, an idle program), its span from 1, the
position of the first query, the first key, the end of the keys, the unit of its partial result (-1: it is the whole
result), 0."""

MERGED = 4
"""Numbers of a row to merge: the row, the unit of its first part, how many parts (0: nothing to do), the step from one
part's unit to the next."""

MOST_PARTS = 32
"""Parts of one sequence's keys."""

_PROGRAMS = 256
"""Programs that keep every multiprocessor of a large card busy; with more there is only more to merge."""

_LEAST = 256
"""Keys that are not worth dividing."""


@dataclass(frozen=True)
class Work:
    single_I8: np.ndarray
    """The items of single tokens."""
    block_I8: np.ndarray
    """The items of longer spans."""
    merge_M4: np.ndarray
    """The rows whose keys were divided."""


def most_items(blocks: int, heads: int) -> int:
    """The most items that so many blocks can become."""
    return blocks + 2 * _PROGRAMS // heads


def divide(row: Row, queries: int, heads: int) -> Work:
    """The work of a row, in blocks of up to so many queries, for a model with so many key heads."""
    singles = np.ones((5, row.singles), dtype=np.int64)
    singles[0] = np.arange(row.singles)
    singles[2] += singles[0]
    singles[3:] = row.start_R[: row.singles]  # a single token's own key is not in the cache
    single_I8, single_M4, units = _items(singles, 1, heads, 0)
    if row.singles == len(row.slot_R):
        return Work(single_I8, single_I8[:0], single_M4)
    block_I8, block_M4, _ = _items(_blocks(row, queries, row.singles), queries, heads, units)
    return Work(single_I8, block_I8, np.concatenate([single_M4, block_M4]))


def undivided(row: Row, queries: int) -> Work:
    """The work of a row in which no keys are divided, and single tokens are blocks like others: then what a query gets
    depends on its position alone, not on what else is read (row_invariant.py)."""
    block_I8 = _whole_items(_blocks(row, queries, 0))
    return Work(block_I8[:0], block_I8, np.zeros((0, MERGED), dtype=np.int64))


def _blocks(row: Row, queries: int, first: int) -> np.ndarray:
    """Blocks (first row, queries, span, position, keys) of the spans from `first` on."""
    first_R = np.cumsum(row.count_R) - row.count_R
    many_R = -(-row.count_R // queries)
    many_R[:first] = 0
    span_N, number_N = repeated(many_R)
    offset_N = number_N * queries
    count_N = np.minimum(row.count_R[span_N] - offset_N, queries)
    start_N = row.start_R[span_N] + offset_N
    return np.stack([first_R[span_N] + offset_N, count_N, span_N + 1, start_N, start_N + count_N])


def _items(blocks_5N: np.ndarray, queries: int, heads: int, unit: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Items of blocks (first row, queries, span, position, keys), the rows to merge, and the first unit left over.

    A block takes `queries` units for each of its parts.
    """
    keys_N, parts_N = blocks_5N[4], _parts(blocks_5N[4], heads)
    if parts_N is None:
        return _whole_items(blocks_5N), np.zeros((0, MERGED), dtype=np.int64), unit
    each_N = np.maximum(-(-keys_N // (parts_N * PAGE)), 1) * PAGE  # parts begin at pages
    parts_N = np.maximum(-(-keys_N // each_N), 1)
    units_N = (parts_N > 1) * parts_N * queries
    first_N = unit + np.cumsum(units_N) - units_N
    block_I, part_I = repeated(parts_N)
    items = np.zeros((len(block_I), FIELDS), dtype=np.int64)
    items[:, :4] = blocks_5N[:4].T[block_I]
    items[:, 4] = part_I * each_N[block_I]
    items[:, 5] = np.minimum(items[:, 4] + each_N[block_I], keys_N[block_I])
    items[:, 6] = np.where(parts_N[block_I] > 1, first_N[block_I] + part_I * queries, -1)
    divided = np.flatnonzero(parts_N > 1)
    of_M, query_M = repeated(blocks_5N[1, divided])
    merged = np.stack([blocks_5N[0], first_N, parts_N, np.full_like(parts_N, queries)], axis=1)[divided[of_M]]
    merged[:, :2] += query_M[:, None]
    return items, merged, unit + int(units_N.sum())


def _whole_items(blocks_5N: np.ndarray) -> np.ndarray:
    """Items of blocks with all their keys."""
    items = np.zeros((blocks_5N.shape[1], FIELDS), dtype=np.int64)
    items[:, :4], items[:, 5], items[:, 6] = blocks_5N[:4].T, blocks_5N[4], -1
    return items


def _parts(keys_N: np.ndarray, heads: int) -> np.ndarray | None:
    """Into how many parts the keys of each block are divided; None if no block has more than an even share."""
    share = max(_LEAST, keys_N.sum() * heads / _PROGRAMS)
    if keys_N.max(initial=0) <= 1.1 * share:
        return None
    return np.clip(np.ceil(keys_N / max(_LEAST, share / 2)), 1, MOST_PARTS).astype(np.int64)
