"""A model in shards, each in a process of its own, and the same model whole."""

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from longloop.cluster.exchange import Exchange
from longloop.config import ModelConfig
from longloop.model.policy import Policy
from longloop.model.shards import Shards, cut, of_module
from tests.support.families import TOKENIZER, config, plain_module, policy_of

RANK = 4
"""Of the adapters."""


def with_adapters(policy: Policy) -> Policy:
    """Both halves of each adapter are given numbers: the second begins at zero."""
    chance = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, p in sorted(policy.trainable().items()):
            p.copy_(torch.randn(p.shape, generator=chance) * 0.3)
    return policy


BIASED = "llama with biases"


def module_of(family: str) -> Any:
    """A small random model of a family; or a Llama that has biases where the others have none."""
    if family != BIASED:
        return plain_module(family)
    plain = config("llama").to_dict() | {"attention_bias": True, "mlp_bias": True}
    module = LlamaForCausalLM(LlamaConfig(**plain))
    torch.manual_seed(0)
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return module


def whole(family: str) -> Policy:
    return with_adapters(policy_of(module_of(family), lora_rank=RANK))


def shard_of(family: str, exchange: Exchange) -> Policy:
    """This rank's shard of the same model."""
    shards = Shards(exchange.rank, exchange.count)
    settings = ModelConfig(device="cpu", dtype="float32", lora_rank=RANK)
    return with_adapters(Policy(cut(module_of(family), shards, of_module(shards)), TOKENIZER, settings, shards))


def frozen(policy: Policy) -> dict[str, torch.Tensor]:
    """The model's own weights, by the names that they have without adapters."""
    found = {name: p for name, p in policy.module.named_parameters() if "lora_" not in name}
    return {name.replace(".base_layer", ""): p for name, p in found.items()}
