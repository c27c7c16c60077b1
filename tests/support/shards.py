"""A model in shards, each in a process of its own, and the same model whole; on a CPU, or on a card that they share.

What ranks do is here, as functions of this module: a process that is spawned finds them by name.
"""

import asyncio
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from longloop.algos.loop import Loop
from longloop.cluster.exchange import Exchange
from longloop.config import LearnerConfig, ModelConfig
from longloop.engines.engine import NativeEngine
from longloop.engines.orders import Follower, telling
from longloop.engines.passes import Eager
from longloop.learners.local import LocalLearner
from longloop.model.attention import VarlenPlan
from longloop.model.policy import Policy
from longloop.model.shards import Reader, Shards, cut, of_module
from longloop.types import Sample, UserError
from tests.support.families import CHAT, TOKENIZER, Again, Rehearsed, config, plain_module, policy_of, prompt, talk

RANK = 4
"""Of the adapters."""


def with_adapters(policy: Policy, seed: int = 5) -> Policy:
    """Both halves of each adapter are given numbers: the second begins at zero."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, p in sorted(policy.trainable().items()):
            p.copy_(torch.randn(p.shape, generator=chance) * 0.3)
    return policy


BIASED = "llama with biases"


def module_of(family: str) -> Any:
    """A small random model of a family; or a Llama that has biases where the others have none."""
    if family != BIASED:
        return plain_module(family)
    plain = config("llama").to_dict() | {"attention_bias": True, "mlp_bias": True}
    module = LlamaForCausalLM(LlamaConfig(**plain))
    torch.manual_seed(0)
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return module


def whole(family: str, device: str = "cpu") -> Policy:
    return with_adapters(policy_of(module_of(family), lora_rank=RANK, device=device))


def shard_of(family: str, exchange: Exchange, device: str = "cpu", kind: type[Shards] = Shards) -> Policy:
    """This rank's shard of the same model."""
    shards = kind(exchange.rank, exchange.count)
    settings = ModelConfig(device=device, dtype="float32", lora_rank=RANK)
    return with_adapters(Policy(cut(module_of(family), shards, of_module(shards)), TOKENIZER, settings, shards))


def frozen(policy: Policy) -> dict[str, Tensor]:
    """The model's own weights, by the names that they have without adapters."""
    found = {name: p for name, p in policy.module.named_parameters() if "lora_" not in name}
    return {name.replace(".base_layer", ""): p for name, p in found.items()}


# --- Both readers.


def logits(policy: Any, ids: Sequence[int]) -> np.ndarray:
    """Of two sequences end to end."""
    cut_at = len(ids) // 3
    position = [*range(cut_at), *range(len(ids) - cut_at)]
    plan = VarlenPlan([cut_at, len(ids) - cut_at])
    given = (torch.tensor(x, device=policy.device) for x in (ids, position))
    with torch.no_grad():
        return policy.logits(policy.hidden(*given, plan)).cpu().numpy()


def gradients(policy: Policy, rank: int) -> dict[str, np.ndarray]:
    """Of a micro-batch of the rank's own, of another length and with another number of chunks than the others'."""
    ids = torch.tensor(prompt(rank, 12 + 5 * rank), device=policy.device)
    hidden = policy.hidden(ids, torch.arange(len(ids), device=policy.device), VarlenPlan([len(ids)]))
    policy.score(hidden[:-1], ids[1:], 1.0, chunk=4)[0].sum().backward()
    return {name: p.grad.cpu().numpy() for name, p in policy.trainable().items() if p.grad is not None}


def read(exchange: Exchange, family: str, checkpointing: bool, device: str = "cpu") -> Any:
    """What the engine reads, what the learner reads, its gradients, and this rank's weights."""
    policy = shard_of(family, exchange, device)
    if checkpointing:
        policy.module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        policy.module.train()
    at = {name: p.data_ptr() for name, p in frozen(policy).items()}
    sampled, learned = logits(Reader(policy), prompt(9, 20)), logits(policy, prompt(9, 20))
    own = gradients(policy, exchange.rank)
    again = logits(Reader(policy), prompt(9, 20))
    assert at == {name: p.data_ptr() for name, p in frozen(policy).items()}, "a shard has moved"
    assert sampled.tobytes() == again.tobytes()
    return sampled, learned, own, {name: p.cpu().numpy() for name, p in frozen(policy).items()}


