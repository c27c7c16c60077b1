"""float32 weights behind bfloat16 ones.

The module samples and learns in bfloat16, whose eight bits of precision would swallow a small update. So the optimizer
works on a float32 copy of each trained tensor, and the module holds the copy rounded to bfloat16. Gradients are summed
in float32, too; the module's own are dropped as soon as they are added.

Private here: `torch._foreach_copy_`, which copies all tensors in a few kernels.
"""

from collections.abc import Collection, Mapping
from functools import partial

import torch
from torch.nn import Parameter


class FP32Weights:
    """`parameters` is what the optimizer changes: the float32 copies, and tensors that are float32 already.

    Of tensors that are optimized `elsewhere`, on another rank, there is no copy; their parameters have gradients only.
    """

    def __init__(self, trained: Mapping[str, Parameter], elsewhere: Collection[str] = ()) -> None:
        rounded = {name: p for name, p in trained.items() if p.dtype != torch.float32}
        self._trained = {name: p for name, p in rounded.items() if name not in elsewhere}
        self.apart = {name: Parameter(p.detach().float()) for name, p in self._trained.items()}
        """The float32 copies."""
        without = {name: _without_weights(p) for name, p in rounded.items() if name in elsewhere}
        self.parameters = dict(trained) | self.apart | without
        for name, p in rounded.items():
            p.register_post_accumulate_grad_hook(partial(_add_gradient, self.parameters[name]))

    @torch.no_grad()
    def publish(self) -> None:
        """Round the float32 weights into the module."""
        if self.apart:
            torch._foreach_copy_(list(self._trained.values()), list(self.apart.values()))

    @torch.no_grad()
    def restart(self) -> None:
        """Begin again with the module's weights."""
        if self.apart:
            torch._foreach_copy_(list(self.apart.values()), list(self._trained.values()))


def _without_weights(p: Parameter) -> Parameter:
    """A float32 parameter of the same shape that takes the memory of one number."""
    return Parameter(torch.zeros((), device=p.device).expand(p.shape))


def _add_gradient(fp32: Parameter, p: torch.Tensor) -> None:
    assert p.grad is not None
    if fp32.grad is None:
        fp32.grad = p.grad.float()
    else:
        fp32.grad += p.grad
    p.grad = None
