"""An update, number by number: what the optimizer makes of gradients, how mini-batches are drawn, what is measured."""

import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.grpo import Grpo
from longloop.algos.loop import Loop
from longloop.algos.ppo import Ppo
from longloop.algos.reduce import last_action, to_samples
from longloop.algos.reinforce import Reinforce
from longloop.algos.stepagent_inverse import StepAgentInverse
from longloop.learners.batching import minibatches
from longloop.learners.local import LocalLearner
from longloop.training import schedule
from longloop.types import Group, Minibatch, Now, Sample, SampleSource, Trajectory, UserError
from tests.support.samples import (
    EXPERT,
    NOW,
    TASK,
    attempt,
    batch,
    first_minibatch,
    gradient,
    learner,
    loss_and_slopes,
    mixed_groups,
    once,
    own,
    sampled,
    turn,
    weights,
)

# --- the optimizer ---


class AdamW:
    """Decoupled weight decay, Algorithm 2 of arXiv 1711.05101, in float64."""

    def __init__(self, start: dict[str, torch.Tensor]) -> None:
        self.weights = {name: p.double() for name, p in start.items()}
        self.first = {name: torch.zeros_like(p) for name, p in self.weights.items()}
        self.second = {name: torch.zeros_like(p) for name, p in self.weights.items()}
        self.steps = 0

    def step(self, grads: dict[str, torch.Tensor], lr: float, weight_decay: float) -> None:
        self.steps += 1
        for name, grad in grads.items():
            self.first[name] = 0.9 * self.first[name] + 0.1 * grad.double()
            self.second[name] = 0.999 * self.second[name] + 0.001 * grad.double() ** 2
            mean, square = self.first[name] / (1 - 0.9**self.steps), self.second[name] / (1 - 0.999**self.steps)
            self.weights[name] -= lr * (weight_decay * self.weights[name] + mean / (square.sqrt() + 1e-8))


def norm(grads: dict[str, torch.Tensor]) -> float:
    return math.sqrt(sum(float((g.double() ** 2).sum()) for g in grads.values()))


def clipped(grads: dict[str, torch.Tensor], limit: float) -> dict[str, torch.Tensor]:
    return {name: g * min(1.0, limit / norm(grads)) for name, g in grads.items()}


@pytest.mark.parametrize("lora", [0, 4])
def test_three_updates_are_those_of_adamw_with_each_part_clipped(lora: int) -> None:
    """The value head's gradient is clipped apart from the policy's, each to `max_grad_norm`, and not where it is
    smaller; the learning rate is `lr` times the mini-batch's lr_scale; weight decay is the algorithm's. Adam hides the
    scale of a single gradient, so three of different scales follow one another."""
    limit = 0.01
    algo = Ppo(k=3, warmup=0, value_weight=0.02, clip=9.0, lr=2e-3, weight_decay=0.1, max_grad_norm=limit)
    model = learner(algo, lora=lora)
    groups = sampled(mixed_groups(), model)
    reference = AdamW(weights(model))
    factors = []
    for scale, lr_scale in ((20.0, 1.0), (0.02, 0.5), (40.0, 0.25)):
        minibatch = first_minibatch(algo, groups, model, step=2)
        minibatch = replace(minibatch, norm=minibatch.norm / scale, lr_scale=lr_scale)
        grads, _ = gradient(model, minibatch, algo.loss)
        head = {name: g for name, g in grads.items() if name.startswith("value_head.")}
        policy = {name: g for name, g in grads.items() if name not in head}
        update = model.update(minibatch, algo.loss)
        assert not update.stop and update.metrics["grad_norm"] == pytest.approx(norm(policy), rel=1e-4)
        factors.append((norm(head) / limit, norm(policy) / limit))
        reference.step(clipped(head, limit) | clipped(policy, limit), algo.lr * lr_scale, algo.weight_decay)
        for name, p in model.parameters.items():
            torch.testing.assert_close(p.double(), reference.weights[name], rtol=0, atol=4e-6, msg=name)
    (head_1, policy_1), (head_2, policy_2), (head_3, policy_3) = factors
    assert min(head_3, policy_3) > 1.2 > 0.8 > max(head_2, policy_2), "some gradients are clipped, and some not"
    assert head_1 / policy_1 > 1.5 or policy_1 / head_1 > 1.5, "the two parts differ in size"


