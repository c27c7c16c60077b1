"""One copy of the model's weights for several ranks: each holds a shard, which two readers read where it lies.

The engine reads by tensor parallelism: a rank multiplies with its own rows of q, k, v, gate and up and its own columns
of o and down, keeps the keys and values of its own heads, and the outputs of o and down are summed. All ranks work on
the same tokens. The learner reads by gathering: each rank has micro-batches of its own, and for one product, in the
forward pass and again in the backward pass, gets a projection's whole weight from the others. So no weight exists twice
for longer than a product takes, and none ever moves.

The weights in shards are frozen: adapters are trained. These, norms and biases are whole on every rank.

All ranks must gather the same weights in the same order. A forward pass takes them in the order of the model, and a
backward pass, which goes through the operations from the last to the first, in the reverse order, whatever the
micro-batches are. So it is enough that all ranks make equally many passes (learners/local.py).

Private here: PEFT's `lora.Linear`, of which the attributes are read.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear
from torch.nn.modules.module import register_module_parameter_registration_hook

from longloop.types import UserError

_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
"""Projections of which a rank holds some rows: they make its heads, and its part of the MLP."""
_COLUMNS = ("o_proj", "down_proj")
"""Projections of which a rank holds the columns that read these; their outputs are summed."""

Read = Callable[[str, Parameter, int | None], Tensor]
"""Returns this rank's part of a weight, given its name, the parameter and the dimension that is divided, None for
whole."""


class Shards:
    """This rank's place among `count` that hold one copy of the weights between them. `timeout`: seconds after which a
    wait for the others is given up where torch.distributed does not see it, in a recorded pass."""

    def __init__(self, index: int, count: int, group: Any = None, timeout: float = math.inf) -> None:
        self.index, self.count, self._group, self.timeout = index, count, group, timeout
        self._thread = threading.local()

    @property
    def reading(self) -> bool:
        """Whether this thread reads the shards where they lie: all ranks work on the same tokens. What is compiled is
        the engine's."""
        return torch.compiler.is_compiling() or getattr(self._thread, "reading", False)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Read the shards where they lie."""
        self._thread.reading = True
        try:
            yield
        finally:
            self._thread.reading = False

    @property
    def recordable(self) -> bool:
        """Whether a CUDA graph can hold what the ranks exchange: NCCL's kernels can be replayed, gloo works on the
        host."""
        return dist.get_backend(self._group) == "nccl"

    def cut(self, size: int) -> slice:
        """This rank's part of so many rows or columns."""
        part = size // self.count
        return slice(self.index * part, (self.index + 1) * part)

    def part(self, x: Tensor, dim: int) -> Tensor:
        return x[self.cut(len(x))] if dim == 0 else x[:, self.cut(x.shape[1])]

    @torch.no_grad()
    def gather(self, part: Tensor, dim: int) -> Tensor:
        """The whole of which each rank has a part."""
        whole = part.new_empty(self.count, *part.shape)
        if not part.is_meta:
            dist.all_gather(list(whole.unbind()), part.contiguous(), group=self._group)
        return whole.flatten(0, 1) if dim == 0 else whole.transpose(0, 1).flatten(1, 2)

    def total(self, x: Tensor) -> Tensor:
        """The sum of all ranks' tensors."""
        x = x.contiguous()
        dist.all_reduce(x, group=self._group)
        return x

    def of_first(self, x: Tensor) -> Tensor:
        """The first rank's tensor."""
        x = x.contiguous()
        dist.broadcast(x, group=self._group, group_src=0)
        return x


