"""Forecasts where memory goes, and whether the longest allowed trajectory will fit, before the first step.

It runs the learner's own update on tensors without content (shapes.py), at the full length of the largest micro-batch,
and counts every tensor from the operation that returns it until it is freed. So what is kept for the backward pass and
what an operation needs while it runs are those of the real update, though nothing is computed and no weight is read. It
does not see what a kernel allocates internally, nor what an allocator keeps for later. On a GPU the longest trajectory
is then also run for real.

Private here: `torch.utils._python_dispatch`, `torch.utils._pytree` and `Storage._cdata`, with which torch's own tools
follow operations and tell storages apart.
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedConfig

from longloop.config import ALONE, Config, LearnerConfig, ModelConfig, RanksConfig
from longloop.engines.pages import PAGE, most_pages
from longloop.engines.vllm import is_here
from longloop.learners.local import LocalLearner
from longloop.learners.shares import waiting_sums
from longloop.memory.shapes import Blank, weightless
from longloop.model.policy import Policy
from longloop.model.quantized import BYTES, matrices
from longloop.types import Batch, Metrics, Minibatch, Needs, Sample, Scored, UserError

_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux shows the control groups, and which of them hold this process. In a container its path may be one of the
machine's that is not there; its group is then shown as the root."""

SampledBy = Literal["learner", "server here", "server elsewhere"]
"""Whose weights sample: the learner's own, or those of a server, on this machine or on another."""

_FOLLOWED = 2**17
"""Tokens up to which a micro-batch is followed; a larger one is extrapolated, since memory grows linearly there."""


@dataclass(frozen=True)
class Ledger:
    """Bytes, by what they are for."""

    weights: int
    adapters: int
    fp32_weights: int
    """The float32 copies of what is trained, where the model itself is in bfloat16."""
    gradients: int
    """With adapters, one for each level of the tree in which the shares of a mini-batch are added up, too."""
    optimizer: int
    second_copy: int
    """The reference policy of an algorithm that needs one, where there are no adapters to turn off; and the weights of
    a server on this machine that samples."""
    activations: int
    """What the largest micro-batch keeps for its backward pass."""
    working: int
    """What operations need beyond that while they run, at the worst moment of forward and backward."""
    kv: int
    """Of all sessions at full length, or of engine.tokens; given back before the update. A server's is its own."""
    copies: float = 1.0
    """Copies of the model's weights that all ranks hold together."""

    def __str__(self) -> str:
        parts = {name.replace("_", " "): size for name, size in self._bytes().items() if size}
        said = ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in parts.items())
        return said if self.copies == 1 else f"{said}; {self.copies_in_words}"

    @property
    def copies_in_words(self) -> str:
        return f"copies of the weights on all ranks: {self.copies:.2f}"

    @property
    def held(self) -> int:
        """What is held from the first update to the last."""
        return self.weights + self.adapters + self.fp32_weights + self.optimizer + self.second_copy

    @property
    def update(self) -> int:
        """What an update with several micro-batches needs at its worst moment: it holds gradients meanwhile."""
        return self.held + self.gradients + self.activations + self.working

    @property
    def collect(self) -> int:
        """What sampling needs: no gradients, and hardly any activations."""
        return self.held + self.kv

    @property
    def peak(self) -> int:
        return max(self.update, self.collect)

    @property
    def to_come(self) -> int:
        """What a run still needs once the model is loaded."""
        return self.peak - self.weights - self.adapters - self.fp32_weights - self.second_copy

    def _bytes(self) -> dict[str, int]:
        return {name: size for name, size in asdict(self).items() if name != "copies"}

    def to_json(self) -> dict[str, int]:
        return self._bytes() | {"update": self.update, "collect": self.collect, "peak": self.peak}


