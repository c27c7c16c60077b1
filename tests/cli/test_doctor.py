"""`longloop doctor --memory`: what it shows, what it advises, that its advice holds; and what a run stores of it."""

import json
import re

import pytest
from transformers import LlamaConfig

from longloop import api
from longloop import config as configs
from longloop.cli import doctor
from longloop.config import Config
from longloop.memory import shapes
from longloop.memory.forecast import Ledger, kv_pages, limits
from tests.support.helpers import load_config, write_config

GIB = 2**30


@pytest.fixture
def shape_only(tmp_path):
    """A model's folder with its config.json and nothing else: a few wide layers, 0.8 GiB of float32 weights."""
    folder = tmp_path / "model"
    LlamaConfig(
        vocab_size=20000,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
    ).save_pretrained(folder)
    assert [file.name for file in folder.iterdir()] == ["config.json"]
    return f"model.path={folder}"


def test_table_and_verdict(command, tmp_path, shape_only):
    """Four ways to train, the configured one marked; no weights are there to be read."""
    code, said, _ = command("doctor", str(write_config(tmp_path)), "--memory", shape_only, "model.lora_rank=8")
    assert code == 0
    for words in ("full", "LoRA r=8", "checkpointing", "(configured)", "float32 weights", "working memory", "KV cache"):
        assert words in said
    rows = {line[:20].strip(): re.findall(r"[\d,.]+", line[20:]) for line in said.splitlines()}
    assert len(rows["weights"]) == len(rows["peak"]) == 4
    assert float(rows["weights"][0]) == pytest.approx(
        api.forecast(_config(tmp_path, shape_only)).weights / GIB, abs=0.1
    )
    assert "The peak is the update: " in said and "It fits into the " in said and "\x1b" not in said


def test_numbers_for_machines(command, tmp_path, shape_only):
    path = str(write_config(tmp_path))
    _, said, _ = command("doctor", "--memory", path, shape_only, "--json", "learner.checkpointing=true")
    found = json.loads(said)
    assert found["configured"] == "full, checkpointing" and found["fits"] and found["advice"] is None
    config = _config(tmp_path, shape_only, "learner.checkpointing=true")
    assert found["memory"]["full, checkpointing"] == api.forecast(config).to_json()
    assert len(found["memory"]) == 4 and found["room"] == pytest.approx(api.free_memory(config), rel=0.2)
    one, other = found["memory"]["full"], found["memory"]["full, checkpointing"]
    assert other["activations"] < one["activations"] and other["weights"] == one["weights"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:8000", "The second copy is that of the server at http://127.0.0.1:8000, on this machine."),
        ("http://10.0.0.7:8000", "The server at http://10.0.0.7:8000 holds a second copy of the weights elsewhere"),
    ],
)
def test_a_server_that_samples_is_named(tmp_path, command, url, words):
    """Without one being there."""
    settings = ("model.lora_rank=8", "engine.name=vllm", f"engine.url={url}")
    code, said, _ = command("doctor", str(write_config(tmp_path)), "--memory", *settings)
    assert code == 0 and words in said


def test_advice_holds(command, tmp_path, shape_only):
    """What the advice promises for another card is what the doctor says of the config that takes the advice."""
    arguments = ["doctor", str(write_config(tmp_path)), "--memory", shape_only, "rollout.context=8192"]
    arguments += ["rollout.concurrency=64", "--gpu-gib", "4"]
    _, said, _ = command(*arguments, "--json")
    found = json.loads(said)
    settings, then = found["advice"]["settings"], found["advice"]["memory"]
    assert not found["fits"] and found["room"] == 4 * GIB and then["peak"] <= 0.9 * 4 * GIB
    assert found["memory"]["full"]["fp32_weights"] > 0, "a GPU holds bfloat16"
    words = [f"{key}={str(value).lower()}" for key, value in settings.items()]
    _, said, _ = command(*arguments)
    assert f"It does not fit into 4.0 GiB. With {' '.join(words)} the peak would be" in said
    _, said, _ = command(*arguments, *words, "--json")
    after = json.loads(said)
    assert after["fits"] and after["memory"][after["configured"]] == then


def test_nothing_helps(command, tmp_path, shape_only):
    _, said, _ = command("doctor", str(write_config(tmp_path)), "--memory", shape_only, "--gpu-gib", "0.2")
    assert "Even with " in said and "Take a smaller model or a larger card." in said


def test_a_shape_by_its_name(command, tmp_path, monkeypatch):
    """Of one layer, which is forecast soon; `test_memory_forecast.py` counts the weights of the real ones."""
    monkeypatch.setitem(shapes._NAMED, "one-layer", (LlamaConfig, 1000, 64, 128, 1, 4, 2, True))
    _, said, _ = command("doctor", str(write_config(tmp_path)), "--memory", "--json", "model.path=shape:one-layer")
    weights = 1000 * 64 + 64 * (64 + 32 + 32 + 64) + 3 * 64 * 128 + 3 * 64
    assert json.loads(said)["memory"]["full"]["weights"] == 4 * weights


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu-gib", "80"], ["only --memory can answer"]),
        (["--memory", "model.path=shape:qwen2.5-8b"], ["Did you mean 'qwen2.5-7b'?", "llama-3.1-8b"]),
        (["--memory", "model.path=./nowhere"], ["'./nowhere'", "shape:NAME", "smollm2-135m"]),
        (["--memory", "learner.chunks=1"], ["Did you mean 'learner.chunk'?"]),
        (["--memory", "model.device=cuda:77"], ["no device 'cuda:77'", "--gpu-gib"]),
    ],
)
def test_mistakes(command, tmp_path, arguments, words):
    code, _, said = command("doctor", str(write_config(tmp_path)), *arguments)
    assert code == 2 and said.startswith("longloop: ")
    for word in words:
        assert word in said


