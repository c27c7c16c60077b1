"""One copy of the weights for several ranks: the engine reads shards in place, the learner gathers them.

Every family on two processes, compared with the same model whole in one.
"""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from rich.console import Console
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3MoeConfig

from longloop import api, build
from longloop.algos.loop import Loop
from longloop.cluster.crew import Crew
from longloop.cluster.exchange import Exchange, raised_by_connection
from longloop.cluster.rank import add_up, learned
from longloop.config import LearnerConfig, ModelConfig, RanksConfig
from longloop.engines import orders as orders_module
from longloop.engines.engine import NativeEngine
from longloop.engines.orders import Follower, telling
from longloop.learners.batching import laid_out, microbatches
from longloop.learners.local import LocalLearner
from longloop.learners.shares import deal
from longloop.memory import forecast
from longloop.model.policy import Policy, load
from longloop.model.shards import Shards, check_shape, cut, load_shard, of_module
from longloop.store.lineage import lineage
from longloop.types import Minibatch, RankLost, Sample, UserError
from tests.support.families import CHAT, FAMILIES, config, plain_module, prompt
from tests.support.gloo import together
from tests.support.helpers import load_config
from tests.support.shards import BIASED, RANK, frozen, gradients, logits, read, sampled, shard_of, talks, whole

MADE_TO_MATTER = 1e-4
"""Differences that a mistake would exceed by far: logits of these models are in the tens."""
AGREES = 2e-3
"""The same for log-probs of whole conversations, read in pieces and at once."""


# --- Both readers, every family.


@pytest.mark.parametrize(
    ("family", "checkpointing"), [*((family, False) for family in FAMILIES), (BIASED, False), ("gemma3", True)]
)
def test_two_readers_of_one_copy(family, checkpointing):
    """To the learner the model is the whole one, to the bit; to the engine up to the order of sums. Every number of a
    matrix is held by one rank, at an address that stays."""
    ranks = together(2, read, family, checkpointing)
    model = whole(family)
    expected = logits(model, prompt(9, 20))
    for rank, (by_engine, by_learner, own, _) in enumerate(ranks):
        assert np.abs(by_engine - expected).max() < MADE_TO_MATTER
        assert by_learner.tobytes() == expected.tobytes()
        model.module.zero_grad()
        for name, gradient in gradients(model, rank).items():
            assert gradient.tobytes() == own[name].tobytes(), name
        assert len(own) == len(model.trainable())
    (*_, first), (*_, second) = ranks
    for name, p in frozen(model).items():
        parts = [first[name]] if p.ndim == 1 else [first[name], second[name]]
        dim = int(p.ndim > 1 and first[name].shape[0] == p.shape[0])
        np.testing.assert_array_equal(np.concatenate(parts, dim), p.numpy(), err_msg=name)
    held = sum(x.size for *_, shard in ranks for x in shard.values())
    assert held < 1.05 * sum(p.numel() for p in frozen(model).values()), "norms and biases are on both"


# --- The engine: one rank schedules, the other follows.


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_tokens_are_those_of_one_rank(family):
    """And log-probs those of the learner, with the first weights and with others. (All families: `by_engine` above, and
    tests/gpu/test_sharded.py.)"""
    ((said, gap), (_, later)), (cache, left) = together(2, sampled, family)
    assert max(gap, later) < AGREES
    for mine, theirs in zip(talks(NativeEngine(whole(family), CHAT, slots=6)), said, strict=True):
        for (ids, logprobs), (other_ids, other_logprobs) in zip(mine, theirs, strict=True):
            assert ids == other_ids
            assert logprobs == pytest.approx(other_logprobs, abs=MADE_TO_MATTER)
    assert cache[2] == config(family).num_key_value_heads // 2, "a rank keeps keys and values of its own heads"
    assert left == 0


def _failed(exchange: Exchange) -> Any:
    """A follower that fails in a pass: what the first rank knows before and after, and how the other ends."""
    orders = dist.new_group([0, 1])
    if exchange.rank == 0:
        before = exchange.last_words(1)
        telling(orders)(None)
        dist.barrier()
        return before, exchange.last_words(1)
    codes, gone = list[int](), threading.Event()
    module: Any = orders_module
    module.os = SimpleNamespace(_exit=lambda code: (codes.append(code), gone.set()))
    Follower(lambda order: [][0], orders, exchange.leave_word)
    assert gone.wait(60)
    dist.barrier()
    return codes


def test_a_follower_that_fails_ends_its_process():
    """The others are in the middle of the pass, and wait for it: a dead process is noticed, a silent one is not. The
    first rank can say what ended it."""
    assert together(2, _failed) == [("", "IndexError: list index out of range"), [1]]


def _left_alone(exchange: Exchange) -> bool:
    """What the first rank is told by a connection that the other has closed, and by a product that does not fit."""
    if exchange.rank:
        return True
    with pytest.raises(RuntimeError) as raised:
        exchange.receive((3,), 1)
    return raised_by_connection(raised.value)


