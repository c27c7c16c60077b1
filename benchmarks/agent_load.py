"""Agents' loads on one GPU, beside vLLM: conversations of many turns, actions and observations of uneven length.

    python benchmarks/agent_load.py [--model 1.5b|7b|135m|small] [--loads errands long tools] [--vllm] [--compile]

    errands   96 conversations of 4 to 16 turns, actions of some 50 tokens (log-normal), observations of some 110, an
              opening of 1,200 of which all share 700 and a group of eight the rest
    long      16 conversations of 8 to 16 turns that grow to 8,000 to 16,000 tokens: openings of 4,500 to 8,000,
              actions of some 100, observations of some 320
    tools     96 conversations of 4 to 12 turns, actions of some 10 tokens, observations of some 600

Random weights in bfloat16 (float32 on a CPU), temperature 1, log-probs returned. Environments answer at once: what is
measured is the engine. Every side gets the same openings and observations and samples the same number of tokens at each
turn; vLLM has weights of its own of the same shape, prefix caching on, CUDA graphs and compilation as they come. Each
side runs a load twice, and the second time counts: recording and compiling are not in it.

The table has action tokens a second; the GiB of keys and values that the engine had allocated at most, and those that
were live then, shared openings counted once for each conversation; and how long the median turn waited, early turns and
late ones apart. `--passes` adds what the engine's passes took, by kind, beside what memory and arithmetic allow.
"""

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import common
import torch
from decode import bandwidth
from passes import OnePass, Watched, Work, rates
from update import peak_flops

from longloop.engines import scheduler
from longloop.engines.engine import NativeEngine
from longloop.types import SamplingParams

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Turn:
    observed: list[int]
    """The ids that arrive; the first turn's are the opening."""
    new: int
    """Tokens to sample."""


Conversation = list[Turn]


@dataclass(frozen=True)
class Load:
    """How conversations are drawn. Lengths are medians of log-normal distributions, or ranges."""

    conversations: int
    turns: tuple[int, int]
    opening: tuple[int, int]
    shared: int
    """Ids of the opening that are the same in all conversations."""
    group: int
    """Conversations with the same opening."""
    action: int
    observed: int
    spread: float = 0.6
    """The standard deviation of the logarithm of actions' and observations' lengths."""

    def drawn(self, vocab: int, scale: float) -> list[Conversation]:
        """`scale` shortens everything, for a look on a CPU."""
        chance = random.Random(0)

        def ids(many: float) -> list[int]:
            return [chance.randrange(16, vocab - 16) for _ in range(max(1, round(many * scale)))]

        def uneven(middle: int, least: int, most: int) -> int:
            return min(most, max(least, round(middle * chance.lognormvariate(0, self.spread))))

        everyone, conversations = ids(self.shared), []
        for number in range(max(2, round(self.conversations * min(1, 4 * scale)))):
            if number % self.group == 0:
                opening = everyone + ids(chance.randint(*self.opening) - self.shared)
            turns = [
                Turn(
                    ids(uneven(self.observed, 5, 6 * self.observed)) if turn else opening,
                    max(2, round(uneven(self.action, 4, 8 * self.action) * scale)),
                )
                for turn in range(chance.randint(*self.turns))
            ]
            conversations.append(turns)
        return conversations


LOADS = {
    "errands": Load(96, (4, 16), (1200, 1200), 700, 8, 50, 110),
    "long": Load(16, (8, 16), (4500, 8000), 1000, 2, 100, 320),
    "tools": Load(96, (4, 12), (1200, 1200), 700, 8, 10, 600),
}


@dataclass
class Measured:
    seconds: float
    waited: list[tuple[int, float]]
    """Turn, and how long it took."""
    kv: tuple[float, float] = (0.0, 0.0)
    """GiB of keys and values that were allocated at most, and that were live then."""
    passes: list[tuple[OnePass, float]] = field(default_factory=list)
    """The engine's, and what each took."""


def with_engine(engine: NativeEngine, conversations: Sequence[Conversation]) -> Measured:
    waited: list[tuple[int, float]] = []
    kv = (0.0, 0.0)
    live = [0] * len(conversations)
    per_token = 2 * engine.model.module.config.num_hidden_layers * _kv_width(engine.model.module.config)
    per_token *= engine.model.module.dtype.itemsize

    async def one(number: int) -> None:
        nonlocal kv
        so_far: list[int] = []
        for turn, now in enumerate(conversations[number]):
            so_far += now.observed
            start = time.perf_counter()
            params = SamplingParams(max_tokens=now.new, seed=1000 * number + turn)
            sampled = await engine.sample(so_far, params, session=str(number))
            waited.append((turn, time.perf_counter() - start))
            so_far += sampled.ids.tolist()
            live[number] = len(so_far)
            kv = max(kv, (engine.cache.bytes / 2**30, sum(live) * per_token / 2**30))
        live[number] = 0
        engine.forget(str(number))

    async def everyone() -> None:
        await asyncio.gather(*(one(number) for number in range(len(conversations))))

    watched = engine._pass = Watched(engine._pass, engine.cache)
    start = time.perf_counter()
    asyncio.run(everyone())
    seconds = time.perf_counter() - start
    engine._pass = watched._inner
    engine.release()
    return Measured(seconds, waited, kv, watched.timed())


