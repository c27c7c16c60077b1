"""The native engine: the model's own numbers, whatever else is being sampled, with nothing read twice or kept twice."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from torch import Tensor
from torch._subclasses import FakeTensor
from transformers import PreTrainedTokenizerFast

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.engines import kv_cache
from longloop.engines.engine import NativeEngine
from longloop.engines.kv_cache import KVCache
from longloop.engines.pages import PAGE
from longloop.engines.passes import Eager
from longloop.engines.slots import UNKNOWN, Row
from longloop.learners.local import LocalLearner
from longloop.model.attention import VarlenPlan
from longloop.model.policy import Policy
from longloop.tokens.chat import Chat
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
    """Alone; among seven that join and leave; with one slot, so that all is read again; with prompts read in pieces.
    (tests/invariant/test_row_invariance.py asks for the same bits where there is a slot for everybody.)"""
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

    in_pieces = engine_of(module, slots=2, step_tokens=3)
    for turns in (
        asyncio.run(company(engine_of(module, slots=1))),
        asyncio.run(company(engine_of(module, slots=3))),
        asyncio.run(company(in_pieces)),
        asyncio.run(talk(in_pieces, "mine again", 1, lengths, max_tokens=12)),
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


def test_memory_follows_what_is_live() -> None:
    """Sessions that begin alike take a page each beside the ones they share, and room is taken for no more than the
    context allows."""
    module = plain_module("llama")
    page = 3 * 2 * 16 * PAGE * 4  # layers, both sides, key heads' width, float32
    capped, free = engine_of(module, slots=2, context=340), engine_of(module)
    for engine in (capped, free):
        sample(engine, prompt(0, 325), "s", max_tokens=5)
        assert engine.pages.used == 6 and engine.cache.bytes >= 7 * page
        sample(engine, prompt(0, 325), "t", seed=1, max_tokens=5)
        assert engine.pages.used == 7
    assert capped.cache.bytes <= 13 * page


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("tokens", [1, 3 * PAGE, 6 * PAGE])
def test_sessions_take_turns_when_pages_run_out(tokens: int, ahead: int) -> None:
    """However few there are, every request gets what it would get with many: some wait, some are read again."""
    module = plain_module("llama")

    async def talks(engine: NativeEngine) -> list[list[Sampled]]:
        return await asyncio.gather(
            *(talk(engine, str(n), n, (50, 30 + 20 * n), max_tokens=20 + n, temperature=0.8) for n in range(5))
        )

    roomy, scarce = engine_of(module), engine_of(module, tokens=tokens)
    if ahead:
        scarce._pass = Ahead(scarce.model, scarce.cache, 64)
    for one, other in zip(asyncio.run(talks(scarce)), asyncio.run(talks(roomy)), strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same, 1e-4)
    assert scarce.forwarded > roomy.forwarded
    assert len(scarce.cache.address_P) <= max(tokens // PAGE, 4) + 2


def test_a_card_that_is_full_in_the_middle_of_a_step_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has room for six pages, where all sessions together take twenty: some wait, and get what they would have."""
    module = plain_module("llama")

    async def talks(engine: NativeEngine) -> list[list[Sampled]]:
        return await asyncio.gather(
            *(talk(engine, str(n), n, (90, 60), max_tokens=40, temperature=0.8) for n in range(5))
        )

    roomy, scarce = engine_of(module), engine_of(module)
    wanted = asyncio.run(talks(roomy))
    assert roomy.pages.used == 20
    card = Card(monkeypatch, [], pages=7)
    for one, other in zip(asyncio.run(talks(scarce)), wanted, strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same, 1e-4)
    assert card.refused and card.waited == [] and len(scarce.cache.address_P) <= 7


