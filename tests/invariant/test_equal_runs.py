"""What must not matter does not: how work is cut up, packed, ordered, chunked or recomputed; and the guards hold.

All of it with the tiny model through LocalLearner, in float32. Two gradients are "equal" when they differ by no more
than 1e-4 of their largest entry: float32 adds up in another order.
"""

import random
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from longloop.algos.grpo import Grpo
from longloop.algos.loop import Loop
from longloop.algos.reduce import to_samples
from longloop.algos.rloo import Rloo
from longloop.model.attention import VarlenPlan
from longloop.types import Group, Minibatch, UserError
from tests.support.samples import (
    TASK,
    VARIANTS,
    assert_close,
    attempt,
    changed,
    first_minibatch,
    gradient,
    learner,
    make,
    mixed_groups,
    sampled,
    weights,
)


def setup(algo, shift=0.1, on_policy=False, **options):
    """A learner and a mini-batch whose log-probs are off by `shift`, so that ratios differ and some are clipped."""
    model = learner(algo, **options)
    groups = sampled(mixed_groups(), model, shift=shift)
    return model, first_minibatch(algo, groups, model, on_policy=on_policy)


def equal(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


# --- one update, cut up in different ways ---


@pytest.mark.parametrize("micro_tokens", [1, 20])
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_microbatch_or_many(variant, micro_tokens):
    """The gradient and the metrics of a mini-batch do not depend on how many forward passes it is cut into."""
    algo = make(variant, k=3)
    whole, minibatch = setup(algo, micro_tokens=10**9)
    pieces = learner(algo, micro_tokens=micro_tokens)
    expected, metrics = gradient(whole, minibatch, algo.loss)
    got, others = gradient(pieces, minibatch, algo.loss)
    assert_close(expected, got)
    for values in (metrics, others):
        values.pop("kl", None)  # has a test of its own, below
    assert others == pytest.approx(metrics, rel=1e-4)


@pytest.mark.parametrize("variant", ["loop", "loop turn", "loop trajectory", "ppo"])
def test_the_kl_guard_counts_trajectories(variant):
    """What the guard looks at is a mean over trajectories, also when an attempt's two stretches are cut apart."""
    algo = make(variant, k=3)
    whole, minibatch = setup(algo, micro_tokens=10**9)
    samples = minibatch.samples
    attempts = {s.source for s in samples}
    assert len(attempts) < len(samples)
    _, metrics = gradient(whole, minibatch, algo.loss)
    _, others = gradient(learner(algo, micro_tokens=1), minibatch, algo.loss)
    now = whole.logprobs(samples)
    moved = sum(
        old - new
        for sample, row in zip(samples, now, strict=True)
        for old, new, chosen in zip(sample.logprobs, row, sample.mask, strict=True)
        if chosen
    )
    assert metrics["kl"] == pytest.approx(moved / len(attempts), rel=1e-4)
    assert others["kl"] == pytest.approx(metrics["kl"], rel=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_order_of_samples_does_not_matter(variant):
    algo = make(variant, k=3)
    model, minibatch = setup(algo, micro_tokens=30)
    samples = random.Random(0).sample(minibatch.samples, len(minibatch.samples))
    assert samples != minibatch.samples
    expected, _ = gradient(model, minibatch, algo.loss)
    assert_close(expected, gradient(model, replace(minibatch, samples=samples), algo.loss)[0])


@pytest.mark.parametrize("lora", [0, 4])
def test_recomputing_activations_changes_nothing(lora):
    """Activation checkpointing on = off."""
    algo = Loop(k=3)
    plain, minibatch = setup(algo, lora=lora)
    recomputed = learner(algo, lora=lora, checkpointing=True)
    expected, metrics = gradient(plain, minibatch, algo.loss)
    got, others = gradient(recomputed, minibatch, algo.loss)
    assert_close(expected, got, rtol=1e-5)
    assert others == pytest.approx(metrics)
    assert not recomputed.policy.module.training  # and the engine finds the model as it left it


# --- packing ---


def lengths_alike():
    """Samples of which some have one length, so that they share an attention call, and some have not."""
    attempts = [attempt(1.0, sizes, number) for number, sizes in enumerate([(3, 2), (3, 2), (2, 3), (6,), (1,), (1,)])]
    return [sample for number, t in enumerate(attempts) for sample in to_samples(t, number, 1.0, "token")]


def test_packed_is_each_alone():
    """Log-probs of sequences laid end to end are those of each sequence by itself."""
    model = learner(Loop())
    samples = lengths_alike()
    packed = model.logprobs(samples)
    for sample, row in zip(samples, packed, strict=True):
        assert row.tolist() == pytest.approx(model.logprobs([sample])[0].tolist(), abs=1e-5)


@pytest.mark.parametrize("which", range(6))
def test_no_sample_sees_another(which):
    """Changing every id of one packed sample changes its own log-probs and, to the bit, no other's."""
    model = learner(Loop())
    samples = lengths_alike()
    before = model.logprobs(samples)
    other = replace(samples[which], ids=1 + (samples[which].ids + 7) % 44)
    after = model.logprobs([*samples[:which], other, *samples[which + 1 :]])
    alike = [old.tolist() == new.tolist() for old, new in zip(before, after, strict=True)]
    assert alike == [n != which for n in range(len(samples))]


def test_no_gradient_between_samples():
    """The gradient of a mini-batch is the sum of its samples' own gradients."""
    algo = Rloo(k=3)
    model, minibatch = setup(algo)
    together, _ = gradient(model, minibatch, algo.loss)
    alone = [gradient(model, replace(minibatch, samples=[s]), algo.loss)[0] for s in minibatch.samples]
    assert_close(together, {name: torch.stack([g[name] for g in alone]).sum(0) for name in together})


# --- the logits of a chunk at a time ---


@pytest.mark.parametrize("variant", ["loop", "grpo", "ppo"])
def test_chunked_log_probs(variant):
    """Logits of three tokens at a time give the same log-probs, entropies and gradient as all at once."""
    algo = make(variant, k=3)
    whole, minibatch = setup(algo, temperature=0.7)
    chunked = learner(algo, temperature=0.7, chunk=3)
    for a, b in zip(whole.logprobs(minibatch.samples), chunked.logprobs(minibatch.samples), strict=True):
        assert a.tolist() == pytest.approx(b.tolist(), abs=1e-5)
    expected, metrics = gradient(whole, minibatch, algo.loss)
    got, others = gradient(chunked, minibatch, algo.loss)
    assert_close(expected, got, rtol=1e-5)
    assert others == pytest.approx(metrics, rel=1e-4)


def test_log_probs_are_at_the_sampling_temperature():
    """The learner's log-probs are those of logits / temperature, computed here without it."""
    model = learner(Loop(), temperature=0.7)
    for sample in lengths_alike():
        ids = torch.tensor(sample.ids)
        with torch.no_grad():
            hidden = model.policy.hidden(ids, torch.arange(len(ids)), VarlenPlan([len(ids)]))
            logp = (hidden @ model.policy.module.lm_head.weight.T / 0.7).log_softmax(-1)
        expected = [
            logp[i - 1, id].item() if m else 0.0 for i, (id, m) in enumerate(zip(ids, sample.mask, strict=True))
        ]
        assert model.logprobs([sample])[0].tolist() == pytest.approx(expected, abs=1e-5)


class Shapes(TorchDispatchMode):
    """The shapes of all tensors that any operation returns, forward and backward."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.seen |= {tuple(x.shape) for x in tree_leaves(out) if isinstance(x, torch.Tensor)}
        return out


def test_no_tensor_of_all_tokens_by_the_vocabulary():
    """Neither forward nor backward makes logits of more than `chunk` tokens."""
    algo = Loop(k=3)

    def rows_by_vocabulary(chunk):
        model, minibatch = setup(algo, chunk=chunk)
        vocabulary, hidden = model.policy.module.config.vocab_size, model.policy.module.config.hidden_size
        with Shapes() as shapes:
            model.gradient(minibatch, algo.loss)
        # [hidden, vocabulary] is the head's own weight, transposed
        return {s[0] for s in shapes.seen if len(s) > 1 and s[-1] == vocabulary and s[0] != hidden}

    assert max(rows_by_vocabulary(chunk=3)) == 3
    everything = max(rows_by_vocabulary(chunk=1000))
    assert everything == sum(s.action_tokens for s in setup(algo)[1].samples) > 3  # the instrument does see them


# --- the reference policy ---


def said(model, samples, column="logprobs"):
    return [sample.columns[column].tolist() for sample in model.read(samples, column)]


def test_adapters_off_is_the_base():
    """With LoRA the reference is the model before training, also after an update has moved the policy."""
    algo = Grpo(k=3, lr=0.01)
    model, minibatch = setup(algo, shift=0.0, on_policy=True, lora=4)
    base = said(learner(Loop()), minibatch.samples)
    assert [s.columns["reference"].tolist() for s in minibatch.samples] == base
    assert not model.update(minibatch, algo.loss).stop
    assert said(model, minibatch.samples, "reference") == base
    assert all(now != before for now, before in zip(said(model, minibatch.samples), base, strict=True))


def test_the_second_copy_stays():
    """Without LoRA the reference is a copy of the initial weights, and an update does not touch it."""
    algo = Grpo(k=3, lr=0.01)
    model, minibatch = setup(algo, shift=0.0, on_policy=True)
    start = {name: p.clone() for name, p in model.policy.module.state_dict().items()}
    base = said(model, minibatch.samples)
    assert not model.update(minibatch, algo.loss).stop
    assert equal(start, model.second_copy.state_dict())
    assert not equal(start, model.policy.module.state_dict())
    assert said(model, minibatch.samples, "reference") == base
    assert said(model, minibatch.samples) != base  # the policy itself is back in its place


# --- guards ---


def untouched(model, action):
    """Run the action; its result, and whether weights, optimizer and version are as before, with no gradient left."""
    before, version, state = weights(model), model.policy.version, len(model.optimizer.state)
    result = action()
    same = equal(before, weights(model)) and model.policy.version == version and len(model.optimizer.state) == state
    return result, same and all(p.grad is None for p in model.parameters.values())


@pytest.mark.parametrize("direction", [1, -1])
def test_kl_guard(direction):
    """A policy that moved more than `kl_guard` nats per trajectory, either way, is not updated; just below it is."""
    for nats, fires in ((20.5, True), (19.5, False)):
        algo = Loop(k=3)
        model, minibatch = setup(algo, shift=0.0)
        samples = [
            # all of it on one token of the attempt, once per attempt
            changed(s, first, logprobs=s.logprobs[first] + direction * nats * (s.stretch == 0))
            for s in minibatch.samples
            for first in [int(s.mask.argmax())]
        ]
        update, same = untouched(model, lambda: model.update(replace(minibatch, samples=samples), algo.loss))  # noqa: B023
        assert same == fires and bool(update.stop) == fires
        assert update.metrics["kl"] == pytest.approx(direction * nats, rel=1e-3)


def nan_loss(scored, batch):
    return scored.logp_N.sum() * float("nan"), {}


def nan_slope(scored, batch):
    """The loss is 0; its derivative is infinity times 0."""
    return (scored.logp_N - scored.logp_N.detach()).abs().sqrt().sum(), {}


@pytest.mark.parametrize("loss", [nan_loss, nan_slope])
def test_nan_guard(loss):
    """A loss or gradient that is not finite stops the step and leaves the weights; a good update follows as usual."""
    algo = Loop(k=3)
    model, minibatch = setup(algo, shift=0.0)
    update, same = untouched(model, lambda: model.update(minibatch, loss))
    assert "NaN guard" in update.stop and same
    update, same = untouched(model, lambda: model.update(minibatch, algo.loss))
    assert not update.stop and not same
    assert all(p.isfinite().all() for p in model.parameters.values())


@pytest.mark.parametrize("loss", [nan_loss, nan_slope])
def test_twenty_nans_in_a_row_end_the_run(loss):
    """A good update in between starts the count anew."""
    algo = Loop(k=3)
    model, minibatch = setup(algo, shift=0.0)
    for _ in range(19):
        assert model.update(minibatch, loss).stop
    assert not model.update(minibatch, algo.loss).stop
    for _ in range(19):
        assert model.update(minibatch, loss).stop
    with pytest.raises(UserError, match="not finite in 20 updates in a row"):
        model.update(minibatch, loss)


# --- engine and learner must agree ---


def one_sample(model):
    """Group 3, attempt 2: prompt, a turn of two tokens, an observation, a turn of three."""
    (group,) = sampled([Group(TASK, (attempt(1.0, (2, 3), 2),))], model)
    return to_samples(group.trajectories[0], 3, 1.0, "token")[0]


def disagreement(model, sample):
    minibatch = Minibatch([*bystanders(model), sample], 1.0, step=1, on_policy=True)
    before = weights(model)
    with pytest.raises(UserError, match="Engine and learner disagree") as raised:
        model.update(minibatch, Loop().loss)
    assert equal(before, weights(model))
    return str(raised.value)


def bystanders(model):
    """Good samples around the bad one, so that it has to be found."""
    (group,) = sampled([Group(TASK, (attempt(0.0, (1,), 0), attempt(0.0, (9,), 1)))], model)
    return [sample for t in group.trajectories for sample in to_samples(t, 1, 1.0, "token")]


def test_agreement_when_all_is_well():
    model = learner(Loop())
    update = model.update(Minibatch([one_sample(model)], 1.0, step=1, on_policy=True), Loop().loss)
    assert not update.stop and update.metrics["ratio_gap"] < 1e-4


@pytest.mark.parametrize("place", [2, 3, 7, 8, 9])
def test_a_changed_log_prob_is_found(place):
    """The message names group, attempt, turn and token."""
    model = learner(Loop())
    sample = one_sample(model)  # ids: 2 of the prompt, 2 chosen, 3 observed, 3 chosen
    message = disagreement(model, changed(sample, place, logprobs=sample.logprobs[place] + 0.001))
    assert f"group 3, attempt 2, turn {0 if place < 4 else 1}, token {place} (id {sample.ids[place]})" in message


def test_a_shifted_mask_is_found():
    """Off by one: the token after the action stands for its last one."""
    model = learner(Loop())
    sample = one_sample(model)
    shifted = replace(sample, mask=(0, *sample.mask[:-1]), logprobs=(0.0, *sample.logprobs[:-1]))
    assert "group 3, attempt 2, turn " in disagreement(model, shifted)
    one_more = changed(sample, 4, mask=1)  # an observation token taken for an action
    assert "group 3, attempt 2, turn 1, token 4" in disagreement(model, one_more)


def test_weights_that_changed_after_sampling_are_found():
    model = learner(Loop())
    sample = one_sample(model)
    with torch.no_grad():
        next(iter(model.policy.module.parameters())).mul_(1.01)
    # the samples around it are scored with the new weights, and agree
    assert "group 3, attempt 2, turn" in disagreement(model, sample)
