"""Tiles for the attention of longer spans on a GPU: how many rows a program computes at once, with how many warps.

    python benchmarks/attention_tiles.py [--models 1.5b 7b 32b] [--rows 64 128] [--warps 4 8] [--stages 2 3 4]

Each load is what a pass of that kind reads (two observations of 500 tokens behind 5,000, two of 110 behind 2,500, an
opening of 1,200, a piece of 1,000 of a long context), without the single tokens beside it. Times are of one layer, in a
CUDA graph over layers that differ, so that keys come from memory; with dividing of keys and merging. The limit is the
arithmetic at the speed of a product of matrices of 8,192 in the same run; flash is torch's attention of these queries
over dense copies of the keys, one span after the other. Every tile's result is compared with today's.
"""

import argparse
from collections.abc import Callable
from itertools import product
from statistics import median

import common
import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from update import peak_flops

from longloop.engines import triton_kernels, work_items
from longloop.engines.kv_cache import KVCache
from longloop.engines.pages import count
from longloop.engines.slots import Slots

LAYERS = 8
LOADS = {
    "two of 500": [(5000, 500)] * 2,
    "two of 110": [(2500, 110)] * 2,
    "opening": [(0, 1200)],
    "a long one's": [(6000, 1000)],
}
"""Spans: where they begin, and how many tokens."""


class Attention:
    """One load of one shape, with keys and values in scattered pages."""

    def __init__(self, shape: str, spans: list[tuple[int, int]]) -> None:
        sizes = common.SHAPES[shape]
        self.H, self.K = sizes["num_attention_heads"], sizes["num_key_value_heads"]
        self.D = sizes["hidden_size"] // self.H
        starts, counts = (np.array(column) for column in zip(*spans, strict=True))
        pages = [count(int(end)) for end in starts + counts]
        cache = KVCache(torch.zeros(self.K, self.D, device="cuda", dtype=torch.bfloat16), LAYERS, 2**30, moves=False)
        cache.grow(sum(pages) + 1, wait=True)
        order = np.random.default_rng(0).permutation(np.arange(1, sum(pages) + 1))
        page_RW = np.zeros((len(spans), max(pages)), dtype=np.int64)
        for span, upto in enumerate(np.cumsum(pages)):
            page_RW[span, : pages[span]] = order[upto - pages[span] : upto]
        for page in order.tolist():
            cache.page(page).normal_()
        slots = Slots(len(spans))
        slots.reserve(int((starts + counts).max()))
        slots.length[:] = starts
        self.row = slots.row(np.arange(len(spans)), counts, 0, page_RW)
        addresses = cache.address_P[np.concatenate([np.zeros_like(page_RW[:1]), page_RW])]
        self._held = cache, torch.from_numpy(addresses).cuda()
        self.table = torch.tensor([self._held[1].data_ptr(), page_RW.shape[1]], device="cuda")
        tokens = int(counts.sum())
        self.q, self.k, self.v = (
            torch.randn(tokens, heads, self.D, device="cuda", dtype=torch.bfloat16)
            for heads in (self.H, self.K, self.K)
        )
        self.flops = 4 * self.H * self.D * int((self.row.position_T + 1).sum())
        self._dense = [
            (
                torch.randn(1, self.H, n, self.D, device="cuda", dtype=torch.bfloat16),
                *torch.randn(2, 1, self.K, s + n, self.D, device="cuda", dtype=torch.bfloat16),
            )
            for s, n in spans
        ]

    def ours(self) -> tuple[float, list[Tensor]]:
        """Seconds of a layer, and each layer's result."""
        queries = triton_kernels.queries(self.H // self.K)
        done = work_items.divide(self.row, queries, self.K)
        blocks, merged = (torch.from_numpy(x).int().cuda() for x in (done.block_I8, done.merge_M4))
        units = len(blocks) * queries if len(merged) else 0
        part, weight = (torch.empty(units, self.H, *size, device="cuda") for size in ((self.D,), ()))

        def attend() -> list[Tensor]:
            results = []
            for layer in range(LAYERS):
                results.append(torch.empty_like(self.q))
                given = self.q, self.k, self.v, results[-1], part, weight, self.table, blocks
                triton_kernels.work(*given, layer, self.D**-0.5, 0, single=False)
                if len(merged):
                    triton_kernels.merge(part, weight, results[-1], merged)
            return results

        return timed(attend)

    def flash(self) -> float:
        def attend() -> list[Tensor]:
            return [
                scaled_dot_product_attention(
                    q, k, v, attn_mask=causal_lower_right(q.shape[2], k.shape[2]), enable_gqa=True
                )
                for q, k, v in self._dense * LAYERS
            ]

        return timed(attend)[0]


def timed(work: Callable[[], list[Tensor]]) -> tuple[float, list[Tensor]]:
    """Seconds of a layer, and the results."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    took = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        took.append(start.elapsed_time(end) / 1e3 / LAYERS)
    return median(took), results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["1.5b", "7b", "32b"], choices=common.SHAPES)
    for name, values in {"rows": [64, 128], "keys": [32, 64], "warps": [4, 8], "stages": [2, 3, 4]}.items():
        parser.add_argument(f"--{name}", type=int, nargs="+", default=values)
    options = parser.parse_args()
    peak, rows, tile = peak_flops("cuda", torch.bfloat16), triton_kernels._ROWS, triton_kernels._tile
    print(f"{common.machine()}\nproducts {peak / 1e12:.0f} TFLOP/s; microseconds of a layer")
    print("\n| model | load | limit | flash | today | best (rows, keys, warps, stages) | next |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for model, (load, spans) in product(options.models, LOADS.items()):
        of = Attention(model, spans)
        today, right = of.ours()
        found = []
        for tried in product(options.rows, options.keys, options.warps, options.stages):
            triton_kernels._ROWS = tried[0]
            own = dict(zip(("KEYS", "num_warps", "num_stages"), tried[1:], strict=True))
            triton_kernels._tile = lambda q, most, own=own: tile(q, most) | own
            try:
                took, results = of.ours()
            except Exception as error:  # a tile that does not fit into the card's shared memory
                print(f"{tried}: {type(error).__name__}")
                continue
            finally:
                triton_kernels._ROWS, triton_kernels._tile = rows, tile
            for mine, theirs in zip(results, right, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.02)
            found.append((took, tried))
        best = [f"{1e6 * took:.0f} {tried}" for took, tried in sorted(found)[:2]]
        times = " | ".join(f"{1e6 * seconds:.0f}" for seconds in (of.flops / peak, of.flash(), today))
        print(f"| {model} | {load} | {times} | {' | '.join(best)} |", flush=True)
        del of
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
