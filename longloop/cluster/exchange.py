"""Sums and copies between ranks, by torch.distributed: NCCL between cards, gloo between CPUs.

Gradients are added up in the tree that learners/shares.py begins: at each level a rank and its neighbor, whose number
differs in one bit, send each other their sums, and both add them. After log2(ranks) levels every rank has the total, to
the same bits, because a + b is b + a.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

_BUCKET = 1 << 26
"""Bytes that are sent in one message, at least one tensor."""


class Exchange:
    """This rank's connection to all others, who find each other through the first one's `store`. A wait for another
    rank ends with an error after `timeout` seconds."""

    def __init__(self, store: dist.TCPStore, rank: int, count: int, device: torch.device, timeout: float) -> None:
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

    @torch.no_grad()
    def add_up(self, parameters: Sequence[Parameter]) -> None:
        """Replace each parameter's gradient by the sum over all ranks; None where no rank has one."""
        for some in _buckets(parameters):
            had = torch.tensor([float(p.grad is not None) for p in some], device=self._device)
            # Minus zero stands for a gradient that is missing: x + -0.0 is x, even where x is a zero.
            own = [torch.full_like(p, -0.0) if p.grad is None else p.grad for p in some]
            flat = self._total(torch.cat([had, *(one.flatten() for one in own)]))
            counts, *sums = flat.split([len(some), *(p.numel() for p in some)])
            for p, count, total in zip(some, counts.tolist(), sums, strict=True):
                p.grad = total.view_as(p).clone() if count else None

    @torch.no_grad()
    def copy(self, tensors: Sequence[Tensor]) -> None:
        """Replace the tensors of all ranks by those of the first."""
        for tensor in tensors:
            dist.broadcast(tensor, src=0)

    def close(self) -> None:
        dist.destroy_process_group()

    def _total(self, flat: Tensor) -> Tensor:
        theirs, level = torch.empty_like(flat), 1
        while level < self.count:
            neighbor = self.rank ^ level
            both = [dist.P2POp(dist.isend, flat, neighbor), dist.P2POp(dist.irecv, theirs, neighbor)]
            for request in dist.batch_isend_irecv(both):
                request.wait()
            flat = flat + theirs
            level *= 2
        return flat


def _buckets(parameters: Sequence[Parameter]) -> Iterator[list[Parameter]]:
    some: list[Parameter] = []
    for parameter in parameters:
        if some and sum(p.nbytes for p in some) + parameter.nbytes > _BUCKET:
            yield some
            some = []
        some.append(parameter)
    if some:
        yield some