class _Gathered(torch.autograd.Function):
    """A product with a frozen weight that is gathered for it, and again for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shards: Shards, dim: int) -> Tensor:
        ctx.shards, ctx.dim = shards, dim
        ctx.save_for_backward(weight)
        return linear(x, shards.gather(weight, dim), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        return gradients[0] @ ctx.shards.gather(weight, ctx.dim), None, None, None, None


class ShardedLinear(torch.nn.Linear):
    """torch's own module, with a weight of which this rank has a part: rows (dim 0) or columns (dim 1).

    Where shards are read in place it takes, or returns, this rank's part of the features. The sum over ranks of what
    columns give is taken outside, with the adapter's.
    """

    shards: Shards
    dim: int

    def forward(self, x: Tensor) -> Tensor:
        if not self.shards.reading:
            return _Gathered.apply(x, self.weight, self.bias, self.shards, self.dim)
        return linear(x, self.weight, self._own_bias())

    def _own_bias(self) -> Tensor | None:
        """That of this rank's rows; that of columns is added by one rank alone."""
        if self.bias is None or self.dim == 1:
            return self.bias if self.shards.index == 0 else None
        return self.shards.part(self.bias, 0)


class ShardedHead(ShardedLinear):
    """The language-model head: each rank has the rows of some tokens."""

    def forward(self, x: Tensor) -> Tensor:
        made = super().forward(x)
        return self.shards.gather(made, 1) if self.shards.reading else made

    def whole(self) -> Tensor:
        """The whole weight, for several products."""
        return self.shards.gather(self.weight, 0)


class SlicedLinear(torch.nn.Linear):
    """Half of an adapter, whole on every rank, which uses a part of it where shards are read in place."""

    shards: Shards
    dim: int

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.shards.part(self.weight, self.dim) if self.shards.reading else self.weight)


def _embedding(kind: type[Any]) -> type[Any]:
    """A family's class of embeddings, with the rows of some tokens."""

    class ShardedEmbedding(kind):
        shards: Shards

        def forward(self, ids: Tensor) -> Tensor:
            if self.shards.reading:
                row = ids - self.shards.index * len(self.weight)
                here = (row >= 0) & (row < len(self.weight))
                return self.shards.total(super().forward(row.where(here, 0)) * here[..., None])
            own = self._parameters["weight"]
            self._parameters["weight"] = Parameter(self.shards.gather(own, 0), requires_grad=False)
            try:
                return super().forward(ids)
            finally:
                self._parameters["weight"] = own

    return ShardedEmbedding


class Reader:
    """A policy in shards, as the engine sees it: `hidden` and `logits` read the shards where they lie."""

    def __init__(self, policy: Any) -> None:
        self._policy, self._in_place = policy, policy.shards.in_place
        self.layers: int = policy.layers
        self.shards: Shards = policy.shards

    @property
    def version(self) -> int:
        return self._policy.version

    @property
    def device(self) -> torch.device:
        return self._policy.device

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Any) -> Tensor:
        with self._in_place():
            return self._policy.hidden(ids_T, position_T, plan)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        with self._in_place():
            return self._policy.logits(hidden_ND)

    def compiled(self) -> AbstractContextManager[None]:
        return self._policy.compiled()


# --- Cutting.


def check_shape(shape: Any, count: int) -> None:
    """Raise UserError if a model of this shape (its config) cannot be divided among so many ranks."""
    text = shape.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    sizes = {"key/value heads": heads, "tokens in its vocabulary": text.vocab_size, "MLP": text.intermediate_size}
    for what, size in sizes.items():
        if size % count:
            fits = [str(n) for n in (2, 4, 8, 16, 32) if not any(other % n for other in sizes.values())]
            instead = f"It can be {' or '.join(fits)}" if fits else "No number of shards does"
            raise UserError(
                f"ranks.shard={count} does not divide the model's {what}, {size}. {instead}; 1 gives every rank a copy."
            )


