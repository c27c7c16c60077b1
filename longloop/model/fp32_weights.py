"""float32 weights behind bfloat16 ones.

The module samples and learns in bfloat16, whose eight bits of precision would swallow a small step. So the optimizer
works on a float32 copy of each trained tensor, and the module holds what that rounds to. Gradients are summed in
float32, too; the module's own are dropped as soon as they are added.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch.nn import Parameter


class FP32Weights:
    """`parameters` are what is optimised: a tensor that is float32 already is its own master."""

    def __init__(self, trained: Mapping[str, Parameter]) -> None:
        self._trained = {name: p for name, p in trained.items() if p.dtype != torch.float32}
        self.apart = {name: Parameter(p.detach().float()) for name, p in self._trained.items()}
        """The masters that are tensors of their own."""
        self.parameters = dict(trained) | self.apart
        for name, p in self._trained.items():
            p.register_post_accumulate_grad_hook(partial(_hand_over, self.apart[name]))

    @torch.no_grad()
    def publish(self) -> None:
        """Let the module have what the optimizer made of its weights."""
        if self.apart:
            torch._foreach_copy_(list(self._trained.values()), list(self.apart.values()))


def _hand_over(master: Parameter, p: torch.Tensor) -> None:
    assert p.grad is not None
    if master.grad is None:
        master.grad = p.grad.float()
    else:
        master.grad += p.grad
    p.grad = None
