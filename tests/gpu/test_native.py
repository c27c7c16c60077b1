"""The engine with recorded passes and the learner's packed attention, on a CUDA device, against plain float32."""

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.engines import work_items
from longloop.engines.engine import NativeEngine
from longloop.engines.pages import PAGE
from longloop.engines.sampler import draw, numbers
from longloop.learners.local import LocalLearner
from longloop.model.attention import VarlenPlan, causal
from longloop.model.fused_projections import Projection
from longloop.types import Sample, Sampled, SamplingParams
from tests.support.families import (
    CHAT,
    FAMILIES,
    assert_same,
    engine_of,
    plain_logprobs,
    plain_module,
    policy_of,
    prompt,
    talk,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
LENGTHS = {"a": (200, 7, 1), "b": (3, 90, 5), "c": (11, 2, 2), "d": (70, 70)}


def recorded(module: Any, **options: Any) -> NativeEngine:
    """An engine on the card; options of the policy are dtype and lora_rank."""
    of_policy = {name: options.pop(name) for name in ("dtype", "lora_rank") if name in options}
    return NativeEngine(policy_of(module, device="cuda", **of_policy), CHAT, graphs=True, **options)


async def talks(engine: NativeEngine) -> list[list[Sampled]]:
    return await asyncio.gather(
        *(talk(engine, s, n, LENGTHS[s], temperature=0.8, max_tokens=6 + n) for n, s in enumerate(LENGTHS))
    )


def conversation(number: int, session: str, turns: list[Sampled]) -> list[tuple[list[int], Sampled]]:
    """The ids up to the end of each turn."""
    ids: list[int] = []
    so_far = []
    for turn, said in enumerate(turns):
        ids += [*prompt(100 * number + turn, LENGTHS[session][turn]), *said.ids]
        so_far.append((list(ids), said))
    return so_far


def gaps(engine: NativeEngine) -> np.ndarray:
    """By what part of its probability each sampled token's differs from the learner's."""
    learner = LocalLearner(engine.model, Loop().needs, LearnerConfig(), temperature=0.8, seed=0)
    parts = []
    for number, (session, turns) in enumerate(zip(LENGTHS, asyncio.run(talks(engine)), strict=True)):
        for ids, said in conversation(number, session, turns):
            n, new = len(ids), len(said.ids)
            one = Sample(tuple(ids), (0,) * (n - new) + (1,) * new, (0.0,) * n, (0,) * n, (1.0,) * n, (1.0,) * n)
            parts.append(np.abs(np.exp(learner.logprobs([one])[0][-new:] - said.logprobs) - 1))
    return np.concatenate(parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_passes_are_the_models_own(family: str) -> None:
    """float32, several sessions at once that join and leave: Hugging Face's forward over each whole sequence agrees."""
    module = plain_module(family)
    for options in ({}, {"slots": 2, "step_tokens": 50}):
        for number, (session, turns) in enumerate(
            zip(LENGTHS, asyncio.run(talks(recorded(module, **options))), strict=True)
        ):
            for ids, said in conversation(number, session, turns):
                assert said.logprobs.tolist() == pytest.approx(
                    plain_logprobs(module, ids, len(said.ids), 0.8), abs=2e-3
                )


def test_tokens_are_those_of_the_plain_pass() -> None:
    module = plain_module("llama")
    for one, other in zip(asyncio.run(talks(recorded(module))), asyncio.run(talks(engine_of(module))), strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same, 2e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_sampler_and_learner_agree_in_bfloat16(family: str, lora_rank: int) -> None:
    """With weights large enough to show every mistake; rounding costs a few percent of a token's probability."""
    engine = recorded(plain_module(family), dtype="bfloat16", lora_rank=lora_rank)
    with torch.no_grad():
        torch.manual_seed(0)
        for name, parameter in engine.model.trainable().items():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
    assert gaps(engine).mean() < 0.08


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_compiled_passes_agree_with_the_learner(family: str, lora_rank: int) -> None:
    """In float32. Weights that lie together for them are learned apart, and what was compiled uses what was learned."""
    engine = recorded(plain_module(family), lora_rank=lora_rank, compile=True)
    torch.manual_seed(0)
    for _ in range(2):
        with torch.no_grad():
            for parameter in engine.model.trainable().values():
                parameter.add_(0.05 * torch.randn_like(parameter))
        engine.model.version += 1
        assert gaps(engine).max() < 5e-3
    assert any(isinstance(part, Projection) for part in engine.model.module.modules())


def test_new_weights_are_used_by_old_recordings() -> None:
    """Weights change in place; nothing is recorded again, and what was read with the old ones is read again."""
    module, other = plain_module("llama"), plain_module("llama", seed=9)
    engine = recorded(module)
    asyncio.run(talks(engine))
    before = len(engine._pass._graphs)
    engine.model.module.load_state_dict(other.state_dict())
    engine.model.version += 1
    for number, (session, turns) in enumerate(zip(LENGTHS, asyncio.run(talks(engine)), strict=True)):
        for ids, said in conversation(number, session, turns):
            assert said.logprobs.tolist() == pytest.approx(plain_logprobs(other, ids, len(said.ids), 0.8), abs=2e-3)
    assert len(engine._pass._graphs) <= before + 2


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_few_pages_sample_what_many_do(family: str) -> None:
    """Sessions that are paused in the middle of an answer, while a pass of theirs is under way, and read again."""
    module = plain_module(family)
    scarce = recorded(module, tokens=4 * PAGE)
    for one, other in zip(asyncio.run(talks(scarce)), asyncio.run(talks(recorded(module))), strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same, 2e-3)
    assert len(scarce.cache.address_P) <= 8


def test_long_contexts_beside_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are divided among programs, for single tokens and for spans, and prompts are read in pieces beside them."""
    monkeypatch.setattr("longloop.engines.scheduler._BESIDE", 100)
    lengths = {"a": (440, 7, 1), "b": (3, 150, 5), "c": (300, 2, 120), "d": (70, 70)}
    monkeypatch.setitem(globals(), "LENGTHS", lengths)
    monkeypatch.setattr(work_items, "_LEAST", PAGE)
    module = plain_module("qwen3")
    engine = recorded(module)
    for one, other in zip(asyncio.run(talks(engine)), asyncio.run(talks(engine_of(module))), strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same, 2e-3)
    assert {kind[1] for kind in engine._pass._graphs if kind[3]} == {True, False}


def test_memory_grows_without_moving() -> None:
    """By a sixteenth at most beyond what is used, while passes that were recorded before go on."""
    engine = recorded(plain_module("llama"), context=512)

    async def many() -> None:
        await asyncio.gather(
            *(talk(engine, str(n), n, (100 + 5 * n, 60, 60), temperature=0.8, max_tokens=8) for n in range(40))
        )

    asyncio.run(many())
    assert len(engine.cache._slabs) > 3
    assert len(engine.cache.address_P) - 1 <= 17 / 16 * engine.pages.used + 1


def test_release_gives_all_memory_back() -> None:
    engine = recorded(plain_module("llama"), slots=512)
    asyncio.run(talks(engine))
    engine.release()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    asyncio.run(talks(engine))
    assert torch.cuda.memory_allocated() > before + engine.cache.bytes // 2
    engine.release()
    assert torch.cuda.memory_allocated() <= before + 2**20


@pytest.mark.parametrize("window", [0, 37])
@pytest.mark.parametrize(("heads", "of_keys", "size"), [(9, 3, 64), (8, 8, 128), (4, 1, 256), (6, 2, 80)])
def test_packed_attention_and_its_gradient(heads: int, of_keys: int, size: int, window: int) -> None:
    """Ragged sequences through flash attention, against each alone in float32."""
    torch.manual_seed(0)
    lengths = [5, 200, 1, 64, 64, 131]
    shapes = [(heads, sum(lengths), size), *[(of_keys, sum(lengths), size)] * 2]
    rough = [torch.randn(shape, device="cuda").bfloat16().requires_grad_() for shape in shapes]
    exact = [x.detach().float().requires_grad_() for x in rough]
    out = VarlenPlan(lengths).attend(0, *rough, size**-0.5, window)
    parts = [x.split(lengths, dim=1) for x in exact]
    wanted = torch.cat(
        [causal(*(x[None] for x in qkv), size**-0.5, window)[0].transpose(0, 1) for qkv in zip(*parts, strict=True)]
    )
    assert (out - wanted).abs().max() < 0.03
    weight = torch.randn_like(wanted)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    for mine, theirs in zip(rough, exact, strict=True):
        assert (mine.grad - theirs.grad).abs().max() < 0.02 * theirs.grad.abs().max()


@pytest.mark.parametrize("window", [0, 37])
def test_shared_openings_through_flash_attention(window: int) -> None:
    """Parts that continue another one, against the same in float32, which does not go through flash attention."""
    torch.manual_seed(0)
    lengths, after = [90, 20, 5, 64, 70, 131], [-1, -1, 1, 0, 0, -1]
    shapes = [(9, sum(lengths), 64), *[(3, sum(lengths), 64)] * 2]
    rough = [torch.randn(shape, device="cuda").bfloat16().requires_grad_() for shape in shapes]
    exact = [x.detach().float().requires_grad_() for x in rough]
    out, wanted = (VarlenPlan(lengths, after).attend(0, *qkv, 0.125, window) for qkv in (rough, exact))
    assert (out - wanted).abs().max() < 0.03
    weight = torch.randn_like(wanted)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    for mine, theirs in zip(rough, exact, strict=True):
        assert (mine.grad - theirs.grad).abs().max() < 0.02 * theirs.grad.abs().max()


def test_a_truncated_draw_compiles_for_a_large_vocabulary() -> None:
    torch.manual_seed(0)
    logits = torch.randn(16, 151_936, device="cuda")
    given = numbers([SamplingParams(temperature=0.7, top_p=0.8)] * 16, np.linspace(0.01, 0.99, 16).tolist())
    rows = torch.from_numpy(given).to("cuda")
    compiled = torch.compile(draw, dynamic=True, fullgraph=True)
    (ids, logprobs), (same, close) = draw(logits, *rows, truncate=True), compiled(logits, *rows, truncate=True)
    assert ids.tolist() == same.tolist()
    assert logprobs.tolist() == pytest.approx(close.tolist(), abs=1e-4)
