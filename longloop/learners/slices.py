"""Where several ranks train all weights, each optimizes a slice of them: ZeRO, stage 1.

Moments and float32 weights are twelve bytes for each weight that is trained, six times the weight itself in bfloat16. A
rank holds those of its own slice alone. The others send it their gradients of the slice, it takes the step, and they
get the new weights from it (cluster/rank.py). Weights and gradients are whole on every rank: each samples, and adds
up its own micro-batches, without the others.

A slice is a number of whole tensors. So the norm of a tensor's gradient is computed in one place, by one kernel, and a
step is, to the bit, the one that every rank would take if it held all moments.
"""

from collections.abc import Mapping

from torch import Tensor


def owners(tensors: Mapping[str, Tensor], count: int) -> dict[str, int]:
    """Return for each tensor the number of the rank, of `count`, that optimizes it.

    From the largest to the smallest, each goes to the rank that has least so far.
    """
    held, found = [0] * count, dict.fromkeys(tensors, 0)
    for name in sorted(tensors, key=lambda name: -tensors[name].numel()):
        found[name] = held.index(min(held))
        held[found[name]] += tensors[name].numel()
    return found
