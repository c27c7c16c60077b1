"""Attention over pages in plain torch: against sums written out, and wherever pages lie."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from longloop.engines import reading
from longloop.engines.kv_cache import KVCache
from longloop.engines.pages import PAGE, count
from longloop.engines.slots import Slots

K, G, D, LAYERS = 2, 3, 8, 2
CPU = torch.device("cpu")
READ = np.array([130, 5, 0, 64, 63, 200, 95])
"""Tokens of each sequence that were read before, and how many the pass reads. The first three read one each."""
COUNT = np.array([1, 1, 1, 40, 2, 70, 1])


class Sequences:
    """Keys and values of some sequences, and a pass over them. `page_RW` says where they lie."""

    def __init__(self, page_RW: np.ndarray, chosen: list[int]) -> None:
        made = torch.Generator().manual_seed(0)
        self.k, self.v = ([torch.randn(K, n, D, generator=made) for n in READ + COUNT] for _ in range(2))
        self.q = [torch.randn(K * G, n, D, generator=made) for n in COUNT]
        self.cache = KVCache(torch.empty(K, D), LAYERS, most=200)
        assert self.cache.grow(int(page_RW.max()) + 1, wait=False)
        for n in chosen:
            k_PKDJ, v_PKJD = self.cache.layer(1)
            for cached, x in ((k_PKDJ.transpose(2, 3), self.k[n]), (v_PKJD, self.v[n])):
                for number, part in enumerate(x[:, : READ[n]].split(PAGE, dim=1)):
                    cached[int(page_RW[n, number]), :, : part.shape[1]] = part
        slots = Slots(len(READ))
        slots.reserve(300)
        slots.length[:] = READ
        singles = sum(n < 3 for n in chosen)
        self.row = slots.row(np.array(chosen), COUNT[chosen], singles, page_RW)
        self.chosen = chosen

    def attend(self, window: int, more: int = 5) -> list[Tensor]:
        """The output for each sequence, [T, H, D], of a row with so many more tokens than theirs."""
        new = [[x[n][:, READ[n] :] for n in self.chosen] for x in (self.k, self.v)]
        padding = torch.ones(K, more, D)
        k_KTD, v_KTD = (torch.cat([*x, padding], dim=1) for x in new)
        q_HTD = torch.cat([*(self.q[n] for n in self.chosen), padding.repeat(G, 1, 1)], dim=1)
        out = reading.Reading(self.cache, self.row, CPU).attend(1, q_HTD, k_KTD, v_KTD, 0.3, window)
        *parts, rest = out.split([*COUNT[self.chosen].tolist(), more])
        assert not rest.any()
        return list(parts)

    def expected(self, n: int, window: int) -> Tensor:
        """Query by query, head by head."""
        out = torch.zeros(int(COUNT[n]), K * G, D, dtype=torch.float64)
        for t in range(COUNT[n]):
            end = int(READ[n]) + t + 1
            seen = slice(max(0, end - window) if window else 0, end)
            for head in range(K * G):
                k, v = (x[n][head // G, seen].double() for x in (self.k, self.v))
                out[t, head] = (0.3 * k @ self.q[n][head, t].double()).softmax(0) @ v
        return out


def pages(order: Any) -> np.ndarray:
    """A page table in which the pages of all sequences have these numbers."""
    number, page_RW = iter(order), np.zeros((len(READ), count(int((READ + COUNT).max()))), dtype=np.int64)
    for n, tokens in enumerate((READ + COUNT).tolist()):
        for w in range(count(tokens)):
            page_RW[n, w] = next(number)
    return page_RW


IN_ORDER = range(1, 50)


@pytest.mark.parametrize("window", [0, 7, 64, 100])
def test_attention_is_what_it_is_by_hand(window: int) -> None:
    sequences = Sequences(pages(IN_ORDER), list(range(len(READ))))
    for n, out in enumerate(sequences.attend(window)):
        assert torch.allclose(out.double(), sequences.expected(n, window), atol=1e-5)


@pytest.mark.parametrize("window", [0, 70])
def test_not_a_bit_depends_on_where_pages_lie_or_on_who_else_is_read(window: int) -> None:
    everyone = Sequences(pages(IN_ORDER), list(range(len(READ)))).attend(window)
    backwards = Sequences(pages(reversed(IN_ORDER)), list(range(len(READ)))).attend(window)
    scattered = Sequences(pages(np.random.default_rng(1).permutation(150) + 1), [1, 0, 5]).attend(window)
    assert all(torch.equal(one, other) for one, other in zip(everyone, backwards, strict=True))
    assert all(torch.equal(everyone[n], other) for n, other in zip([1, 0, 5], scattered, strict=True))


@pytest.mark.parametrize("chosen", [[0, 1, 2], [5], [2, 0, 3, 5]])
def test_a_row_without_padding(chosen: list[int]) -> None:
    """Single tokens, one span, and both."""
    padded, full = (Sequences(pages(IN_ORDER), chosen).attend(0, more) for more in (5, 0))
    assert all(torch.equal(one, other) for one, other in zip(padded, full, strict=True))


def test_sequences_that_share_pages() -> None:
    """The first two attend to the same pages, in one pass and alone."""
    page_RW = pages(IN_ORDER)
    alone = Sequences(page_RW, [0]).attend(0)
    together = Sequences(page_RW, [0])
    slots = Slots(2)
    slots.reserve(300)
    slots.length[:] = READ[0]
    together.row = slots.row(np.array([0, 1]), np.array([1, 1]), 2, page_RW[[0, 0]])
    together.chosen = [0, 0]
    assert all(torch.equal(out, alone[0]) for out in together.attend(0))


def test_pages_in_runs_by_hand() -> None:
    """Pages 4, 5 and 6 lie together; page 5 is there three times."""
    page_N = np.array([5, 9, 4, 5, 6, 5])
    order_N = reading._neighbors(page_N)
    assert page_N[order_N].tolist() == [4, 5, 6, 9, 5, 5] and order_N.tolist() == [2, 0, 4, 1, 3, 5]
    runs = reading._runs(page_N[order_N], heads=2, device=CPU)
    pairs, found = [0, 6, 8, 10, 12], [(8, 14), (18, 20), (10, 12), (10, 12)]
    assert runs == [(slice(*pair), slice(*page)) for pair, page in zip(pairwise(pairs), found, strict=True)]
