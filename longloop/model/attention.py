"""The attention function that longloop gives to transformers.

Engine and learner run the same Hugging Face module. All tokens of a forward pass lie end to end in one row; a *plan*
says which tokens belong together and where their keys and values are. `VarlenPlan` is the learner's plan
(whole sequences, no cache); the engine's plans are in `engines/reading.py` and `engines/cuda_graphs.py`.

Private here: `aten._flash_attention_forward`, the kernel of torch's own attention for sequences of any lengths. The
public `torch.nn.attention.varlen.varlen_attn` calls the same kernel, but takes fewer key than query heads only since
torch 2.12 (docs/decisions/0012-engine-parts.md).

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

_BLOCK = 256
"""Queries in a call that needs a mask; smaller calls cost more than they save (measured on a CPU)."""


class Plan(Protocol):
    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        """Each token's attention output, as [T, H, D]. `window` is the layer's sliding window, 0 for none."""
        ...


class VarlenPlan:
    """Sequences end to end, each causal within itself.

    A sequence may lie in two parts: `after` has for each part the index of the one that it continues, or -1. Several
    may continue the same one, and share its keys and values. On a GPU one kernel call handles all; elsewhere neighbors
    of equal length share a call.
    """

    def __init__(self, lengths: Sequence[int], after: Sequence[int] = ()) -> None:
        self._lengths = list(lengths)
        self._after = list(after) or [-1] * len(lengths)
        self._shared = any(part >= 0 for part in self._after)
        self._key_lengths = [
            length + (lengths[part] if part >= 0 else 0) for length, part in zip(lengths, self._after, strict=True)
        ]
        both = zip(self._lengths, self._key_lengths, strict=True)
        self._alike = [(len(list(same)), *sizes) for sizes, same in groupby(both)]
        self._ends: tuple[Tensor, Tensor] | None = None
        self._masks: dict[int, Tensor] = {}

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        q_THD, k_LKD, v_LKD = q_HTD.transpose(0, 1), k_KTD.transpose(0, 1), v_KTD.transpose(0, 1)
        if self._shared:
            k_LKD, v_LKD = self._continued(k_LKD), self._continued(v_LKD)
        if q_HTD.is_cuda and _has_flash(q_HTD):
            return self._flash(q_THD, k_LKD, v_LKD, scale, window)
        # With split, not slices: the backward pass of each slice would be as long as the whole row.
        qs = q_THD.split([count * length for count, length, _ in self._alike])
        ks, vs = (x.split([count * keys for count, _, keys in self._alike]) for x in (k_LKD, v_LKD))
        outputs = []
        for (count, _, _), *qkv in zip(self._alike, qs, ks, vs, strict=True):
            q, k, v = (x.unflatten(0, (count, -1)).transpose(1, 2) for x in qkv)
            alone = q.shape[2] == k.shape[2]
            output = causal(q, k, v, scale, window) if alone else self._in_blocks(q, k, v, scale, window)
            outputs.append(output.transpose(1, 2).flatten(0, 1))
        return torch.cat(outputs)

    def _continued(self, x_TKD: Tensor) -> Tensor:
        """Keys or values of all parts, each behind those of the part that it continues.

        With split and cat, whose backward passes add in a fixed order; that of indexing does not on a GPU.
        """
        parts = x_TKD.split(self._lengths)
        joined: list[Tensor] = []
        for part, before in zip(parts, self._after, strict=True):
            joined += (parts[before], part) if before >= 0 else (part,)
        return torch.cat(joined)

    def _in_blocks(self, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
        """`causal` for queries that follow other tokens, one block of queries at a time.

        A mask hides later keys but does not save their computation, so a block is given no key after its own. Masks are
        kept for the backward pass, so all are corners of one.
        """
        if window not in self._masks:
            seen = _seen(_BLOCK, max(_BLOCK, *self._key_lengths), window, q.device)
            self._masks[window] = q.new_zeros(seen.shape).masked_fill(~seen, float("-inf"))
        outputs = []
        for number, block in enumerate(q.split(_BLOCK, dim=2), start=1):
            end = k.shape[2] - q.shape[2] + number * _BLOCK
            keys, values = k[:, :, :end], v[:, :, :end]
            mask = self._masks[window][-block.shape[2] :, -keys.shape[2] :]
            if q.is_cuda:
                mask = mask.contiguous()  # for the alignment that kernels ask for there
            outputs.append(causal(block, keys, values, scale, window, mask))
        return torch.cat(outputs, dim=2)

    def _flash(self, q_THD: Tensor, k_LKD: Tensor, v_LKD: Tensor, scale: float, window: int) -> Tensor:
        """Flash attention over sequences of any lengths. The queries of a sequence are the last of its tokens."""
        if self._ends is None:
            ends, key_ends = (
                torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=q_THD.device)
                for lengths in (self._lengths, self._key_lengths)
            )
            self._ends = ends, key_ends
        return torch.ops.aten._flash_attention_forward(
            *(q_THD, k_LKD, v_LKD, *self._ends, max(self._lengths), max(self._key_lengths), 0.0),
            is_causal=window == 0,
            return_debug_mask=False,
            scale=scale,
            window_size_left=window - 1 if window else -1,
            window_size_right=0 if window else -1,
        )[0]


def _has_flash(q: Tensor) -> bool:
    """Whether flash attention can be used: half precision, heads of 8, 16, ... 256, and a card since Ampere."""
    fits = q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    return fits and (q.is_meta or torch.cuda.get_device_capability(q.device) >= (8, 0))


def causal(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int = 0, mask: Tensor | None = None) -> Tensor:
    """Causal attention of [B, H, T, D] queries over [B, K, L, D] keys; the queries are the last T of the L tokens.

    `mask` is used where one is needed; without it, one is made.
    """
    tokens, keys = q.shape[2], k.shape[2]
    gqa = q.shape[1] != k.shape[1]
    if tokens == keys and not 0 < window < keys:
        return scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=gqa)
    if mask is None:
        mask = _seen(tokens, keys, window, q.device)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=gqa)


def _seen(tokens: int, keys: int, window: int, device: torch.device) -> Tensor:
    """Which of the keys each of the last tokens attends to, [T, L]."""
    query_at = torch.arange(keys - tokens, keys, device=device)[:, None]
    key_at = torch.arange(keys, device=device)[None, :]
    seen = key_at <= query_at
    if window:
        seen &= key_at > query_at - window
    return seen


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    plan: Plan | None = None,
    layer: int | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    if plan is None:
        raise UserError("This model runs under longloop's attention; call it through Policy.hidden.")
    for unknown in ("softcap", "s_aux"):
        if options.get(unknown) is not None:
            raise UserError(f"{type(module).__name__} needs the attention feature {unknown!r}, which longloop lacks.")
    attend = _attend_uncompiled if isinstance(plan, VarlenPlan) else _attend
    return attend(plan, module, layer, query, key, value, scaling, sliding_window or 0), None


def _attend(
    plan: Plan, module: Any, layer: int | None, query: Tensor, key: Tensor, value: Tensor, scale: float, window: int
) -> Tensor:
    number = module.layer_idx if layer is None else layer
    return plan.attend(number, query[0], key[0], value[0], scale, window).unsqueeze(0)


_attend_uncompiled = torch.compiler.disable(_attend)
"""For the learner's plans, which differ from micro-batch to micro-batch: torch.compile leaves this call alone."""


AttentionInterface.register(NAME, _attention)
