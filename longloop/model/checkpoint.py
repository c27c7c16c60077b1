"""What a learner writes to disk: the model in Hugging Face's own layout, and the optimizer, all as safetensors.

model/       a model folder, or the adapter alone with LoRA; transformers and peft load it as it is
NAME_head.safetensors                   for each head of the algorithm
optimizer.safetensors                   both moments, the step count and the float32 weights of every trained tensor
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from longloop.model.policy import Policy
from longloop.types import UserError


def save(
    folder: Path, policy: Policy, heads: Mapping[str, torch.nn.Module], optimizer: Mapping[str, torch.Tensor]
) -> None:
    """Write a policy, its heads, and the optimizer's tensors by names such as `exp_avg/model.norm.weight`."""
    save_weights(folder / "model", policy)
    for name, head in heads.items():
        save_file(head.state_dict(), folder / f"{name}_head.safetensors")
    save_file(dict(optimizer), folder / "optimizer.safetensors")


def save_weights(folder: Path, policy: Policy) -> None:
    """Write a policy's adapters, or all of its model with the tokenizer."""
    if policy.adapters is not None:
        policy.adapters.save_pretrained(folder)
    else:
        policy.module.save_pretrained(folder, max_shard_size="1TB")
        policy.tokenizer.save_pretrained(folder)


def export(folder: Path, policy: Policy, dtype: str) -> None:
    """Write the model as a plain folder, adapters merged. The policy cannot be used afterwards."""
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in kinds:
        raise UserError(f"--dtype {dtype}: choose one of {', '.join(kinds)}.")
    if policy.adapters is not None:
        for parameter in policy.module.parameters():
            if not parameter.requires_grad:  # the sum is rounded once, and the adapters not before it
                parameter.data = parameter.data.to(kinds[dtype])
    module = merged(policy)
    module.config.use_cache = True
    module.to(kinds[dtype]).save_pretrained(folder, max_shard_size="1TB")
    policy.tokenizer.save_pretrained(folder)


def export_adapter(folder: Path, checkpoint: Path, tokenizer: Any, base: str) -> None:
    """Write a checkpoint's adapters as they were trained, for the model `base`."""
    shutil.copytree(checkpoint / "model", folder)
    settings = folder / "adapter_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"base_model_name_or_path": base}, indent=2))
    tokenizer.save_pretrained(folder)


def merged(policy: Policy) -> Any:
    """The module of a policy, its adapters merged into the weights. The policy cannot be used afterwards."""
    return policy.module if policy.adapters is None else policy.adapters.merge_and_unload()


def load_weights(folder: Path, policy: Policy) -> None:
    """Load saved weights into a policy that was made from the same config."""
    if policy.adapters is not None:
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(policy.adapters, load_file(folder / "model" / "adapter_model.safetensors"))
        return
    module = policy.module
    found = module.load_state_dict(load_file(folder / "model" / "model.safetensors"), strict=False)
    if found.unexpected_keys:  # stored by the hub's names, which transformers has others for: those of experts, for one
        module.load_state_dict(type(module).from_pretrained(folder / "model", dtype="auto").state_dict())
    elif missing := set(found.missing_keys) - set(module.all_tied_weights_keys):  # tied weights are stored once
        raise UserError(f"{folder / 'model'} lacks weights of the model: {', '.join(sorted(missing)[:3])}.")


def load(folder: Path, policy: Policy, heads: Mapping[str, torch.nn.Module]) -> dict[str, torch.Tensor]:
    """Load a policy and its heads. Returns the optimizer's tensors, which are read from disk when they are used."""
    load_weights(folder, policy)
    for name, head in heads.items():
        stored, only = folder / f"{name}_head.safetensors", folder / "value_head.safetensors"  # longloop 0.1 had one
        head.load_state_dict(load_file(stored if stored.is_file() else only))
    older = folder / "optimiser.safetensors"  # longloop 0.1
    return load_file(older if older.is_file() else folder / "optimizer.safetensors")
