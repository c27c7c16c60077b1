"""The passes of one rank that holds a shard of a large model, on one GPU and without the others.

    python benchmarks/shard_pass.py [--shape 32b] [--shard 8] [--batch 64] [--context 2000] [--lora 16] [--compile]

Random weights in bfloat16 of Qwen2.5-32B's shape, one eighth of each matrix, with adapters on all projections. The rank
has nobody to exchange with: sums over ranks are left out, and where parts are gathered (the logits) its own stands for
those of the others. What a real rank adds to these times is two sums a layer of [batch, hidden] numbers, one of the
embeddings, and a gather of the logits. All else is the engine as it runs, with recorded passes.

Decoding: the passes in which every sequence adds one token, at `--context` tokens on average, as decode.py measures it,
and the part of what the card's memory allows: reading this rank's matrices (adapters not counted) and its heads' keys
and values once a pass. Reading: prompts of all sequences from the first to the last pass, and what the products of the
rank's matrices amount to. Each is the median of three, after a run that records. On a CPU (for a look at whether it
works) choose `--shape small --shard 4 --batch 4 --context 200`; nothing is recorded there.
"""

import argparse
import asyncio
import time
from statistics import median
from typing import Any

import common
import decode
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from longloop.config import ModelConfig
from longloop.engines.engine import NativeEngine
from longloop.model.policy import Policy
from longloop.model.shards import Reader, Shards, cut, without_weights
from longloop.types import SamplingParams

NEW = 256
"""Tokens that each sequence decodes."""


@torch.library.custom_op("benchmarks::repeated", mutates_args=())
def repeated(part: Tensor, count: int, dim: int) -> Tensor:
    """A part in place of all. As with a sum over ranks, torch.compile does not look into it."""
    return torch.cat([part] * count, dim)


@repeated.register_fake
def _(part: Tensor, count: int, dim: int) -> Tensor:
    return torch.cat([part] * count, dim)


class WithoutOthers(Shards):
    """The first of several ranks, with nobody at the other end."""

    recordable = True

    def gather(self, part: Tensor, dim: int) -> Tensor:
        return repeated(part, self.count, dim)

    def total(self, x: Tensor) -> Tensor:
        return x

    def of_first(self, x: Tensor) -> Tensor:
        return x


def random_shard(shape: str, shards: Shards, device: str, dtype: torch.dtype) -> Any:
    """A model of which this rank's part alone is ever made."""
    with without_weights():
        module = AutoModelForCausalLM.from_config(common.model_config(shape), dtype=dtype)

    def read(name: str, p: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return (torch.zeros if name.endswith("bias") else torch.ones)(p.shape, dtype=dtype, device=device)
        size = [n // shards.count if at == dim else n for at, n in enumerate(p.shape)]
        return torch.empty(size, dtype=dtype, device=device).normal_(std=0.02)

    return cut(module, shards, read).eval()


def reading_rate(engine: NativeEngine, rows: list[list[int]]) -> float:
    """Tokens of prompts read in a second."""

    async def everyone() -> None:
        how = SamplingParams(max_tokens=1, seed=0)
        await asyncio.gather(*(engine.sample(ids, how, session=str(n)) for n, ids in enumerate(rows)))

    start = time.perf_counter()
    asyncio.run(everyone())
    took = time.perf_counter() - start
    engine._scheduler.discard_cache()  # they are to be read again next time
    return sum(map(len, rows)) / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="32b", choices=common.SHAPES)
    parser.add_argument("--shard", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--context", type=int, default=2000, help="tokens of each sequence while it decodes, on average"
    )
    parser.add_argument("--lora", type=int, default=16)
    parser.add_argument("--compile", action="store_true", help="let torch.compile fuse the recorded pass")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    speed = decode.bandwidth(device)
    print(common.machine())
    print(f"copying reaches {speed / 1e12:.2f} TB/s")
    torch.manual_seed(0)
    shards = WithoutOthers(0, options.shard)
    module = random_shard(options.shape, shards, device, dtype)
    matrices = sum(p.numel() for p in module.parameters() if p.ndim > 1) - module.get_input_embeddings().weight.numel()
    best = decode.limit(module, options.batch, options.context, speed, options.shard)
    vocab = module.config.vocab_size
    settings = ModelConfig(device=device, dtype=str(dtype).removeprefix("torch."), lora_rank=options.lora)
    policy = Policy(module, common.word_tokenizer(vocab), settings, shards)
    print(
        f"{options.shape}, shard 1 of {options.shard}: {matrices * dtype.itemsize / 2**30:.2f} GiB of matrices a pass, "
        f"{common.resident_bytes() / 2**30:.2f} GiB in all; LoRA r={options.lora}; batch {options.batch}",
        flush=True,
    )
    rows = decode.prompts(options.batch, options.context - NEW // 2, vocab)
    engine = NativeEngine(
        Reader(policy), common.Silent(), slots=options.batch, step_tokens=16384, compile=options.compile
    )
    began = time.perf_counter()
    decode.engine_rate(engine, rows, NEW)  # records the passes
    reading_rate(engine, rows)
    print(f"first run, with recording: {time.perf_counter() - began:.0f} s", flush=True)
    decoded = [decode.engine_rate(engine, rows, NEW)[0] for _ in range(3)]
    read = [reading_rate(engine, rows) for _ in range(3)]
    rate, reading = median(decoded), median(read)
    print("\n| pass | tokens a second | | |\n|---|---|---|---|")
    print(
        f"| decoding, {options.batch} at {options.context} | {common.median_range(decoded)} | "
        f"{1e3 * options.batch / rate:.2f} ms a pass | {rate / best:.0%} of the memory limit |"
    )
    print(
        f"| reading prompts of {len(rows[0])} | {common.median_range(read)} | "
        f"{1e3 * 16384 / reading:.0f} ms for 16,384 | {2e-12 * matrices * reading:.0f} TFLOP/s |"
    )
    print(f"memory at most {common.peak_bytes() / 2**30:.1f} GiB")
    engine.release()


if __name__ == "__main__":
    main()
