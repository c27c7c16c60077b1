"""How attention is divided among programs: by hand."""

import numpy as np
import pytest

from longloop.engines import work_items
from longloop.engines.slots import Row, Slots
from longloop.engines.work_items import divide


def row(starts: list[int], counts: list[int]) -> Row:
    table = Slots(len(starts))
    table.reserve(20_000)
    table.length[:] = starts
    singles = sum(count == 1 for count in counts)
    return table.row(np.arange(len(starts)), np.array(counts), singles, np.zeros((len(starts), 400), dtype=int))


def test_few_keys_are_not_divided() -> None:
    """A single token sees what is in the cache; a block of a span also itself, and what lies before it in the row."""
    work = divide(row([200, 0, 100], [1, 1, 5]), queries=3, heads=4)
    assert work.single_I8.tolist() == [[0, 1, 1, 200, 0, 200, -1, 0], [1, 1, 2, 0, 0, 0, -1, 0]]
    assert work.block_I8.tolist() == [[2, 3, 3, 100, 0, 103, -1, 0], [5, 2, 3, 103, 0, 105, -1, 0]]
    assert len(work.merge_M4) == 0


def test_even_sequences_that_fill_the_card_are_not_divided() -> None:
    assert len(divide(row([5000] * 64, [1] * 64), 16, heads=4).merge_M4) == 0
    assert len(divide(row([5000] * 63 + [7000], [1] * 64), 16, heads=4).merge_M4) > 0


def test_keys_are_divided_at_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """An even share of 1,200 keys among two programs is 600, so parts have up to 300: 1,000 keys make four of 256 and
    what is left, 200 one. The parts of a block are as many units apart as it may have queries."""
    monkeypatch.setattr(work_items, "_PROGRAMS", 2)
    work = divide(row([1000, 200], [1, 1]), queries=4, heads=1)
    assert work.single_I8[:, 4:7].tolist() == [[0, 256, 0], [256, 512, 1], [512, 768, 2], [768, 1000, 3], [0, 200, -1]]
    assert work.merge_M4.tolist() == [[0, 0, 4, 1]]
    work = divide(row([1000, 798], [1, 2]), queries=4, heads=1)
    assert work.single_I8[:, 6].tolist() == [0, 1, 2, 3]
    assert work.block_I8[:, 4:7].tolist() == [[0, 256, 4], [256, 512, 8], [512, 768, 12], [768, 800, 16]]
    assert work.merge_M4.tolist() == [[0, 0, 4, 1], [1, 4, 4, 4], [2, 5, 4, 4]]


def test_every_key_is_seen_once_and_there_is_room_for_all() -> None:
    chance = np.random.default_rng(0)
    for heads in (1, 3, 8):
        for _ in range(20):
            singles, spans = (int(n) for n in chance.integers(1, 40, 2))
            starts = chance.integers(0, 18_000, singles + spans).tolist()
            counts = [1] * singles + chance.integers(2, 300, spans).tolist()
            work = divide(row(starts, counts), 9, heads)
            blocks = sum(-(-count // 9) for count in counts[singles:])
            for items, most in ((work.single_I8, singles), (work.block_I8, blocks)):
                assert len(items) <= work_items.most_items(most, heads)
                assert (items[:, 4] % 64 == 0).all()
                assert ((items[:, 4] < items[:, 5]) | (items[:, 5] == 0)).all(), (
                    "no part is empty: it would count twice"
                )
                for first in np.unique(items[:, 0]):
                    mine = items[items[:, 0] == first]
                    assert mine[0, 4] == 0 and (mine[1:, 4] == mine[:-1, 5]).all()
                    assert len(mine) <= work_items.MOST_PARTS and (len(mine) == 1) == (mine[0, 6] == -1)
            parts = [range(unit, unit + step * many, step) for _, unit, many, step in work.merge_M4.tolist()]
            units = [unit for part in parts for unit in part]
            assert len(set(units)) == len(units)
            assert max(units, default=0) < len(work.single_I8) + 9 * len(work.block_I8)
