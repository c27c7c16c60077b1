"""Attention over the engine's KV cache, in Triton: keys and values are read where they are, whatever their lengths.

`decode` is for sequences that add one token: the query heads that share a key head are the rows of one matrix product,
and a long sequence is divided among several programs whose partial results are merged. `extend` is for spans of new
tokens, in blocks of queries, once `write` has stored their keys and values. All that varies is in device tensors, so
that a CUDA graph can replay the kernels. That includes the cache itself, [L, 2, S, K, C, D]: `kv_address` holds its
address and C.

Shapes: L layers, S slots, C capacity in tokens, B sequences, T tokens in the row, N blocks, H query heads, K key/value
heads, D head size.
"""

# mypy: disable-error-code="no-untyped-def"
import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
"""Queries in one block of `extend`."""

_PROGRAMS = 256
"""Programs that keep every multiprocessor of a large card busy; with more there is only more to merge."""
_ALL = 2**30
"""A window that is longer than any sequence."""


@torch.library.custom_op("longloop::attend", mutates_args=())
def attend(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    kv_address: Tensor,
    slots: int,
    layer: int,
    slot_T: Tensor,
    position_T: Tensor,
    singles: Tensor,
    most_singles: int,
    block_N4: Tensor,
    scale: float,
    window: int,
) -> Tensor:
    """Write new keys and values into the cache and attend to what is there: first the single tokens, then the blocks.

    A custom operation, the same for every layer, which torch.compile does not look into.
    """
    out_THD = torch.empty_like(q_THD, memory_format=torch.contiguous_format)
    q, k, v, out = (x[:most_singles] for x in (q_THD, k_TKD, v_TKD, out_THD))
    decode(q, k, v, out, kv_address, slots, layer, slot_T, position_T, singles, scale, window)
    if len(block_N4):
        write(k_TKD, v_TKD, kv_address, slots, layer, slot_T, position_T)  # those of the single tokens again
        extend(q_THD, out_THD, k_TKD.shape[1], kv_address, slots, layer, block_N4, scale, window)
    return out_THD


@attend.register_fake
def _(q_THD: Tensor, *_: object) -> Tensor:
    return torch.empty_like(q_THD, memory_format=torch.contiguous_format)


def write(
    k_TKD: Tensor, v_TKD: Tensor, kv_address: Tensor, slots: int, layer: int, slot_T: Tensor, position_T: Tensor
) -> None:
    """Write each token's key and value at its position in its slot."""
    T, K, D = k_TKD.shape
    _write[(T, K)](
        *(k_TKD, v_TKD, kv_address, slot_T, position_T),
        *(k_TKD.stride(0), k_TKD.stride(1), v_TKD.stride(0), v_TKD.stride(1)),
        *(slots, layer),
        K=K,
        D=D,
        WIDTH=triton.next_power_of_2(D),
        num_warps=1,
    )


