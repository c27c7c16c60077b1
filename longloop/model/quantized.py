"""Frozen weights in 4 bits, by bitsandbytes: a large model on one card, of which adapters are trained (QLoRA, arXiv
2305.14314).

The matrices of all layers are replaced by bitsandbytes' modules, in NF4; embeddings, norms and the language-model head
stay as they are. The engine and the learner run the same modules, so both see the same rounded weights. A matrix is
unpacked for each product and forgotten after it.
"""

from typing import Any

import torch

from longloop.types import UserError

_BLOCK = 64
"""Weights that share a scale."""
BYTES = 0.5 + 1 / _BLOCK + 4 / (256 * _BLOCK)
"""Bytes of a weight: half of one, a byte for each block, and four for each 256 blocks."""


def quantize(module: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Replace the matrices of a model's layers, one after the other, so that it is never there twice. Products are
    computed in `dtype`."""
    try:
        from bitsandbytes.nn import Linear4bit, Params4bit
    except ImportError as error:
        raise UserError(
            f"model.quantize needs bitsandbytes, which cannot be imported ({error}): "
            "`pip install 'longloop[quantized]'`."
        ) from error
    for parent, name, linear in matrices(module):
        sizes = linear.in_features, linear.out_features, linear.bias is not None
        made: Any = Linear4bit(*sizes, compute_dtype=dtype, quant_type="nf4", device="meta")
        made.weight = Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4", module=made)
        made.bias = linear.bias
        made.support_avx512bf16_for_cpu = False  # it would repack what only the engine reads, and round in bfloat16
        setattr(parent, name, made.requires_grad_(False).to(device))
    module.is_loaded_in_4bit = True  # peft asks


def matrices(module: Any) -> list[tuple[Any, str, torch.nn.Linear]]:
    """Those of a model that are quantized: where each is, under which name, and the module itself. Where rows do not
    fill blocks they are left as they are: bitsandbytes rounds them wrong on a CPU."""
    head = module.get_output_embeddings()
    return [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if type(child) is torch.nn.Linear and child is not head and child.in_features % _BLOCK == 0
    ]
