"""How long torch.compile takes until the first compiled pass: with an empty cache on disk, and in the next process.

    python benchmarks/compile_time.py [--models 135m 1.5b 7b] [--lora 16] [--layers 4]

For each shape two processes, one after the other, with the same cache folder, which is empty for the first (kernels of
Triton included). Each makes random weights, then takes the time of what a run meets first:

    engine   a prompt of 200 tokens is read and answered by 8, recorded and compiled (engine.compile=true), less the
             time of an engine whose passes are recorded and not compiled, in the same process before it
    update   one update on two trajectories of 512 tokens (learner.compile=true), less that of a second one

"traced" is dynamo's part, which no cache saves, "compiled" is that of the compiler behind it; hits and misses are those
of torch's cache of compiled graphs. A layer is compiled once for all layers, so `--layers` loses nothing but loading
time. On a CPU (for a look at whether it works, with `--models small`) only the update is compiled.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from typing import Any

import common
import torch
from update import samples

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.engines.engine import NativeEngine
from longloop.learners.local import LocalLearner
from longloop.types import Minibatch, SamplingParams

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def answer(policy: Any, compile: bool) -> float:
    """Seconds until an engine has answered."""
    engine = NativeEngine(policy, common.Silent(), slots=8, compile=compile)
    start = time.perf_counter()
    asyncio.run(engine.sample(list(range(16, 216)), SamplingParams(max_tokens=8, seed=0), session="one"))
    took = time.perf_counter() - start
    engine.release()
    return took


def update(learner: LocalLearner, vocab: int) -> float:
    minibatch = Minibatch(samples(2, 512, 0.2, vocab), 2.0, step=1, on_policy=False)
    start = time.perf_counter()
    learner.update(minibatch, Loop(kl_guard=1e12).loss)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def spent() -> dict[str, float]:
    """So far, by torch's own count: seconds of all compilation, those of the compiler, and hits of its cache."""
    from torch._dynamo.utils import calculate_time_spent, counters

    times, found = calculate_time_spent(), counters["inductor"]
    return {
        "all": times.get("entire_frame_compile", 0.0),
        "compiled": times.get("backend_compile", 0.0),
        "hits": float(found["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]),
        "misses": float(found["fxgraph_cache_miss"]),
        "graphs": float(counters["stats"]["unique_graphs"]),
    }


def measure(shape: str, rank: int, layers: int) -> dict[str, dict[str, float]]:
    if layers:
        common.SHAPES[shape]["num_hidden_layers"] = min(layers, common.SHAPES[shape]["num_hidden_layers"])
    policy = common.policy(common.random_model(shape, device=DEVICE), lora_rank=rank)
    found, before = {}, spent()

    def note(name: str, seconds: float) -> None:
        nonlocal before
        now = spent()
        found[name] = {"seconds": seconds} | {key: now[key] - before[key] for key in now}
        before = now

    if DEVICE == "cuda":
        plain = answer(policy, compile=False)
        note("engine", answer(policy, compile=True) - plain)
    algo = Loop(kl_guard=1e12)
    learner = LocalLearner(policy, algo.needs, LearnerConfig(compile=True), temperature=1.0, seed=0)
    vocab = policy.module.config.vocab_size
    first = update(learner, vocab)
    note("update", first - update(learner, vocab))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["135m", "1.5b", "7b"], choices=common.SHAPES)
    parser.add_argument("--lora", type=int, default=0, help="with adapters of this rank on all projections")
    parser.add_argument("--layers", type=int, default=0, help="models with only so many layers")
    parser.add_argument("--only", choices=common.SHAPES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.lora, options.layers)))
        return
    print(common.machine())
    print("\n| model | what | cache | seconds | traced | compiled | graphs | cache hits | misses |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for shape in options.models:
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("empty", "of the process before"):
                variables = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
                printed = common.run_alone(__file__, "--only", shape, *sys.argv[1:], **variables)
                for what, of in json.loads(printed.splitlines()[-1]).items():
                    times = f"{of['seconds']:.1f} | {of['all'] - of['compiled']:.1f} | {of['compiled']:.1f}"
                    counts = f"{of['graphs']:.0f} | {of['hits']:.0f} | {of['misses']:.0f}"
                    print(f"| {shape} | {what} | {cache} | {times} | {counts} |", flush=True)


if __name__ == "__main__":
    main()
