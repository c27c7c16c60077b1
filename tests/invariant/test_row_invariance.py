"""On a CPU, what a request gets depends on its own conversation alone, to the last bit.

Who else is being sampled, in which order requests arrive, how prompts are cut into passes and whose opening is reused
depend on how busy the machine is. None of it may show in a token or a log-prob: equal seeds must give equal runs.
"""

import asyncio
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from longloop.config import ModelConfig
from longloop.engines import equal_rows
from longloop.engines.engine import NativeEngine
from longloop.engines.slots import Slots
from longloop.model.policy import load
from longloop.tokens.chat import Chat
from longloop.types import Sampled
from tests.support.families import CHAT, FAMILIES, V, ask, plain_module, policy_of, prompt

OPENING = prompt(0, 150)
TURNS = {
    name: [OPENING[: 150 - cut] + prompt(n, 40 + 30 * n), prompt(10 + n, 1 + 25 * n), prompt(20 + n, 3)]
    for n, (name, cut) in enumerate({"a": 0, "b": 0, "c": 20, "d": 149, "e": 0}.items())
}
"""Conversations that begin alike, in part; some are long enough to see several blocks of keys."""


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


async def talk(engine: NativeEngine, name: str, delays: random.Random) -> list[Sampled]:
    """A conversation whose environment answers after some passes."""
    ids: list[int] = []
    turns = []
    for number, heard in enumerate(TURNS[name]):
        for _ in range(delays.randrange(12)):
            await asyncio.sleep(0)
        ids += heard
        turns.append(await ask(engine, ids, name, seed=number, max_tokens=4 + 3 * number, temperature=0.9))
        ids += turns[-1].ids.tolist()
    return turns


def talks(policy: Any, chat: Chat, seed: int, names: str, **options: Any) -> dict[str, list[Sampled]]:
    """The conversations of `names`, side by side, in an engine of their own."""

    async def together() -> list[list[Sampled]]:
        engine, delays = NativeEngine(policy, chat, **options), random.Random(seed)
        return await asyncio.gather(*(talk(engine, name, delays) for name in names))

    return dict(zip(names, asyncio.run(together()), strict=True))


def assert_equal_however_sampled(policy: Any, chat: Chat) -> None:
    alone = {name: talks(policy, chat, 0, name, slots=8)[name] for name in TURNS}
    assert len({tuple(turns[0].ids.tolist()) for turns in alone.values()}) > 1
    for seed, (names, step_tokens) in enumerate([("abcde", 4096), ("edcba", 50), ("bd", 33)]):
        for name, turns in talks(policy, chat, seed, names, slots=8, step_tokens=step_tokens).items():
            assert turns == alone[name], f"{name} among {names}, {step_tokens} tokens a pass"


@pytest.mark.parametrize(("family", "count"), [*((family, 1) for family in FAMILIES), ("gemma3", 2)])
def test_tokens_and_log_probs_of_every_family(family: str, count: int) -> None:
    """With one thread and with two, which share the work of a product in another way."""
    with threads(count):
        assert_equal_however_sampled(policy_of(plain_module(family, window=37)), CHAT)


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_tokens_and_log_probs_of_the_novice(lora_rank: int) -> None:
    """Its products have the sizes at which libraries begin to choose between ways of computing."""
    policy = load(ModelConfig(path="novice", device="cpu", lora_rank=lora_rank), seed=0)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
    with threads(1):
        assert_equal_however_sampled(policy, Chat(policy.tokenizer))


SIZES = {
    "quick start": {"hidden_size": 160, "intermediate_size": 480, "num_attention_heads": 4, "num_key_value_heads": 2},
    "small": {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4},
}
"""What products are like in the quick start's model, and in that of the benchmarks on a CPU."""

PROMPTS = {n: OPENING[:opening] + prompt(30 + n, length) for n, (opening, length) in enumerate([(150, 0), (64, 3)])}
PROMPTS |= {n: prompt(30 + n, length) for n, length in enumerate([1, 31, 33, 64, 65, 2, 97, 129], start=len(PROMPTS))}
PROMPTS |= {n: prompt(30 + n, 5 * n) for n in range(len(PROMPTS), 17)}


