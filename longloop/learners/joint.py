"""Adapters of projections that read the same input, computed together in the engine's compiled passes.

On a card a product as small as an adapter's takes no less time than one three times as large. So each of q, k and v
computes the adapters of all three, as two products where there were six, and takes its own part; `Once` leaves one of
what is computed three times.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.nn.functional import linear

_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Joint(Linear):
    """PEFT's own module, that knows the others and its place among them."""

    members: list["Joint"]
    place: int

    def forward(self, x: Tensor, *args: Any, **options: Any) -> Tensor:
        sampling = torch.compiler.is_compiling() and not torch.is_grad_enabled()
        if not sampling or self.disable_adapters:
            return super().forward(x, *args, **options)
        a, b = ([getattr(one, name)["default"].weight for one in self.members] for name in ("lora_A", "lora_B"))
        together = linear(linear(x, torch.cat(a)), torch.block_diag(*b))
        mine = together.split([len(weight) for weight in b], dim=-1)[self.place]
        return self.base_layer(x) + mine * self.scaling["default"]


def join(module: Any) -> None:
    """Make the adapters known to each other that read the same input."""
    for parent in module.modules():
        for names in _TOGETHER:
            members: list[Any] = [getattr(parent, name, None) for name in names]
            if all(type(member) is Linear for member in members):
                for place, member in enumerate(members):
                    member.__class__, member.members, member.place = Joint, members, place


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
