"""Attempts at one task begin alike; the update computes what they share once, and every number stays as it was."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig, ModelConfig
from longloop.learners.batching import microbatches, pack
from longloop.learners.local import LocalLearner
from longloop.memory import forecast, shapes
from longloop.model.attention import VarlenPlan, causal
from longloop.types import Minibatch, Sample
from tests.support.families import plain_logprobs, plain_module, policy_of, prompt
from tests.support.samples import CPU, assert_close, changed, gradient

MUCH = 10**9


def sample(opening, rest, trajectory, stretch=0):
    """An opening, then turns of three tokens that were chosen and two that were observed; no two rests are alike."""
    draw = random.Random(f"{trajectory}/{stretch}")
    n = len(opening) + rest
    return Sample(
        ids=(*opening, *(draw.randrange(1, 45) for _ in range(rest))),
        mask=(0,) * len(opening) + tuple(int(i % 5 < 3) for i in range(rest)),
        logprobs=(-3.0,) * n,
        turns=(0,) * len(opening) + tuple(i // 5 for i in range(rest)),
        advantages=(1.0,) * n,
        weights=tuple(draw.uniform(0.5, 1.5) for _ in range(n)),
        source=trajectory,
        stretch=stretch,
    )


def group(place, length, *rests):
    return [sample(prompt(place, length), rest, (place, attempt)) for attempt, rest in enumerate(rests)]


def everything():
    """Two groups with ragged rests, one of them longer than a block of queries, and one attempt in two stretches; an
    attempt with an opening of its own; and two whose common opening is too short to be shared."""
    return [
        *group(0, 70, 5, 9, 300, 9, 2),
        sample(prompt(7, 100), 6, (0, 1), stretch=1),
        *group(1, 90, 20, 5),
        *group(2, 80, 9),
        *group(3, 20, 9, 9),
    ]


# 70: 69 are shared by five, whose rests and one token before them are 6 + 10 + 301 + 10 + 3. 90: 89 by two, 21 + 6.
# Whole are the second stretch, 106, the attempt alone, 89, and the two short openings, 29 each.
LAID_OUT = 69 + 330 + 89 + 27 + 106 + 89 + 2 * 29
WHOLE = 75 + 79 + 370 + 79 + 72 + 106 + 110 + 95 + 89 + 2 * 29


def learner_of(module, budget=MUCH, **options):
    return LocalLearner(policy_of(module), Loop().needs, LearnerConfig(micro_tokens=budget, **options), 0.7, seed=0)


def weighted(scored, batch):
    """Every token counts differently, so that none can stand for another."""
    return -(batch.weight_N * scored.logp_N).sum(), {}


def tokens(samples, budget=MUCH, whole_units=False):
    """How many are computed in each micro-batch."""
    return [len(pack(piece, 1, CPU).ids_T) for piece in microbatches(samples, budget, whole_units)]


# --- nothing but the amount of work changes ---


@pytest.mark.parametrize("family", ["llama", "gemma3", "mistral"])
@pytest.mark.parametrize("whole_units", [False, True])
def test_log_probs_and_gradient_are_those_of_each_alone(family, whole_units):
    """However the samples are cut, also within a group; against Hugging Face's own code and against one at a time."""
    module, samples = plain_module(family), everything()
    one_by_one = learner_of(module)
    alone = [gradient(one_by_one, Minibatch([s], 1.0, 1, False), weighted)[0] for s in samples]
    expected = {name: torch.stack([grads[name] for grads in alone]).sum(0) for name in alone[0]}
    for budget in (MUCH, 500, 200, 1):
        learner = learner_of(module, budget)
        for one, row in zip(samples, learner.logprobs(samples), strict=True):
            first = int(one.mask.argmax())
            by_hand = plain_logprobs(module, one.ids, len(one.ids) - first, 0.7)
            chosen = [value * m for value, m in zip(by_hand, one.mask[first:], strict=True)]
            assert row.tolist() == pytest.approx([0.0] * first + chosen, abs=2e-4)
        minibatch = Minibatch(samples, 1.0, 1, False, whole_units=whole_units)
        assert_close(expected, gradient(learner, minibatch, weighted)[0], rtol=2e-5)


