"""The native engine: the model's own numbers, whatever else is being sampled, with nothing read twice or kept twice."""

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.engines.engine import NativeEngine
from longloop.engines.kv_cache import KVCache
from longloop.engines.passes import Eager
from longloop.engines.slots import UNKNOWN, Row
from longloop.learners.local import LocalLearner
from longloop.model.attention import VarlenPlan
from longloop.model.policy import Policy
from longloop.types import Minibatch, Sample, Sampled
from tests.support.families import (
    CHAT,
    FAMILIES,
    V,
    ask,
    assert_same,
    engine_of,
    plain_logprobs,
    plain_module,
    policy_of,
    prompt,
    sample,
    talk,
)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_logprobs_are_the_models_own(family: str, attention: str) -> None:
    """Over several turns and several sessions at once, against Hugging Face's forward over each whole sequence."""
    module = plain_module(family, attention=attention)
    engine = engine_of(module)
    lengths = {"a": (20, 7, 1), "b": (3, 30, 5), "c": (11, 2, 2)}

    async def all_talks() -> list[list[Sampled]]:
        talks = (talk(engine, s, n, lengths[s], temperature=0.8) for n, s in enumerate(lengths))
        return await asyncio.gather(*talks)

    for number, (session, turns) in enumerate(zip(lengths, asyncio.run(all_talks()), strict=True)):
        ids: list[int] = []
        for turn, said in enumerate(turns):
            ids += [*prompt(100 * number + turn, lengths[session][turn]), *said.ids]
            assert said.logprobs.tolist() == pytest.approx(plain_logprobs(module, ids, 10, 0.8), abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_logprobs_are_the_models_own(family: str) -> None:
    """The learner's path: sequences of many lengths end to end, in one forward pass or in several."""
    module = plain_module(family)
    lengths = [5, 33, 5, 2, 20, 33, 9]
    samples = [_sample(prompt(n, length), place=n) for n, length in enumerate(lengths)]
    for micro_tokens in (1000, 40, 1):
        settings = LearnerConfig(micro_tokens=micro_tokens, chunk=7)
        learner = LocalLearner(policy_of(module), Loop().needs, settings, temperature=0.7, seed=0)
        for one, row in zip(samples, learner.logprobs(samples), strict=True):
            assert row.tolist() == pytest.approx(
                [0.0, *plain_logprobs(module, one.ids, len(one.ids) - 1, 0.7)], abs=1e-4
            )


def _sample(ids: Sequence[int], place: int = 0, prompt: int = 1, logprobs: Sequence[float] = ()) -> Sample:
    n = len(ids)
    mask = (0,) * prompt + (1,) * (n - prompt)
    given = [0.0] * (n - len(logprobs)) + list(logprobs)
    return Sample(tuple(ids), mask, given, (0,) * n, (1.0,) * n, (1.0,) * n, source=(place, 0))


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
def test_the_sliding_window_matters_here(family: str) -> None:
    """Without it these models say something else, so that the tests above would notice its absence."""
    narrow, wide = plain_module(family), plain_module(family, window=500)
    gap = np.subtract(plain_logprobs(narrow, prompt(0, 30), 10), plain_logprobs(wide, prompt(0, 30), 10))
    assert np.abs(gap).max() > 1e-2


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_request_gets_the_same_whatever_else_is_sampled(family: str) -> None:
    """Alone; among seven that join and leave; with one slot, so that all is read again; with prompts read in pieces."""
    module = plain_module(family)
    lengths = (25, 6, 9)
    alone = asyncio.run(talk(engine_of(module), "mine", 1, lengths, max_tokens=12))

    async def company(engine: NativeEngine) -> list[Sampled]:
        async def other(n: int) -> None:
            for _ in range(3 * n):
                await asyncio.sleep(0)
            await talk(engine, f"other {n}", n + 2, (3 + 4 * n, 5), max_tokens=2 + n, temperature=0.5 + 0.1 * n)

        mine, *_ = await asyncio.gather(talk(engine, "mine", 1, lengths, max_tokens=12), *map(other, range(7)))
        return mine

    for options in ({}, {"slots": 1}, {"slots": 3}, {"step_tokens": 4}, {"slots": 2, "step_tokens": 3}):
        for turns in (
            asyncio.run(company(engine_of(module, **options))),
            asyncio.run(talk(engine_of(module, **options), "mine", 1, lengths, max_tokens=12)),
        ):
            for one, other in zip(turns, alone, strict=True):
                assert_same(one, other)


def test_only_what_is_new_is_read() -> None:
    """A session's next turn costs its new tokens. (The last sampled token of a turn was never read.)"""
    engine = engine_of(plain_module("llama"))
    first = prompt(0, 20)
    said = sample(engine, first, max_tokens=5)
    assert engine.forwarded == 20 + 4
    second = [*first, *said.ids, *prompt(1, 6)]
    sample(engine, second, max_tokens=3)
    assert engine.forwarded == 24 + (1 + 6) + 2
    sample(engine, [*first[:10], *prompt(2, 7)], max_tokens=1)  # history was rewritten after ten tokens
    assert engine.forwarded == 33 + 7


@pytest.mark.parametrize(("step_tokens", "allowed"), [(4096, 0), (16, 6 * 16)])
def test_a_groups_opening_is_read_once(step_tokens: int, allowed: int) -> None:
    """Four attempts at two tasks: each opening once, and one token of it again where the attempts part.

    An opening that is read in pieces is waited for too, until it is so nearly done that waiting is not worth it.
    """
    module = plain_module("llama")
    engine = engine_of(module, step_tokens=step_tokens)
    attempts = [(task, k) for k in range(4) for task in range(2)]

    async def groups() -> list[Sampled]:
        requests = (ask(engine, prompt(task, 50), f"{task}/{k}", seed=k, max_tokens=5) for task, k in attempts)
        return await asyncio.gather(*requests)

    for (task, _), said in zip(attempts, asyncio.run(groups()), strict=True):
        assert said.logprobs.tolist() == pytest.approx(
            plain_logprobs(module, [*prompt(task, 50), *said.ids], 5), abs=1e-4
        )
    assert 0 <= engine.forwarded - (2 * (50 + 3) + 8 * 4) <= allowed


def test_a_forgotten_session_gives_up_its_slot_first() -> None:
    """Else the session that has waited longest would lose its own, and be read again."""
    engine = engine_of(plain_module("llama"), slots=2)
    said = sample(engine, prompt(0, 20), "a", max_tokens=1)
    sample(engine, prompt(1, 20), "b", max_tokens=1)
    engine.forget("b")
    sample(engine, prompt(2, 20), "c", max_tokens=1)
    before = engine.forwarded
    sample(engine, [*prompt(0, 20), *said.ids, 1], "a", max_tokens=1)
    assert engine.forwarded == before + 2


def test_new_weights_are_used_at_once_and_nothing_old_is_kept() -> None:
    """Once the version changes, also in the middle of a request."""
    module = plain_module("llama")
    engine = engine_of(module)
    policy = engine.model
    sample(engine, prompt(0, 20))
    before = engine.forwarded
    other = plain_module("llama", seed=9)
    policy.module.load_state_dict(other.state_dict())
    policy.version += 1
    said = sample(engine, prompt(0, 20))
    assert engine.forwarded == before + 20 + 9
    assert said.logprobs.tolist() == pytest.approx(plain_logprobs(other, [*prompt(0, 20), *said.ids], 10), abs=1e-4)

    async def changed_midway() -> Sampled:
        request = asyncio.ensure_future(ask(engine, prompt(0, 20), max_tokens=10))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not request.done()
        policy.module.load_state_dict(module.state_dict())
        policy.version += 1
        return await request

    said = asyncio.run(changed_midway())
    assert said.logprobs[-3:].tolist() == pytest.approx(
        plain_logprobs(module, [*prompt(0, 20), *said.ids], 3), abs=1e-4
    )


def test_a_cancelled_request_disturbs_nobody() -> None:
    """The others get what they would have got, and all slots are free afterwards."""
    module = plain_module("llama")
    engine = engine_of(module, slots=3)
    undisturbed = [sample(engine_of(module), prompt(n, 10), seed=n, max_tokens=20) for n in range(5)]

    async def cancel_two() -> list[Any]:
        requests = [asyncio.ensure_future(ask(engine, prompt(n, 10), f"{n}", seed=n, max_tokens=20)) for n in range(5)]
        for _ in range(6):
            await asyncio.sleep(0)
        requests[1].cancel()  # running
        requests[4].cancel()  # waiting for a slot
        return await asyncio.gather(*requests, return_exceptions=True)

    results = asyncio.run(cancel_two())
    for n, result in enumerate(results):
        if n in (1, 4):
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert_same(result, undisturbed[n])
    assert engine.forwarded <= 3 * (10 + 19) + (10 + 6)  # no more was read for the cancelled ones
    for n in (1, 4):
        assert_same(sample(engine, prompt(n, 10), f"again {n}", seed=n, max_tokens=20), undisturbed[n])


def test_an_exception_in_the_model_reaches_every_request() -> None:
    """Those being sampled and those waiting for a slot. What comes later is read anew, not from a torn memory."""
    module = plain_module("llama")
    engine = engine_of(module, slots=2)
    hidden, passes = engine.model.hidden, iter(range(1, 1000))

    def fail_twice(*arguments: Any) -> Tensor:
        if next(passes) in (3, 4):
            raise RuntimeError("out of memory")
        return hidden(*arguments)

    engine.model.hidden = fail_twice

    async def three() -> list[Any]:
        requests = (ask(engine, prompt(n, 10), f"{n}", seed=n) for n in range(3))
        return await asyncio.wait_for(asyncio.gather(*requests, return_exceptions=True), 60)

    assert [str(result) for result in asyncio.run(three())] == ["out of memory"] * 3
    with pytest.raises(RuntimeError, match="out of memory"):
        sample(engine, prompt(7, 10), "7")  # this time while the prompt is read
    for n in (7, 0, 1):
        said = sample(engine, prompt(n, 10), f"{n}", seed=n)
        assert said.logprobs.tolist() == pytest.approx(
            plain_logprobs(module, [*prompt(n, 10), *said.ids], 10), abs=1e-4
        )


def test_release_gives_all_memory_back() -> None:
    engine = engine_of(plain_module("llama"))
    before = sample(engine, prompt(0, 20))
    assert engine.cache.bytes >= 2 * 3 * 29 * 32 // 2 * 4  # both sides, layers, tokens, key heads' width, float32
    engine.release()
    assert engine.cache.bytes == 0
    assert_same(sample(engine, prompt(0, 20)), before)


def test_no_memory_is_taken_beyond_the_context() -> None:
    """It grows as a conversation does, in steps, and stops at the longest there may be."""
    module = plain_module("llama")
    capped, free = engine_of(module, context=340), engine_of(module)
    for engine in (capped, free):
        asyncio.run(talk(engine, "s", 0, (20, 300), max_tokens=5))
    assert capped.slots.capacity == 340 < free.slots.capacity


class Card:
    """Has room for a number of takings one after the other: True, or False for none."""

    def __init__(self, cache: KVCache, monkeypatch: pytest.MonkeyPatch, room: list[bool]) -> None:
        self.room, self.beside, self.waited = room, list[bool](), list[float]()
        zeros = Tensor.new_zeros

        def new_zeros(like: Tensor, *shape: int) -> Tensor:
            self.beside.append(cache._kv is not None)
            if not self.room.pop(0):
                raise torch.OutOfMemoryError("no room")
            return zeros(like, *shape)

        monkeypatch.setattr(Tensor, "new_zeros", new_zeros)
        monkeypatch.setattr(time, "sleep", self.waited.append)


def filled() -> tuple[KVCache, Tensor]:
    cache = KVCache(2, layers=1)
    cache.reserve(8)
    cache.tensor(torch.empty(3, 0, 4)).normal_()
    return cache, cache.tensor().clone()


@pytest.mark.parametrize("room", [[True], [False, True], [False, False, False, True]])
def test_what_was_read_stays_when_memory_grows(room: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what there was; where there is no room for both, by way of the machine's memory; where there is none
    even so, as another process has the card, when that gives some back."""
    cache, before = filled()
    card = Card(cache, monkeypatch, [*room])
    cache.reserve(16)
    assert card.beside == [True, False, False, False][: len(room)] and card.waited == [1.0] * (len(room) - 2)
    assert torch.equal(cache.tensor()[..., :8, :], before)
    assert cache.tensor().shape[-2] == 16 and not cache.tensor()[..., 8:, :].any()


def test_memory_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, _ = filled()
    card = Card(cache, monkeypatch, [False] * 100)
    with pytest.warns(UserWarning, match="card is full"), pytest.raises(torch.OutOfMemoryError):
        cache.reserve(16)
    assert card.waited == [1.0] * 60


def test_one_copy_of_the_weights() -> None:
    """Engine and learner hold the same memory, and no other has its content: after sampling, and after an update."""
    policy = policy_of(plain_module("llama", seed=77))
    engine = NativeEngine(policy, CHAT)
    learner = LocalLearner(policy, Loop().needs, LearnerConfig(), temperature=1.0, seed=0)

    def assert_one_copy() -> None:
        assert engine.model is learner.policy
        held = {name: parameter.data_ptr() for name, parameter in engine.model.module.named_parameters()}
        assert held == {name: parameter.data_ptr() for name, parameter in learner.parameters.items()}
        gc.collect()
        # Compiling, in another test, leaves tensors without content behind.
        real = (x for x in gc.get_objects() if issubclass(type(x), Tensor) and not issubclass(type(x), FakeTensor))
        tensors = [x.detach() for x in real if x.dtype == torch.float32]
        for name, weight in ((name, p.detach()) for name, p in learner.parameters.items() if p.ndim > 1):
            equal = {x.data_ptr() for x in tensors if x.shape == weight.shape and torch.equal(x, weight)}
            assert equal == {held[name]}

    said = sample(engine, prompt(0, 10))
    assert_one_copy()
    one = _sample([*prompt(0, 10), *said.ids], prompt=10, logprobs=said.logprobs)
    assert learner.update(Minibatch([one], 1.0, step=1, on_policy=True), Loop().loss).stop == ""
    assert_one_copy()


def test_adapters_are_live_in_the_engine() -> None:
    """A changed adapter changes what is sampled; without them the base model speaks, to the last bit."""
    module = plain_module("qwen3")
    policy, base = policy_of(module, lora_rank=4), policy_of(module)
    engine = NativeEngine(policy, CHAT)
    ids = prompt(0, 15)
    fresh = sample(engine, ids)  # lora_B begins at zero
    assert_same(fresh, sample(NativeEngine(base, CHAT), ids))
    with torch.no_grad():
        torch.manual_seed(0)
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.normal_(0, 0.3)
    policy.version += 1
    changed = sample(engine, ids, temperature=0.9)
    sequence = [*ids, *changed.ids]
    learner = LocalLearner(policy, Loop().needs, LearnerConfig(), temperature=0.9, seed=0)
    own = learner.logprobs([_sample(sequence)])[0][-10:]
    assert changed.logprobs.tolist() == pytest.approx(own.tolist(), abs=1e-4)
    assert np.abs(np.subtract(changed.logprobs, plain_logprobs(module, sequence, 10, 0.9))).max() > 1e-2

    def all_logits(policy: Policy) -> Tensor:
        with torch.no_grad():
            at = torch.arange(len(sequence))
            return policy.logits(policy.hidden(torch.tensor(sequence), at, VarlenPlan([len(sequence)])))

    with policy.without_adapters():
        assert torch.equal(all_logits(policy), all_logits(base))
    assert not torch.equal(all_logits(policy), all_logits(base))


class Ahead(Eager):
    """Begins the next pass before the last is looked at, as on a GPU: what was drawn is known to it alone."""

    ahead = 1

    def __init__(self, model: Any, cache: KVCache) -> None:
        super().__init__(model, cache)
        self._last = np.zeros(cache.slots, dtype=int)

    def __call__(self, row: Row, numbers_PR: np.ndarray) -> Any:
        known_T = np.where(row.ids_T == UNKNOWN, self._last[row.slot_T], row.ids_T)
        drawn = super().__call__(replace(row, ids_T=known_T), numbers_PR)
        self._last[row.slot_R] = drawn.token_R.numpy()
        return drawn


@pytest.mark.parametrize("slots", [2, 8])
def test_turns_that_stop_early_sample_what_plain_ones_do(slots: int) -> None:
    """A pass is begun before it is known who stopped in the last: who did gets no token too many, others none too few,
    the next turn goes on from there, and a session that is cancelled in the middle disturbs nobody."""
    module = plain_module("llama")
    stops = frozenset(range(0, V, 4))

    async def talks(engine: Any) -> list[list[Sampled]]:
        gone = asyncio.create_task(ask(engine, prompt(99, 6), "gone", max_tokens=50))
        several = [
            asyncio.create_task(talk(engine, str(n), n, (5, 3, 2), max_tokens=9, stop_ids=stops)) for n in range(5)
        ]
        await several[0]
        gone.cancel()
        return await asyncio.gather(*several)

    plain, engine = engine_of(module, slots=8), engine_of(module, slots=slots)
    wanted = asyncio.run(talks(plain))
    engine._pass = Ahead(engine.model, engine.cache)
    found = asyncio.run(talks(engine))
    lengths = [len(turn.ids) for turns in wanted for turn in turns]
    assert min(lengths) < 3 and max(lengths) > 5, "some stop at once and some go on"
    for one, other in zip(found, wanted, strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same)
    turns = sum(map(len, wanted))
    assert slots == 2 or engine.forwarded <= plain.forwarded + turns + 2, "at most one token a turn is read in vain"