def answers(engine: NativeEngine, chosen: Sequence[int], attempt: int = 0) -> dict[int, Sampled]:
    """What the engine says to some of the prompts, all at once. Each prompt and attempt is a session of its own."""

    async def together() -> list[Sampled]:
        return await asyncio.gather(*(ask(engine, PROMPTS[n], f"{n}/{attempt}", max_tokens=4) for n in chosen))

    return dict(zip(chosen, asyncio.run(together()), strict=True))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_whatever_the_company(size: str, count: int) -> None:
    """Among 1, 2, 3, 7 and 16 others, in any order, in any pages, in spans of any length, in forks of any prompt.

    The second time that an engine is asked, it has read all of each prompt but the last token, which then comes alone.
    """
    torch.manual_seed(0)
    common = {"vocab_size": V, "num_hidden_layers": 2, "bos_token_id": None, "eos_token_id": None}
    policy = policy_of(LlamaForCausalLM(LlamaConfig(initializer_range=0.1, **common, **SIZES[size])).eval())
    chance = random.Random(0)
    with threads(count):
        alone = {n: answers(NativeEngine(policy, CHAT, slots=1), [n])[n] for n in PROMPTS}
        used = NativeEngine(policy, CHAT, slots=40)
        for attempt, others in enumerate((1, 2, 3, 7, 16) if count == 1 else (3, 16)):
            chosen = chance.sample(list(PROMPTS), 1 + others)
            for name, engine in {
                "in a new engine": NativeEngine(policy, CHAT, slots=20),
                "in pieces": NativeEngine(policy, CHAT, slots=20, step_tokens=chance.randrange(1, 70)),
                "in an engine that has read much, and forgotten some of it": used,
            }.items():
                assert answers(engine, chosen, attempt) == {n: alone[n] for n in chosen}, f"{name}, {others} others"
                assert answers(engine, chosen[::-1], attempt + 10) == {n: alone[n] for n in chosen}, f"again, {name}"
            for n in chance.sample(chosen, len(chosen) // 2):
                used.forget(f"{n}/{attempt}")


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="needs MKL, whose kernels can be chosen")
def test_a_machine_without_avx512() -> None:
    """MKL's kernels for AVX2 add up the last two of 32 rows in another order. They are chosen when a process begins."""
    code = (
        "from tests.invariant import test_row_invariance as here\n"
        "with here.threads(1): here.assert_equal_however_sampled(here.policy_of(here.plain_module('llama')), here.CHAT)"
    )
    kernels = {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    command, root = [sys.executable, "-W", "error:This machine", "-c", code], Path(__file__).parents[2]
    subprocess.run(command, cwd=root, env=os.environ | kernels, check=True)


@pytest.fixture
def untried() -> Iterator[None]:
    equal_rows.equal_rows.cache_clear()
    yield
    equal_rows.equal_rows.cache_clear()


@pytest.mark.parametrize(("at_a_time", "rows"), [(1, 32), (6, 48), (9, 144)])
@pytest.mark.usefixtures("untried")
def test_the_fewest_rows_that_are_alike(monkeypatch: pytest.MonkeyPatch, at_a_time: int, rows: int) -> None:
    """For kernels that compute so many rows at a time, and those left over in another way."""

    def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        product = torch.ones(len(x), len(weight))
        product[len(x) // at_a_time * at_a_time :] += 2**-23
        return product

    monkeypatch.setattr(equal_rows, "linear", linear)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert equal_rows.equal_rows(1) == rows


@pytest.mark.usefixtures("untried")
def test_a_machine_for_which_no_number_of_rows_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said once for each number of threads."""
    monkeypatch.setattr(equal_rows, "linear", lambda x, weight: torch.arange(len(x)).unsqueeze(1))
    with pytest.warns(UserWarning, match="may differ in the last bits") as said:
        assert [equal_rows.equal_rows(threads) for threads in (1, 7, 7, 1)] == [32] * 4
    assert ["threads: 1" in str(said[0].message), "threads: 7" in str(said[1].message), len(said)] == [True, True, 2]


def test_a_row_in_parts_by_hand() -> None:
    """Two single tokens and spans of 3 and 6, in parts of 4 tokens: 1+1+2, 1+3, 3."""
    slots = Slots(5)
    slots.reserve(20)
    slots.ids[:, :20] = np.arange(100).reshape(5, 20)
    pages = np.arange(5)[:, None]
    slots.length[[4, 1, 0, 2]] = 9, 5, 7, 0
    row = slots.row(np.array([4, 1, 0, 2]), np.array([1, 1, 3, 6]), 2, pages)
    assert row.ids_T.tolist() == [89, 25, 7, 8, 9, *range(40, 46)]
    parts = [
        (part.slot_R.tolist(), part.start_R.tolist(), part.count_R.tolist(), part.singles, part.whole_R.tolist())
        for part in row.cut(4)
    ]
    assert parts == [
        ([4, 1, 0], [9, 5, 7], [1, 1, 2], 2, [True, True, False]),
        ([0, 2], [9, 0], [1, 3], 0, [True, False]),
        ([2], [3], [3], 0, [True]),
    ]
    assert [part.ids_T.tolist() for part in row.cut(4)] == [[89, 25, 7, 8], [9, 40, 41, 42], [43, 44, 45]]
    for part in row.cut(4):
        assert part.page_RW[:, 0].tolist() == part.slot_R.tolist()
        assert part.ids_T.tolist() == (20 * part.slot_R[part.span_T] + part.position_T).tolist()
