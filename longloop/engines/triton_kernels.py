"""Attention over the engine's KV cache, in Triton: keys and values are read in their pages, whatever their lengths.

One kernel serves single tokens and blocks of queries of longer spans; a program computes one work item
(work_items.py) for one key head. The query heads that share a key head are rows of one matrix product. Of a single
token, the kernel also writes key and value, and does not read them back; those of longer spans are stored by `write`
first. `merge` joins the results of keys that were divided.

All that varies is in device tensors, so that a CUDA graph can replay the kernels. `table` has the address and the width
of the page table, [1 + R, W]: the spare page's address, which is the padding's, then those of each span's pages. So
spans are counted from 1. A page is [L, 2, K, PAGE, D].

Shapes: L layers, T tokens in the row, R spans, W pages of the longest, I work items, M rows to merge, U partial
results, H query heads, K key/value heads, G = H/K, D head size.
"""

# mypy: disable-error-code="no-untyped-def"
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

import torch
import triton
import triton.language as tl
from torch import Tensor

from longloop.engines.pages import PAGE
from longloop.engines.work_items import FIELDS, MERGED, MOST_PARTS

_ROWS = 64
"""Rows of a block's matrix products: its queries times the query heads of a key head."""
_MANY = 768
"""Programs that fill a large card several times over."""
_ALL = 2**30
"""A window that is longer than any sequence."""


@dataclass(frozen=True)
class Places:
    """Where a pass finds its work: tensors whose content changes from replay to replay, never their address or size."""

    table: Tensor
    span_T: Tensor
    position_T: Tensor
    single_I8: Tensor
    block_I8: Tensor
    merge_M4: Tensor
    units: int
    """The number of partial results; 0 if no keys are divided."""


_numbers = count(2)  # torch.compile makes code of its own for 0 and 1
_PLACES: WeakValueDictionary[int, Places] = WeakValueDictionary()
"""By number, as long as somebody holds them: a custom operation takes tensors and numbers, and with a number
torch.compile makes the same code for all kinds of passes."""


def register(places: Places) -> int:
    """Returns the number by which `attend` finds them."""
    number = next(_numbers)
    _PLACES[number] = places
    return number


def queries(group: int) -> int:
    """Queries in a block, if so many query heads share a key head."""
    return max(1, _ROWS // group)


@torch.library.custom_op("longloop::attend", mutates_args=())
def attend(q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, places: int, layer: int, scale: float, window: int) -> Tensor:
    """Write new keys and values into the cache and attend to what is there.

    A custom operation, the same for every layer, which torch.compile does not look into.
    """
    at = _PLACES[places]
    H, D = q_THD.shape[1:]
    out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format)
    part_UHD = q_THD.new_empty((at.units, H, D), dtype=torch.float32)
    weight_UH = q_THD.new_empty((at.units, H), dtype=torch.float32)
    given = q_THD, k_TKD, v_TKD, out_THD, part_UHD, weight_UH, at.table
    if len(at.single_I8):
        work(*given, at.single_I8, layer, scale, window, single=True)
    if len(at.block_I8):
        write(k_TKD, v_TKD, at.table, layer, at.span_T, at.position_T)  # those of the single tokens again
        work(*given, at.block_I8, layer, scale, window, single=False)
    if len(at.merge_M4):
        merge(part_UHD, weight_UH, out_THD, at.merge_M4)
    return out_THD


@attend.register_fake
def _(q_THD: Tensor, *_: object) -> Tensor:
    return torch.empty_like(q_THD, memory_format=torch.contiguous_format)


def write(k_TKD: Tensor, v_TKD: Tensor, table: Tensor, layer: int, span_T: Tensor, position_T: Tensor) -> None:
    """Write each token's key and value at its position in the pages of its span."""
    T, K, D = k_TKD.shape
    _write[(T, K)](
        *(k_TKD, v_TKD, table, span_T, position_T),
        *(k_TKD.stride(0), k_TKD.stride(1), v_TKD.stride(0), v_TKD.stride(1)),
        layer,
        K=K,
        D=D,
        WIDTH=triton.next_power_of_2(D),
        PAGE=PAGE,
        num_warps=1,
    )