@pytest.mark.parametrize("options", [{"checkpointing": True}, {"chunk": 7}])
def test_with_activations_computed_again_and_logits_in_chunks(options):
    module, minibatch = plain_module("gemma3"), Minibatch(everything(), 1.0, 1, False)
    expected, _ = gradient(learner_of(module), minibatch, weighted)
    assert_close(expected, gradient(learner_of(module, **options), minibatch, weighted)[0], rtol=1e-5)


def test_no_attempt_sees_another():
    """Changing all that follows the opening in one attempt changes, to the bit, no other's log-probs."""
    learner, samples = learner_of(plain_module("llama")), group(0, 70, 5, 9, 300, 9)
    before = learner.logprobs(samples)
    for which, one in enumerate(samples):
        ids = [*one.ids[:70], *(1 + (id + 7) % 44 for id in one.ids[70:])]
        after = learner.logprobs([*samples[:which], replace(one, ids=ids), *samples[which + 1 :]])
        alike = [a.tolist() == b.tolist() for a, b in zip(before, after, strict=True)]
        assert alike == [n != which for n in range(4)]


# --- what is laid out ---


def test_tokens_laid_out():
    assert tokens(everything()) == [LAID_OUT] == [768]
    assert sum(len(s.ids) for s in everything()) == WHOLE == 1133


def test_one_token_of_an_opening_decides():
    """Samples share by their ids and nothing else: with another id they no longer do, in another group they do."""
    samples = group(0, 70, 9, 9, 9)
    assert tokens(samples) == [69 + 3 * 10]
    for place in (0, 35, 68):
        other = changed(samples[0], place, ids=samples[0].ids[place] ^ 1)
        assert tokens([other, *samples[1:]]) == [79 + 69 + 2 * 10]
    # The last one before the action is each sample's own in any case.
    assert tokens([changed(samples[0], 69, ids=samples[0].ids[69] ^ 1), *samples[1:]]) == [69 + 3 * 10]
    assert tokens([replace(samples[0], source=(5, 0)), *samples[1:]]) == [69 + 3 * 10]


def test_a_longer_opening_is_another_one():
    """Even if it begins alike."""
    samples = [sample(prompt(0, length), 9, (0, length)) for length in (70, 71)]
    assert tokens(samples) == [79 + 80]


def test_an_opening_of_one_sample_is_not_laid_apart():
    packed = pack(group(2, 80, 9) + group(1, 90, 5), 1, CPU)
    assert packed.lengths == [89, 95] and packed.after == [-1, -1]


def test_short_openings_are_not_shared():
    assert tokens(group(0, 64, 9, 9)) == [2 * 73]
    assert tokens(group(0, 65, 9, 9)) == [64 + 2 * 10]


def test_targets_are_each_samples_own():
    """In the order of the samples. No two read one hidden state: threads would add up its gradient in any order."""
    samples = everything()
    packed = pack(samples, 1, CPU)
    assert packed.target_N.tolist() == [id for s in samples for id, m in zip(s.ids, s.mask, strict=True) if m]
    assert len(set(packed.at_N.tolist())) == len(packed.at_N)
    weights = [w for s in samples for w, m in zip(s.weights, s.mask, strict=True) if m]
    assert packed.batch.weight_N.tolist() == pytest.approx(weights)
    before = [s.ids[i - 1] for s in samples for i, m in enumerate(s.mask) if m]
    assert packed.ids_T[packed.at_N].tolist() == before
    positions = [i - 1 for s in samples for i, m in enumerate(s.mask) if m]
    assert packed.position_T[packed.at_N].tolist() == positions


# --- micro-batches ---


def test_a_cut_group_has_its_opening_in_every_piece():
    """The first of 120 tokens; each further one adds 20, and 7 for a copy of the 100 tokens' keys and values."""
    samples = group(0, 101, 19, 19, 19, 19)
    assert tokens(samples, 120 + 3 * 27) == [100 + 4 * 20]
    assert tokens(samples, 120 + 3 * 27 - 1) == [100 + 3 * 20, 120]
    assert tokens(samples, 120 + 27) == [100 + 2 * 20] * 2
    assert tokens(samples, 120 + 26) == tokens(samples, 1) == [120] * 4


def test_a_group_that_fits_is_not_cut():
    """The first group leaves room for one attempt of the second, which goes with its own."""
    samples = group(0, 101, 19, 19) + group(1, 101, 39, 39)
    assert tokens(samples, 300) == [100 + 2 * 20, 100 + 2 * 40]
    assert tokens(samples, 400) == [140 + 180]