def decode(
    q_BHD: Tensor,
    k_BKD: Tensor,
    v_BKD: Tensor,
    out_BHD: Tensor,
    kv_address: Tensor,
    slots: int,
    layer: int,
    slot_B: Tensor,
    start_B: Tensor,
    count: Tensor,
    scale: float,
    window: int,
) -> None:
    """One token for each of the first `count` sequences, at position `start` of its slot, sees itself and its past.

    Its key and value are written but not read back: the running softmax begins with them.
    """
    B, H, D = q_BHD.shape
    K = k_BKD.shape[1]
    parts = max(1, min(16, _PROGRAMS // (B * K)))
    part_BHPD = out_BHD if parts == 1 else q_BHD.new_empty((B, H, parts, D), dtype=torch.float32)
    weight_BHP = q_BHD.new_empty((B, H, parts), dtype=torch.float32)
    _decode[(B, K, parts)](
        *(q_BHD, k_BKD, v_BKD, kv_address, part_BHPD, weight_BHP, slot_B, start_B, count),
        *(x.stride(n) for x in (q_BHD, k_BKD, v_BKD) for n in (0, 1)),
        *(slots, layer, scale, window or _ALL, parts),
        K=K,
        G=H // K,
        D=D,
        ROWS=max(16, triton.next_power_of_2(H // K)),
        **_tile(q_BHD, most=64 if D <= 64 else 32),
    )
    if parts > 1:
        many, width = triton.next_power_of_2(parts), triton.next_power_of_2(D)
        _merge[(B, H)](part_BHPD, weight_BHP, out_BHD, count, D=D, PARTS=parts, MANY=many, WIDTH=width, num_warps=1)


def extend(
    q_THD: Tensor,
    out_THD: Tensor,
    K: int,
    kv_address: Tensor,
    slots: int,
    layer: int,
    block_N4: Tensor,
    scale: float,
    window: int,
) -> None:
    """Blocks of queries, each from one span: (index in the row, number or 0, slot, position of the first)."""
    H, D = q_THD.shape[1:]
    _extend[(block_N4.shape[0], H)](
        *(q_THD, kv_address, out_THD, block_N4),
        *(q_THD.stride(0), q_THD.stride(1), out_THD.stride(0), out_THD.stride(1), slots, layer),
        *(scale, window or _ALL),
        K=K,
        G=H // K,
        D=D,
        ROWS=BLOCK,
        **_tile(q_THD),
    )


def _tile(q: Tensor, most: int = 64) -> dict[str, int]:
    """How many keys are read at once, and how far ahead: what fits into any card's shared memory."""
    width = max(16, triton.next_power_of_2(q.shape[-1]))
    size = width * q.element_size()
    keys = max(16, min(most, 16384 // size))
    exact = q.dtype == torch.float32
    ahead = 3 if size <= 128 else 4 if keys * size <= 8192 else 2 if size < 1024 else 1
    return {"WIDTH": width, "KEYS": keys, "EXACT": exact, "num_warps": 4, "num_stages": ahead}


@triton.jit
def _keys(KV_ADDRESS, like, slots, layer, slot, head, K: tl.constexpr, D: tl.constexpr):
    """The address of a slot's keys of one head, and the offset from there to its values.

    The cache may be elsewhere at the next replay, so its address is read from `kv_address`.
    """
    capacity = tl.load(KV_ADDRESS + 1)
    memory = tl.load(KV_ADDRESS).to(tl.pointer_type(like.dtype.element_ty))
    memory = tl.multiple_of(memory, 16)
    plane = capacity * slots * K * D
    return memory + (2 * layer * plane + (slot.to(tl.int64) * K + head) * capacity * D), plane


@triton.jit(do_not_specialize=["layer"])
def _write(
    K_NEW, V_NEW, KV_ADDRESS, SLOT, POSITION,
    kn_t, kn_k, vn_t, vn_k, slots, layer, K: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    t, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, WIDTH)
    key, to_value = _keys(KV_ADDRESS, K_NEW, slots, layer, tl.load(SLOT + t), h, K, D)
    to = key + tl.load(POSITION + t) * D + d
    tl.store(to, tl.load(K_NEW + t * kn_t + h * kn_k + d, mask=d < D), mask=d < D)
    tl.store(to + to_value, tl.load(V_NEW + t * vn_t + h * vn_k + d, mask=d < D), mask=d < D)


@triton.jit
def _attend(
    q, m, total, acc, k_at, v_at, key, first, last, scale,
    D: tl.constexpr, WIDTH: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Add one tile of keys, of which a row sees those from `first` to `last`, to the running softmax."""
    d = tl.arange(0, WIDTH)
    there = (key < tl.max(last) + 1)[:, None] & (d < D)[None, :]
    k = tl.load(k_at + key[:, None] * D + d[None, :], mask=there, other=0.0)
    v = tl.load(v_at + key[:, None] * D + d[None, :], mask=there, other=0.0)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    w = tl.dot(q, tl.trans(k), input_precision=precision) * scale
    seen = (key[None, :] <= last[:, None]) & (key[None, :] >= first[:, None])
    w = tl.where(seen, w, float("-inf"))
    new = tl.maximum(m, tl.max(w, 1))
    safe = tl.where(new == float("-inf"), 0.0, new)
    p = tl.exp(w - safe[:, None])
    shrink = tl.exp(m - safe)
    acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision=precision)
    return new, total * shrink + tl.sum(p, 1), acc


@triton.jit(do_not_specialize=["layer"])
def _decode(
    Q, K_NEW, V_NEW, KV_ADDRESS, PART, WEIGHT, SLOT, START, COUNT,
    q_b, q_h, kn_b, kn_k, vn_b, vn_k, slots, layer, scale, window, parts,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    b, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mine = (g < G)[:, None] & (d < D)[None, :]
    # Begin all loads before the first is needed: one after the other they take as long as some tiles of keys.
    position = tl.load(START + b)
    k_at, to_value = _keys(KV_ADDRESS, Q, slots, layer, tl.load(SLOT + b), h, K, D)
    q = tl.load(Q + b * q_b + (h * G + g)[:, None] * q_h + d[None, :], mask=mine, other=0.0)
    k_new = tl.load(K_NEW + b * kn_b + h * kn_k + d, mask=d < D, other=0.0)
    v_new = tl.load(V_NEW + b * vn_b + h * vn_k + d, mask=d < D, other=0.0)
    if b >= tl.load(COUNT):
        return
    begin = tl.maximum(position + 1 - window, 0)
    each = tl.cdiv(tl.cdiv(position - begin, parts), KEYS) * KEYS
    low = begin + part * each
    high = tl.minimum(low + each, position)
    own = part == 0
    to = k_at + position * D + d
    tl.store(to, k_new, mask=d < tl.where(own, D, 0))
    tl.store(to + to_value, v_new, mask=d < tl.where(own, D, 0))
    w = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1) * scale
    m = tl.where(own, w, float("-inf"))
    total = tl.zeros((ROWS,), tl.float32) + tl.where(own, 1.0, 0.0)
    acc = tl.zeros((ROWS, WIDTH), tl.float32) + tl.where(own, v_new.to(tl.float32), 0.0)[None, :]
    first = tl.zeros((ROWS,), tl.int32) + low
    last = tl.zeros((ROWS,), tl.int32) + high - 1
    for at in range(low, high, KEYS):
        key = at + tl.arange(0, KEYS)
        m, total, acc = _attend(q, m, total, acc, k_at, k_at + to_value, key, first, last, scale, D, WIDTH, EXACT)
    at_part = ((b * tl.num_programs(1) + h) * G + g) * parts + part
    acc = acc / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(PART + at_part[:, None] * D + d[None, :], acc.to(PART.dtype.element_ty), mask=mine)
    tl.store(
        WEIGHT + at_part, tl.where(total > 0, m + tl.log(tl.where(total > 0, total, 1.0)), float("-inf")), mask=g < G
    )


@triton.jit
def _merge(PART, WEIGHT, OUT, COUNT, D: tl.constexpr, PARTS: tl.constexpr, MANY: tl.constexpr, WIDTH: tl.constexpr):
    if tl.program_id(0) >= tl.load(COUNT):
        return
    row = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    p, d = tl.arange(0, MANY), tl.arange(0, WIDTH)
    weight = tl.load(WEIGHT + row * PARTS + p, mask=p < PARTS, other=float("-inf"))
    share = tl.exp(weight - tl.max(weight, 0))
    there = (p < PARTS)[:, None] & (d < D)[None, :]
    part = tl.load(PART + (row * PARTS + p)[:, None] * D + d[None, :], mask=there, other=0.0)
    out = tl.sum(share[:, None] * part, 0) / tl.sum(share, 0)
    tl.store(OUT + row * D + d, out.to(OUT.dtype.element_ty), mask=d < D)


@triton.jit(do_not_specialize=["layer"])
def _extend(
    Q, KV_ADDRESS, OUT, BLOCKS,
    q_t, q_h, o_t, o_h, slots, layer, scale, window,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    block, h = tl.program_id(0), tl.program_id(1)
    row = tl.load(BLOCKS + block * 4)
    rows = tl.load(BLOCKS + block * 4 + 1)
    if rows > 0:
        slot, position = tl.load(BLOCKS + block * 4 + 2), tl.load(BLOCKS + block * 4 + 3)
        k_at, to_value = _keys(KV_ADDRESS, Q, slots, layer, slot, h // G, K, D)
        i, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
        mine = (i < rows)[:, None] & (d < D)[None, :]
        q = tl.load(Q + (row + i)[:, None] * q_t + h * q_h + d[None, :], mask=mine, other=0.0)
        m = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        acc = tl.zeros((ROWS, WIDTH), tl.float32)
        last = position + tl.minimum(i, rows - 1)
        first = tl.maximum(last + 1 - window, 0)
        low = tl.min(first) // KEYS * KEYS
        for at in range(low, position + rows, KEYS):
            key = at + tl.arange(0, KEYS)
            m, total, acc = _attend(q, m, total, acc, k_at, k_at + to_value, key, first, last, scale, D, WIDTH, EXACT)
        out = (acc / total[:, None]).to(OUT.dtype.element_ty)
        tl.store(OUT + (row + i)[:, None] * o_t + h * o_h + d[None, :], out, mask=mine)
