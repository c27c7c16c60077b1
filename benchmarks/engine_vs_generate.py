"""The native engine against transformers' `generate()` on the same multi-turn load.

    .venv/bin/python benchmarks/engine_vs_generate.py [--model small|135m|7b] [--repeats 5] [--threads 1]
    python benchmarks/engine_vs_generate.py --device cuda --model 135m --episodes 64 --turns 10 --new 40 --observed 150

Every side samples exactly so many new tokens a turn at temperature 1 and returns their log-probs; what is observed
between the turns is fixed beforehand. The sides:

    engine          one asyncio task per episode, as rollouts are run
    generate        one left-padded batch of all conversations per turn, KV cache within the turn
    generate+cache  the same, with the DynamicCache kept between turns (few do this; it needs padding inside the row)
"""

import argparse
import asyncio
import functools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import common
import torch
from transformers import DynamicCache

from longloop.engines import passes
from longloop.engines.engine import NativeEngine
from longloop.engines.reading import Reading
from longloop.tokens.chat import Chat
from longloop.types import SamplingParams

Episode = tuple[list[int], list[float]]
"""All ids of a conversation, and the log-probs of the sampled ones."""


def observations(episodes: int, turns: int, many: int, vocab: int) -> list[list[list[int]]]:
    """[episode][turn] -> the ids that arrive before that turn, so many on average. No two episodes share an opening."""
    draw = random.Random(0)
    low, high = many * 4 // 5, many * 6 // 5
    return [
        [[draw.randrange(16, vocab - 16) for _ in range(draw.randint(low, high))] for _ in range(turns)]
        for _ in range(episodes)
    ]


def run_engine(
    engine: NativeEngine, new: int, seen: list[list[list[int]]], by_turn: dict[int, list[float]] | None = None
) -> list[Episode]:
    """`by_turn` takes down how long each episode waited for each of its turns."""

    async def episode(number: int) -> Episode:
        ids: list[int] = []
        logprobs: list[float] = []
        for turn, more in enumerate(seen[number]):
            ids += more
            start = time.perf_counter()
            params = SamplingParams(max_tokens=new, seed=1000 * number + turn)
            sampled = await engine.sample(ids, params, session=str(number))
            if by_turn is not None:
                by_turn.setdefault(turn, []).append(time.perf_counter() - start)
            ids += sampled.ids.tolist()
            logprobs += sampled.logprobs.tolist()
        engine.forget(str(number))
        return ids, logprobs

    async def everyone() -> list[Episode]:
        return await asyncio.gather(*(episode(number) for number in range(len(seen))))

    result = asyncio.run(everyone())
    engine.release()
    return result


@torch.inference_mode()
def run_generate(module: Any, new: int, seen: list[list[list[int]]], keep_cache: bool) -> list[Episode]:
    """Turn by turn, all conversations in one batch."""
    result: list[Episode] = [([], []) for _ in seen]
    row_BT = mask_BT = torch.zeros(len(seen), 0, dtype=torch.long)
    cache = DynamicCache(config=module.config) if keep_cache else None
    for turn in range(len(seen[0])):
        for (ids, _), more in zip(result, seen, strict=True):
            ids += more[turn]
        if keep_cache:  # the row only grows: what is new is padded to one width and put behind what was read
            more_BT, more_mask_BT = left_padded([more[turn] for more in seen])
            row_BT, mask_BT = torch.cat([row_BT, more_BT], 1), torch.cat([mask_BT, more_mask_BT], 1)
        else:
            row_BT, mask_BT = left_padded([ids for ids, _ in result])
        out = module.generate(
            row_BT.to(module.device),
            attention_mask=mask_BT.to(module.device),
            past_key_values=cache,
            **common.generate_options(new),
        )
        new_BN = out.sequences[:, row_BT.shape[1] :]
        chosen = zip(out.logits, new_BN.T[..., None], strict=True)
        logp_BN = torch.cat([logits.float().log_softmax(-1).gather(1, new) for logits, new in chosen], 1)
        for (ids, logprobs), said, logp in zip(result, new_BN.tolist(), logp_BN.tolist(), strict=True):
            ids += said
            logprobs += logp
        row_BT = out.sequences.cpu()
        mask_BT = torch.cat([mask_BT, torch.ones(new_BN.shape, dtype=torch.long)], 1)
    return result


def left_padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


@torch.inference_mode()
def check(module: Any, new: int, seen: list[list[list[int]]], episodes: list[Episode]) -> float:
    """Every side did the work: the right ids in the right places, and log-probs that a plain forward pass confirms."""
    worst = 0.0
    for (ids, logprobs), turns in zip(episodes[::8], seen[::8], strict=True):
        logp = module(torch.tensor([ids], device=module.device)).logits[0].float().log_softmax(-1).cpu()
        at, sampled = 0, []
        for more in turns:
            assert ids[at : at + len(more)] == more
            at += len(more) + new
            sampled += range(at - new, at)
        assert at == len(ids) and len(sampled) == len(logprobs)
        gaps = (torch.tensor(logprobs) - torch.stack([logp[i - 1, ids[i]] for i in sampled])).abs()
        exact = module.dtype == torch.float32
        worst = max(worst, (gaps.max() if exact else gaps.mean()).item())
    assert worst < (1e-3 if exact else 0.05), f"log-probs are off by {worst}"
    return worst


