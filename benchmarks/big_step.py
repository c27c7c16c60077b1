"""One whole LOOP step of a large model on one card: collecting, then updating, with the memory of each.

    python benchmarks/big_step.py [--model 32b] [--lora 16] [--quantize nf4] [--compile]

By default a model of Qwen2.5-32B's shape with adapters: 16 tasks x 6 attempts of 10 turns of exactly 60 sampled tokens;
observations are random words of set lengths, so that conversations grow to 2,400, 4,200, 6,100 or 7,900 tokens. Then
one epoch of updates on mini-batches of 32 trajectories, with activation checkpointing. Environments answer at once.
Random weights are made on the card, in bfloat16. The samples are not scored a second time before the update, which
`longloop train` does in bfloat16 where sampler and learner disagree by too much (one more forward pass).

Printed are the seconds of each part, and the peak of torch's allocator against the forecast that `longloop train` makes
before its first step. The rates are those of the passes themselves, by kind: those that read single tokens only
(decoding), and those that read longer spans, with single tokens beside them. Their limits are the time to read all
weights and the keys and values of each sequence once at the speed of a large copy, and the time of the arithmetic at
that of a product of matrices of 8,192, both measured in the same run before the model is made. Passes during which
others were recorded are left out of the rates, not of the seconds. The share of the update counts the arithmetic once
forward and once backward (frozen weights have no gradient of their own), as in update.py.

`--model small` is for a look at whether it works, on a CPU, in a minute: it shortens everything.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import common
import torch
from decode import bandwidth
from passes import Watched, Work, rates
from update import peak_flops

from longloop import build
from longloop.algos.loop import Loop
from longloop.config import Config, LearnerConfig, RolloutConfig
from longloop.engines.engine import NativeEngine
from longloop.learners.local import LocalLearner
from longloop.memory import forecast
from longloop.rollout.episode import RolloutContext
from longloop.rollout.groups import GroupRollouts
from longloop.tokens.chat import Chat
from longloop.training import TaskStream, schedule
from longloop.types import Now, Sampled, SamplingParams

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Exactly(NativeEngine):
    """Never stops before its limit, so that every turn has as many tokens."""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str, watch: Any = None) -> Sampled:
        return await super().sample(ids, replace(params, stop_ids=frozenset()), session=session, watch=watch)


def memory(when: str, foreseen: int) -> str:
    """The peak since it was last asked, against the ledger."""
    if DEVICE == "cpu":
        return f"| {when} | | | {foreseen / 2**30:.2f} | |"
    real, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    sizes = " | ".join(f"{size / 2**30:.2f}" for size in (real, reserved, foreseen))
    return f"| {when} | {sizes} | {real / foreseen:.3f} |"


def clean() -> None:
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="32b", choices=common.SHAPES)
    parser.add_argument("--lora", type=int, default=16, help="rank of the adapters; 0 trains every weight")
    parser.add_argument("--quantize", default="", choices=["", "nf4"], help="hold the frozen weights in 4 bits")
    parser.add_argument("--compile", action="store_true", help="compile the engine's passes and the updates")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--attempts", type=int, default=6)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--new", type=int, default=60, help="tokens sampled a turn")
    parser.add_argument("--opening", type=int, default=2000, help="of every fourth task; of others a quarter to three")
    parser.add_argument("--observed", type=int, default=590, help="tokens observed before a turn, likewise")
    parser.add_argument("--concurrency", type=int, default=40, help="attempts at once")
    parser.add_argument("--kv-tokens", type=int, default=196608, help="engine.tokens")
    parser.add_argument("--step-tokens", type=int, default=8192, help="engine.step_tokens")
    parser.add_argument("--micro-tokens", type=int, default=16384, help="learner.micro_tokens")
    options = parser.parse_args()
    if options.model == "small":
        for name, value in {"tasks": 3, "new": 6, "opening": 200, "observed": 50, "kv_tokens": 4096}.items():
            setattr(options, name, value)
        options.concurrency, options.micro_tokens = 8, 2048
    context = options.opening + (options.turns - 1) * options.observed + options.turns * options.new
    print(common.machine(), flush=True)
    start = time.perf_counter()
    speed = bandwidth(DEVICE)
    flops = peak_flops(DEVICE, torch.bfloat16 if DEVICE == "cuda" else torch.float32)
    clean()
    before = torch.cuda.memory_allocated() if DEVICE == "cuda" else 0
    module = common.random_model(options.model, device=DEVICE)
    policy = common.policy(module, lora_rank=options.lora, quantize=options.quantize)
    chat = Chat(policy.tokenizer)
    print(
        f"copying reaches {speed / 1e12:.2f} TB/s, products {flops / 1e12:.0f} TFLOP/s; {options.model} made in "
        f"{time.perf_counter() - start:.0f} s, {(_allocated() - before) / 2**30:.1f} GiB"
    )
    algo = Loop(k=options.attempts, epochs=1, drop_below=0.0, kl_guard=1e12)
    settings = LearnerConfig(micro_tokens=options.micro_tokens, checkpointing=True, compile=options.compile)
    learner = LocalLearner(policy, algo.needs, settings, temperature=1.0, seed=0)
    start = time.perf_counter()
    limits = context, options.concurrency, options.kv_tokens
    book = forecast.forecast(module.config, policy.config, settings, algo.needs, *limits)
    print(
        f"forecast in {time.perf_counter() - start:.1f} s, for contexts of up to {context} tokens: {book}", flush=True
    )
    engine = Exactly(
        policy,
        chat,
        slots=options.concurrency,
        context=context,
        tokens=options.kv_tokens,
        step_tokens=options.step_tokens,
        compile=options.compile,
    )
    watched = engine._pass = Watched(engine._pass, engine.cache)
    env = {"name": "fixed:Uneven", "turns": options.turns, "opening": options.opening, "observed": options.observed}
    config = Config(env=env | {"framing": common.FRAMING})
    world = build.world(config)
    of_rollouts = RolloutConfig(
        max_turns=options.turns,
        turn_tokens=options.new,
        context=context + options.new,
        concurrency=options.concurrency,
        straggler_cutoff=1.0,
    )
    rollouts = GroupRollouts(RolloutContext(world.make, chat, engine, of_rollouts, SamplingParams()), "benchmark")
    tasks = TaskStream(world.tasks("train")[: options.tasks], seed=0)
    work = Work(policy.module)

    clean()
    start, now = time.perf_counter(), Now(1, 1)
    groups = asyncio.run(algo.collect(rollouts, tasks, options.tasks, now))
    collecting = time.perf_counter() - start
    of_collecting = memory("collecting", book.collect)
    engine.release()
    samples = algo.credit(groups, learner, now)
    sizes = [len(sample.ids) for sample in samples]
    chosen = sum(sample.action_tokens for sample in samples)
    print(
        f"\n{len(samples)} trajectories of {min(sizes):,} to {max(sizes):,} tokens, {sum(sizes):,} in all, {chosen:,} "
        f"sampled; {engine.forwarded:,} went through the engine in {len(watched.all)} passes; {watched.recorded} kinds "
        f"of passes were recorded in {watched.recording:.1f} s; keys and values had {watched.kv / 2**30:.2f} GiB at "
        "most"
    )
    print("\n| part | what | seconds | tokens a second | share |")
    print("|---|---|---|---|---|")
    print(f"| collecting | {chosen:,} tokens sampled | {collecting:.1f} | {chosen / collecting:,.0f} | |")
    print("\n".join(rates(watched.timed(), work, speed, flops)), flush=True)

    clean()
    start = time.perf_counter()
    updates = [learner.update(part, algo.loss) for part in schedule(config, algo, groups, samples, now)]
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    updating = time.perf_counter() - start
    of_updating = memory("updating", book.update)
    share = work.of_update(samples, frozen=bool(options.lora)) / updating / flops
    print(
        f"| updating | {sum(sizes):,} tokens, {len(updates)} updates | {updating:.1f} | {sum(sizes) / updating:,.0f} | "
        f"{share:.0%} of the matmul peak |"
    )
    print(f"| the step | | {collecting + updating:.1f} | | |")
    print("\n| memory, GiB | allocated at most | reserved at most | forecast | allocated / forecast |")
    print("|---|---|---|---|---|")
    print(f"{of_collecting}\n{of_updating}")
    for update in updates:
        if update.stop:
            print(f"An update was stopped: {update.stop}")
    gaps = [update.metrics["ratio_gap"] for update in updates if "ratio_gap" in update.metrics]
    print(f"\nThe largest gap between the sampler's and the learner's probability of a token is {max(gaps):.1e}.")


def _allocated() -> int:
    return torch.cuda.memory_allocated() if DEVICE == "cuda" else common.resident_bytes()


if __name__ == "__main__":
    main()
