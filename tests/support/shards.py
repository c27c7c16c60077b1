"""A model in shards, each in a process of its own, and the same model whole."""

import copy
from typing import Any

import torch

from longloop.cluster.exchange import Exchange
from longloop.config import ModelConfig
from longloop.model.policy import Policy
from longloop.model.shards import Shards, cut, of_module
from tests.support.families import TOKENIZER, plain_module, policy_of

RANK = 4
"""Of the adapters."""


def with_adapters(policy: Policy) -> Policy:
    """Both halves of each adapter are given numbers: the second begins at zero."""
    chance = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for _, p in sorted(policy.trainable().items()):
            p.copy_(torch.randn(p.shape, generator=chance) * 0.3)
    return policy


def whole(family: str) -> Policy:
    return with_adapters(policy_of(plain_module(family), lora_rank=RANK))


def shard_of(family: str, exchange: Exchange) -> Policy:
    """This rank's shard of the same model."""
    shards = Shards(exchange.rank, exchange.count)
    return with_adapters(sharded(copy.deepcopy(plain_module(family)), shards))


def sharded(module: Any, shards: Shards) -> Policy:
    settings = ModelConfig(device="cpu", dtype="float32", lora_rank=RANK)
    return Policy(cut(module, shards, of_module(shards)), TOKENIZER, settings, shards)


def frozen(policy: Policy) -> dict[str, torch.Tensor]:
    """The model's own weights, by the names that they have without adapters."""
    found = {name: p for name, p in policy.module.named_parameters() if "lora_" not in name}
    return {name.replace(".base_layer", ""): p for name, p in found.items()}