def work(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    out_THD: Tensor,
    part_UHD: Tensor,
    weight_UH: Tensor,
    table: Tensor,
    item_I8: Tensor,
    layer: int,
    scale: float,
    window: int,
    single: bool,
) -> None:
    """Do work items, which write either into the output or, if keys were divided, into partial results.

    single: the items' queries are single tokens, whose keys and values are written, too.
    """
    _, H, D = q_THD.shape
    K = k_TKD.shape[1]
    G = H // K
    _work[(len(item_I8), K)](
        *(q_THD, k_TKD, v_TKD, table, out_THD, part_UHD, weight_UH, item_I8),
        *(x.stride(n) for x in (q_THD, k_TKD, v_TKD, out_THD) for n in (0, 1)),
        *(layer, scale, window or _ALL),
        K=K,
        G=G,
        D=D,
        SINGLE=single,
        ROWS=max(16 if single else _ROWS, triton.next_power_of_2(G)),
        PAGE=PAGE,
        FIELDS=FIELDS,
        **(_single_tile(q_THD, len(item_I8) * K) if single else _tile(q_THD, most=64)),
    )


def merge(part_UHD: Tensor, weight_UH: Tensor, out_THD: Tensor, merge_M4: Tensor) -> None:
    """Join partial results of the same row, each with its share of the softmax."""
    _, H, D = out_THD.shape
    sizes = {"D": D, "MANY": MOST_PARTS, "WIDTH": triton.next_power_of_2(D), "MERGED": MERGED}
    _merge[(len(merge_M4), H)](
        part_UHD, weight_UH, out_THD, merge_M4, out_THD.stride(0), out_THD.stride(1), **sizes, num_warps=1
    )


