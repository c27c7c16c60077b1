"""The attention plan of one pass in plain torch: it writes new keys and values into their pages, and reads them there.

On a CPU, a token's output must not depend, to the last bit, on what else is in the pass, nor on where a prompt was cut
or its pages lie. A matrix product adds up in an order that depends on its shape, so the shape of every product follows
from positions alone. A single token has one product with each page of its sequence, and its pages are added up in the
order of positions. The queries of a longer span come in tiles that begin at multiples of _TILE, with the keys up to the
tile's end.

Shapes: T tokens in a row, R spans in it, B of them single tokens, H query heads, K key/value heads, G query heads per
key head, D head size, P pages of the cache, J tokens of a page, W pages of a sequence, N pairs of a token and a page, M
heads of such pairs; or N tiles of Q queries, X queries in some tiles, L keys that they are given.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from longloop.engines.kv_cache import KVCache
from longloop.engines.pages import PAGE, count
from longloop.engines.slots import Row, repeated

_TILE = 32
"""Queries in a tile."""

_GATHERED = 8192
"""The most keys that are copied from their pages at once."""


class Reading:
    """What each token of a row attends to. The row may be longer than its spans: the output of the rest is zero."""

    def __init__(self, cache: KVCache, row: Row, device: torch.device) -> None:
        self._cache, self._row, self._device = cache, row, device
        page_T = row.page_RW[row.span_T, row.position_T // PAGE]
        self._page_T, self._offset_T = (torch.from_numpy(x).to(device) for x in (page_T, row.position_T % PAGE))
        self._parts: dict[int, list[_Singles | _Tiles]] = {}
        """What is computed together, by the window of the layer."""

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        k_PKDJ, v_PKJD = self._cache.layer(layer)
        new_k_TKD, new_v_TKD = (x_KTD.transpose(0, 1)[: len(self._page_T)] for x_KTD in (k_KTD, v_KTD))
        k_PKDJ.permute(0, 3, 1, 2)[self._page_T, self._offset_T] = new_k_TKD
        v_PKJD.transpose(1, 2)[self._page_T, self._offset_T] = new_v_TKD
        q_THD = q_HTD.transpose(0, 1)
        parts = self._planned(window, len(q_HTD) // len(k_KTD))
        if len(parts) == 1 and len(parts[0].row_X) == len(q_THD):  # all rows, which ascend in every part
            return parts[0].attend(q_THD, k_PKDJ, v_PKJD, scale)
        out_THD = q_THD.new_zeros(q_THD.shape)
        for part in parts:
            out_THD[part.row_X] = part.attend(q_THD, k_PKDJ, v_PKJD, scale)
        return out_THD

    def _planned(self, window: int, group: int) -> "list[_Singles | _Tiles]":
        if window not in self._parts:
            # Whether the last token of a prompt comes alone depends on others, as they may have read what is before it.
            single_R = self._row.drawn_R & (np.arange(len(self._row.slot_R)) < self._row.singles)
            single_B, longer, given = np.flatnonzero(single_R), np.flatnonzero(~single_R), (self._row, window)
            singles = [_Singles(single_B, *given, self._cache.heads, group, self._device)] if len(single_B) else []
            self._parts[window] = [*singles, *_tiles(longer, *given, self._cache.heads, self._device)]
        return self._parts[window]


class _Singles:
    """The single tokens of a row, in pairs of a token and a page that it sees.

    Pages are read in place, on a CPU: pairs are in an order in which their pages are neighbors, as far as possible, and
    one call takes as many neighbors as there are, whosever they are. For the softmax, the scores of each token are put
    side by side, with -inf where a token has fewer pages than another, which adds zeros to its sum.
    """

    def __init__(self, span_B: np.ndarray, row: Row, window: int, heads: int, group: int, device: torch.device) -> None:
        start_B = row.start_R[span_B]
        first_B = _first_page(start_B, window)
        count_B = start_B // PAGE - first_B + 1
        token_N, number_N = repeated(count_B)
        page_N = row.page_RW[span_B[token_N], first_B[token_N] + number_N]
        order_N = _neighbors(page_N)
        page_N, token_N, number_N = page_N[order_N], token_N[order_N], number_N[order_N]
        in_page_N = start_B[token_N] - (first_B[token_N] + number_N) * PAGE
        mask_NJ = np.where(_sees(in_page_N, np.arange(PAGE), window), np.float32(0), np.float32(-np.inf))
        pair_BW = np.full((len(span_B), count_B.max()), len(page_N))
        pair_BW[token_N, number_N] = np.arange(len(page_N))
        head_H = np.arange(heads * group)
        beside_BHW = pair_BW[:, None] * len(head_H) + head_H[:, None]
        apart_NH = (token_N[:, None] * len(head_H) + head_H) * pair_BW.shape[1] + number_N[:, None]
        begin_B, back_N = np.cumsum(count_B) - count_B, np.argsort(order_N)
        given = span_B, span_B[token_N], mask_NJ[:, None], beside_BHW.ravel(), apart_NH.ravel(), begin_B, back_N
        self.row_X, self._row_N, self._mask_N1J, self._beside, self._apart, self._begin_B, self._back_N = (
            torch.from_numpy(x).to(device) for x in given
        )
        self._runs = _runs(page_N, heads, device)

    def attend(self, q_THD: Tensor, k_PKDJ: Tensor, v_PKJD: Tensor, scale: float) -> Tensor:
        B, N, (_, H, D), K = len(self.row_X), len(self._row_N), q_THD.shape, k_PKDJ.shape[1]
        q_NHD = (q_THD.float() * scale).index_select(0, self._row_N)
        all_NHJ = q_NHD.new_empty(N + 1, H, PAGE)  # and a pair that nobody sees
        score_NHJ, unseen_HJ = all_NHJ[:N], all_NHJ[N]
        unseen_HJ.fill_(-torch.inf)
        # The G query heads that share a key head are G rows of one product.
        self._multiply(q_NHD.view(N * K, -1, D), k_PKDJ, score_NHJ.view(N * K, -1, PAGE))
        score_NHJ.add_(self._mask_N1J)
        score_BHL = all_NHJ.view(-1, PAGE).index_select(0, self._beside).view(B, H, -1)
        share_MGJ = score_BHL.softmax(-1).view(-1, PAGE).index_select(0, self._apart).view(N * K, -1, PAGE)
        part_NHD = torch.empty_like(q_NHD)
        self._multiply(share_MGJ, v_PKJD, part_NHD.view(N * K, -1, D))
        # A bag is a token's parts, which are added up in the order of positions.
        out_BE, *_ = torch.embedding_bag(part_NHD.view(N, H * D), self._back_N, self._begin_B)
        return out_BE.view(B, H, D).to(q_THD.dtype)

    def _multiply(self, x_MGY: Tensor, cached_PKYZ: Tensor, out_MGZ: Tensor) -> None:
        """The product of each pair's rows with its page."""
        cached_MYZ = cached_PKYZ.flatten(0, 1)
        for pairs, pages in self._runs:
            torch.bmm(x_MGY[pairs], cached_MYZ[pages].to(x_MGY.dtype), out=out_MGZ[pairs])