@contextmanager
def stopwatch(*places: tuple[Any, str]) -> Iterator[dict[str, float]]:
    """Seconds spent in each method, callees included."""
    seconds: dict[str, float] = defaultdict(float)

    def timed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                seconds[name] += time.perf_counter() - start

        return call

    before = [(owner, name, name in vars(owner), getattr(owner, name)) for owner, name in places]
    for owner, name, _, function in before:
        setattr(owner, name, timed(function, name))
    yield seconds
    for owner, name, its_own, function in before:
        if its_own:
            setattr(owner, name, function)
        else:
            delattr(owner, name)


def shares(engine: NativeEngine, new: int, seen: list[list[list[int]]]) -> dict[str, float]:
    """Where the engine's time goes, as shares of the whole."""
    model = engine.model
    places = [(Reading, "attend"), (model, "hidden"), (model, "logits"), (passes, "draw"), (engine, "_begin")]
    start = time.perf_counter()
    with stopwatch(*places) as spent:
        run_engine(engine, new, seen)
    whole = time.perf_counter() - start
    parts = {
        "forward without attention": spent["hidden"] - spent["attend"],
        "attention and KV writes": spent["attend"],
        "language-model head": spent["logits"],
        "sampling": spent["draw"],
        "engine's own Python, before": spent["_begin"] - spent["hidden"] - spent["logits"] - spent["draw"],
        "after, asyncio and episodes": whole - spent["_begin"],
    }
    return {name: seconds / whole for name, seconds in parts.items()}


def sides(
    shape: str, episodes: int, new: int, device: str, compile: bool, only: str = ""
) -> dict[str, Callable[[list[list[list[int]]]], list[Episode]]]:
    """What to time, by name. `only`: build no more than this one needs."""
    made: dict[str, Callable[[list[list[list[int]]]], list[Episode]]] = {}
    if only in ("", "engine"):
        policy = common.policy(common.random_model(shape, device=device))
        engine = NativeEngine(policy, Chat(policy.tokenizer), slots=episodes, compile=compile)
        made["engine"] = functools.partial(run_engine, engine, new)
    if only != "engine":
        module = common.random_model(shape, device=device)
        made["generate"] = functools.partial(run_generate, module, new, keep_cache=False)
        made["generate+cache"] = functools.partial(run_generate, module, new, keep_cache=True)
    return {name: run for name, run in made.items() if only in ("", name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(common.SHAPES), default="small")
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--new", type=int, default=32, help="tokens sampled a turn")
    parser.add_argument("--observed", type=int, default=40, help="tokens observed before a turn, on average")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="let torch.compile fuse the engine's recorded pass")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of torch; more than one suffers on a shared machine")
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)  # one side, once: prints its peak memory
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seen = observations(options.episodes, options.turns, options.observed, common.SHAPES[options.model]["vocab_size"])
    runs = sides(options.model, options.episodes, options.new, options.device, options.compile, options.only)
    if options.only:
        before = common.resident_bytes()
        runs[options.only](seen)
        print(before, common.peak_bytes())
        return
    print(common.machine())
    tokens = options.episodes * options.turns * options.new
    print(
        f"{options.model}: {options.episodes} episodes, {options.turns} turns, {options.new} new and "
        f"{options.observed} observed tokens a turn, {tokens} new in all"
    )

    module = common.random_model(options.model, device=options.device)
    for name, run in runs.items():  # warms up, too
        print(f"{name}: log-probs agree with a plain forward pass to {check(module, options.new, seen, run(seen)):.1e}")
    took = common.alternate({name: functools.partial(run, seen) for name, run in runs.items()}, options.repeats)

    print(f"\n{'':16}{'tokens a second':>26}{'engine faster by':>24}{'by CPU time':>22}")
    for name in runs:
        rate = common.median_range([tokens / each.wall for each in took[name]])
        wall, cpu = common.ratios(took[name], took["engine"])
        print(f"{name:16}{rate:>26}{common.median_range(wall):>24}{common.median_range(cpu):>22}", flush=True)
    engine = runs["engine"].args[0]
    by_turn: dict[int, list[float]] = {}
    vocab = common.SHAPES[options.model]["vocab_size"]
    for _ in range(2):  # the first time, passes of new sizes are recorded
        by_turn.clear()
        run_engine(
            engine, options.new, observations(options.episodes, 2 * options.turns, options.observed, vocab), by_turn
        )
    print(f"\nmilliseconds a turn takes, from the first to number {2 * options.turns}: ", end="")
    print(", ".join(f"{1000 * median(seconds):.0f}" for seconds in by_turn.values()), flush=True)

    arguments = ["--model", options.model, "--episodes", options.episodes, "--turns", options.turns]
    arguments += ["--threads", options.threads, "--new", options.new, "--observed", options.observed]
    arguments += ["--device", options.device, *(["--compile"] if options.compile else [])]
    for name in runs:
        before, peak = map(int, common.run_alone(__file__, "--only", name, *map(str, arguments)).split())
        print(f"{name}: peak {peak / 1e6:.0f} MB, of it work {(peak - before) / 1e6:.0f}", flush=True)
    if options.device != "cpu":
        return
    print("\nwhere the engine's time goes:")
    for name, share in shares(engine, options.new, seen).items():
        print(f"  {name:28}{share:6.1%}")


if __name__ == "__main__":
    main()