def _tile(q: Tensor, most: int) -> dict[str, int]:
    """How many keys are read at once, all in one page, and how far ahead: what fits into any card's shared memory."""
    width = max(16, triton.next_power_of_2(q.shape[-1]))
    size = width * q.element_size()
    keys = max(16, min(most, 16384 // size))
    exact = q.dtype == torch.float32
    ahead = 3 if size <= 128 else 4 if keys * size <= 8192 else 2 if size < 1024 else 1
    return {"WIDTH": width, "KEYS": keys, "EXACT": exact, "num_warps": 4, "num_stages": ahead}


def _single_tile(q: Tensor, programs: int) -> dict[str, int]:
    """The same for single tokens. Few programs must each have much under way; many had better be small."""
    tile = _tile(q, most=64 if q.shape[-1] <= 64 else 32)
    if q.dtype == torch.float32 or tile["KEYS"] * tile["WIDTH"] * q.element_size() > 8192:
        return tile
    if programs > _MANY:
        return tile | {"KEYS": 32, "num_warps": 1, "num_stages": 3}
    return tile | {"num_warps": 4 if q.shape[-1] <= 64 else 2, "num_stages": 5}


@triton.jit
def _pages(TABLE, span):
    """Where the addresses of a span's pages are. The table may be elsewhere at the next replay: its address is read."""
    return tl.load(TABLE).to(tl.pointer_type(tl.int64)) + span * tl.load(TABLE + 1)


@triton.jit
def _key(pages, like, layer, position, head, K: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    """The address of a key of one head. Its value is K * PAGE * D behind it."""
    page = tl.load(pages + position // PAGE).to(tl.pointer_type(like.dtype.element_ty))
    return tl.multiple_of(page, 16) + ((2 * layer * K + head) * PAGE + position % PAGE) * D


@triton.jit(do_not_specialize=["layer"])
def _write(
    K_NEW, V_NEW, TABLE, SPAN, POSITION,
    kn_t, kn_k, vn_t, vn_k, layer, K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    t, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, WIDTH)
    to = _key(_pages(TABLE, tl.load(SPAN + t)), K_NEW, layer, tl.load(POSITION + t), h, K, D, PAGE) + d
    tl.store(to, tl.load(K_NEW + t * kn_t + h * kn_k + d, mask=d < D), mask=d < D)
    tl.store(to + K * PAGE * D, tl.load(V_NEW + t * vn_t + h * vn_k + d, mask=d < D), mask=d < D)


@triton.jit(do_not_specialize=["layer"])
def _work(
    Q, K_NEW, V_NEW, TABLE, OUT, PART, WEIGHT, ITEMS,
    q_t, q_h, kn_t, kn_k, vn_t, vn_k, o_t, o_h, layer, scale, window,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, SINGLE: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr,
    FIELDS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    item, h = ITEMS + tl.program_id(0) * FIELDS, tl.program_id(1)
    r, d, k = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    query, head = r // G, h * G + r % G
    # Begin all loads before the first is needed: one after the other they take as long as some tiles of keys.
    row, queries, span = tl.load(item), tl.load(item + 1), tl.load(item + 2)
    position, low, high, unit = tl.load(item + 3), tl.load(item + 4), tl.load(item + 5), tl.load(item + 6)
    mine = (query < queries)[:, None] & (d < D)[None, :]
    q = tl.load(Q + (row + query)[:, None] * q_t + head[:, None] * q_h + d[None, :], mask=mine, other=0.0)
    if queries == 0:
        return
    pages = _pages(TABLE, span)
    if SINGLE:
        own = high == position  # the last part begins with the token itself
        k_new = tl.load(K_NEW + row * kn_t + h * kn_k + d, mask=d < D, other=0.0)
        v_new = tl.load(V_NEW + row * vn_t + h * vn_k + d, mask=d < D, other=0.0)
        to = _key(pages, Q, layer, position, h, K, D, PAGE) + d
        tl.store(to, k_new, mask=d < tl.where(own, D, 0))
        tl.store(to + K * PAGE * D, v_new, mask=d < tl.where(own, D, 0))
        w_own = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1) * scale
        m = tl.where(own, w_own, float("-inf"))
        total = tl.zeros((ROWS,), tl.float32) + tl.where(own, 1.0, 0.0)
        acc = tl.zeros((ROWS, WIDTH), tl.float32) + tl.where(own, v_new.to(tl.float32), 0.0)[None, :]
        last = tl.zeros((ROWS,), tl.int32) + position - 1
    else:
        m = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, WIDTH), tl.float32)
        last = position + tl.minimum(query, queries - 1)
    first = tl.maximum(position + tl.minimum(query, queries - 1) + 1 - window, 0)
    low = tl.maximum(low, tl.maximum(position + 1 - window, 0) // KEYS * KEYS)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    for at in range(low, high, KEYS):  # tiles begin at multiples of KEYS, so each lies in one page
        key = at + k
        there = (key < high)[:, None] & (d < D)[None, :]
        k_at = _key(pages, Q, layer, at, h, K, D, PAGE) + k[:, None] * D + d[None, :]
        keys = tl.load(k_at, mask=there, other=0.0)
        values = tl.load(k_at + K * PAGE * D, mask=there, other=0.0)
        w = tl.dot(q, tl.trans(keys), input_precision=precision) * scale
        seen = (key[None, :] <= last[:, None]) & (key[None, :] >= first[:, None]) & (key < high)[None, :]
        w = tl.where(seen, w, float("-inf"))
        new = tl.maximum(m, tl.max(w, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(w - safe[:, None])
        shrink = tl.exp(m - safe)
        acc = acc * shrink[:, None] + tl.dot(p.to(values.dtype), values, input_precision=precision)
        total = total * shrink + tl.sum(p, 1)
        m = new
    some = total > 0
    acc = acc / tl.where(some, total, 1.0)[:, None]
    if unit < 0:
        to_out = OUT + (row + query)[:, None] * o_t + head[:, None] * o_h + d[None, :]
        tl.store(to_out, acc.to(OUT.dtype.element_ty), mask=mine)
    else:
        to_part = (unit + query) * (K * G) + head
        tl.store(PART + to_part[:, None] * D + d[None, :], acc, mask=mine)
        weight = tl.where(some, m + tl.log(tl.where(some, total, 1.0)), float("-inf"))
        tl.store(WEIGHT + to_part, weight, mask=query < queries)


@triton.jit
def _merge(
    PART, WEIGHT, OUT, MERGE, o_t, o_h,
    D: tl.constexpr, MANY: tl.constexpr, WIDTH: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    at, h = MERGE + tl.program_id(0) * MERGED, tl.program_id(1)
    row, unit, parts, step = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    if parts == 0:
        return
    p, d = tl.arange(0, MANY), tl.arange(0, WIDTH)
    from_part = (unit + p * step) * tl.num_programs(1) + h
    weight = tl.load(WEIGHT + from_part, mask=p < parts, other=float("-inf"))
    share = tl.exp(weight - tl.max(weight, 0))
    there = (p < parts)[:, None] & (d < D)[None, :]
    part = tl.load(PART + from_part[:, None] * D + d[None, :], mask=there, other=0.0)
    out = tl.sum(share[:, None] * part, 0) / tl.sum(share, 0)
    tl.store(OUT + row * o_t + h * o_h + d, out.to(OUT.dtype.element_ty), mask=d < D)
