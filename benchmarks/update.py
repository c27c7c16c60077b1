"""One LOOP update against a supervised step on the same tokens: memory, speed, and the share of the card's peak.

    python benchmarks/update.py [--cases 7b:16 135m:0] [--trajectories 64] [--tokens 4000] [--actions 0.2]
        [--micro-tokens 16384] [--keep] [--compile]

A case is SHAPE:RANK; rank 0 trains every weight. Both sides are longloop's learner with the same settings, activation
checkpointing on unless activations are to be kept (`--keep`), and differ in the loss alone: LOOP's clipped ratio over
action tokens with advantages of both signs, and the negative log-likelihood of the same tokens. The arithmetic that is
counted is that of the matrix products and of attention, once forward and once backward (twice the forward, but with
frozen weights only once); what checkpointing computes again is not counted. The peak is that of a product of two
matrices of 8192 in the same run.
"""

import argparse
import gc
import random
import time
from dataclasses import replace
from typing import Any

import common
import torch

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.learners.local import LocalLearner
from longloop.types import Batch, Metrics, Minibatch, Sample, SampleSource, Scored


def samples(count: int, tokens: int, share: float, vocab: int) -> list[Sample]:
    """Random conversations of turns of 40 action tokens; the last turns are left to what is observed."""
    draw = random.Random(0)
    made = []
    for number in range(count):
        ids = tuple(draw.randrange(16, vocab - 16) for _ in range(tokens))
        every = int(40 / share)
        mask = tuple(int(i % every >= every - 40) for i in range(tokens))
        columns: Any = [(0.0,) * tokens, (0,) * tokens, (float(number % 3 - 1) or 0.5,) * tokens, (1.0,) * tokens]
        made.append(Sample(ids, mask, *columns, source=SampleSource(number, 0)))
    return made


def imitate(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
    return -(batch.weight_N * scored.logp_N).sum(), {}


def peak_flops(device: str, dtype: torch.dtype) -> float:
    n = 8192 if device == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    best = 0.0
    for _ in range(20):
        _wait()
        start = time.perf_counter()
        a @ b
        _wait()
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


def flops(module: Any, rank: int, chosen: int, tokens: int, count: int) -> float:
    """Of one update: products with weights, the head at action tokens only, and attention within each sequence."""
    config = module.config
    inside = sum(p.numel() for name, p in module.named_parameters() if p.ndim == 2 and ".layers." in name)
    head = config.hidden_size * config.vocab_size
    width = config.num_attention_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    attention = 2 * width * tokens * config.num_hidden_layers  # causal: half of 4 * width * tokens for each token
    forward = 2 * inside * tokens * count + attention * tokens * count + 2 * head * chosen
    frozen = 2 * inside * tokens * count + 2 * head * chosen if rank else 0.0
    return 3 * forward - frozen


def measure(learner: LocalLearner, minibatch: Minibatch, loss: Any) -> tuple[float, int]:
    """Seconds of an update, and the most memory while it runs; a short one comes before it, to warm up."""
    for each in (replace(minibatch, samples=minibatch.samples[:8]), minibatch):
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        _wait()
        start = time.perf_counter()
        learner.update(each, loss)
        _wait()
        seconds = time.perf_counter() - start
    return seconds, torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["7b:16", "135m:0"], help="SHAPE:RANK")
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--actions", type=float, default=0.2, help="their share of the tokens")
    parser.add_argument("--micro-tokens", type=int, default=16384)
    parser.add_argument("--keep", action="store_true", help="keep activations: no activation checkpointing")
    parser.add_argument("--compile", action="store_true", help="learner.compile")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(common.machine())
    print(
        f"{options.trajectories} trajectories of {options.tokens} tokens, {options.actions:.0%} of them actions, "
        f"{options.micro_tokens} tokens a pass, activations {'kept' if options.keep else 'computed again'}"
        f"{', compiled' if options.compile else ''}"
    )
    print("\n| case | side | seconds | tokens a second | of the peak | peak memory | against the supervised step |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for case in options.cases:
        shape, rank = case.split(":")[0], int(case.split(":")[1])
        module = common.random_model(shape, device=device)
        best = peak_flops(device, module.dtype)
        made = samples(options.trajectories, options.tokens, options.actions, module.config.vocab_size)
        policy = common.policy(module, lora_rank=rank)
        settings = LearnerConfig(
            micro_tokens=options.micro_tokens, checkpointing=not options.keep, compile=options.compile
        )
        algo = Loop(lr=1e-6, kl_guard=1e12)
        learner = LocalLearner(policy, algo.needs, settings, temperature=1.0, seed=0)
        minibatch = Minibatch(made, float(len(made)), step=1, on_policy=False)
        chosen = sum(sample.action_tokens for sample in made)
        work = flops(policy.module, rank, chosen, options.tokens, len(made))
        results = {
            name: measure(learner, minibatch, loss) for name, loss in (("LOOP", algo.loss), ("supervised", imitate))
        }
        for name, (seconds, memory) in results.items():
            against = f"{memory / results['supervised'][1]:.3f}x" if memory else ""
            print(
                f"| {case} | {name} | {seconds:.2f} | {options.tokens * len(made) / seconds:,.0f} | "
                f"{work / seconds / best:.0%} | {memory / 2**30:.2f} GiB | {against} |",
                flush=True,
            )
        del learner, policy, module
        gc.collect()


if __name__ == "__main__":
    main()