def test_only_a_lost_connection_is_called_lost_ranks(monkeypatch):
    assert together(2, _left_alone) == [True, True]
    crew = Crew.__new__(Crew)
    crew._config, crew._doing = RanksConfig(count=2, shard=2), "playing attempts"
    monkeypatch.setattr(crew, "_raise_others", lambda: None)
    monkeypatch.setattr(crew, "_look", lambda: None)
    with pytest.raises(RankLost, match="lost each other while playing attempts"), crew.explained():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:525] Connection closed by peer")
    with pytest.raises(RuntimeError, match="cannot be multiplied") as raised, crew.explained():
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not isinstance(raised.value, RankLost)


def test_recordings_go_before_the_connection_that_they_use():
    """NCCL would wait for them for ever."""
    ended = list[str]()
    crew: Any = Crew.__new__(Crew)
    crew._ray, crew.others = SimpleNamespace(wait=lambda *given, **options: None), []
    crew._engine = SimpleNamespace(close=lambda: ended.append("recordings"))
    crew._exchange = SimpleNamespace(close=lambda: ended.append("connection"))
    crew.close()
    assert ended == ["recordings", "connection"]


def test_only_the_thread_that_samples_reads_in_place():
    """A rank that follows passes in one thread learns in another."""
    shards, seen = Shards(0, 2), list[bool]()
    with shards.in_place():
        other = threading.Thread(target=lambda: seen.append(shards.reading))
        other.start()
        other.join()
        assert shards.reading
    assert seen == [False] and not shards.reading


# --- LOOP's step.


def _minibatch() -> Minibatch:
    """Eleven samples of different lengths: micro-batches that two ranks cannot share equally."""
    samples = []
    for number in range(11):
        size = 6 + number
        mask = np.arange(size) > 2
        chance = np.random.default_rng(number)
        advantages, zeros = np.full(size, chance.normal()) * mask, np.zeros(size, int)
        ids = np.array(prompt(number, size))
        samples.append(Sample(ids, mask, np.full(size, -4.0), zeros, advantages, mask * 1.0, source=(0, number)))
    return Minibatch(samples, norm=11.0, step=1, on_policy=False)


def _learner(policy: Policy, checkpointing: bool = False) -> LocalLearner:
    settings = LearnerConfig(micro_tokens=20, chunk=8, checkpointing=checkpointing)
    return LocalLearner(policy, Loop(lr=0.01, kl_guard=1e9).needs, settings, 1.0, 0, RanksConfig(shares=4))


def _stepped(exchange: Exchange, family: str) -> Any:
    learner = _learner(shard_of(family, exchange), checkpointing=family == "qwen2")
    minibatch = _minibatch()
    pieces = microbatches(minibatch.samples, 20, minibatch.whole_units)
    dealt = deal([laid_out(piece) for piece in pieces], 4)
    blocks = [[[pieces[n] for n in share] for share in dealt[first : first + 2]] for first in (0, 2)]
    passes = [sum(map(len, block)) for block in blocks]
    scores = []
    for _ in range(2):
        row = learned(learner, "scores", blocks[exchange.rank], max(passes), ["logprobs"], False)[0]
        scores += [x.tolist() for (column,) in row for x in column]
        learned(learner, "gradients", blocks[exchange.rank], max(passes), minibatch, Loop().loss)
        add_up(exchange, learner)
        learner.clip()
        learner.step(1.0)
    return passes, scores, {name: p.detach().numpy() for name, p in learner.parameters.items()}


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_two_updates_have_the_bits_of_one_rank(family):
    """Shares are added up in the same tree, and gathered weights are the whole ones. One rank has one pass more."""
    ranks = together(2, _stepped, family)
    learner = _learner(whole(family), checkpointing=family == "qwen2")
    for _ in range(2):
        assert not learner.update(_minibatch(), Loop().loss).stop
    for passes, scores, weights in ranks:
        assert passes[0] != passes[1] and len(scores) > 4
        for name, p in learner.parameters.items():
            assert p.detach().numpy().tobytes() == weights[name].tobytes(), name


# --- Loading.


def _loaded(exchange: Exchange, folder: str) -> Any:
    shards = Shards(exchange.rank, exchange.count)
    policy = load(ModelConfig(path=folder, lora_rank=RANK, device="cpu", dtype="float32"), 3, shards=shards)
    return {name: p.detach().numpy() for name, p in policy.module.named_parameters()}, logits(policy, prompt(1, 9))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rank_reads_its_own_slice_from_safetensors(family, tmp_path):
    """In one file or in several: adapters too are those that one rank would make."""
    module = plain_module(family)
    module.save_pretrained(tmp_path, max_shard_size="8KB" if family == "qwen3" else "1GB")
    assert (family == "qwen3") == (tmp_path / "model.safetensors.index.json").exists()
    CHAT.tokenizer.save_pretrained(tmp_path)
    expected = load(ModelConfig(path=str(tmp_path), lora_rank=RANK, device="cpu", dtype="float32"), 3)
    for rank, (weights, found) in enumerate(together(2, _loaded, str(tmp_path))):
        assert found.tobytes() == logits(expected, prompt(1, 9)).tobytes()
        for name, p in expected.module.named_parameters():
            own = p.detach().numpy()
            if weights[name].shape != own.shape:
                dim = int(weights[name].shape[0] == own.shape[0])
                own = np.split(own, 2, dim)[rank]
            np.testing.assert_array_equal(weights[name], own, err_msg=name)