def test_an_update_leaves_nothing_behind_but_the_step() -> None:
    """No gradient is held or added to the next update's; the engine is told that the weights are others."""
    algo = Loop(k=3)
    model, other = learner(algo), learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    other.gradient(minibatch, algo.loss)  # a gradient that someone left
    for one in (model, other):
        version = one.policy.version
        assert not one.update(minibatch, algo.loss).stop
        assert one.policy.version == version + 1
        assert all(p.grad is None for p in one.parameters.values())
    assert all(torch.equal(p, other.parameters[name]) for name, p in model.parameters.items())


@pytest.mark.parametrize(("checkpointing", "passes"), [(False, 1), (True, 2)])
def test_activations_are_computed_again_where_asked_for(checkpointing: bool, passes: int) -> None:
    """A layer runs forward once, or once more in the backward pass; never without a gradient."""
    algo = Loop(k=3)
    model = learner(algo, checkpointing=checkpointing)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    calls = []
    model.policy.module.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    model.gradient(minibatch, algo.loss)
    assert len(calls) == passes
    model.logprobs(minibatch.samples)
    assert len(calls) == passes + 1
    ways = [
        m._gradient_checkpointing_func for m in model.policy.module.modules() if getattr(m, "gradient_checkpointing", 0)
    ]
    assert bool(ways) == checkpointing and all(way.keywords == {"use_reentrant": False} for way in ways)


def test_the_guards_at_their_edges() -> None:
    """Just as far as allowed is no reason to stop; without a distance only the loss is looked at."""
    model = learner(Loop(kl_guard=0.5))
    assert model._guard({"kl": 0.5, "loss": 1.0}) == model._guard({"kl": -0.5, "loss": 1.0}) == ""
    assert "moved -0.6 nats" in model._guard({"kl": -0.6, "loss": 1.0})
    assert model._guard({"loss": 1.0}) == "" and "NaN" in model._guard({"loss": math.inf})


def test_a_loss_that_is_not_finite_stops_the_update_whatever_its_gradient() -> None:
    algo = Loop(k=3)
    model = learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    update = model.update(minibatch, lambda scored, of: (scored.logp_N.sum() + float("nan"), {}))
    assert "NaN guard" in update.stop and "grad_norm" not in update.metrics


def test_twenty_updates_in_a_row_that_are_not_finite_end_a_run() -> None:
    model = learner(Loop())
    for _ in range(19):
        assert "NaN guard" in model._not_finite_stop(math.nan)
    with pytest.raises(UserError, match="20 updates in a row"):
        model._not_finite_stop(math.nan)


def test_old_log_probs_of_another_policy_are_refused() -> None:
    algo = Loop(k=3)
    model = learner(algo)
    samples = tuple(first_minibatch(algo, sampled(mixed_groups(), model), model).samples)
    assert model.with_behavior_logprobs(once(samples, False), algo.loss, lambda text: None) == list(samples)
    assert model.agreement is not None and type(model.agreement.clipped) is float  # a checkpoint writes it as JSON
    wrong = [replace(s, logprobs=s.logprobs - 0.5 * s.mask) for s in samples]
    with pytest.raises(UserError, match="Engine and learner disagree"):
        learner(algo).with_behavior_logprobs(once(wrong, False), algo.loss, lambda text: None)


def test_a_loss_that_clips_nothing_keeps_the_samplers_log_probs() -> None:
    algo = Reinforce(k=3)
    model = learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    model.with_behavior_logprobs(once(minibatch.samples, False), algo.loss, lambda text: None)
    assert model.agreement is not None and (model.agreement.clipped, model.agreement.old) == (0.0, "sampler")
    assert not model.update(replace(minibatch, on_policy=True), algo.loss).stop
    assert model.agreement.old == "sampler"


# --- mini-batches ---


def order(algo: Any, seed: int, step: int) -> list[list[tuple[int, int]]]:
    """Which trajectories each mini-batch has, one after another."""
    groups = [Group(TASK, tuple(attempt(n / 8, (1,), n) for n in range(8)))]
    config: Any = SimpleNamespace(seed=seed, steps=9)
    samples = algo.credit(groups, None, NOW)
    return [[s.source for s in m.samples] for m in schedule(config, algo, groups, samples, Now(step, 1))]


def test_a_sample_that_trains_nothing_is_named() -> None:
    """Of an algorithm of the user's own; a mean over its tokens would divide by zero."""
    whole, nothing = (Sample(np.arange(3), np.arange(3) > n, *[np.ones(3)] * 4) for n in (1, 2))
    nothing = replace(nothing, source=SampleSource(4, 2))
    with pytest.raises(UserError, match="sample of attempt 2 of group 4 that trains no token"):
        list(minibatches([whole, nothing], 2, average="tokens", whole_units=False, step=1, epoch=0, seed=0))