def test_the_order_of_samples_does_not_matter():
    samples = everything()
    for whole in (False, True):
        for budget in (MUCH, 500, 200):
            expected = microbatches(samples, budget, whole)
            for seed in range(3):
                shuffled = random.Random(seed).sample(samples, len(samples))
                assert microbatches(shuffled, budget, whole) == expected
            assert sorted(id(s) for piece in expected for s in piece) == sorted(map(id, samples))


def test_stretches_of_a_trajectory_stay_together():
    """Also where the first one shares an opening with other attempts and the budget cuts their group."""
    for budget in (MUCH, 300, 1):
        for piece in microbatches(everything(), budget, whole_units=True):
            stretches = [s.stretch for s in piece if s.source == (0, 1)]
            assert stretches in ([], [0, 1])


def test_parts_of_one_length_are_neighbours():
    packed = pack([*group(0, 70, 9, 5, 9), *group(1, 70, 5, 9, 5)], 1, CPU)
    assert packed.lengths == [69, 69, 6, 6, 6, 10, 10, 10]
    assert packed.after == [-1, -1, 0, 1, 1, 0, 0, 1]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("length", "rest"), [(95, 200), (1000, 3000), (3000, 1000), (3000, 200)])
def test_memory_stays_within_the_forecast(monkeypatch, device, length, rest):
    """A full micro-batch that shares takes no more than a full one that does not, with copied keys and values."""
    budget = 8192
    config = LearnerConfig(micro_tokens=budget)
    shape = shapes.shape_of(ModelConfig(path="novice"))
    learner = shapes.weightless(shape, ModelConfig(device=device), config, Loop().needs)
    expected = forecast._followed(learner, length + rest)
    attempts = group(0, length, *range(rest, rest + 40))
    piece = microbatches(attempts, budget, False)[0]
    assert 2 <= len(piece) < len(attempts)
    monkeypatch.setattr(forecast, "_made_up", lambda _: Minibatch(piece, 1.0, 1, False))
    for real, foreseen in zip(forecast._follow(learner, []), expected, strict=True):
        assert real < 1.02 * foreseen


# --- attention ---


def attended(q, k, v, lengths, after, window, scale):
    """Each part alone, behind the part that it continues."""
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    spans = [slice(a, b) for a, b in pairwise(ends)]
    outputs = []
    for span, other in zip(spans, after, strict=True):
        before = [spans[other]] if other >= 0 else []
        keys, values = (torch.cat([x[:, s] for s in (*before, span)], dim=1)[None] for x in (k, v))
        outputs.append(causal(q[:, span][None], keys, values, scale, window)[0].transpose(0, 1))
    return torch.cat(outputs)


LENGTHS, AFTER = [30, 7, 7, 4, 4, 300, 1, 12, 12, 520], [-1, -1, 0, 0, 1, 0, 1, 0, -1, 1]


@pytest.mark.parametrize("window", [0, 5, 33, 400])
@pytest.mark.parametrize(("heads", "of_keys"), [(4, 2), (3, 3)])
def test_parts_that_continue_others(heads, of_keys, window):
    torch.manual_seed(0)
    shapes = [(heads, sum(LENGTHS), 8), *[(of_keys, sum(LENGTHS), 8)] * 2]
    ours = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    out = VarlenPlan(LENGTHS, AFTER).attend(0, *ours, 0.3, window)
    wanted = attended(*theirs, LENGTHS, AFTER, window, 0.3)
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-12)
    weight = torch.randn_like(wanted)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("window", [0, 37])
@pytest.mark.parametrize(("heads", "of_keys", "size"), [(9, 3, 64), (8, 8, 128)])
def test_parts_that_continue_others_on_a_gpu(heads, of_keys, size, window, dtype):
    """By flash attention, and by torch's own choice in float32."""
    torch.manual_seed(0)
    shapes = [(heads, sum(LENGTHS), size), *[(of_keys, sum(LENGTHS), size)] * 2]
    ours = [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]
    theirs = [x.detach().double().requires_grad_() for x in ours]
    out = VarlenPlan(LENGTHS, AFTER).attend(0, *ours, size**-0.5, window)
    wanted = attended(*theirs, LENGTHS, AFTER, window, size**-0.5)
    assert (out - wanted).abs().max() < 0.03
    weight = torch.randn_like(wanted)
    (out * weight).sum().backward()
    (wanted * weight).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.grad - other.grad).abs().max() < 0.02 * other.grad.abs().max()
