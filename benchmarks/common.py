"""What the benchmarks share: random models, a one-word-one-token tokenizer, medians, and a process's peak memory."""

import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

ROOT = Path(__file__).resolve().parent.parent

SHAPES: dict[str, dict[str, Any]] = {
    "small": {
        "vocab_size": 4096,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    "1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "7b": {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "32b": {
        "vocab_size": 152064,
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
}
"""A Llama of 6M weights for quick runs, and the shapes of SmolLM2-135M and of Qwen2.5-1.5B, -7B and -32B."""
QWEN = ("1.5b", "7b", "32b")
"""Those with Qwen2's layers."""

_ROLES = ["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}"
    "{% for call in m['tool_calls'] or [] %}{{ call['function'] | string }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
FRAMING = 3
"""Ids the template adds to a message that the agent then answers: role, end, assistant."""


def generate_options(new: int) -> dict[str, Any]:
    """For transformers' `generate()`: exactly so many tokens at temperature 1, with the logits they were drawn from."""
    return {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_new_tokens": new,
        "max_new_tokens": new,
        "pad_token_id": 0,
        "eos_token_id": None,
        "use_cache": True,
        "return_dict_in_generate": True,
        "output_logits": True,
    }


def model_config(shape: str) -> Any:
    return (Qwen2Config if shape in QWEN else LlamaConfig)(max_position_embeddings=20480, **SHAPES[shape])


def random_model(shape: str, seed: int = 0, device: str = "cpu") -> Any:
    """Random weights, made from the seed: float32 on a CPU, bfloat16 elsewhere. Nothing is read or fetched."""
    torch.manual_seed(seed)
    config = model_config(shape)
    with torch.device(device):
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def vllm_model(shape: str, **options: Any) -> Any:
    """vLLM with random weights of its own, in this process."""
    quiet = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1"}
    os.environ.update(quiet | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"})
    import vllm

    with tempfile.TemporaryDirectory() as folder:
        config = random_model(shape, device="meta").config
        config.architectures = ["Qwen2ForCausalLM" if shape in QWEN else "LlamaForCausalLM"]
        config.save_pretrained(folder)
        common = {"load_format": "dummy", "skip_tokenizer_init": True, "dtype": "bfloat16", "seed": 0}
        return vllm.LLM(model=folder, **common | options)


class Silent:
    """A chat for an engine that is never asked to decode: no stop strings."""

    decode: Any = None


def word_tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """`w17` is one id, and so is every word: texts have as many ids as they have words, whoever encodes them."""
    words = vocab - len(_ROLES) - 2
    backend = Tokenizer(models.WordLevel({"<unk>": 0} | {f"w{n}": n + 1 for n in range(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in [*_ROLES, "<|end|>"]])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>", chat_template=_TEMPLATE
    )


def policy(module: Any, tokenizer: Any = None, lora_rank: int = 0, quantize: Any = "") -> Any:
    """longloop's policy around a module, where it is and as it is."""
    from longloop.config import ModelConfig
    from longloop.model.policy import Policy

    tokenizer = tokenizer or word_tokenizer(module.config.vocab_size)
    dtype: Any = str(module.dtype).removeprefix("torch.")
    config = ModelConfig(device=module.device.type, dtype=dtype, lora_rank=lora_rank, quantize=quantize)
    return Policy(module, tokenizer, config)


def peak_bytes() -> int:
    """The most memory this process has had: on the card if it uses one, else resident.

    (VmHWM: ru_maxrss would count the parent's before the exec.)
    """
    return torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else _status("VmHWM")


def held_on_the_card() -> Callable[[], int]:
    """Watches the whole card from now on; the answer is the most memory that was taken on it, by whatever allocator. 0
    without a card."""
    if not torch.cuda.is_available():
        return lambda: 0
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            free, total = torch.cuda.mem_get_info()
            most = max(most, total - free)

    threading.Thread(target=watch, daemon=True).start()

    def ended() -> int:
        over.set()
        return most

    return ended


def resident_bytes() -> int:
    """What it has now."""
    return torch.cuda.memory_allocated() if torch.cuda.is_initialized() else _status("VmRSS")


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}; these benchmarks need Linux")


def run_alone(script: str, *arguments: str, **variables: str) -> str:
    """What one side prints when it runs in a Python of its own, so that its peak memory is its own."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"} | variables
    done = subprocess.run(
        [sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return done.stdout


@dataclass(frozen=True)
class Took:
    """Seconds of one run."""

    wall: float
    cpu: float
    """Of all threads of this process: what other processes on the machine disturb least."""


def alternate(sides: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[Took]]:
    """Run the sides in turn, A B A B, so that a change in the machine's load meets all of them."""
    took: dict[str, list[Took]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            took[name].append(Took(time.perf_counter() - wall, time.process_time() - cpu))
    return took


def ratios(theirs: Sequence[Took], ours: Sequence[Took]) -> tuple[list[float], list[float]]:
    """How many times longer theirs took than ours next to it, by the clock and by CPU time."""
    pairs = list(zip(theirs, ours, strict=True))
    return [a.wall / b.wall for a, b in pairs], [a.cpu / b.cpu for a, b in pairs]


def median_range(values: Sequence[float]) -> str:
    """`median [lowest..highest]`."""
    middle, low, high = (f"{v:,.0f}" if v >= 100 else f"{v:.2f}" for v in (median(values), min(values), max(values)))
    return f"{middle} [{low}..{high}]"


def machine() -> str:
    """The machine, in a line: without it no number means anything."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    cpu = names[0].split(":")[1].strip() if names else "unnamed CPU"
    card = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return (
        f"{card}{platform.machine()}, {cpu}, {os.cpu_count()} cores, torch {torch.__version__} with "
        f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f} at the start"
    )
