"""What a pass computes for a token on a GPU, so that it depends, to the last bit, on the tokens before it alone.

torch and cuBLAS choose by the number of rows how a product or a sum is divided among threads, and with that in which
order it adds up. Here the order follows from the shape of one row alone. Within `RowInvariant` a pass computes its
products with weights, and its sums along rows, by the kernels below; attention does the same with its items
undivided (work_items.py). What is left works on single numbers, or compares them.

A product has tiles of one size, whatever its rows. So that few rows keep a card busy, the depth K is divided into parts
that are added up in their order: by programs of their own where the tiles are few, else by the same one.

Shapes: M rows, N columns of a product (outputs of a layer), K its depth, P parts of the depth.
"""

# mypy: disable-error-code="no-untyped-def"
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from longloop.types import UserError

_ROWS = 64
"""Rows of a tile: what the tensor cores of a Hopper card multiply at once."""
_PROGRAMS = 132
"""Programs that keep a large card busy."""
_LEAST = 512
"""The least depth of a part."""
_GROUP = 8
"""Tiles above each other that are computed together: they read the same columns."""

_PRODUCTS = {
    *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "dot", "einsum"),
    *("tensordot", "inner", "scaled_dot_product_attention", "conv1d", "_grouped_mm", "grouped_mm"),
}
"""Functions whose order of adding up is torch's choice."""


class RowInvariant(TorchFunctionMode):
    """Within it, products with weights and sums along rows are computed by kernels that treat every row alike."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is linear:
            return product(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _SUMS and isinstance(args[0], Tensor) and args[0].is_floating_point():
            return _SUMS[name](*args, **kwargs)
        if name in _PRODUCTS and not _outer(*args):
            raise UserError(
                f"engine.batch_invariant=true does not know how this model computes: torch's {name} may add up in "
                "another order for another number of tokens. Leave engine.batch_invariant out for it."
            )
        return func(*args, **kwargs)


def _outer(*factors: Any) -> bool:
    """Whether a product adds nothing up, as that of positions and frequencies."""
    return isinstance(factors[0], Tensor) and factors[0].shape[-1] == 1


def product(x: Tensor, weight_NK: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`."""
    x_MK = x.reshape(-1, x.shape[-1])
    x_MK = x_MK if x_MK.stride(1) == 1 else x_MK.contiguous()
    (M, K), N = x_MK.shape, len(weight_NK)
    out_MN = x.new_empty(M, N)
    tile = _tile(N, K, x.dtype)
    tiles = triton.cdiv(M, _ROWS) * triton.cdiv(N, tile["COLUMNS"])
    parts, each = _parts(N, K, tile["COLUMNS"], tile["DEPTH"])
    together = parts == 1 or tiles >= _PROGRAMS
    to = out_MN if together else x.new_empty((parts, M, N), dtype=torch.float32)
    given_bias, biased = (out_MN, False) if bias is None else (bias, True)
    _product[(tiles, 1 if together else parts)](
        *(x_MK, weight_NK, given_bias, to, M, N, K, parts, each, x_MK.stride(0), *weight_NK.stride()),
        TOGETHER=together,
        BIASED=biased and together,
        EVEN=K % tile["DEPTH"] == 0,
        ROWS=_ROWS,
        GROUP=_GROUP,
        EXACT=x.dtype == torch.float32,
        **tile,
    )
    if not together:
        wide = min(1024, triton.next_power_of_2(N))
        _join[(M, triton.cdiv(N, wide))](to, given_bias, out_MN, M, N, parts, BIASED=biased, WIDE=wide, num_warps=4)
    return out_MN.view(*x.shape[:-1], N)


def _tile(columns: int, depth: int, dtype: torch.dtype) -> dict[str, int]:
    """How many columns a tile has, and what depth is read at once and ahead: by the weight alone."""
    wide, deep, ahead = (64, 32, 3) if dtype == torch.float32 else (128, 64, 4)
    return {
        "COLUMNS": max(16, min(wide, triton.next_power_of_2(columns))),
        "DEPTH": max(16, min(deep, triton.next_power_of_2(depth))),
        "num_warps": 4,
        "num_stages": ahead,
    }


