"""Where the memory of a LOOP update goes, and whether it is that of a supervised step on the same tokens.

    .venv/bin/python benchmarks/memory_ledger.py [--model 135m|small] [--trajectories 4] [--tokens 256]

Prints three Markdown tables for docs/memory.md. The ledger is what `longloop.memory.forecast` foresees.

The peaks of the second table are the process's own (VmHWM, less what the imports took), each in a process of its own,
for two updates in a row, so that the optimizer's state is there when the second one's activations are. Each is taken
twice: as it is, and with every large block returned to the system as soon as it is freed (slow, but then the peak is
memory in use, and the difference is what glibc's malloc keeps). The steps:

    loop                a LOOP update, by the learner
    supervised          the negative log-likelihood of the same action tokens, by the same learner
    transformers        the same without longloop: model(input_ids, labels=labels).loss, AdamW (and peft for LoRA)

The third holds the forecast against small models of other shapes. There the real peak is what is held between updates
(weights, adapters, moments) and, above it, the most that the second of two updates of three micro-batches had at once
of what it allocated: torch's profiler notes every block that its allocator takes and gives back.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import common
import torch

STEPS = {
    "loop": "LOOP update",
    "supervised": "supervised step, same learner",
    "transformers": "supervised step, transformers alone",
}
RANKS = (0, 16)
"""Full fine-tuning, and LoRA."""
SIZES = {
    "Llama, tied": ("llama", 2048, 128, 384, 4, 8, 2, True),
    "Llama, large vocabulary, untied": ("llama", 16000, 128, 384, 4, 8, 2, False),
    "Qwen2.5, untied": ("qwen2", 3000, 192, 768, 3, 6, 2, False),
    "Qwen3, tied": ("qwen3", 8000, 160, 480, 5, 5, 1, True),
    "Gemma 3, tied": ("gemma3_text", 6000, 128, 512, 4, 4, 2, True),
}
"""Of the third table: type, vocabulary, hidden, MLP, layers, heads, key/value heads, whether the head is tied."""
TOKENS, CHUNK = 512, 128
"""Of a micro-batch there, and of the logits at once."""
TURN = 32
"""Observed and sampled tokens of a turn, in turns: half of all tokens are trained on."""


def made_up(count: int, tokens: int, vocab: int) -> list[Any]:
    """Samples of random ids, with both signs of advantage."""
    from longloop.types import Sample, SampleSource

    draw = random.Random(0)
    mask = tuple(i // TURN % 2 for i in range(tokens))
    return [
        Sample(
            ids=tuple(draw.randrange(vocab) for _ in range(tokens)),
            mask=mask,
            logprobs=(0.0,) * tokens,
            turns=tuple(i // (2 * TURN) for i in range(tokens)),
            advantages=tuple((-1.0) ** number * chosen for chosen in mask),
            weights=tuple(chosen / sum(mask) for chosen in mask),
            source=SampleSource(0, number),
        )
        for number in range(count)
    ]


def learner_for(shape: str, rank: int, micro_tokens: int) -> Any:
    from longloop.algos.loop import Loop
    from longloop.config import LearnerConfig
    from longloop.learners.local import LocalLearner

    policy = common.policy(common.random_model(shape), lora_rank=rank)
    # Half of all tokens are trained on, and scored in one chunk: the ledger then counts no larger one.
    config = LearnerConfig(micro_tokens=micro_tokens, chunk=micro_tokens // 2)
    return LocalLearner(policy, Loop().needs, config, temperature=1.0, seed=0)


def kv_bytes(learner: Any, sessions: int, tokens: int) -> int:
    """What the engine holds when so many sessions have so many tokens."""
    from longloop.engines.engine import NativeEngine
    from longloop.tokens.chat import Chat
    from longloop.types import SamplingParams

    engine = NativeEngine(learner.policy, Chat(learner.policy.tokenizer), slots=sessions)

    async def fill() -> None:
        params = SamplingParams(max_tokens=1)
        await asyncio.gather(*(engine.sample([n] * (tokens - 1), params, session=str(n)) for n in range(sessions)))

    asyncio.run(fill())
    return engine.cache.bytes


def measure(options: argparse.Namespace) -> dict[str, int]:
    """One column of a table, in this process."""
    from longloop.algos.loop import Loop
    from longloop.memory import forecast
    from longloop.types import Minibatch

    if options.lora:
        import peft  # noqa: F401

    imports = common.resident_bytes()
    samples = made_up(options.trajectories, options.tokens, common.SHAPES[options.model]["vocab_size"])
    if options.only == "transformers":
        plain_steps(options, samples)
        return {"peak": common.peak_bytes() - imports}
    learner = learner_for(options.model, options.lora, options.trajectories * options.tokens)
    if options.only == "ledger":
        policy = learner.policy
        asked = (policy.module.config, policy.config, learner.config, learner.needs)
        book = forecast.forecast(*asked, options.tokens, options.trajectories)
        return book.to_json() | {"kv_held": kv_bytes(learner, options.trajectories, options.tokens)}
    for step in (1, 2):
        now = learner.logprobs(samples)
        batch = [replace(sample, logprobs=row) for sample, row in zip(samples, now, strict=True)]
        minibatch = Minibatch(batch, float(len(batch)), step, on_policy=True)
        loss = Loop().loss if options.only == "loop" else likelihood
        assert not learner.update(minibatch, loss).stop
    return {"peak": common.peak_bytes() - imports}


def likelihood(scored: Any, batch: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """A supervised loss in the learner's terms."""
    return -(batch.weight_N * scored.logp_N).sum(), {}