def with_vllm(model: Any, conversations: Sequence[Conversation]) -> Measured:
    """Requests are added turn by turn, as an environment would, while others go on."""
    import vllm

    waited: list[tuple[int, float]] = []
    so_far: list[list[int]] = [[] for _ in conversations]
    begun: dict[str, float] = {}
    core = model.llm_engine

    def ask(number: int, turn: int) -> None:
        now = conversations[number][turn]
        so_far[number] += now.observed
        how = vllm.SamplingParams(
            temperature=1.0, max_tokens=now.new, min_tokens=now.new, ignore_eos=True, logprobs=0, detokenize=False
        )
        name = f"{number}/{turn}/{time.perf_counter_ns()}"
        begun[name] = time.perf_counter()
        core.add_request(name, {"prompt_token_ids": list(so_far[number])}, how)

    start = time.perf_counter()
    for number in range(len(conversations)):
        ask(number, 0)
    while core.has_unfinished_requests():
        for answer in core.step():
            if answer.finished:
                number, turn = (int(part) for part in answer.request_id.split("/")[:2])
                waited.append((turn, time.perf_counter() - begun[answer.request_id]))
                so_far[number] += answer.outputs[0].token_ids
                if turn + 1 < len(conversations[number]):
                    ask(number, turn + 1)
    return Measured(time.perf_counter() - start, waited)


def engines(options: Any) -> Iterator[tuple[str, Callable[[Sequence[Conversation]], Measured]]]:
    """The sides, one after the other; each has the card for itself."""
    module = common.random_model(options.model, device=DEVICE)
    engine = NativeEngine(
        common.policy(module), common.Silent(), slots=96, context=16384, step_tokens=8192, compile=options.compile
    )
    yield "engine", partial(with_engine, engine)
    del module, engine
    gc.collect()
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    if options.vllm:
        model = common.vllm_model(options.model, max_model_len=20000, max_num_seqs=128, enable_prefix_caching=True)
        yield "vLLM", partial(with_vllm, model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="1.5b", choices=common.SHAPES)
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=LOADS)
    parser.add_argument("--compile", action="store_true", help="let torch.compile fuse the engine's recorded passes")
    parser.add_argument("--vllm", action="store_true", help="also vLLM, where it is installed")
    parser.add_argument("--beside", type=int, default=scheduler._BESIDE, help="tokens read beside single ones, at most")
    parser.add_argument("--passes", action="store_true", help="also the engine's passes, by kind")
    parser.add_argument("--scale", type=float, default=1.0, help="shorter loads, for a look on a CPU")
    options = parser.parse_args()
    scheduler._BESIDE = options.beside
    vocab = common.SHAPES[options.model]["vocab_size"]
    loads = {name: LOADS[name].drawn(vocab, options.scale) for name in options.loads}
    print(common.machine())
    for name, conversations in loads.items():
        sizes = [sum(len(turn.observed) + turn.new for turn in turns) for turns in conversations]
        print(f"{name}: {len(sizes)} conversations, {min(sizes):,} to {max(sizes):,} tokens each")
    columns = (
        "model",
        "load",
        "side",
        "action tokens a second",
        "KV allocated, GiB",
        "live",
        "an early turn",
        "a late one",
    )
    speed, flops = (bandwidth(DEVICE), peak_flops(DEVICE, torch.bfloat16)) if options.passes else (0.0, 0.0)
    work = Work(common.random_model(options.model, device="meta"))
    for side, play in engines(options):
        print(f"\n| {' | '.join(columns)} |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        of_passes = []
        for name, conversations in loads.items():
            play(conversations)
            found = play(conversations)
            tokens = sum(turn.new for turns in conversations for turn in turns)
            late = max(turn for turn, _ in found.waited)
            first, last = (
                median([seconds for turn, seconds in found.waited if low <= turn <= high] or [0.0])
                for low, high in ((0, late // 3), (late - late // 3, late))
            )
            kv = " | ".join(f"{size:.2f}" if size else "" for size in found.kv)
            rate = f"{tokens / found.seconds:,.0f}"
            print(f"| {options.model} | {name} | {side} | {rate} | {kv} | {first:.2f} s | {last:.2f} s |", flush=True)
            if options.passes and found.passes:
                between = found.seconds - sum(took for _, took in found.passes)
                of_passes += [f"| {name} {line}" for line in rates(found.passes, work, speed, flops)]
                of_passes.append(f"| {name} | between passes | | {between:.1f} | | |")
        if of_passes:
            print(f"\ncopying reaches {speed / 1e12:.2f} TB/s, products {flops / 1e12:.0f} TFLOP/s")
            print("\n| load | passes | what | seconds | tokens a second | share |\n|---|---|---|---|---|---|")
            print("\n".join(of_passes), flush=True)
        del play  # the next side has the memory for itself


def _kv_width(config: Any) -> int:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_key_value_heads * head


if __name__ == "__main__":
    main()