def _neighbors(page_N: np.ndarray) -> np.ndarray:
    """An order in which pages ascend: first each page once, then those that are there twice once more, and so on."""
    by_page_N = np.argsort(page_N, kind="stable")
    first = np.flatnonzero(np.diff(page_N[by_page_N], prepend=-1))  # pages count from 0
    _, time_N = repeated(np.diff(first, append=len(page_N)))
    return by_page_N[np.argsort(time_N, kind="stable")]


def _runs(page_N: np.ndarray, heads: int, device: torch.device) -> list[tuple[slice, slice | Tensor]]:
    """Pairs whose pages are neighbors, and these pages, both counted in heads.

    Not on a CPU: all pairs, whose pages are copied; there a call costs more than a copy.
    """
    if device.type != "cpu":
        return [(slice(None), torch.from_numpy((page_N[:, None] * heads + np.arange(heads)).ravel()).to(device))]
    ends = [*(np.flatnonzero(np.diff(page_N) != 1) + 1).tolist(), len(page_N)]
    runs = list[tuple[slice, slice | Tensor]]()
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        page = int(page_N[begin])
        runs.append((slice(begin * heads, end * heads), slice(page * heads, (page + end - begin) * heads)))
    return runs


def _tiles(chosen: np.ndarray, row: Row, window: int, heads: int, device: torch.device) -> "list[_Tiles]":
    """The tiles of some of a row's spans. Those at the same position share a call."""
    first_R = np.cumsum(row.count_R) - row.count_R
    tile_R = row.start_R // _TILE
    span_N, number_N = repeated((((row.next_R - 1) // _TILE) - tile_R + 1)[chosen])
    span_N = chosen[span_N]
    tile_N = (tile_R[span_N] + number_N) * _TILE
    from_N, upto_N = np.maximum(row.start_R[span_N], tile_N), np.minimum(row.next_R[span_N], tile_N + _TILE)
    in_row_N = first_R[span_N] + from_N - row.start_R[span_N]
    calls = []
    for tile in np.unique(tile_N).tolist():
        here = np.flatnonzero(tile_N == tile)
        first, end = int(_first_page(tile, window)), tile + _TILE
        each = max(1, _GATHERED // (end - first * PAGE))
        for some in np.split(here, range(each, len(here), each)):
            page_NW = row.page_RW[span_N[some], first : count(end)]
            places = in_row_N[some], from_N[some] - tile, upto_N[some] - from_N[some]
            calls.append(_Tiles(*places, page_NW, tile, first * PAGE, window, heads, device))
    return calls


class _Tiles:
    """Tiles of queries at one position.

    in_row_N, inside_N, count_N: where the queries of each begin in the row and in the tile, and how many they are.
    page_NW: their pages, from the one with the key at position `begin`.
    """

    def __init__(
        self,
        in_row_N: np.ndarray,
        inside_N: np.ndarray,
        count_N: np.ndarray,
        page_NW: np.ndarray,
        tile: int,
        begin: int,
        window: int,
        heads: int,
        device: torch.device,
    ) -> None:
        tile_X, number_X = repeated(count_N)
        in_tiles_X = tile_X * _TILE + inside_N[tile_X] + number_X
        block_NKW = page_NW[:, None] * heads + np.arange(heads)[:, None]
        mask_QL = _sees(np.arange(tile, tile + _TILE), np.arange(begin, tile + _TILE), window)
        given = in_row_N[tile_X] + number_X, in_tiles_X, block_NKW, mask_QL
        self.row_X, self._inside_X, self._block_NKW, self._mask_QL = (torch.from_numpy(x).to(device) for x in given)

    def attend(self, q_THD: Tensor, k_PKDJ: Tensor, v_PKJD: Tensor, scale: float) -> Tensor:
        q_XHD = q_THD.new_zeros(len(self._block_NKW) * _TILE, *q_THD.shape[1:])
        q_XHD[self._inside_X] = q_THD[self.row_X]
        q_NHQD = q_XHD.unflatten(0, (-1, _TILE)).transpose(1, 2)
        both_NKWJD = self._gathered(k_PKDJ).transpose(3, 4), self._gathered(v_PKJD)
        k_NKLD, v_NKLD = (x.flatten(2, 3)[:, :, : self._mask_QL.shape[1]] for x in both_NKWJD)
        out_NHQD = scaled_dot_product_attention(
            q_NHQD, k_NKLD, v_NKLD, attn_mask=self._mask_QL, scale=scale, enable_gqa=True
        )
        return out_NHQD.transpose(1, 2).flatten(0, 1)[self._inside_X]

    def _gathered(self, cached_PKYZ: Tensor) -> Tensor:
        """The keys or values of the tiles' pages, [N, K, W, Y, Z]."""
        blocks = cached_PKYZ.flatten(0, 1).flatten(1).index_select(0, self._block_NKW.flatten())
        return blocks.view(*self._block_NKW.shape, *cached_PKYZ.shape[2:])


def _first_page(position: np.ndarray | int, window: int) -> np.ndarray:
    """The page of the first key that a query at a position sees."""
    return np.maximum(position - window + 1, 0) // PAGE if window else np.zeros_like(position)


def _sees(query_at: np.ndarray, key_at: np.ndarray, window: int) -> np.ndarray:
    """Which keys each query attends to."""
    behind = query_at[:, None] - key_at
    return (behind >= 0) & (behind < window) if window else behind >= 0