# --- The engine: one rank schedules, the other follows.

Said = list[list[tuple[list[int], list[float]]]]
"""The tokens and log-probs of each turn of each conversation."""
TALKS = {n: [20 + 30 * (n % 3), 5, 40] for n in range(8)}
"""Eight conversations, of which two begin alike: in six slots pages are shared, copied, given up and read again."""


def talks(engine: NativeEngine, lengths: dict[int, list[int]] = TALKS, tokens: int = 6) -> Said:
    """`tokens`: how many are sampled in each turn."""

    async def main() -> list[Any]:
        some = (talk(engine, f"s{n}", n // 2, heard, max_tokens=tokens) for n, heard in lengths.items())
        return await asyncio.gather(*some)

    return [[(one.ids.tolist(), one.logprobs.tolist()) for one in said] for said in asyncio.run(main())]


def samples(said: Said, lengths: dict[int, list[int]] = TALKS) -> list[Sample]:
    """Each turn with all that came before it."""
    found = []
    for (n, some), turns in zip(lengths.items(), said, strict=True):
        ids: list[int] = []
        for turn, (new, logprobs) in enumerate(turns):
            ids = [*ids, *prompt(100 * (n // 2) + turn, some[turn]), *new]
            mask = np.arange(len(ids)) >= len(ids) - len(new)
            sampled = np.concatenate([np.zeros(len(ids) - len(new)), logprobs])
            nothing = np.zeros(len(ids))
            found.append(Sample(np.array(ids), mask, sampled, nothing.astype(int), nothing, mask * 1.0))
    return found


def gap(policy: Policy, said: Said, lengths: dict[int, list[int]] = TALKS) -> float:
    """The most that a sampled log-prob differs from the learner's. All ranks call it at once."""
    learner = LocalLearner(policy, Loop().needs, LearnerConfig(micro_tokens=200), 1.0, 0)
    given = samples(said, lengths)
    both = zip(given, learner.logprobs(given), strict=True)
    return max(np.abs((one.logprobs - read)[one.mask]).max() for one, read in both)


def sampled(exchange: Exchange, family: str, device: str = "cpu") -> Any:
    """What is said with the weights as they are, and with others; and by how much the learner disagrees.

    The ranks that follow return the shape of a page, and how many bytes of the cache are left at the end.
    """
    orders = dist.new_group(list(range(exchange.count)), backend="gloo")
    policy = shard_of(family, exchange, device)
    engine = NativeEngine(Reader(policy), CHAT, slots=6)
    assert isinstance(engine._pass, Eager)
    with pytest.raises(UserError, match="connected by NCCL"):  # gloo cannot be recorded
        NativeEngine(Reader(policy), CHAT, graphs=True)
    held, done = list[tuple[int, ...]](), threading.Event()
    if exchange.rank:

        def obeyed(order: Any) -> None:
            if order is None:
                held.append(tuple(engine.cache.page(0).shape))
            engine.obey(order)
            if order is None:
                done.set()
            if len(held) == 2:
                sys.exit()  # ends this thread

        Follower(obeyed, orders, exchange.leave_word).ended = True
    else:
        engine.tell = telling(orders)
    found = []
    for seed in (5, 6):
        with_adapters(policy, seed)
        policy.version += 1
        dist.barrier()
        box: list[Any] = [None]
        if exchange.rank:
            assert done.wait(60)
            done.clear()
        else:
            box = [talks(engine)]
            engine.release()
        dist.broadcast_object_list(box, src=0)
        found.append((box[0], gap(policy, box[0])))
    return (held[0], engine.cache.bytes) if exchange.rank else found


def both_readers(exchange: Exchange, families: Sequence[str], device: str) -> dict[str, Any]:
    """`read` and `sampled`, for each family."""
    return {one: (read(exchange, one, False, device), sampled(exchange, one, device)) for one in families}


# --- Recorded passes.


class Counting(Shards):
    """Counts the sums that are taken while a pass is recorded."""

    counted = 0

    def total(self, x: Tensor) -> Tensor:
        self.counted += x.is_cuda and torch.cuda.is_current_stream_capturing()
        return super().total(x)


def again(engine: NativeEngine) -> NativeEngine:
    """The engine with passes that are done again, where there is no card to record them."""
    from longloop.engines.cuda_graphs import Graphs

    engine.cache._moves = False  # as on a card, where a page is one piece of memory
    engine._pass = Graphs(engine.model, engine.cache, engine.slots.count, engine._probed().group, Again)  # type: ignore[arg-type]
    return engine


def recorded(
    exchange: Exchange,
    family: str,
    device: str,
    compile: bool = False,
    lengths: dict[int, list[int]] = TALKS,
    tokens: int = 6,
) -> Any:
    """What a rank alone says by recorded passes; by how much the learner disagrees, with these weights and with others;
    how many passes were recorded, and how many sums while they were."""
    policy = shard_of(family, exchange, device, Shards if compile else Counting)
    engine = NativeEngine(Reader(policy), CHAT, slots=6, compile=compile)
    if device == "cpu":
        again(engine)
    said, gaps = list[Said](), list[float]()
    for seed in (5, 6):
        with_adapters(policy, seed)
        policy.version += 1
        said.append(talks(engine, lengths, tokens))
        gaps.append(gap(policy, said[-1], lengths))
    passes: Any = engine._pass
    made = len(passes._graphs)
    engine.release()
    engine.close()
    return said[0], gaps, made, getattr(policy.shards, "counted", 0)


def all_recorded(exchange: Exchange, families: Sequence[str], device: str) -> dict[str, Any]:
    """`recorded`, for each family."""
    return {one: recorded(exchange, one, device) for one in families}


def compiled(exchange: Exchange, family: str) -> Any:
    """What a rank says by plain passes, and by passes that are compiled and done again; and the compiled graphs."""
    from longloop.engines.cuda_graphs import Graphs

    policy = shard_of(family, exchange)
    plain = talks(NativeEngine(Reader(policy), CHAT, slots=4), {0: [5]})
    engine = again(NativeEngine(Reader(policy), CHAT, slots=4))

    class Compiled(Rehearsed):
        """What a card replays is what was compiled."""

        def replay(self) -> Any:
            with policy.compiled():
                return super().replay()

    graphs = list[str]()

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(str(graph.graph))
        return graph.forward

    made, how = torch.compile, {"backend": backend, "options": None}
    torch.compile = lambda call, **options: made(call, **options | how)  # type: ignore[assignment]
    group = engine._probed().group
    engine._pass = Graphs(engine.model, engine.cache, 4, group, Compiled, compile=True)  # type: ignore[arg-type]
    return plain, talks(engine, {0: [5]}), graphs


def recorded_together(exchange: Exchange, family: str, lengths: dict[int, list[int]], tokens: int) -> Any:
    """What two ranks say, of which the second would draw other tokens than the first."""
    orders = dist.new_group(list(range(exchange.count)))
    engine = again(NativeEngine(Reader(shard_of(family, exchange)), CHAT, slots=4))
    passes: Any = engine._pass
    if not exchange.rank:
        engine.tell = telling(orders)
        said = talks(engine, lengths, tokens)
        engine.release()
        return list(passes._graphs), said
    done = threading.Event()

    def obey(order: Any) -> None:
        if order is None:
            done.set()
            sys.exit()  # ends this thread
        else:
            temperature_R, top_p_R, uniform_R = order.numbers_PR
            engine.obey(replace(order, numbers_PR=np.stack([temperature_R, top_p_R, 1 - uniform_R])))

    Follower(obey, orders, exchange.leave_word).ended = True
    assert done.wait(60)
    return list(passes._graphs), None


# --- Memory.


def held(exchange: Exchange, device: str) -> tuple[int, int]:
    """The bytes that this rank's shard of a larger model takes on the device, and those of the whole model."""
    sizes: Any = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4, "vocab_size": 32768}
    module = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4))
    all_of_it = sum(p.nbytes for p in module.parameters())
    shards = Shards(exchange.rank, exchange.count)
    settings = ModelConfig(device=device, dtype="float32", lora_rank=RANK)
    some = torch.ones(256, 256, device=device)
    before = torch.cuda.memory_allocated() if (some @ some).is_cuda else 0  # with what products need to work in
    policy = Policy(cut(module, shards, of_module(shards)), TOKENIZER, settings, shards)
    if device == "cpu":
        return sum(p.nbytes for p in policy.module.parameters()), all_of_it
    return torch.cuda.memory_allocated() - before, all_of_it
