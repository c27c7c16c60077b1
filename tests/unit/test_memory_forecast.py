"""What memory is foreseen is what an update takes.

The real peak is what torch's allocator says: its profiler notes every block that is taken and given back, those within
kernels too. The forecast follows tensors without content and knows nothing of it.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from longloop import api
from longloop.algos.grpo import Grpo
from longloop.algos.loop import Loop
from longloop.algos.ppo import Ppo
from longloop.config import LearnerConfig, ModelConfig, RanksConfig
from longloop.diagnose import cost
from longloop.diagnose.preflight import preflight
from longloop.learners.local import LocalLearner
from longloop.memory import forecast, shapes
from longloop.memory.forecast import Ledger
from longloop.model.policy import Policy
from longloop.types import Minibatch, Sample, UserError
from tests.support.families import engine_of, plain_module, prompt, sample
from tests.support.helpers import load_config

TOKENS, CHUNK = 256, 64
_ENDS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def sizes(vocabulary: int, hidden: int, mlp: int, layers: int, heads: int, kv_heads: int, tied: bool) -> dict:
    return _ENDS | {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
    }


SHAPES: dict[str, PreTrainedConfig] = {
    "llama, untied, large vocabulary": LlamaConfig(**sizes(8000, 96, 256, 3, 6, 2, False)),
    "llama, tied, narrow": LlamaConfig(**sizes(512, 128, 384, 4, 8, 8, True)),
    "qwen2.5, untied, wide MLP": Qwen2Config(**sizes(1500, 128, 768, 2, 4, 2, False)),
    "qwen3, tied": Qwen3Config(**sizes(4000, 96, 288, 4, 3, 1, True), head_dim=32),
    "gemma3, tied, windows": Gemma3TextConfig(
        **sizes(3000, 96, 384, 3, 4, 2, True),
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=50,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
}


def blocks(work: Callable[[], object]) -> int:
    """The most bytes that work held at once of what it allocated."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def learner_of(
    shape: PreTrainedConfig, algo, model: ModelConfig, config: LearnerConfig, shares: int = 1, count: int = 1
) -> LocalLearner:
    torch.manual_seed(0)
    policy = Policy(AutoModelForCausalLM.from_config(shape), None, model)
    return LocalLearner(policy, algo.needs, config, 1.0, 0, RanksConfig(count=count, shares=max(shares, count)))


def minibatch(count: int, tokens: int) -> Minibatch:
    """Trajectories of which every token but the first is an action."""
    one = Sample(
        ids=tuple(range(tokens)),
        mask=(0,) + (1,) * (tokens - 1),
        logprobs=(-5.0,) * tokens,
        turns=(0,) * tokens,
        advantages=(1.0,) * tokens,
        weights=(1.0,) * tokens,
        columns={"target": (1.0,) * tokens, "value_weight": (1.0,) * tokens},
    )
    return Minibatch([replace(one, source=(0, n)) for n in range(count)], 1.0, step=1, on_policy=False)


def real(algo, learner: LocalLearner, count: int = 2, tokens: int = TOKENS) -> tuple[int, int]:
    """Bytes that are held between updates, and the peak of the second of two updates, by what was allocated."""
    batch = minibatch(count, tokens)
    assert not learner.update(batch, algo.loss).stop
    state = [x for moments in learner.optimizer.state.values() for x in moments.values() if x.ndim]
    tensors = [*learner.policy.module.parameters(), *learner.fp32_weights.apart.values(), *state]
    held = sum(x.nbytes for x in tensors)
    return held, held + blocks(lambda: learner.update(batch, algo.loss))


def foreseen(shape: PreTrainedConfig, model: ModelConfig, tokens: int = TOKENS, algo=None, **learner) -> Ledger:
    config = LearnerConfig(**({"micro_tokens": tokens, "chunk": CHUNK} | learner))
    return forecast.forecast(shape, model, config, (algo or Loop()).needs, tokens, sessions=4)


def test_the_instrument_sees_blocks_come_and_go():
    def work() -> None:
        first = torch.ones(1000)
        second = first * 2  # 8,000 bytes are held
        del first
        (second + 1).sum()  # 4,000, then 8,000 again, and a number

    assert 8000 <= blocks(work) < 8200


