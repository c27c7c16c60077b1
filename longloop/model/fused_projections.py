"""Projections of the same input, computed as one matrix product in the engine's compiled passes.

On a GPU a small matrix product takes no less time than one three times as large. So the weights of q, k and v and the
first halves of their adapters, which all multiply the same input, are laid one after the other in one tensor. Each of
the three modules takes its own slice of the one product, and `DeduplicateNodes` removes what the compiler then computes
three times. The second halves of the adapters are one product, too.

Private here: `torch._inductor.custom_graph_pass`, the only way to give Inductor a graph pass of one's own (Inductor
does not merge equal matrix products itself); and PEFT's `lora.Linear`, of which `Adapter` reads the attributes.
"""

from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners import lora
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.nn.functional import linear

_GROUPS = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


class Projection(torch.nn.Linear):
    """torch's own module, with a weight that is a slice of a larger tensor."""

    all_weights: Tensor
    all_biases: Tensor | None
    sizes: list[int]
    index: int
    """Which slice is this module's."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fused(x)[self.index] if _sampling() else super().forward(x)

    def fused(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output of each projection of the group, then the first halves of all adapters as one."""
        return linear(x, self.all_weights, self.all_biases).split(self.sizes, dim=-1)


class Adapter(lora.Linear):
    """PEFT's own module around a projection, which knows the others of its group."""

    members: list["Adapter"]

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        if not _sampling() or self.disable_adapters:
            return super().forward(x, *args, **options)
        half = self.base_layer.fused(x)[-1]
        second = [member.lora_B["default"].weight for member in self.members]
        outputs = linear(half, torch.block_diag(*second)).split([len(weight) for weight in second], dim=-1)
        return self.base_layer(x) + outputs[self.base_layer.index] * self.scaling["default"]


def fuse(module: Any) -> None:
    """Lay weights that multiply the same input one after the other.

    The parameters stay the same objects with the same values, but their memory moves. It must not move again, and no
    pass that reads the old memory may have been recorded before.
    """
    for members in projection_groups(module):
        adapters = [member for member in members if type(member) is lora.Linear]
        plain = [getattr(member, "base_layer", member) for member in members]
        alike = len(adapters) in (0, len(members)) and all(type(one) is torch.nn.Linear for one in plain)
        if alike and len(plain) + len(adapters) > 1:
            _fuse_group(plain, [adapter.lora_A["default"] for adapter in adapters])
            for adapter in adapters:
                adapter.__class__, adapter.members = Adapter, adapters


def projection_groups(module: Any) -> Iterator[list[Any]]:
    """The modules of each group, wherever the model has all of them."""
    for parent in list(module.modules()):
        for names in _GROUPS:
            members = [getattr(parent, name, None) for name in names]
            if all(isinstance(member, torch.nn.Module) for member in members):  # experts may have bare tensors
                yield members


@torch.inference_mode(False)
@torch.no_grad()
def _fuse_group(plain: list[Any], halves: list[Any]) -> None:
    weights, biases = (_concatenated([*plain, *halves], name) for name in ("weight", "bias"))
    sizes = [*(one.out_features for one in plain), sum(half.out_features for half in halves)]
    for index, one in enumerate(plain):
        one.__class__, one.sizes, one.index = Projection, sizes, index
        one.all_weights, one.all_biases = weights, biases
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # the memory they had before: pieces too small for the next group


def _concatenated(parts: list[Any], name: str) -> Tensor | None:
    """One tensor of all weights or biases, of which each becomes a slice; zeros where a bias is missing."""
    given = [getattr(part, name) for part in parts]
    if all(one is None for one in given):
        return None
    rows = [part.out_features for part in parts]
    like = next(one for one in given if one is not None)
    whole = torch.cat([like.new_zeros(count) if one is None else one for one, count in zip(given, rows, strict=True)])
    for one, piece in zip(given, whole.split(rows), strict=True):
        if one is not None:
            one.data = piece
    return whole


def _sampling() -> bool:
    return torch.compiler.is_compiling() and not torch.is_grad_enabled()


class DeduplicateNodes(CustomGraphPass):
    """Common-subexpression elimination: keep the first of identical nodes."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        first: dict[tuple[Any, str], torch.fx.Node] = {}
        for node in list(graph.nodes):
            if node.op == "call_function" and not node.is_impure():
                same = first.setdefault((node.target, f"{node.args} {node.kwargs}"), node)  # 1 is not 1.0 here
                if same is not node:
                    node.replace_all_uses_with(same)
                    graph.erase_node(node)

    def uuid(self) -> bytes:
        return get_hash_for_files((__file__,))