def forecast(
    shape: PreTrainedConfig,
    model: ModelConfig,
    config: LearnerConfig,
    needs: Needs,
    longest: int,
    sessions: int,
    kv_tokens: int = 0,
    ranks: RanksConfig = ALONE,
    sampled: SampledBy = "learner",
) -> Ledger:
    """What each rank needs to train a model of this shape if its longest trajectory has `longest` tokens.

    kv_tokens: the engine's limit to the tokens whose keys and values it holds; 0 for none.
    """
    try:
        learner = weightless(shape, model, config, needs, ranks)
        forward, peak = _followed(learner, longest)
    except (NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"The memory of a model of type {shape.model_type!r} cannot be forecast: it does not run on tensors "
            f"without content ({str(error).strip().splitlines()[0]}). Set learner.memory_check=false to train it "
            "without a forecast."
        ) from error
    policy, copy, heads = learner.policy, learner.second_copy, learner.heads.values()
    trained = _bytes(learner.parameters.values())
    adapters = _bytes(policy.trainable().values()) if policy.adapters else 0
    weights = whole = _bytes(policy.module.parameters()) - adapters
    if model.quantize:
        frozen = [linear.weight for _, _, linear in matrices(policy.module) if not linear.weight.requires_grad]
        weights -= _bytes(frozen) - round(sum(weight.numel() for weight in frozen) * BYTES)
        peak += max((weight.nbytes for weight in frozen), default=0)  # unpacked for a product
    pages = kv_pages(longest, sessions, kv_tokens) if sampled == "learner" else 0
    return Ledger(
        weights=weights + sum(_bytes(head.parameters()) for head in heads),
        adapters=adapters,
        fp32_weights=_bytes(learner.fp32_weights.apart.values()),
        gradients=trained * (1 + waiting_sums(learner.shares)),
        optimizer=2 * (trained - _bytes(learner.elsewhere.values())),
        second_copy=(_bytes(copy.parameters()) if copy else 0) + (whole if sampled == "server here" else 0),
        activations=forward - trained,
        working=peak - forward,
        kv=_kv_bytes_per_token(shape, policy.bf16) * PAGE * pages // ranks.shard,
        copies=ranks.count * whole / _whole_bytes(policy),
    )


def check(
    learner: LocalLearner, longest: int, sessions: int, kv_tokens: int = 0, sampled: SampledBy = "learner"
) -> Ledger:
    """Refuse a run whose longest trajectory would not fit, and say what to lower."""
    policy, needs = learner.policy, learner.needs
    shape, model, config, ranks = policy.module.config, policy.config, learner.config, learner.ranks_config
    described = (shape.to_json_string(), *(one.model_dump_json() for one in (model, config, ranks)))
    asked = (*described, needs.heads, needs.reference, tuple(needs.of_logits.items()))
    asked += longest, sessions, kv_tokens, sampled
    if asked not in _forecasts:
        _forecasts[asked] = forecast(shape, model, config, needs, longest, sessions, kv_tokens, ranks, sampled)
    book = _forecasts[asked]
    room = available(policy.device)
    needed = book.to_come
    if needed > room:
        raise UserError(_advice(book, needed, room, longest))
    if policy.device.type == "cuda":
        try:
            learner.gradient(_made_up(_lengths(longest, max(longest, learner.config.micro_tokens))), _loss)
        except torch.cuda.OutOfMemoryError:
            raise UserError(_advice(book, needed, room, longest)) from None
        finally:
            learner.optimizer.zero_grad()
            torch.cuda.empty_cache()
    return book


_forecasts: dict[tuple[object, ...], Ledger] = {}
"""What was forecast before a run. In one process, such as that of a comparison, most runs ask for the same again."""


def limits(config: Config) -> tuple[int, int, int]:
    """Limits to what a run's KV cache holds: tokens of a session, sessions, tokens in all (0 for none). A slot of the
    engine holds a session; there are as many slots as attempts at once, unless engine.slots is set."""
    engine, rollout = config.engine, config.rollout
    return rollout.context, engine.get("slots", rollout.concurrency), engine.get("tokens", 0)


def sampled_by(engine: Mapping[str, Any]) -> SampledBy:
    """Who samples for a run with this `[engine]` table: one with an address is a server."""
    if not engine.get("url"):
        return "learner"
    return "server here" if is_here(engine["url"]) else "server elsewhere"


def available(device: torch.device) -> int:
    """Free bytes of the card, or of the machine within the limits of this process's control groups."""
    if device.type == "cuda":
        if (device.index or 0) >= torch.cuda.device_count():
            raise UserError(f"There is no device {str(device)!r} here. Give a card's memory with --gpu-gib.")
        torch.cuda.empty_cache()  # what an earlier run of this process had is free
        return torch.cuda.mem_get_info(device)[0]
    return min([psutil.virtual_memory().available, *_left_by_groups()])


def _left_by_groups() -> Iterator[int]:
    """What each control group leaves that has a limit, from the process's own up to the root, in version 1 or 2. Of
    what it uses, the files that were read and are not in use do not count: they make room."""
    for line in _OWN_GROUPS.read_text().splitlines() if _OWN_GROUPS.exists() else ():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            top, names = _GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        elif not controllers:
            top, names = _GROUPS, ("memory.max", "memory.current", "inactive_file")
        else:
            continue
        limit, used, unused = names
        own = top / path.lstrip("/")
        for group in (own, *own.parents):
            with suppress(OSError, ValueError):  # of one without a limit, and above the top
                left = int((group / limit).read_text()) - int((group / used).read_text())
                stat = group / "memory.stat"
                numbers = dict(line.split() for line in stat.read_text().splitlines()) if stat.exists() else {}
                yield left + int(numbers.get(unused, 0))