class Card:
    """Has room for a number of takings one after the other (True, or False for none), or for so many pages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: list[bool], pages: int | None = None) -> None:
        self.waited, self.refused = list[float](), 0
        new_slab = KVCache._new_slab

        def allocated(cache: KVCache, many: int) -> Tensor:
            if many > pages if pages is not None else not room.pop(0):
                self.refused += 1
                raise torch.OutOfMemoryError("no room")
            return new_slab(cache, many)

        monkeypatch.setattr(KVCache, "_new_slab", allocated)
        monkeypatch.setattr(kv_cache, "time", SimpleNamespace(sleep=self.waited.append))


def filled(moves: bool) -> tuple[KVCache, list[Tensor]]:
    cache = KVCache(torch.empty(3, 4), layers=1, most=100, moves=moves)
    assert cache.grow(8, wait=False)
    for number in range(8):
        cache.page(number).normal_()
    return cache, [cache.page(number).clone() for number in range(8)]


@pytest.mark.parametrize("moves", [True, False])
def test_what_was_read_stays_when_memory_grows(moves: bool) -> None:
    """In one slab, or in place beside a further one; more is taken than was asked for, but not beyond what may be."""
    cache, before = filled(moves)
    where = cache.address_P.tolist()
    assert cache.grow(9, wait=False) and len(cache.address_P) == (12 if moves else 9)
    assert (cache.address_P[:8].tolist() == where) is not moves
    assert all(cache.grow(pages, wait=False) for pages in (90, 91, 96)) and len(cache.address_P) == 100
    assert cache.bytes == 100 * before[0].nbytes
    assert all(torch.equal(cache.page(number), page) for number, page in enumerate(before))
    assert not any(cache.page(number).any() for number in range(8, 100))
    assert [cache.page(number).data_ptr() for number in range(100)] == cache.address_P.tolist()
    cache.copy(3, 99)
    assert torch.equal(cache.page(99), before[3])


@pytest.mark.parametrize("moves", [True, False])
def test_a_full_card_is_waited_for_only_if_it_must_be(moves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may give memory back. Nothing is lost meanwhile."""
    cache, before = filled(moves)
    card = Card(monkeypatch, [False, False, False, True])
    assert not cache.grow(16, wait=False) and card.waited == []
    with pytest.warns(UserWarning, match="card is full"):
        assert cache.grow(16, wait=True)
    assert card.waited == [1.0] * 2
    assert all(torch.equal(cache.page(number), page) for number, page in enumerate(before))


def test_memory_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, _ = filled(moves=True)
    card = Card(monkeypatch, [False] * 100)
    with pytest.warns(UserWarning, match="card is full"), pytest.raises(torch.OutOfMemoryError):
        cache.grow(16, wait=True)
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

    def __init__(self, model: Any, cache: KVCache, slots: int) -> None:
        super().__init__(model, cache, slots)
        self._last = np.zeros(slots, dtype=int)

    def __call__(self, row: Row, numbers_PR: np.ndarray) -> Any:
        known_T = np.where(row.ids_T == UNKNOWN, self._last[row.slot_R[row.span_T]], row.ids_T)
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
    engine._pass = Ahead(engine.model, engine.cache, slots)
    found = asyncio.run(talks(engine))
    lengths = [len(turn.ids) for turns in wanted for turn in turns]
    assert min(lengths) < 3 and max(lengths) > 5, "some stop at once and some go on"
    for one, other in zip(found, wanted, strict=True):
        for turn, same in zip(one, other, strict=True):
            assert_same(turn, same)
    turns = sum(map(len, wanted))
    assert slots == 2 or engine.forwarded <= plain.forwarded + turns + 2, "at most one token a turn is read in vain"


def falling_back_to_bytes() -> Chat:
    """A tokenizer in the manner of Llama 2: letters, and bytes for all else, whose decoder takes runs together."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127))]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    made.decoder = decoders.Sequence(steps)
    made.add_special_tokens(["<s>", "</s>"])
    template = "{% for m in messages %}{{ m.content }}</s>{% endfor %}"
    return Chat(PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", chat_template=template))


@pytest.mark.parametrize(
    ("before", "stop"),
    [("完", "✅"), ("任务已经完成", "✅"), ("好的任务已经完成了", "请停止"), ("", "。"), ("ab", "c")],
)
def test_stop_strings_are_found_behind_characters_of_several_tokens(before: str, stop: str) -> None:
    chat = falling_back_to_bytes()
    ids = list(chat.encode(before + stop + " more"))
    assert chat.decode(ids) == before + stop + " more"
    engine: Any = NativeEngine.__new__(NativeEngine)
    engine._may_end, engine._decode = {}, chat.decode
    prompt_ids = [300, 301]
    engine.slots = SimpleNamespace(ids=np.array([[*prompt_ids, *ids]]))
    request: Any = SimpleNamespace(ids=np.array(prompt_ids), slot=0, params=SimpleNamespace(stop=(stop,)))
    ends = [n for n in range(1, len(ids) + 1) if engine._has_stop_string(request, ids[n - 1], 2 + n)]
    assert ends[0] == len(chat.encode(before + stop))