def _parts(columns: int, depth: int, wide: int, deep: int) -> tuple[int, int]:
    """Into how many parts the depth is divided, and how deep each is, if the last may be less: by the weight alone."""
    parts = max(1, min(_PROGRAMS // triton.cdiv(columns, wide), depth // _LEAST))
    each = triton.cdiv(triton.cdiv(depth, parts), deep) * deep
    return triton.cdiv(depth, each), each


def row_sum(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.sum` along rows."""
    return _summed(x, dim, keepdim, dtype, 1)


def row_mean(x: Tensor, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.mean` along rows."""
    return _summed(x, dim, keepdim, dtype, x.shape[-1])


def _summed(x: Tensor, dim: Any, keepdim: bool, dtype: torch.dtype | None, divisor: int) -> Tensor:
    _check_rows(x, dim)
    x, size = x.contiguous(), x.shape[-1]
    out = x.new_empty(x.shape[:-1], dtype=dtype or x.dtype)
    block = min(1024, triton.next_power_of_2(size))
    total = tl.float64 if out.dtype == torch.float64 else tl.float32
    _sum[(out.numel(),)](x, out, size, divisor, BLOCK=block, TOTAL=total, num_warps=4)
    return out.unsqueeze(-1) if keepdim else out


def row_cumsum(x: Tensor, dim: Any, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.cumsum` along rows, which fit into one program."""
    _check_rows(x, dim)
    x = x.to(dtype or x.dtype).contiguous()
    out, size = torch.empty_like(x), x.shape[-1]
    _cumsum[(x.numel() // size,)](x, out, size, BLOCK=triton.next_power_of_2(size), num_warps=4)
    return out


def _check_rows(x: Tensor, dim: Any) -> None:
    (only,) = dim if isinstance(dim, tuple | list) and len(dim) == 1 else (dim,)
    if only not in (-1, x.ndim - 1):
        raise UserError(
            "engine.batch_invariant=true does not know how this model computes: it adds up numbers of several tokens. "
            "Leave engine.batch_invariant out for it."
        )


_SUMS: dict[str, Any] = {"sum": row_sum, "mean": row_mean, "cumsum": row_cumsum}


@triton.jit
def _product(
    X, W, BIAS, OUT, rows, columns, depth, parts, each, x_m, w_n, w_k,
    TOGETHER: tl.constexpr, BIASED: tl.constexpr, EVEN: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr,
    EXACT: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    number, part = tl.program_id(0), tl.program_id(1)
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    first = number // (GROUP * across) * GROUP
    high = tl.minimum(down - first, GROUP)
    inside = number % (GROUP * across)
    m = (first + inside % high) * ROWS + tl.arange(0, ROWS)
    n = inside // high * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    # What is beyond the last row or column reads the first, and is not stored.
    x_at = X + tl.where(m < rows, m, 0).to(tl.int64)[:, None] * x_m
    w_at = W + tl.where(n < columns, n, 0).to(tl.int64)[None, :] * w_n
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    if TOGETHER:
        begin, end = 0, parts
    else:
        begin, end = part, part + 1
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for p in range(begin, end):
        acc = tl.zeros((ROWS, COLUMNS), tl.float32)
        for at in range(p * each, tl.minimum((p + 1) * each, depth), DEPTH):
            if EVEN:
                x = tl.load(x_at + (at + k)[None, :])
                w = tl.load(w_at + (at + k)[:, None] * w_k)
            else:
                x = tl.load(x_at + (at + k)[None, :], mask=(at + k < depth)[None, :], other=0.0)
                w = tl.load(w_at + (at + k)[:, None] * w_k, mask=(at + k < depth)[:, None], other=0.0)
            acc = tl.dot(x, w, acc, input_precision=precision)
        total += acc
    if BIASED:
        total += tl.load(BIAS + n, mask=n < columns, other=0.0).to(tl.float32)[None, :]
    to = OUT + part.to(tl.int64) * rows * columns + m.to(tl.int64)[:, None] * columns + n[None, :]
    tl.store(to, total.to(OUT.dtype.element_ty), mask=(m < rows)[:, None] & (n < columns)[None, :])


@triton.jit
def _join(PART, BIAS, OUT, rows, columns, parts, BIASED: tl.constexpr, WIDE: tl.constexpr):
    m = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((WIDE,), tl.float32)
    for p in range(0, parts):
        total += tl.load(PART + (p * rows + m) * columns + n, mask=n < columns, other=0.0)
    if BIASED:
        total += tl.load(BIAS + n, mask=n < columns, other=0.0).to(tl.float32)
    tl.store(OUT + m * columns + n, total.to(OUT.dtype.element_ty), mask=n < columns)


@triton.jit
def _sum(X, OUT, size, divisor, BLOCK: tl.constexpr, TOTAL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), TOTAL)
    for at in range(0, size, BLOCK):
        acc += tl.load(X + row * size + at + d, mask=at + d < size, other=0.0).to(TOTAL)
    tl.store(OUT + row, (tl.sum(acc, 0) / divisor).to(OUT.dtype.element_ty))


@triton.jit
def _cumsum(X, OUT, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    x = tl.load(X + row * size + d, mask=d < size, other=0.0)
    tl.store(OUT + row * size + d, tl.cumsum(x, 0), mask=d < size)