def plain_steps(options: argparse.Namespace, samples: list[Any]) -> None:
    """Two supervised steps as one writes them with transformers alone."""
    model: Any = common.random_model(options.model)
    if options.lora:
        from peft import LoraConfig, get_peft_model

        from longloop.model.policy import _LORA_TARGETS

        targets = LoraConfig(r=options.lora, lora_alpha=32, lora_dropout=0.0, target_modules=_LORA_TARGETS)
        model = get_peft_model(model, targets)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-5)
    ids = torch.tensor([sample.ids.tolist() for sample in samples])
    labels = ids.where(torch.tensor([sample.mask.tolist() for sample in samples]), -100)
    for _ in range(2):
        model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(common.SHAPES), default="135m")
    parser.add_argument("--trajectories", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256, help="of each trajectory")
    parser.add_argument("--lora", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only:
        print(json.dumps(measure(options)))
        return
    shared = ["--model", options.model, "--trajectories", str(options.trajectories), "--tokens", str(options.tokens)]

    def column(what: str, rank: int, **variables: str) -> dict[str, int]:
        arguments = [*shared, "--only", what, "--lora", str(rank)]
        return json.loads(common.run_alone(__file__, *arguments, **variables).splitlines()[-1])

    books = {rank: column("ledger", rank) for rank in RANKS}
    tokens = f"{options.trajectories} x {options.tokens} tokens"
    print(f"{common.machine()}\n\nModel {options.model}, float32, {tokens}, half of them trained on; MB.\n")
    print_ledger(books)
    peaks = {
        (step, rank, exact): column(step, rank, **({"MALLOC_MMAP_THRESHOLD_": "65536"} if exact else {}))["peak"]
        for rank in RANKS
        for step in STEPS
        for exact in (False, True)
    }
    print_peaks(peaks, {rank: book["update"] for rank, book in books.items()})
    print_forecasts()


def print_forecasts() -> None:
    print(f"| {TOKENS} tokens a micro-batch, chunks of {CHUNK}; MB | trained | activations | real | foreseen | ratio |")
    print("|---|---|---|---:|---:|---:|")
    for name in SIZES:
        for rank in RANKS:
            for checkpointing in (False, True):
                real, foreseen = both(name, rank, checkpointing)
                print(
                    f"| {name} | {f'LoRA r={rank}' if rank else 'full'} | {'recomputed' if checkpointing else 'kept'} "
                    f"| {real / 1e6:.1f} | {foreseen / 1e6:.1f} | {foreseen / real:.3f} |"
                )


def both(name: str, rank: int, checkpointing: bool) -> tuple[int, int]:
    """The real peak of an update of a small random model, and the one that was foreseen."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from longloop.algos.loop import Loop
    from longloop.config import LearnerConfig, ModelConfig
    from longloop.learners.local import LocalLearner
    from longloop.memory import forecast
    from longloop.model.policy import Policy
    from longloop.types import Minibatch

    family, vocabulary, hidden, mlp, layers, heads, kv_heads, tied = SIZES[name]
    shape = AutoConfig.for_model(
        family,
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=tied,
        **({"head_dim": 32} if family != "llama" else {}),
        **({"sliding_window": 100} if family == "gemma3_text" else {}),
        **{"bos_token_id": None, "eos_token_id": None, "pad_token_id": None},
    )
    torch.manual_seed(0)
    algo, model = Loop(kl_guard=1e9), ModelConfig(device="cpu", dtype="float32", lora_rank=rank)
    config = LearnerConfig(micro_tokens=TOKENS, chunk=CHUNK, checkpointing=checkpointing)
    policy = Policy(AutoModelForCausalLM.from_config(shape), None, model)
    learner = LocalLearner(policy, algo.needs, config, temperature=1.0, seed=0)
    minibatch = Minibatch(made_up(3, TOKENS, vocabulary), 3.0, step=1, on_policy=False)
    assert not learner.update(minibatch, algo.loss).stop
    moments = [x for state in learner.optimizer.state.values() for x in state.values()]
    held = sum(x.nbytes for x in [*policy.module.parameters(), *moments])
    real = held + allocated(lambda: learner.update(minibatch, algo.loss))
    return real, forecast.forecast(shape, model, config, algo.needs, TOKENS, sessions=1).update


def allocated(work: Callable[[], object]) -> int:
    """The most bytes that work had at once of what it allocated, by torch's own record."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def print_ledger(books: dict[int, dict[str, int]]) -> None:
    print("| ledger | full fine-tuning | LoRA r=16 |\n|---|---:|---:|")
    rows = {
        "weights": "weights",
        "adapters": "adapters",
        "masters": "float32 masters (none in float32)",
        "gradients": "gradients",
        "optimizer": "optimizer (two moments)",
        "second_copy": "second copy for a reference policy (LOOP has none)",
        "activations": "activations",
        "working": "working memory",
        "update": "**update, in all**",
        "kv": "KV cache while sampling",
        "kv_held": "KV cache, as the engine held it",
    }
    for key, title in rows.items():
        print(f"| {title} | {books[0][key] / 1e6:,.0f} | {books[16][key] / 1e6:,.0f} |")
    print()


def print_peaks(peaks: dict[tuple[str, int, bool], int], ledger: dict[int, int]) -> None:
    heads = [f"{name}, {kind}" for name in ("full", "LoRA") for kind in ("resident", "in use")]
    print(f"| peak of a step, less the imports | {' | '.join(heads)} |\n|---|---:|---:|---:|---:|")
    columns = [(rank, exact) for rank in RANKS for exact in (False, True)]

    def row(title: str, cells: list[str]) -> None:
        print(f"| {title} | {' | '.join(cells)} |")

    for step, title in STEPS.items():
        row(title, [f"{peaks[step, *at] / 1e6:,.0f}" for at in columns])
    for step in list(STEPS)[1:]:
        row(f"LOOP / {STEPS[step]}", [f"{peaks['loop', *at] / peaks[step, *at]:.2f}" for at in columns])
    row("LOOP / its ledger", [f"{peaks['loop', *at] / ledger[at[0]]:.2f}" for at in columns])
    print()


if __name__ == "__main__":
    main()