@pytest.mark.parametrize(
    ("name", "rank", "checkpointing"),
    [
        *((name, *kind) for name in SHAPES for kind in ((0, False), (8, True))),
        *(
            (name, *kind)
            for name in ("llama, tied, narrow", "gemma3, tied, windows")
            for kind in ((0, True), (8, False))
        ),
    ],
)
def test_peak_of_an_update(name, rank, checkpointing):
    model = ModelConfig(device="cpu", dtype="float32", lora_rank=rank)
    config = LearnerConfig(micro_tokens=TOKENS, chunk=CHUNK, checkpointing=checkpointing)
    algo = Loop(kl_guard=1e9)
    held, peak = real(algo, learner_of(SHAPES[name], algo, model, config))
    book = foreseen(SHAPES[name], model, checkpointing=checkpointing)
    assert book.held == held
    assert book.update == pytest.approx(peak, rel=0.05)
    assert book.update - book.working < 0.97 * peak, "without working memory it would be too little"


@pytest.mark.parametrize(("name", "rank"), [("llama, tied, narrow", 0), ("gemma3, tied, windows", 8)])
def test_peak_of_an_update_in_bfloat16(name, rank):
    """On few tokens: many a CPU has no bfloat16 and takes a minute for what takes a second in float32."""
    model = ModelConfig(device="cpu", dtype="bfloat16", lora_rank=rank)
    config = LearnerConfig(micro_tokens=64, chunk=16)
    algo = Loop(kl_guard=1e9)
    held, peak = real(algo, learner_of(SHAPES[name], algo, model, config), count=2, tokens=64)
    book = foreseen(SHAPES[name], model, tokens=64, chunk=16)
    assert book.held == held and book.fp32_weights == book.gradients == book.optimizer // 2
    assert book.fp32_weights == 2 * (book.adapters if rank else book.weights)
    assert book.update == pytest.approx(peak, rel=0.05)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_of_four_ranks_optimizes_a_slice(dtype):
    """Float32 weights and moments are those of the first rank's slice, about a quarter; gradients are whole."""
    shape, model = SHAPES["qwen2.5, untied, wide MLP"], ModelConfig(device="cpu", dtype=dtype)
    config, algo = LearnerConfig(micro_tokens=64, chunk=16), Loop(kl_guard=1e9)
    learner = learner_of(shape, algo, model, config, count=4)
    held, peak = real(algo, learner, count=2, tokens=64)
    book = forecast.forecast(shape, model, config, algo.needs, 64, sessions=4, ranks=RanksConfig(count=4))
    alone = forecast.forecast(shape, model, config, algo.needs, 64, sessions=4)
    assert book.held == held and book.update == pytest.approx(peak, rel=0.05)
    assert (book.weights, book.gradients) == (alone.weights, alone.gradients)
    assert book.optimizer == pytest.approx(alone.optimizer / 4, rel=0.1)
    assert book.fp32_weights == (book.optimizer // 2 if dtype == "bfloat16" else 0)
    assert forecast.check(learner, 64, 4) == book, "what a run on four ranks says of each"


def test_sums_that_wait_in_the_tree():
    """While the last of eight shares is computed, three sums wait, and the share's own first micro-batch has been
    added. Adapters of a high rank, so that they are seen."""
    shape, model = SHAPES["llama, tied, narrow"], ModelConfig(device="cpu", dtype="float32", lora_rank=64)
    config, algo = LearnerConfig(micro_tokens=64, chunk=16), Loop(kl_guard=1e9)
    held, peak = real(algo, learner_of(shape, algo, model, config, shares=8), count=16, tokens=64)
    book = forecast.forecast(shape, model, config, algo.needs, 64, sessions=4, ranks=RanksConfig(shares=8))
    assert book.held == held and book.gradients == 4 * book.adapters > 0.2 * peak
    assert book.update == pytest.approx(peak, rel=0.05)
    all_weights = forecast.forecast(
        shape, ModelConfig(device="cpu", dtype="float32"), config, algo.needs, 64, 4, ranks=RanksConfig(shares=8)
    )
    assert all_weights.gradients == all_weights.weights


def test_peak_with_a_value_head():
    model = ModelConfig(device="cpu", dtype="float32")
    algo = Ppo(warmup=0, kl_guard=1e9)
    learner = learner_of(SHAPES["llama, tied, narrow"], algo, model, LearnerConfig(micro_tokens=TOKENS, chunk=CHUNK))
    held, peak = real(algo, learner)
    head = sum(p.nbytes for p in learner.heads["value"].parameters())
    book = foreseen(SHAPES["llama, tied, narrow"], model, algo=algo)
    assert book.held == held + head
    assert book.update == pytest.approx(peak + head, rel=0.05)


def test_several_short_sequences_in_a_micro_batch():
    """As in the pack of a real update: attention's mask is that of a sequence, not of the whole row."""
    shape, model = SHAPES["gemma3, tied, windows"], ModelConfig(device="cpu", dtype="float32")
    config = LearnerConfig(micro_tokens=4 * TOKENS, chunk=CHUNK)
    algo = Loop(kl_guard=1e9)
    learner = learner_of(shape, algo, model, config)
    batch = minibatch(8, TOKENS)
    learner.update(batch, algo.loss)
    peak = foreseen(shape, model).held + blocks(lambda: learner.update(batch, algo.loss))
    assert forecast.forecast(shape, model, config, algo.needs, TOKENS, 1).update == pytest.approx(peak, rel=0.05)


def test_longer_than_is_followed(monkeypatch):
    """Beyond a length memory is a straight line."""
    shape, model = SHAPES["llama, untied, large vocabulary"], ModelConfig(device="cpu", dtype="float32")
    whole = foreseen(shape, model, tokens=2048)
    monkeypatch.setattr(forecast, "_FOLLOWED", 512)
    line = foreseen(shape, model, tokens=2048)
    assert line.activations == pytest.approx(whole.activations, rel=0.01)
    assert line.update == pytest.approx(whole.update, rel=0.01)


def test_gpus_keep_no_masks():
    """There, one kernel knows about windows; a CPU keeps [tokens, tokens] for each layer that has one."""
    shape = SHAPES["gemma3, tied, windows"]

    def growth(device: str) -> float:
        model = ModelConfig(device=device, dtype="bfloat16")
        one, other = (foreseen(shape, model, tokens=tokens).activations for tokens in (1000, 2000))
        return other / one

    assert growth("cuda") == pytest.approx(2, rel=0.01)
    assert growth("cpu") > 2.2


def test_second_copy_where_there_are_no_adapters():
    shape, model = SHAPES["qwen3, tied"], ModelConfig(device="cpu", dtype="float32")
    full = foreseen(shape, model, algo=Grpo())
    assert full.second_copy == full.weights
    assert foreseen(shape, model).second_copy == 0
    assert foreseen(shape, ModelConfig(device="cpu", dtype="float32", lora_rank=4), algo=Grpo()).second_copy == 0


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_kv_cache_is_what_the_engine_holds(family):
    """When all sessions have all their tokens; and with a limit to these, of which the longest session is free."""
    shape = plain_module(family).config
    for tokens, pages in ((0, 1 + 4 * 2), (300, 1 + 5), (10, 1 + 2)):
        engine = engine_of(plain_module(family), slots=4, context=100, tokens=tokens)
        for session in range(4):
            sample(engine, prompt(session, 95), str(session), max_tokens=5)
        book = forecast.forecast(
            shape, ModelConfig(device="cpu"), LearnerConfig(), Loop().needs, 100, 4, kv_tokens=tokens
        )
        assert book.kv == engine.cache.bytes == pages * engine.cache.page(0).nbytes
        assert book.collect == book.held + book.kv


@pytest.mark.parametrize(
    "settings", [[], ["model.lora_rank=4", "learner.checkpointing=true"], ["algo.name=grpo"], ["engine.slots=2"]]
)
def test_a_run_says_what_was_foreseen(tmp_path, settings):
    config = load_config(tmp_path, *settings)
    parts = api.prepared(config)
    checked = asyncio.run(preflight(config, parts.world, parts.rollouts, parts.algo, parts.learner, parts.tasks, print))
    assert checked == api.forecast(config)
    assert cost.memory(config, parts.learner)[1] == checked
    assert (checked.kv < api.forecast(load_config(tmp_path)).kv) == ("engine.slots=2" in settings)


@pytest.mark.parametrize("concurrency", [1, 64])
def test_as_many_sessions_are_foreseen_as_the_engine_has_slots(tmp_path, concurrency):
    """However many attempts are played at once: with fewer slots sessions are read again, with more an attempt may have
    several conversations."""
    config = load_config(tmp_path, "engine.slots=3", f"rollout.concurrency={concurrency}", "rollout.context=130")
    engine = api.prepared(config).rollouts.context.engine
    for session in range(3):
        sample(engine, prompt(session, 120), str(session), max_tokens=10)
    assert api.forecast(config).kv == engine.cache.bytes == (1 + 3 * 3) * engine.cache.page(0).nbytes


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("smollm2-135m", 134_515_008),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-32b", 32_763_876_352),
        ("llama-3.1-8b", 8_030_261_248),
    ],
)
def test_named_shapes_have_the_published_number_of_weights(name, weights):
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(shapes.named(name))
    assert sum(p.numel() for p in module.parameters()) == weights


