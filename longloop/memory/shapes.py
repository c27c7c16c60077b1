"""Models without their weights: on torch's `meta` device they take no memory.

A shape is what `config.json` says about a model. Those of some public models are written here, so that one can ask what
they would need before fetching anything: `model.path=shape:qwen2.5-7b`.

Private here: `aten._scaled_dot_product_flash_attention_for_cpu`, the kernel that `scaled_dot_product_attention` chooses
on a CPU but not on `meta`.
"""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import (
    AttentionInterface,
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
)

from longloop.config import ALONE, LearnerConfig, ModelConfig, RanksConfig, nearest
from longloop.learners.local import LocalLearner
from longloop.model import attention, download, tiny
from longloop.model.policy import Policy, device_and_dtype
from longloop.model.shards import Shards, cut, of_module
from longloop.types import Needs, UserError

PREFIX = "shape:"
_ON_CPU, _ON_CUDA = "longloop-weightless-cpu", "longloop-weightless-cuda"

# family, vocabulary, hidden, MLP, layers, heads, key/value heads, whether the head is the embedding
_NAMED = {
    "smollm2-135m": (LlamaConfig, 49152, 576, 1536, 30, 9, 3, True),
    "qwen2.5-0.5b": (Qwen2Config, 151936, 896, 4864, 24, 14, 2, True),
    "qwen2.5-1.5b": (Qwen2Config, 151936, 1536, 8960, 28, 12, 2, True),
    "qwen2.5-3b": (Qwen2Config, 151936, 2048, 11008, 36, 16, 2, True),
    "qwen2.5-7b": (Qwen2Config, 152064, 3584, 18944, 28, 28, 4, False),
    "qwen2.5-14b": (Qwen2Config, 152064, 5120, 13824, 48, 40, 8, False),
    "qwen2.5-32b": (Qwen2Config, 152064, 5120, 27648, 64, 40, 8, False),
    "llama-3.1-8b": (LlamaConfig, 128256, 4096, 14336, 32, 32, 8, False),
}


def named(name: str) -> PreTrainedConfig:
    """The shape of a public model."""
    if name not in _NAMED:
        raise UserError(f"There is no shape {name!r}.{nearest(name, _NAMED)} Known are {', '.join(_NAMED)}.")
    family, vocabulary, hidden, mlp, layers, heads, kv_heads, tied = _NAMED[name]
    return family(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=tied,
    )


def shape_of(model: ModelConfig) -> PreTrainedConfig:
    """The shape of the model that a config names. Its config.json is read, and no weights."""
    if model.path.startswith(PREFIX):
        return named(model.path.removeprefix(PREFIX))
    if model.path == "tiny":
        with torch.device("meta"):
            return tiny.model(0, model.hidden, model.layers).config
    try:
        return AutoConfig.from_pretrained(download.source(model.path))
    except (OSError, ValueError) as error:
        raise UserError(
            f"Cannot read the shape of the model {model.path!r}: it is neither a folder with a config.json nor a name "
            f"that could be fetched. Set model.path; {PREFIX}NAME is the shape of a public model, one of "
            f"{', '.join(_NAMED)}."
        ) from error


def weightless(
    shape: PreTrainedConfig, model: ModelConfig, config: LearnerConfig, needs: Needs, ranks: RanksConfig = ALONE
) -> LocalLearner:
    """The first rank's learner of this shape, whose tensors have no content. Use it under `Blank`."""
    device, dtype = device_and_dtype(model)
    placeless = model.model_copy(update={"device": "meta", "dtype": str(dtype).removeprefix("torch."), "quantize": ""})
    config = config.model_copy(update={"compile": False})  # compiled, operations could not be followed one by one
    with torch.device("meta"), Blank():
        module: Any = AutoModelForCausalLM.from_config(copy.deepcopy(shape))
        shards = Shards(0, ranks.shard) if ranks.shard > 1 else None
        if shards is not None:
            module = cut(module, shards, of_module(shards))
        policy = Policy(module, None, placeless, shards)
        policy.module.to(dtype)  # peft gives adapters the dtype of what they adapt, but not here
        policy.module.set_attn_implementation(_ON_CUDA if device.type == "cuda" else _ON_CPU)
        return LocalLearner(policy, needs, config, temperature=1.0, seed=0, ranks=ranks)


class Blank(TorchFunctionMode):
    """Answers what tensors without content cannot: any number is 0, and any two tensors are close."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.item, torch.Tensor.__float__):
            return 0.0
        return True if func is torch.allclose else func(*args, **(kwargs or {}))


class _Kernels(TorchFunctionMode):
    """Makes attention take the kernel that it takes on a real device."""

    def __init__(self, cuda: bool) -> None:
        super().__init__()
        self._cuda = cuda

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return self._cuda
        return (_fused if func is scaled_dot_product_attention else func)(*args, **(kwargs or {}))


def _fused(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **options: Any
) -> Tensor:
    """The kernel that CPUs run; on `meta` torch would choose one that keeps [tokens, tokens]."""
    bias = None if attn_mask is None else attn_mask.to(q.dtype)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(q, k, v, 0.0, is_causal, attn_mask=bias, scale=options["scale"])[0]


def _attention(cuda: bool, *args: Any, **options: Any) -> Any:
    with _Kernels(cuda):  # here, and not around it all: in a backward pass that computes a layer again, modes are off
        return AttentionInterface()[attention.NAME](*args, **options)


AttentionInterface.register(_ON_CPU, partial(_attention, False))
AttentionInterface.register(_ON_CUDA, partial(_attention, True))
