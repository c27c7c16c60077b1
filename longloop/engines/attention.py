"""The attention function that longloop gives to transformers.

Engine and learner run the same Hugging Face module. All tokens of a forward pass lie end to end in one row; a *plan*
says which tokens belong together and where their keys and values are. `Packed` is the learner's plan (whole sequences,
no cache); the engine's plan is in `cache.py`.

Shapes: H query heads, K key/value heads, G = H/K, T tokens in the row, L keys, D head size.
"""

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from longloop.types import UserError

NAME = "longloop"


class Plan(Protocol):
    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        """Each token's attention output, as [T, H, D]. `window` is the layer's sliding window, 0 for none."""
        ...


class Packed:
    """Whole sequences end to end, each causal within itself.

    On a GPU one kernel takes them all; elsewhere neighbours of one length share a call.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._ends: Tensor | None = None

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        if q_HTD.is_cuda and _has_flash(q_HTD):
            return self._flash(q_HTD.transpose(0, 1), k_KTD.transpose(0, 1), v_KTD.transpose(0, 1), scale, window)
        outputs, start = [], 0
        for length, same in groupby(self._lengths):
            count = len(list(same))
            stop = start + length * count
            q, k, v = (x[:, start:stop].unflatten(1, (count, length)).transpose(0, 1) for x in (q_HTD, k_KTD, v_KTD))
            outputs.append(causal(q, k, v, scale, window).transpose(1, 2).flatten(0, 1))
            start = stop
        return torch.cat(outputs)

    def _flash(self, q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, scale: float, window: int) -> Tensor:
        """Flash attention over sequences of any length, by the operation that torch's own attention ends in."""
        if self._ends is None:
            ends = [0, *accumulate(self._lengths)]
            self._ends = torch.tensor(ends, dtype=torch.int32, device=q_THD.device)
        longest = max(self._lengths)
        return torch.ops.aten._flash_attention_forward(
            *(q_THD, k_TKD, v_TKD, self._ends, self._ends, longest, longest, 0.0),
            is_causal=window == 0,
            return_debug_mask=False,
            scale=scale,
            window_size_left=window - 1 if window else -1,
            window_size_right=0 if window else -1,
        )[0]


def _has_flash(q: Tensor) -> bool:
    """Flash attention is for half precision, heads of 8, 16, ... 256, and cards since Ampere."""
    fits = q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    return fits and (q.is_meta or torch.cuda.get_device_capability(q.device) >= (8, 0))


def causal(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int = 0) -> Tensor:
    """Causal attention of [B, H, T, D] queries over [B, K, L, D] keys; the queries are the last T of the L tokens."""
    tokens, keys = q.shape[2], k.shape[2]
    gqa = q.shape[1] != k.shape[1]
    if tokens == keys and not 0 < window < keys:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=gqa)
    query_at = torch.arange(keys - tokens, keys, device=q.device)[:, None]
    key_at = torch.arange(keys, device=q.device)[None, :]
    seen = key_at <= query_at
    if window:
        seen &= key_at > query_at - window
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale, enable_gqa=gqa)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    plan: Plan | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    if plan is None:
        raise UserError("This model runs under longloop's attention; call it through Policy.hidden.")
    for unknown in ("softcap", "s_aux"):
        if options.get(unknown) is not None:
            raise UserError(
                f"{type(module).__name__} needs the attention feature {unknown!r}, which longloop does not have."
            )
    output = plan.attend(module.layer_idx, query[0], key[0], value[0], scaling, sliding_window or 0)
    return output.unsqueeze(0), None


AttentionInterface.register(NAME, _attention)