def test_a_model_that_cannot_be_followed():
    """Mixtures of experts are followed in bfloat16; their kernel refuses float32 without content."""
    shape = MixtralConfig(**sizes(200, 32, 48, 2, 4, 2, False))
    assert foreseen(shape, ModelConfig(device="cuda"), tokens=64).activations > 0
    with pytest.raises(UserError, match=r"'mixtral'.*learner\.memory_check=false"):
        foreseen(shape, ModelConfig(device="cpu"), tokens=64)


def test_equal_runs_are_forecast_once(monkeypatch):
    """What differs in any way that memory depends on is forecast anew."""
    plain, asked = forecast.forecast, []
    monkeypatch.setattr(forecast, "_forecasts", {})
    monkeypatch.setattr(forecast, "forecast", lambda *about: asked.append(about) or plain(*about))

    def book(name="llama, tied, narrow", algo=None, model=ModelConfig(), config=LearnerConfig(), longest=64, n=2):  # noqa: B008
        return forecast.check(learner_of(SHAPES[name], algo or Loop(), model, config), longest, n)

    first = book()
    assert book() == first and len(asked) == 1
    for other in (
        {"name": "qwen3, tied"},
        {"algo": Ppo()},
        {"algo": Grpo(kl=0.01)},
        {"model": ModelConfig(dtype="bfloat16")},
        {"config": LearnerConfig(checkpointing=True)},
        {"longest": 128},
        {"n": 3},
    ):
        before = len(asked)
        assert book(**other) != first and len(asked) == before + 1, other


