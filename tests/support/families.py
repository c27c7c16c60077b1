"""Small random models of the common families, and engines around them."""

import asyncio
import copy
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from longloop.config import ModelConfig
from longloop.engines.engine import NativeEngine
from longloop.model import tiny
from longloop.model.policy import Policy
from longloop.tokens.chat import Chat
from longloop.types import Sampled, SamplingParams

TOKENIZER = tiny.tokenizer()
CHAT = Chat(TOKENIZER)
V = len(TOKENIZER)
WINDOW = 8
_SIZES: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def config(family: str, window: int = WINDOW, **other: Any) -> PreTrainedConfig:
    sizes = _SIZES | other
    if family == "gemma3":
        kinds = ["sliding_attention", "full_attention", "sliding_attention"][: sizes["num_hidden_layers"]]
        return Gemma3TextConfig(**sizes, head_dim=8, sliding_window=window, layer_types=kinds, query_pre_attn_scalar=8)
    if family == "mistral":
        return MistralConfig(**sizes, sliding_window=window)
    if family == "qwen3":
        return Qwen3Config(**sizes, head_dim=16)
    return {"llama": LlamaConfig, "qwen2": Qwen2Config}[family](**sizes)


FAMILIES = ["llama", "qwen2", "qwen3", "gemma3", "mistral"]


def plain_module(family: str, seed: int = 0, window: int = WINDOW, attention: str = "eager", **sizes: Any) -> Any:
    """A random model with weights large enough that every part of it, attention above all, shows in its output."""
    module = AutoModelForCausalLM.from_config(config(family, window, **sizes), attn_implementation=attention).eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            offset = torch.randn_like(parameter) * 0.2
            parameter.copy_(offset if parameter.ndim > 1 else parameter + offset)
    return module


def policy_of(module: Any, lora_rank: int = 0, device: str = "cpu", dtype: Any = "float32") -> Policy:
    """A policy around a copy, so that the plain module stays what it is."""
    settings = ModelConfig(device=device, dtype=dtype, lora_rank=lora_rank)
    return Policy(copy.deepcopy(module), TOKENIZER, settings)


def engine_of(module: Any, **options: Any) -> NativeEngine:
    return NativeEngine(policy_of(module), CHAT, **options)


class Again:
    """Stands for a recording (cuda_graphs.py) where there is no card: the work is done again."""

    def __init__(self, work: Callable[[], torch.Tensor], pool: Any, timeout: float = math.inf) -> None:
        self._work = work

    def replay(self) -> tuple[torch.Tensor, Callable[[], None]]:
        return self._work(), lambda: None


class Rehearsed(Again):
    """The work is also done once beforehand, with nothing in its buffers, as for a recording."""

    def __init__(self, work: Callable[[], torch.Tensor], pool: Any, timeout: float = math.inf) -> None:
        super().__init__(work, pool, timeout)
        work()


@torch.no_grad()
def plain_logprobs(module: Any, ids: Sequence[int], count: int, temperature: float = 1.0) -> list[float]:
    """Of the last tokens, by Hugging Face's own code over the whole sequence."""
    logp = (module(torch.tensor(np.asarray(ids)[None])).logits[0].float() / temperature).log_softmax(-1)
    return [logp[at - 1, ids[at]].item() for at in range(len(ids) - count, len(ids))]


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, V, length).tolist()


def ask(engine: NativeEngine, ids: Sequence[int], session: str = "s", **options: Any) -> Coroutine[Any, Any, Sampled]:
    return engine.sample(ids, SamplingParams(**{"max_tokens": 10} | options), session=session)


def sample(engine: NativeEngine, ids: Sequence[int], session: str = "s", **options: Any) -> Sampled:
    return asyncio.run(ask(engine, ids, session, **options))


async def talk(engine: NativeEngine, session: str, seed: int, lengths: Sequence[int], **options: Any) -> list[Sampled]:
    """Several turns: random context of the given lengths, each answered by the model."""
    ids: list[int] = []
    said = []
    for turn, length in enumerate(lengths):
        ids += prompt(100 * seed + turn, length)
        said.append(await ask(engine, ids, session, seed=seed, **options))
        ids += said[-1].ids.tolist()
    return said


def assert_same(one: Sampled, other: Sampled, tolerance: float = 1e-5) -> None:
    assert one.ids.tolist() == other.ids.tolist() and one.finish == other.finish
    assert one.logprobs.tolist() == pytest.approx(other.logprobs.tolist(), abs=tolerance)
