"""Decoding on one GPU, beside `generate()`, vLLM and what the card's memory allows.

    python benchmarks/decode.py [--cases 135m:128 135m:512 7b:64 7b:256] [--lora 16] [--batch-invariant] [--no-generate]
        [--vllm]

Random weights in bfloat16, a prompt of 512 random tokens for each sequence, 128 new ones at temperature 1, log-probs
returned. The rate is that of the passes in which every sequence adds one token: reading the prompts is not in it, for
any side; that of `generate()` is the median of three. The limit is what it takes to read the weights and every
sequence's keys and values once a step, at the bandwidth that copying two gibibytes reaches in the same run. On a CPU
(for a look at whether it works) the engine runs without graphs; choose small cases.
"""

import argparse
import asyncio
import gc
import random
import sys
import time
from dataclasses import replace
from itertools import product
from typing import Any

import common
import torch

from longloop.engines.engine import NativeEngine
from longloop.types import SamplingParams


class Timed:
    """A pass that takes down when each was over and how many tokens it read."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.ahead = inner, inner.ahead
        self.ended: list[tuple[float, int, bool]] = []

    def __call__(self, row: Any, *numbers: Any) -> Any:
        drawn = self._inner(row, *numbers)
        size, single = len(row.slot_R), row.singles == len(row.slot_R)

        def ready() -> None:
            drawn.ready()
            self.ended.append((time.perf_counter(), size, single))

        return replace(drawn, ready=ready)

    def release(self) -> None:
        self._inner.release()


def prompts(batch: int, length: int, vocab: int) -> list[list[int]]:
    draw = random.Random(0)
    return [[draw.randrange(16, vocab - 16) for _ in range(length)] for _ in range(batch)]


def engine_rate(engine: NativeEngine, rows: list[list[int]], new: int) -> tuple[float, float]:
    """Tokens a second while all decode, and of the whole call with the prompts read."""

    async def everyone() -> None:
        await asyncio.gather(
            *(engine.sample(ids, SamplingParams(max_tokens=new, seed=n), session=str(n)) for n, ids in enumerate(rows))
        )

    timed = engine._pass = Timed(engine._pass)
    start = time.perf_counter()
    asyncio.run(everyone())
    whole = time.perf_counter() - start
    engine._pass = timed._inner
    engine._scheduler.discard_cache()  # the prompts are to be read again next time
    full = [at for at, size, single in timed.ended if single and size == len(rows)]
    if len(full) < 2:
        sys.exit(
            f"{len(rows)} sequences never decoded all at once: the first had ended when the last was read. Raise --new."
        )
    return len(rows) * (len(full) - 1) / (full[-1] - full[0]), len(rows) * new / whole


@torch.inference_mode()
def generate_rate(module: Any, rows: list[list[int]], new: int) -> list[float]:
    """The difference of two calls, so that reading the prompts is not in it. Three, smallest first: it waits for
    Python, and Python for whatever else the machine does."""

    def seconds(count: int) -> float:
        ids = torch.tensor(rows, device=module.device)
        _wait()
        start = time.perf_counter()
        out = module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            **common.generate_options(count),
        )
        said = out.sequences[:, ids.shape[1] :].T[..., None]
        for logits, token in zip(out.logits, said, strict=True):
            logits.float().log_softmax(-1).gather(1, token)
        _wait()
        return time.perf_counter() - start

    seconds(4)
    few = max(2, new // 8)
    return sorted(len(rows) * (new - few) / (seconds(new) - seconds(few)) for _ in range(3))


def bandwidth(device: str) -> float:
    """Bytes a second that a large copy reads and writes."""
    size = 2**31 if device == "cuda" else 2**27
    here, there = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    best = 0.0
    for _ in range(10):
        _wait()
        start = time.perf_counter()
        there.copy_(here)
        _wait()
        best = max(best, 2 * size / (time.perf_counter() - start))
    return best


def limit(module: Any, batch: int, tokens: float, speed: float, shard: int = 1) -> float:
    """Tokens a second if memory were all that took time. `shard`: the module is that part of a model."""
    config = module.config
    size = module.dtype.itemsize
    weights = sum(p.nbytes for p in module.parameters())
    if not config.tie_word_embeddings:
        weights -= module.get_input_embeddings().weight.nbytes  # of which a step reads a few rows
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv = 2 * config.num_hidden_layers * config.num_key_value_heads * head * size * tokens * batch
    return batch * speed / (weights + kv / shard)


def vllm_rate(shape: str, batch: int, rows: list[list[int]], new: int) -> float:
    """vLLM with weights of its own, in this process, after ours have gone."""
    model = common.vllm_model(
        shape, gpu_memory_utilization=0.5, max_model_len=1024, max_num_seqs=512, enable_prefix_caching=False
    )
    import vllm

    def seconds(count: int) -> float:
        how = vllm.SamplingParams(temperature=1.0, max_tokens=count, ignore_eos=True, logprobs=0, detokenize=False)
        start = time.perf_counter()
        model.generate([{"prompt_token_ids": row} for row in rows], how, use_tqdm=False)
        return time.perf_counter() - start

    seconds(4)
    return batch * (new - 1) / (seconds(new) - seconds(1))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["135m:128", "135m:512", "7b:64", "7b:256"], help="SHAPE:BATCH")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--lora", type=int, default=0, help="also with adapters of this rank on all projections")
    parser.add_argument("--compile", action="store_true", help="let torch.compile fuse the recorded pass")
    parser.add_argument(
        "--batch-invariant", action="store_true", help="also with engine.batch_invariant, which is never compiled"
    )
    parser.add_argument("--no-generate", action="store_true")
    parser.add_argument("--vllm", action="store_true", help="also vLLM, where it is installed")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    speed = bandwidth(device)
    print(common.machine())
    print(f"copying reaches {speed / 1e12:.2f} TB/s; prompt {options.prompt}, {options.new} new tokens")
    print("\n| case | side | tokens a second | against generate() | of the memory limit | whole call |")
    print("|---|---|---|---|---|---|", flush=True)
    for case in options.cases:
        shape, batch = case.split(":")[0], int(case.split(":")[1])
        rows = prompts(batch, options.prompt, common.SHAPES[shape]["vocab_size"])
        rates: dict[str, tuple[float, float]] = {}
        ranks = (0, options.lora) if options.lora else (0,)
        for rank, invariant in product(ranks, (False, True) if options.batch_invariant else (False,)):
            module = common.random_model(shape, device=device)
            best = limit(module, batch, options.prompt + options.new / 2, speed)
            policy = common.policy(module, lora_rank=rank)
            how = {"batch_invariant": True} if invariant else {"compile": options.compile}
            engine = NativeEngine(policy, common.Silent(), slots=batch, step_tokens=16384, **how)
            engine_rate(engine, rows, options.new)  # records the passes
            side = f"engine{f', LoRA r={rank}' if rank else ''}{', batch-invariant' if invariant else ''}"
            rates[side] = engine_rate(engine, rows, options.new)
            engine.release()
            del engine, policy, module
            _clean()
        if not options.no_generate:
            module = common.random_model(shape, device=device)
            least, median, most = generate_rate(module, rows, options.new)
            rates["generate()"] = (median, 0.0)
            print(f"{case}: generate() {least:,.0f} to {most:,.0f}", file=sys.stderr)
            del module
            _clean()
        if options.vllm:
            rates["vLLM"] = (vllm_rate(shape, batch, rows, options.new), 0.0)
            _clean()
        theirs = rates.get("generate()", (0.0, 0.0))[0]
        for side, (rate, whole) in rates.items():
            against = f"{rate / theirs:.1f}x" if theirs else ""
            all_of_it = f"{whole:,.0f}" if whole else ""
            print(f"| {case} | {side} | {rate:,.0f} | {against} | {rate / best:.0%} | {all_of_it} |", flush=True)


def _clean() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