def cut(module: Any, shards: Shards, read: Read) -> Any:
    """Leave this rank's shard of a model: replace each weight by what `read` returns. The module may be on `meta`."""
    check_shape(module.config, shards.count)
    embedding, head = module.get_input_embeddings(), module.get_output_embeddings()
    tied = embedding.weight is head.weight
    divided: dict[int, int] = {id(embedding.weight): 0, id(head.weight): 0}
    for part, dim in _projections(module):
        divided[id(part.weight)] = dim
        part.__class__, part.shards, part.dim = ShardedLinear, shards, dim
    names = {id(p): name for name, p in module.named_parameters()}
    for owner in list(module.modules()):
        for name, p in list(owner._parameters.items()):
            if p is None or (tied and owner is head):
                continue
            if p.ndim > 1 and id(p) not in divided:
                raise UserError(
                    f"{type(module).__name__} has weights that longloop cannot divide ({names[id(p)]}): set "
                    "ranks.shard=1."
                )
            owner._parameters[name] = Parameter(read(names[id(p)], p, divided.get(id(p))), requires_grad=False)
    if tied:
        head.weight = embedding.weight
    embedding.__class__, embedding.shards = _embedding(type(embedding)), shards
    head.__class__, head.shards, head.dim = ShardedHead, shards, 0
    return module


def attach(module: Any, shards: Shards) -> None:
    """Let the adapters of a model in shards use their part, and sum what its columns give."""
    for parent in list(module.modules()):
        for name in (*_ROWS, *_COLUMNS):
            part = parent._modules.get(name)
            if part is None:
                continue
            for half, dim in (("lora_B", 0),) if name in _ROWS else (("lora_A", 1),):
                adapter = getattr(part, half)["default"]
                adapter.__class__, adapter.shards, adapter.dim = SlicedLinear, shards, dim
            if name in _COLUMNS:
                part.register_forward_hook(lambda part, given, made: shards.total(made) if shards.reading else None)


def _projections(module: Any) -> Iterator[tuple[Any, int]]:
    for name, part in module.named_modules():
        kind = name.rpartition(".")[2]
        if kind in _ROWS + _COLUMNS and type(part) is torch.nn.Linear:
            yield part, 0 if kind in _ROWS else 1


def of_module(shards: Shards) -> Read:
    """Take the shard of a model that this process has made as a whole."""

    def read(name: str, p: Parameter, dim: int | None) -> Tensor:
        return (p.detach() if dim is None else shards.part(p.detach(), dim)).clone()

    return read


def load_shard(folder: Path, dtype: torch.dtype, shards: Shards) -> Any:
    """Make a model of which this rank reads its own shard, and nothing else, from a folder's safetensors."""
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    if not folder.is_dir():
        raise UserError(
            f"A model in shards is read from a folder, and model.path={str(folder)!r} is none: download it."
        )
    config = AutoConfig.from_pretrained(folder)
    check_shape(config, shards.count)
    with without_weights():
        module: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if (folder / "generation_config.json").is_file():
        module.generation_config = GenerationConfig.from_pretrained(folder)
    where = _files(folder)

    def read(name: str, p: Parameter, dim: int | None) -> Tensor:
        if name not in where:
            raise UserError(
                f"{folder} has no tensor {name!r} in its safetensors, and a model in shards is read by the names of "
                f"{type(module).__name__}: set ranks.shard=1."
            )
        with safe_open(where[name], "pt") as file:
            stored = file.get_slice(name)
            whole = slice(None)
            cuts = [shards.cut(size) if n == dim else whole for n, size in enumerate(stored.get_shape())]
            return stored[tuple(cuts)].to(dtype)

    return cut(module, shards, read)


def _files(folder: Path) -> dict[str, Path]:
    """The file that has each tensor."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return {name: folder / file for name, file in json.loads(index.read_text())["weight_map"].items()}
    one = folder / "model.safetensors"
    if not one.is_file():
        raise UserError(f"{folder} has no safetensors, from which a model is read in shards: set ranks.shard=1.")
    with safe_open(one, "pt") as file:
        return dict.fromkeys(file.keys(), one)


@contextmanager
def without_weights() -> Iterator[None]:
    """Modules made within have parameters without content. Buffers, which a model computes itself, are real."""

    def hollow(module: Any, name: str, p: Parameter | None) -> Parameter | None:  # what it returns is registered
        if p is None or p.is_meta:  # one that is tied to another stays the same object
            return None
        return Parameter(p.detach().to("meta"), requires_grad=False)

    hook = register_module_parameter_registration_hook(hollow)  # type: ignore[arg-type]
    try:
        yield
    finally:
        hook.remove()