def test_no_more_than_a_slice_is_ever_read(tmp_path, monkeypatch):
    """No module has a whole matrix at any time, and no matrix is read whole."""
    module = plain_module("llama")
    module.save_pretrained(tmp_path)
    most = max(p.numel() for p in module.parameters())
    asked = []
    shards = Shards(1, 2)
    part = shards.cut
    monkeypatch.setattr(shards, "cut", lambda size: asked.append(size) or part(size))
    made = load_shard(tmp_path, torch.float32, shards)
    assert max(p.numel() for p in made.parameters()) == most // 2
    assert len(asked) == sum(p.ndim > 1 for p in module.parameters())
    assert not any(p.is_meta or p.requires_grad for p in made.parameters())


def test_what_cannot_be_divided_is_refused(tmp_path):
    sizes: Any = {"vocab_size": 48, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 24}
    shape = LlamaConfig(**sizes, num_key_value_heads=2, num_hidden_layers=1)
    check_shape(shape, 2)
    with pytest.raises(UserError, match=r"ranks.shard=4 does not divide the model's key/value heads, 2. It can be 2;"):
        check_shape(shape, 4)
    odd = LlamaConfig(**sizes | {"vocab_size": 49}, num_key_value_heads=2, num_hidden_layers=1)
    with pytest.raises(UserError, match=r"tokens in its vocabulary, 49. No number of shards does"):
        check_shape(odd, 2)
    experts = Qwen3MoeConfig(
        **sizes, num_key_value_heads=2, num_hidden_layers=1, num_experts=2, moe_intermediate_size=8, head_dim=8
    )
    with pytest.raises(UserError, match=r"cannot divide \(model.layers.0.mlp"):
        cut(AutoModelForCausalLM.from_config(experts), Shards(0, 2), of_module(Shards(0, 2)))
    with pytest.raises(UserError, match="is read from a folder"):
        load_shard(tmp_path / "nowhere", torch.float32, Shards(0, 2))
    shape.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no safetensors"):
        load_shard(tmp_path, torch.float32, Shards(0, 2))


def test_what_shards_cannot_do_is_refused_before_anything_is_started(tmp_path):
    with pytest.raises(UserError, match=r"'ranks.shard' in .*: Input should be at most ranks.count, which is 2"):
        load_config(tmp_path, "ranks.count=2", "ranks.shard=4")
    pair = ["ranks.count=2", "ranks.shard=2"]
    for settings in (pair, [*pair, "model.lora_rank=4", "learner.compile=true"]):
        for ask in (api.forecast, lambda asked: api.trained(asked, None, Console(quiet=True))):
            with pytest.raises(UserError, match="trains adapters, uncompiled"):
                ask(load_config(tmp_path, *settings))
    config = load_config(tmp_path, *pair, "model.lora_rank=4")
    with pytest.raises(UserError, match="exists only while a run trains it"):
        api.prepared(config)
    with pytest.raises(UserError, match="cannot begin with another run's adapters"):
        build.policy_of([*lineage(config)] * 2, Shards(0, 2))
    assert not (tmp_path / "runs").exists()


def test_methods_that_read_hidden_states_alone_are_refused():
    learner = LocalLearner.__new__(LocalLearner)
    learner.policy = SimpleNamespace(shards=Shards(0, 2))  # type: ignore[assignment]
    for asked in (learner._hidden, learner._actions):
        with pytest.raises(UserError, match="fits heads to hidden states"):
            asked([])


# --- Memory.


def test_the_ledger_counts_copies():
    shape, settings = plain_module("llama").config, LearnerConfig(micro_tokens=64)
    model = ModelConfig(device="cpu", dtype="float32", lora_rank=RANK)

    def book(count: int, shard: int) -> forecast.Ledger:
        return forecast.forecast(
            shape, model, settings, Loop().needs, 64, 4, ranks=RanksConfig(count=count, shard=shard, shares=count)
        )

    alone, replicas, shards = book(1, 1), book(2, 1), book(2, 2)
    assert (alone.copies, replicas.copies) == (1.0, 2.0) and "copies" not in str(alone)
    held = sum(p.nbytes for p in frozen(_alone(Shards(0, 2))).values())
    assert shards.weights == held and shards.kv == alone.kv // 2 and shards.adapters == alone.adapters
    assert shards.copies == pytest.approx(2 * held / alone.weights) and shards.copies < 1.02
    assert "copies" not in shards.to_json(), "these are bytes"
    assert str(shards).endswith(f"copies of the weights on all ranks: {shards.copies:.2f}")


def _alone(shards: Shards) -> Any:
    """A shard whose process has no others: it can be looked at, and cannot run."""
    policy = Policy.__new__(Policy)
    policy.module = cut(plain_module("llama"), shards, of_module(shards))
    return policy