class _Live(TorchDispatchMode):
    """Counts the bytes of every storage from the operation that returns it until it is freed."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        # Storages are told apart by addresses, which are reused: each is removed when it is freed.
        self._seen: dict[int, Any] = {x.untyped_storage()._cdata: None for x in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self._count(x.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._seen:
            return

        def gone(_: object) -> None:
            self.bytes -= size
            del self._seen[address]

        self._seen[address] = weakref.ref(storage, gone)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)


def _followed(learner: LocalLearner, longest: int) -> tuple[int, int]:
    """Bytes besides the weights in the largest micro-batch: after its forward pass, and at the worst moment."""
    tokens = max(longest, learner.config.micro_tokens)
    if tokens <= _FOLLOWED:
        return _follow(learner, _lengths(longest, tokens))
    half, whole = (_follow(learner, _lengths(longest, part)) for part in (_FOLLOWED // 2, _FOLLOWED))
    times = tokens / _FOLLOWED * 2 - 2
    forward, peak = (int(b + (b - a) * times) for a, b in zip(half, whole, strict=True))
    return forward, peak


def _follow(learner: LocalLearner, lengths: list[int]) -> tuple[int, int]:
    """The same for one micro-batch, with the gradients of earlier ones held."""
    forward = 0

    def loss(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        nonlocal forward
        forward = live.bytes
        return _loss(scored, batch)

    own = [*learner.policy.module.parameters(), *learner.policy.module.buffers(), *learner.parameters.values()]
    with Blank(), _Live(own) as live:
        for parameter in learner.parameters.values():
            parameter.grad = torch.empty_like(parameter)
        learner.gradient(_made_up(lengths), loss)
    learner.optimizer.zero_grad()
    return forward, live.peak


def _lengths(longest: int, tokens: int) -> list[int]:
    """Lengths of the sequences in a micro-batch of so many tokens: as few and as equal as possible."""
    count = -(-tokens // longest)
    return [tokens // count] * count


def _made_up(lengths: Sequence[int]) -> Minibatch:
    """Sequences in which every token but the first is an action; so they have no opening to share."""
    samples = [
        Sample(
            ids=np.ones(tokens, np.int64),
            mask=np.arange(tokens) > 0,
            logprobs=np.zeros(tokens),
            turns=np.zeros(tokens, np.int64),
            advantages=np.ones(tokens),
            weights=np.ones(tokens),
        )
        for tokens in lengths
    ]
    return Minibatch(samples, 1.0, step=1, on_policy=False)


def _loss(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
    """A loss that has a gradient for all that is trained."""
    return scored.logp_N.sum() + sum(value_N.sum() for value_N in scored.heads.values()), {}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def kv_pages(longest: int, sessions: int, tokens: int) -> int:
    """The most pages of the KV cache: at least those of the longest trajectory, which the limit does not hold up."""
    return max(most_pages(sessions, longest, tokens), most_pages(1, longest, 0))


def kv_tokens(book: Ledger, room: int, longest: int, sessions: int, tokens: int) -> int:
    """For how many tokens a KV cache has room, if `book` was made for these limits."""
    return max(0, room * kv_pages(longest, sessions, tokens) // book.kv - 1) * PAGE


def _whole_bytes(policy: Policy) -> int:
    """What the model's weights take where they are whole, without adapters."""
    frozen = [p for name, p in policy.module.named_parameters() if "lora_" not in name]
    if policy.shards is None:
        return _bytes(frozen)
    return _bytes(frozen) + (policy.shards.count - 1) * _bytes(p for p in frozen if p.ndim > 1)


def _kv_bytes_per_token(shape: PreTrainedConfig, bf16: bool) -> int:
    config = shape.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * size * (2 if bf16 else 4)


def _advice(book: Ledger, needed: int, room: int, longest: int) -> str:
    def gib(n: float) -> str:
        return f"{n / 2**30:.1f} GiB"

    lower = what_to_lower(sampling=book.collect > book.update)
    return (
        f"A trajectory of {longest} tokens will not fit: it needs {gib(needed)} and {gib(room)} are free (gradients "
        f"{gib(book.gradients)}, optimizer {gib(book.optimizer)}, activations {gib(book.activations + book.working)}, "
        f"KV cache {gib(book.kv)}). Lower {lower}."
    )


def what_to_lower(sampling: bool) -> str:
    """What a run takes less memory with, while it samples or while it updates."""
    if sampling:
        return "rollout.concurrency (engine.slots, if set) or rollout.context, or limit engine.tokens"
    return (
        "rollout.context or learner.micro_tokens, set learner.checkpointing=true, or train adapters "
        "(model.lora_rank=16)"
    )
