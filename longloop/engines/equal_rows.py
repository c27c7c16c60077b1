"""How many rows a matrix product must have on this machine, so that it computes each of its rows alike.

MKL's kernels for AVX2 compute six rows at a time, and those left over in another order; threads share out the rows, and
each has its own left over. Kernels for AVX-512 have such cases with 12 threads and more. Which kernels a library takes
does not follow from what the processor can do, so products are tried.
"""

import warnings
from functools import cache

import torch
from torch.nn.functional import linear

USUAL = 32
"""What suits most machines. With one thread, products may then also have other numbers of rows (passes.py)."""

_SIZES = (USUAL, 48, 144, 192)
"""What is tried, cheapest first. For AVX2, 48 suit up to 4 threads, 144 suit 6 and 192 suit 8; for AVX-512, 32 suit up
to 8 threads and 144 suit 12 and 16."""

_SHAPES = ((16, 64), (64, 64), (64, 128), (1024, 64), (2048, 4))
"""Inputs and outputs of the products that are tried: small ones, among which each of _SIZES failed where it failed for
any that we tried."""


@cache
def equal_rows(threads: int) -> int:
    """The number of rows for all products while torch has this many threads.

    If no number suits, warn and return the usual one.
    """
    for rows in _SIZES:
        if all(_alike(rows, *shape) for shape in _SHAPES):
            return rows
    warnings.warn(
        f"This machine's matrix products depend on who is sampled together (threads: {threads}), so runs with equal "
        "seeds may differ in the last bits: try fewer threads (OMP_NUM_THREADS in the environment).",
        stacklevel=2,
    )
    return USUAL


def _alike(rows: int, inputs: int, outputs: int) -> bool:
    """Whether a product of equal rows has equal rows."""
    weight = torch.arange(inputs * outputs, dtype=torch.float32).sin().view(outputs, inputs)
    product = linear(weight[:1].repeat(rows, 1), weight)
    return bool((product == product[0]).all())
