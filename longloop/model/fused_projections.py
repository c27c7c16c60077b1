"""Projections that read the same input, computed together in the engine's compiled passes.

On a card a small product of matrices takes no less time than one three times as large. So the weights of q, k and v and
the first halves of their adapters, which all multiply the same input, lie one after the other in one tensor. Each of
the three takes its own part of the one product, and `Once` leaves one of what is then computed three times. The second
halves are one product, too.
"""

from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners import lora
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.nn.functional import linear

_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))


class Projection(torch.nn.Linear):
    """torch's own module, whose weights are a part of a larger tensor."""

    all_weights: Tensor
    all_biases: Tensor | None
    sizes: list[int]
    place: int

    def forward(self, x: Tensor) -> Tensor:
        return self.together(x)[self.place] if _sampling() else super().forward(x)

    def together(self, x: Tensor) -> tuple[Tensor, ...]:
        """What each projection makes of x, and last what the first halves of all adapters do."""
        return linear(x, self.all_weights, self.all_biases).split(self.sizes, dim=-1)


class Adapter(lora.Linear):
    """PEFT's own module, around a projection, that knows the others."""

    members: list["Adapter"]

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        if not _sampling() or self.disable_adapters:
            return super().forward(x, *args, **options)
        half = self.base_layer.together(x)[-1]
        others = [member.lora_B["default"].weight for member in self.members]
        whole = linear(half, torch.block_diag(*others)).split([len(weight) for weight in others], dim=-1)
        return self.base_layer(x) + whole[self.base_layer.place] * self.scaling["default"]


def join(module: Any) -> None:
    """Lay the weights one after the other that multiply the same input.

    The parameters stay the same objects, with the same numbers in another place. That place must not change any more,
    and no pass may have been recorded before that reads the old one.
    """
    for members in _companies(module):
        adapters = [member for member in members if type(member) is lora.Linear]
        plain = [getattr(member, "base_layer", member) for member in members]
        alike = len(adapters) in (0, len(members)) and all(type(one) is torch.nn.Linear for one in plain)
        if alike and len(plain) + len(adapters) > 1:
            _lay(plain, [adapter.lora_A["default"] for adapter in adapters])
            for adapter in adapters:
                adapter.__class__, adapter.members = Adapter, adapters


def _companies(module: Any) -> Iterator[list[Any]]:
    for parent in list(module.modules()):
        for names in _TOGETHER:
            members = [getattr(parent, name, None) for name in names]
            if all(isinstance(member, torch.nn.Module) for member in members):  # experts may have bare tensors
                yield members


@torch.inference_mode(False)
@torch.no_grad()
def _lay(plain: list[Any], halves: list[Any]) -> None:
    weights, biases = (_one_after_the_other([*plain, *halves], name) for name in ("weight", "bias"))
    sizes = [*(one.out_features for one in plain), sum(half.out_features for half in halves)]
    for place, one in enumerate(plain):
        one.__class__, one.sizes, one.place = Projection, sizes, place
        one.all_weights, one.all_biases = weights, biases
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # where they lay before: pieces too small for the next company's


def _one_after_the_other(parts: list[Any], name: str) -> Tensor | None:
    """One tensor of all weights or biases, of which each is a part from now on; zeros where a bias is lacking."""
    given = [getattr(part, name) for part in parts]
    if all(one is None for one in given):
        return None
    rows = [part.out_features for part in parts]
    like = next(one for one in given if one is not None)
    whole = torch.cat([like.new_zeros(count) if one is None else one for one, count in zip(given, rows, strict=True)])
    for one, place in zip(given, whole.split(rows), strict=True):
        if one is not None:
            one.data = place
    return whole


def _sampling() -> bool:
    return torch.compiler.is_compiling() and not torch.is_grad_enabled()


class Once(CustomGraphPass):
    """Of nodes that compute the same from the same, the first is left."""

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