# --- what is advised, with made-up forecasts ---


def made_up(config: Config) -> Ledger:
    """1,000 bytes of weights, 300 in 4 bits; a byte of activations per token, or a tenth; a byte of cache for two
    pages."""
    trained = 0 if config.model.lora_rank else 1000
    tokens = max(config.rollout.context, config.learner.micro_tokens)
    return Ledger(
        weights=300 if config.model.quantize else 1000,
        adapters=0,
        fp32_weights=0,
        gradients=trained,
        optimizer=2 * trained,
        second_copy=0,
        activations=tokens // 10 if config.learner.checkpointing else tokens,
        working=0,
        kv=kv_pages(*limits(config)) // 2,
    )


LEAN = ["model.lora_rank=4", "learner.checkpointing=true", "rollout.concurrency=8"]
SHARDED = ["ranks.count=2", "ranks.shard=2"]


@pytest.mark.parametrize(
    ("room", "overrides", "settings", "peak"),
    [
        (13000, [], {}, 12000),
        (10000, [], {"learner.checkpointing": True}, 7000),
        (7000, [], {"learner.checkpointing": True, "engine.tokens": 6599 * 64}, 6300),
        (7000, ["engine.tokens=500000"], {"learner.checkpointing": True, "engine.tokens": 6599 * 64}, 6300),
        (4500, [], {"learner.checkpointing": True, "model.lora_rank": 16, "engine.tokens": 6099 * 64}, 4050),
        (7000, ["engine.slots=2"], {"learner.checkpointing": True}, 4800),
        (2300, [*LEAN, "learner.micro_tokens=40000"], {"learner.micro_tokens": 8000}, 1800),
        (1700, LEAN, {"model.quantize": "nf4"}, 1100),
        (1100, LEAN, {"model.quantize": "nf4", "rollout.context": 4000, "learner.micro_tokens": 4000}, 700),
        (450, LEAN, {"model.quantize": "nf4", "rollout.context": 2000, "learner.micro_tokens": 2000}, 500),
        (1700, [*LEAN, *SHARDED], {"rollout.context": 4000, "learner.micro_tokens": 4000}, 1400),
    ],
)
def test_remedies(tmp_path, room, overrides, settings, peak):
    """The update comes first, then sampling; advice leaves a tenth free, and stops where nothing is left to lower."""
    plain = ["rollout.context=8000", "rollout.concurrency=64", "learner.micro_tokens=8000"]
    found, book = doctor.remedy(_config(tmp_path, *plain, *overrides), room, made_up)
    assert found == settings and book.peak == peak


def test_a_model_in_four_bits_has_adapters(tmp_path):
    names = doctor.variants(_config(tmp_path, "model.lora_rank=4", "model.quantize=nf4"))
    assert list(names) == ["LoRA r=4, nf4", "LoRA r=4, nf4, checkpointing"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["learner.micro_tokens=90000"], ["The peak is the update: ", "part of it activations."]),
        (["rollout.context=9000", "rollout.concurrency=999"], ["The peak is sampling: ", "part of it KV cache."]),
    ],
)
def test_which_part_is_the_peak(tmp_path, overrides, words):
    book = made_up(_config(tmp_path, *overrides))
    assert all(word in doctor.verdict(book, 10**9, {}, book) for word in words)


def test_tight(tmp_path):
    book = made_up(_config(tmp_path))
    assert "It just fits" in doctor.verdict(book, int(book.peak * 1.05), {}, book)
    assert "It fits" in doctor.verdict(book, int(book.peak * 1.2), {}, book)


# --- what a run stores ---


def test_a_run_stores_what_was_foreseen(command, tmp_path):
    folder = tmp_path / "runs"
    assert command("train", str(write_config(tmp_path)), f"folder={folder}", "steps=1")[0] == 0
    facts = json.loads((folder / "test" / "run.json").read_text())
    assert facts["memory"] == api.forecast(load_config(tmp_path)).to_json()
    assert facts["memory"]["peak"] > facts["memory"]["weights"] > 0 and facts["status"] == "finished"
    unchecked = [f"folder={folder}", "name=other", "steps=1", "learner.memory_check=false"]
    assert command("train", str(write_config(tmp_path)), *unchecked)[0] == 0
    assert "memory" not in json.loads((folder / "other" / "run.json").read_text())


def _config(tmp_path, *overrides: str) -> Config:
    return configs.load(write_config(tmp_path), overrides)