def test_free_memory_is_known_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has neither /proc/meminfo nor this number."""

    def sysconf(name: str | int) -> int:
        if name == "SC_AVPHYS_PAGES":
            raise ValueError("unrecognized configuration name")
        return real(name)

    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", sysconf)
    assert 0 < forecast.available(torch.device("cpu")) <= psutil.virtual_memory().total


GIB = 2**30


def group(folder: Path, version: int, limit: str, used: int, cached: int = 0) -> None:
    """A control group as Linux shows it, of which `cached` bytes are files that were read."""
    names = {1: ("limit_in_bytes", "usage_in_bytes"), 2: ("max", "current")}[version]
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (limit, used), strict=True):
        (folder / f"memory.{name}").write_text(f"{value}\n")
    total = "total_" * (version == 1)
    (folder / "memory.stat").write_text(f"anon {used - cached}\ninactive_file 0\n{total}inactive_file {cached}\n")


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """The folder of all control groups, where the process is in these. The machine has 100 GiB."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100 * GIB))
    monkeypatch.setattr(forecast, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(forecast, "_OWN_GROUPS", tmp_path / "own")

    def said(text: str) -> Path:
        (tmp_path / "own").write_text(text)
        return tmp_path / "groups"

    return said


def free() -> float:
    return forecast.available(torch.device("cpu")) / GIB


def test_files_that_a_container_has_read_take_no_room(groups: Callable[[str], Path], tmp_path: Path) -> None:
    """As those of a large model: without them it uses one of its ten GiB."""
    group(groups("0::/\n"), 2, str(10 * GIB), used=9 * GIB, cached=8 * GIB)
    assert free() == 9
    (tmp_path / "groups" / "memory.stat").unlink()  # gVisor has none
    assert free() == 1


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_of_all_limits_up_to_the_root_holds(groups: Callable[[str], Path], version: int) -> None:
    """The job's, above those of its step and its task, which have none."""
    path, none = "/slurm/job_7/step_0/task_0", {1: str(2**63 - 4096), 2: "max"}[version]
    top = groups(f"9:cpu,cpuacct:/\n4:memory:{path}\n0::/\n" if version == 1 else f"0::{path}\n")
    top /= "memory" * (version == 1)
    group(top, version, none, used=50 * GIB)
    group(top / "slurm", version, str(60 * GIB), used=20 * GIB)
    group(top / "slurm/job_7", version, str(16 * GIB), used=7 * GIB, cached=3 * GIB)
    group(top / "slurm/job_7/step_0", version, none, used=4 * GIB)
    group(top / "slurm/job_7/step_0/task_0", version, none, used=4 * GIB)
    assert free() == 12
    group(top / "slurm", version, str(22 * GIB), used=20 * GIB)
    assert free() == 2


def test_a_container_whose_path_is_the_machines(groups: Callable[[str], Path]) -> None:
    """Version 1 names the group as the machine does, and shows it as the root."""
    group(groups("4:memory:/docker/12ab\n") / "memory", 1, str(4 * GIB), used=GIB)
    assert free() == 3


def test_a_machine_without_limits_or_groups(groups: Callable[[str], Path], tmp_path: Path) -> None:
    groups("5:cpu:/\n0::/user.slice/a:b\n")
    assert free() == 100
    (tmp_path / "own").unlink()
    assert free() == 100
