"""Sums and copies between ranks, by torch.distributed: NCCL between cards, gloo between CPUs.

Gradients are added up in the tree that learners/shares.py begins: at each level a rank and its neighbor, whose number
differs in one bit, send each other their sums, and both add them. After log2(ranks) levels every rank has the total, to
the same bits, because a + b is b + a. Where only one rank needs a tensor's sum (learners/slices.py), it travels to that
one through the same tree, and at each level a rank sends what its neighbor's side needs: the bits are the same, too.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from longloop.model.shards import Shards

_ALWAYS = timedelta(days=365)
"""How long a rank waits for the next order to take part in a pass: all ranks may be doing something else."""
_BUCKET = 1 << 26
"""Bytes that are sent in one message, at least one tensor."""


def raised_by_connection(error: RuntimeError) -> bool:
    """Whether a connection to other ranks failed. gloo raises plain errors, which name the place in its own source."""
    return isinstance(error, dist.DistError) or "gloo" in str(error).lower()


class Exchange:
    """This rank's connection to all others, who find each other through the first one's `store`. A wait for another
    rank ends with an error after `timeout` seconds. Each `shard` ranks in a row hold one copy of the weights."""

    def __init__(
        self, store: dist.TCPStore, rank: int, count: int, device: torch.device, timeout: float, shard: int = 1
    ) -> None:
        self.rank, self.count, self._device = rank, count, device
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=timeout),
            device_id=device if device.type == "cuda" else None,
        )
        self._store = store  # it serves as long as it lives
        self.shards: Shards | None = None
        self.orders: Any = None
        """The ranks that hold shards of one copy with this one, as their engine speaks to them."""
        for first in range(0, count, shard) if shard > 1 else ():
            members = list(range(first, first + shard))
            patience = timedelta(seconds=timeout)
            group = dist.new_group(members, timeout=patience)
            orders = dist.new_group(members, timeout=patience if rank == first else _ALWAYS, backend="gloo")
            if rank in members:
                self.shards, self.orders = Shards(rank - first, shard, group, timeout), orders

    @torch.no_grad()
    def add_up(self, parameters: Sequence[Parameter]) -> None:
        """Replace each parameter's gradient by the sum over all ranks; None where no rank has one."""
        for some in _buckets(parameters):
            had = torch.tensor([float(p.grad is not None) for p in some], device=self._device)
            # Minus zero stands for a gradient that is missing: x + -0.0 is x, even where x is a zero.
            own = [torch.full_like(p, -0.0) if p.grad is None else p.grad for p in some]
            flat = self.total(torch.cat([had, *(one.flatten() for one in own)]))
            counts, *sums = flat.split([len(some), *(p.numel() for p in some)])
            for p, count, total in zip(some, counts.tolist(), sums, strict=True):
                p.grad = total.view_as(p).clone() if count else None

    @torch.no_grad()
    def add_up_at(self, parameters: Sequence[Parameter], owners: Sequence[int]) -> Tensor:
        """Replace the gradient of each parameter by the sum over all ranks on its owner, and by None elsewhere. Returns
        the norms of all sums; -1 where no rank has a gradient."""
        norm_P = torch.zeros(len(parameters), device=self._device)
        owner_of = dict(zip(parameters, owners, strict=True))
        number_of = {p: number for number, p in enumerate(parameters)}
        for some in _buckets(parameters):
            mine = self._total_at({p: _with_mark(p) for p in some}, owner_of)
            for p in some:
                p.grad = mine[p][1:].view_as(p).clone() if p in mine and mine[p][0] else None
            for p in mine:
                norm_P[number_of[p]] = -1.0 if p.grad is None else torch.linalg.vector_norm(p.grad)
        return self.total(norm_P)  # to each norm, all ranks but one add a zero

    @torch.no_grad()
    def copy(self, tensors: Sequence[Tensor], source: int = 0) -> None:
        """Replace the tensors of all ranks by those of the first, or another."""
        for tensor in tensors:
            dist.broadcast(tensor, src=source)

    @torch.no_grad()
    def send(self, tensor: Tensor, rank: int) -> None:
        dist.send(tensor.to(self._device).contiguous(), rank)

    @torch.no_grad()
    def receive(self, shape: Sequence[int], rank: int) -> Tensor:
        """The float32 tensor that another rank sends."""
        tensor = torch.empty(tuple(shape), device=self._device)
        dist.recv(tensor, rank)
        return tensor

    def leave_word(self, error: BaseException) -> None:
        """Tell the first rank, for when this one has ended, what ended it."""
        self._store.set(f"last words of {self.rank}", f"{type(error).__name__}: {error}")

    def last_words(self, rank: int) -> str:
        """What ended a rank, if it has left word."""
        key = f"last words of {rank}"
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def close(self) -> None:
        dist.destroy_process_group()

    def total(self, flat: Tensor) -> Tensor:
        """The sum of all ranks' tensors."""
        level = 1
        while level < self.count:
            flat = flat + self._swapped(flat, torch.empty_like(flat), self.rank ^ level)
            level *= 2
        return flat

    def _total_at(self, held: dict[Parameter, Tensor], owner_of: dict[Parameter, int]) -> dict[Parameter, Tensor]:
        """The sums of all ranks' tensors that this one owns."""
        level = 1
        while level < self.count:
            kept = [p for p in held if not (owner_of[p] ^ self.rank) & level]
            given = [held[p] for p in held if (owner_of[p] ^ self.rank) & level]
            sizes = [len(held[p]) for p in kept]
            received = torch.empty(sum(sizes), device=self._device)
            sent = torch.cat(given) if given else torch.empty(0, device=self._device)
            theirs = self._swapped(sent, received, self.rank ^ level).split(sizes)
            held = {p: held[p] + more for p, more in zip(kept, theirs, strict=True)}
            level *= 2
        return held

    def _swapped(self, sent: Tensor, received: Tensor, neighbor: int) -> Tensor:
        """Send a tensor to another rank, and receive one from it. Nobody sends an empty one."""
        sending = [dist.P2POp(dist.isend, sent, neighbor)] if len(sent) else []
        receiving = [dist.P2POp(dist.irecv, received, neighbor)] if len(received) else []
        for request in dist.batch_isend_irecv([*sending, *receiving]) if sending or receiving else ():
            request.wait()
        return received


def _with_mark(p: Parameter) -> Tensor:
    """A parameter's gradient, flat, behind a number that says whether there is one."""
    # Minus zero stands for a gradient that is missing: x + -0.0 is x, even where x is a zero.
    gradient = torch.full(p.shape, -0.0, device=p.device) if p.grad is None else p.grad
    return torch.cat([gradient.new_tensor([float(p.grad is not None)]), gradient.flatten()])


def _buckets(parameters: Sequence[Parameter]) -> Iterator[list[Parameter]]:
    some: list[Parameter] = []
    for parameter in parameters:
        if some and sum(p.nbytes for p in some) + parameter.nbytes > _BUCKET:
            yield some
            some = []
        some.append(parameter)
    if some:
        yield some
