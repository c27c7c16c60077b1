"""What a learner hands to those of other ranks, and when it tells them to take it over; heads as they are fitted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from longloop.algos.archer import Archer
from longloop.algos.loop import Loop
from longloop.algos.parts.critic import places
from longloop.algos.ppo import Ppo
from longloop.config import LearnerConfig
from longloop.learners.local import LocalLearner, _head
from longloop.learners.shares import NOTHING, OneRank
from longloop.types import Sample, SampleSource
from tests.support.samples import attempt, first_minibatch, learner, mixed_groups, sampled


def updated(model: LocalLearner, algo: Any, step: int = 1) -> None:
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model, step)
    assert not model.update(minibatch, algo.loss).stop


def test_another_learner_takes_over_all_that_training_changed() -> None:
    """During PPO's warm-up the head alone moves: only its moments are handed over, and no others are kept."""
    algo = Ppo(k=3, lr=1e-2, warmup=1)
    one, other = (learner(algo, seed=seed, dtype="bfloat16") for seed in (0, 1))
    updated(one, algo)
    updated(other, algo, step=2)
    moved = one.moved()
    assert moved == [name for name in one.parameters if name.startswith("value_head")]
    assert len(other.moved()) > len(moved) > 0 and learner(algo).moved() == []

    version = other.policy.version
    given, taken = one.trained_tensors(moved), other.trained_tensors(moved)
    assert len(given) == len(taken) == len(one.parameters) + 3 * len(moved)
    with torch.no_grad():
        for old, new in zip(taken, given, strict=True):
            old.copy_(new)
    other.republish()
    assert other.policy.version == version + 1 and other.moved() == moved
    module = dict(one.policy.module.named_parameters())
    assert all(torch.equal(p, module[name]) for name, p in other.policy.module.named_parameters())
    for model in (one, other):
        updated(model, algo, step=2)
    assert all(torch.equal(p, other.parameters[name]) for name, p in one.parameters.items())


def test_moments_that_are_missing_begin_at_nothing() -> None:
    """As the optimizer's own: the next step is that of a learner that has taken none."""
    algo = Loop(k=3, lr=1e-2)
    one, other = learner(algo), learner(algo)
    tensors = one.trained_tensors(list(one.parameters))
    moments = tensors[len(one.parameters) :]
    assert len(moments) == 3 * len(one.parameters) and not any(tensor.any() for tensor in moments)
    for model in (one, other):
        updated(model, algo)
    assert all(torch.equal(p, other.parameters[name]) for name, p in one.parameters.items())


def test_the_tensors_of_heads_are_those_of_every_head() -> None:
    model = learner(Archer())
    heads = [p for name, p in model.parameters.items() if name.startswith(("q_", "v_"))]
    found = model.head_tensors()
    assert len(found) == len(heads) == 4 * 6 and all(a is b for a, b in zip(found, heads, strict=True))


class Followed(OneRank):
    """Notes when the others are told to follow, and whether to the heads alone."""

    def __init__(self) -> None:
        super().__init__(1)
        self.told: list[bool] = []

    def follow(self, heads: bool = False, stored: Mapping[str, torch.Tensor] = NOTHING) -> None:
        assert not stored, "one rank holds all that was stored"
        self.told.append(heads)

    def seconds(self) -> list[dict[str, float]]:
        return [{"update": 1.0}]


def error(said: Mapping[str, torch.Tensor], slow: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Every head towards 0, 1, 2 ..."""
    assert not any(copy.requires_grad for copy in slow.values())
    return torch.stack([((x - torch.arange(float(len(x)))) ** 2).mean() for x in said.values()]).sum()


def test_the_others_are_told_what_changed(tmp_path: Path) -> None:
    model, ranks = learner(Archer()), Followed()
    assert model.rank_times() == {}
    model.ranks = ranks
    assert model.rank_times() == {"ranks": [{"update": 1.0}]}
    samples = places([(attempt(1.0, (1, 2)), 0)]).samples
    model.fit("q_1", samples, [1.0], [1.0], 1e-2, 1)
    model.fit_heads(samples, error, 1e-2, 1, 0.1)
    model.save(tmp_path)
    model.load(tmp_path)
    assert ranks.told == [True, True, False]


def test_every_head_begins_with_numbers_of_its_own() -> None:
    plain = learner(Archer())
    model = LocalLearner(plain.policy, Archer().needs, LearnerConfig(), 1.0, seed=5)
    samples = places([(attempt(1.0, (1, 2)), 0)]).samples

    def same(name: str, seed: int) -> bool:
        pairs = zip(model.heads[name].parameters(), _head(model.policy, seed).parameters(), strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    assert list(model.heads) == ["q_1", "q_2", "v_1", "v_2"]
    assert same("q_1", 5) and same("q_2", 6) and same("v_2", 8)
    model.fit("v_1", samples, [1.0], [1.0], 1e-2, steps=0)
    assert same("v_1", 7)


def test_heads_are_fitted_as_they_are_told() -> None:
    """To standardized hidden states, with these steps, rate, decay and first numbers; against torch's own optimizer."""
    model = learner(Archer(weight_decay=0.2), seed=5)
    samples = places([(mixed_groups()[0].trajectories[0], 0)]).samples
    hidden_ND = model._hidden(samples)
    model.fit_heads(samples, error, 1e-2, 3, 0.1)
    read_ND = (hidden_ND - hidden_ND.mean(0)) / hidden_ND.var(0, correction=0).sqrt()
    heads = {name: _head(model.policy, 5 + n) for n, name in enumerate(model.heads)}
    optimizer = torch.optim.AdamW([p for head in heads.values() for p in head.parameters()], 1e-2, weight_decay=0.2)
    for _ in range(3):
        error({name: head(read_ND)[:, 0] for name, head in heads.items()}, {}).backward()
        optimizer.step()
        optimizer.zero_grad()
    (read,) = model.read(samples, *heads)
    for name, head in heads.items():
        expected = head(read_ND)[:, 0].tolist()
        assert max(map(abs, expected)) > 1e-3
        assert read.columns[name][read.mask].tolist() == pytest.approx(expected, abs=1e-4)


def test_what_does_not_vary_is_divided_by_a_small_number() -> None:
    """One position alone: no number of its hidden state varies. In bfloat16, too, heads read float32."""
    model = learner(Archer(), dtype="bfloat16")
    (sample,) = places([(attempt(1.0, (1,)), 0)]).samples
    mask = sample.mask.copy()
    mask[mask.argmax()] = False
    one = [replace(sample, mask=mask)]
    assert model._hidden(one).dtype == torch.float32 and len(model._hidden(one)) == 1
    first = {name: _head(model.policy, n)[0].weight for n, name in enumerate(model.heads)}  # type: ignore[index]
    model.fit_heads(one, error, lr=0.0, steps=1, slow=0.1)
    for name, weight in first.items():
        torch.testing.assert_close(model.heads[name][0].weight, weight / 1e-4)  # type: ignore[index]


def test_the_divergence_of_one_trajectory_is_that_of_two_alike() -> None:
    algo = Loop(k=3)
    model = learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model, shift=0.3), model)

    def divergence(*samples: Sample) -> float:
        model.optimizer.zero_grad()
        return model.gradient(replace(minibatch, samples=samples), algo.loss)["kl"]

    one = minibatch.samples[0]
    twin = replace(one, source=SampleSource(7, 7))
    assert divergence(one) == pytest.approx(divergence(one, twin), rel=1e-5) and divergence(one) != 0
