"""Where memory goes, measured; and whether the longest allowed trajectory will fit, before the first step.

Activations are counted as what autograd keeps for the backward pass, on two short sequences; they grow linearly with
the number of tokens, which gives the figure for the longest one. On a GPU that longest one is then run for real.
"""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from longloop.learners.local import LocalLearner
from longloop.types import Minibatch, Sample, UserError

_SHORT, _LONG = 64, 192
"""Tokens of the two measured sequences."""


@dataclass(frozen=True)
class Ledger:
    """Bytes, by what they are for."""

    weights: int
    adapters: int
    gradients: int
    optimiser: int
    second_copy: int
    activations: int
    """Of the largest micro-batch."""
    kv: int
    """Of all sessions at full length; given back before the update."""

    def __str__(self) -> str:
        parts = {name.replace("_", " "): size for name, size in asdict(self).items() if size}
        return ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in parts.items())

    @property
    def update(self) -> int:
        return self.weights + self.adapters + self.gradients + self.optimiser + self.second_copy + self.activations

    @property
    def collect(self) -> int:
        """While sampling there are no gradients and no activations worth the name."""
        return self.weights + self.adapters + self.optimiser + self.second_copy + self.kv

    @property
    def peak(self) -> int:
        return max(self.update, self.collect)


def ledger(learner: LocalLearner, longest: int, sessions: int) -> Ledger:
    """What a run will need when its longest trajectory has this many tokens and so many sessions are open."""
    trained = sum(p.nbytes for p in learner.parameters.values())
    everything = sum(p.nbytes for p in learner.policy.module.parameters())
    adapters = sum(p.nbytes for p in learner.policy.trainable().values()) if learner.policy.adapters else 0
    copy = learner.second_copy
    a, b = _activation_bytes(learner, _SHORT), _activation_bytes(learner, _LONG)
    per_token = (b - a) / (_LONG - _SHORT)
    tokens = max(longest, learner.config.micro_tokens)
    return Ledger(
        weights=everything - adapters,
        adapters=adapters,
        gradients=trained,
        optimiser=2 * trained + sum(master.nbytes for master in learner.masters.apart.values()),
        second_copy=0 if copy is None else sum(p.nbytes for p in copy.parameters()),
        activations=int(a + per_token * (tokens - _SHORT)),
        kv=kv_bytes_per_token(learner) * longest * sessions,
    )


def check(learner: LocalLearner, longest: int, sessions: int) -> Ledger:
    """Refuse a run whose longest trajectory would not fit, and say what to lower."""
    book = ledger(learner, longest, sessions)
    room = _available(learner.policy.device)
    needed = book.peak - book.weights - book.adapters - book.second_copy  # these are in memory already
    if needed > room:
        raise UserError(_advice(book, needed, room, longest))
    if learner.policy.device.type == "cuda":
        try:
            _backward(learner, longest)
        except torch.cuda.OutOfMemoryError:
            raise UserError(_advice(book, needed, room, longest)) from None
        finally:
            learner.optimiser.zero_grad()
            torch.cuda.empty_cache()
    return book


def kv_bytes_per_token(learner: LocalLearner) -> int:
    config = learner.policy.module.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * size * (2 if learner.policy.bf16 else 4)


def _activation_bytes(learner: LocalLearner, tokens: int) -> int:
    """What autograd keeps between forward and backward, each storage once, the weights not counted."""
    own = {p.untyped_storage().data_ptr() for p in learner.policy.module.parameters()}
    kept: dict[int, int] = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        _backward(learner, tokens)
    learner.optimiser.zero_grad()
    return sum(kept.values())


def _backward(learner: LocalLearner, tokens: int) -> None:
    """Forward and backward over one made-up sequence of which every token but the first is an action."""
    sample = Sample(
        ids=(1,) * tokens,
        mask=(0,) + (1,) * (tokens - 1),
        logprobs=(0.0,) * tokens,
        turns=(0,) * tokens,
        advantages=(1.0,) * tokens,
        weights=(1.0,) * tokens,
    )
    learner.gradient(Minibatch([sample], 1.0, step=1, on_policy=False), lambda s, b: (s.logp_N.sum(), {}))


def _available(device: torch.device) -> int:
    """Free bytes: of the card, or of the machine within its control group's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else ():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free


def _advice(book: Ledger, needed: int, room: int, longest: int) -> str:
    def gib(n: float) -> str:
        return f"{n / 2**30:.1f} GiB"

    lower = (
        "rollout.concurrency or rollout.context"
        if book.collect > book.update
        else "rollout.context or learner.micro_tokens, set learner.checkpointing=true, or train adapters "
        "(model.lora_rank=16)"
    )
    return (
        f"A trajectory of {longest} tokens will not fit: it needs {gib(needed)} and {gib(room)} are free (gradients "
        f"{gib(book.gradients)}, optimiser {gib(book.optimiser)}, activations {gib(book.activations)}, KV cache "
        f"{gib(book.kv)}). Lower {lower}."
    )