def test_every_epoch_step_and_seed_has_a_shuffle_of_its_own() -> None:
    algo = Loop(k=8, epochs=3, minibatch=3, drop_below=0.0)
    batches = order(algo, seed=0, step=1)
    assert [len(b) for b in batches] == [3, 3, 2] * 3
    epochs = [[*chain(*batches[n : n + 3])] for n in (0, 3, 6)]
    assert all(sorted(epoch) == [(0, n) for n in range(8)] for epoch in epochs)
    others = [[*chain(*order(algo, seed, step)[:3])] for seed, step in ((0, 2), (1, 1), (2, 1))]
    in_order = [(0, n) for n in range(8)]
    everything = [in_order, *epochs, *others]
    assert all(a != b for n, a in enumerate(everything) for b in everything[:n])
    assert order(algo, seed=0, step=1) == batches, "and it can be had again"


def test_only_the_first_minibatch_of_a_step_is_on_policy() -> None:
    algo = Loop(k=8, epochs=2, minibatch=4, drop_below=0.0)
    groups = [Group(TASK, tuple(attempt(n / 8, (1,), n) for n in range(8)))]
    config: Any = SimpleNamespace(seed=0, steps=9)
    batches = list(schedule(config, algo, groups, algo.credit(groups, None, NOW), Now(3, 1)))
    assert [m.on_policy for m in batches] == [True, False, False, False]
    assert all(m.step == 3 and m.norm == 4 for m in batches)


# --- what is measured ---


def test_entropy_is_that_of_the_distributions_tokens_were_drawn_from() -> None:
    """The mean over action tokens of -sum p log p, at the sampling temperature, by Hugging Face's own code."""
    algo = Loop(k=3)
    model = learner(algo, temperature=0.6, micro_tokens=20, chunk=3)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    _, metrics = gradient(model, minibatch, algo.loss)
    module = model.policy.module
    module.set_attn_implementation("eager")
    entropies = []
    for sample in minibatch.samples:
        with torch.no_grad():
            p = (module(torch.tensor(sample.ids[None])).logits[0].double() / 0.6).softmax(-1)
        entropies += [-(p[i - 1] * p[i - 1].log()).sum().item() for i, chosen in enumerate(sample.mask) if chosen]
    assert metrics["entropy"] == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)


# --- the discriminator ---


def states_of(expert: int, own_action: int) -> list[tuple[int, Trajectory, list[Trajectory]]]:
    """Four states of one turn, each with its place: the expert says one thing, the agent another."""
    at = []
    for n in range(4):
        shown = replace(EXPERT, attempt=0, turns=(turn((1, 10 + n), (expert, 2)),))
        at.append((0, shown, [own(1, 1, (own_action, 2), shown), own(2, 1, (own_action, 3), shown)]))
    return at


def test_the_discriminator_starts_anew_in_every_iteration() -> None:
    """What it had learned before leaves no trace, to the bit: it reads a policy that has changed since."""
    algo = StepAgentInverse(head_lr=1e-2, head_steps=5)
    used, new = learner(algo), learner(algo)
    algo.tell_apart(states_of(5, 6), used)
    for model in (used, new):
        algo.tell_apart(states_of(7, 8), model)
    shown = [last_action(expert, 0) for _, expert, _ in states_of(7, 8)]
    assert used.judge("discriminator", shown) == new.judge("discriminator", shown)
    head = {name: p for name, p in new.parameters.items() if name.startswith("discriminator_head.")}
    assert head and all(torch.equal(p, used.parameters[name]) for name, p in head.items())


def test_the_discriminator_is_trained_as_it_is_told() -> None:
    """Its steps, learning rate, weights and the algorithm's weight decay, against torch's own optimizer."""
    algo = StepAgentInverse(weight_decay=0.2)
    model = learner(algo)
    samples = [last_action(t, 0) for _, expert, own in states_of(5, 6) for t in (expert, *own)]
    targets, counts = [0.9, 0.2, 0.1] * 4, [1.0, 0.5, 0.25] * 4
    read = torch.cat(model._actions(samples))
    model.fit("discriminator", samples, targets, counts, 3e-3, 4)
    plain = _new_head(algo)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=3e-3, weight_decay=0.2)
    for _ in range(4):
        p = plain(read)[:, 0].sigmoid()
        wanted, count = torch.tensor(targets), torch.tensor(counts)
        loss = -(count * (wanted * p.log() + (1 - wanted) * (1 - p).log())).sum() / count.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for one, other in zip(model.heads["discriminator"].parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


def _new_head(algo: StepAgentInverse) -> torch.nn.Module:
    """The head that a learner begins with: tests.support.samples.learner gives its last layer other numbers."""
    model = learner(algo)
    return LocalLearner(model.policy, algo.needs, model.config, 1.0, seed=0).heads["discriminator"]


# --- GRPO's penalty ---


@pytest.mark.parametrize(
    ("reference", "penalty", "slope"),
    # d = log p_ref - log p is clamped to [-10, 10], and beyond that the penalty is flat: e^d - d - 1
    [
        (25.0, math.exp(10) - 11, 0.0),
        (-25.0, math.exp(-10) + 9, 0.0),
        (9.0, math.exp(9) - 10, 1 - math.exp(9)),
        (-9.0, math.exp(-9) + 8, 1 - math.exp(-9)),
    ],
)
def test_grpos_penalty_is_bounded(reference: float, penalty: float, slope: float) -> None:
    of = batch([0.0], [0.0], [1.0], reference=[reference])
    loss, slopes = loss_and_slopes(Grpo(kl=0.01), [0.0], of)
    assert loss == pytest.approx(0.01 * penalty, rel=1e-4) and slopes == pytest.approx([0.01 * slope], rel=1e-4)


# --- trials ---


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_tried_is_undone(dtype: str) -> None:
    """Weights, the module's and the optimizer's, to the bit; no gradient, moment or count of failures is left."""
    algo = Loop(k=3, lr=0.1)
    model = learner(algo, dtype=dtype)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    before = weights(model)
    module = {name: p.detach().clone() for name, p in model.policy.module.named_parameters()}
    version = model.policy.version
    with pytest.raises(KeyError), model.on_trial():
        assert not model.update(minibatch, algo.loss).stop
        assert any(not torch.equal(p, before[name]) for name, p in model.parameters.items())
        model.update(minibatch, lambda scored, of: (scored.logp_N.sum() * float("nan"), {}))
        model.gradient(minibatch, algo.loss)
        raise KeyError("whatever happens meanwhile")
    assert all(torch.equal(p, before[name]) for name, p in model.parameters.items())
    assert all(torch.equal(p, module[name]) for name, p in model.policy.module.named_parameters())
    assert all(p.grad is None for p in model.parameters.values()) and not model.optimizer.state
    assert model._not_finite == 0 and model.policy.version == version + 2, "changed, and changed back"


def test_loading_changes_the_weights_once(tmp_path: Path) -> None:
    """The engine is told, so that it drops what it remembers of the old ones."""
    model = learner(Loop())
    model.save(tmp_path)
    version = model.policy.version
    model.load(tmp_path)
    assert model.policy.version == version + 1


def test_a_checkpoint_of_longloop_0_1_can_be_loaded(tmp_path: Path) -> None:
    """It had other names for the optimizer's file, for the only head there was, and for a field of the agreement."""
    algo = StepAgentInverse()
    model, other = learner(algo, seed=1), learner(algo)
    groups = sampled(mixed_groups(), model)
    samples = [sample for t in groups[0].trajectories for sample in to_samples(t, 0, 1.0, 1.0)]
    samples = [sample.with_columns(logged=sample.weights) for sample in samples]
    model.with_behavior_logprobs(once(samples, False), algo.loss, lambda text: None)
    assert not model.update(Minibatch(samples, 1.0, step=1, on_policy=True), algo.loss).stop
    model.save(tmp_path)
    (tmp_path / "optimizer.safetensors").rename(tmp_path / "optimiser.safetensors")
    (tmp_path / "discriminator_head.safetensors").rename(tmp_path / "value_head.safetensors")
    agreement = json.loads((tmp_path / "agreement.json").read_text())
    agreement["most"] = agreement.pop("p99")
    (tmp_path / "agreement.json").write_text(json.dumps(agreement))
    other.load(tmp_path)
    assert other.agreement == model.agreement is not None
    assert all(torch.equal(p, other.parameters[name]) for name, p in model.parameters.items())
    moments = [{name: one.optimizer.state.get(p, {}) for name, p in one.parameters.items()} for one in (model, other)]
    assert any(moments[0].values())
    for name, state in moments[0].items():
        assert state.keys() == moments[1][name].keys()
        assert all(torch.equal(value, moments[1][name][kind]) for kind, value in state.items())


def test_a_head_reads_bfloat16() -> None:
    """Its own weights are float32."""
    model = learner(Ppo(), dtype="bfloat16")
    (read,) = model.read(to_samples(attempt(1.0, (2,)), 0, 1.0, 1.0), "value")
    assert read.columns["value"].astype(bool).tolist() == [False, False, True, True]
    assert model.peak_memory()
