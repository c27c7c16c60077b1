"""PPO's own parts against numbers worked out by hand: GAE, the value loss, and what reaches which weights."""

import numpy as np
import pytest
import torch

from longloop.algos.dr_grpo import DrGrpo
from longloop.algos.parts.critic import gae
from longloop.algos.ppo import Ppo
from longloop.types import Group
from tests.support.samples import (
    NOW,
    TASK,
    attempt,
    batch,
    first_minibatch,
    gradient,
    learner,
    loss_and_slopes,
    mixed_groups,
    sampled,
    weights,
    with_known,
)


class Listed:
    """A learner whose values are given: one list for each attempt's action tokens, environment tokens get nonsense."""

    def __init__(self, *values):
        self.lists = [iter(row) for row in values]
        self.seen = {}

    def read(self, samples, *columns):
        def known(sample):
            mine = self.lists[self.seen.setdefault(sample.source, len(self.seen))]
            return {"value": [next(mine) if chosen else 99.0 for chosen in sample.mask]}

        return with_known(samples, columns, known)


def of_actions(samples, column):
    """A column at the action tokens, attempts and stretches one after the other."""
    return [x for s in samples for x in {**s.columns, "advantages": s.advantages}[column][s.mask].tolist()]


def test_gae_by_hand():
    # gamma 0.9, lambda 0.8, so gamma * lambda = 0.72; V = 0.5, 0.4, 0.2; R = 1 after the last
    # delta_2 = 1 - 0.2 = 0.8                      A_2 = 0.8
    # delta_1 = 0.9 * 0.2 - 0.4 = -0.22            A_1 = -0.22 + 0.72 * 0.8 = 0.356
    # delta_0 = 0.9 * 0.4 - 0.5 = -0.14            A_0 = -0.14 + 0.72 * 0.356 = 0.11632
    paid, values = np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.4, 0.2])
    assert gae(paid, values, 0.9, 0.8) == pytest.approx([0.11632, 0.356, 0.8])
    # lambda 0: the deltas themselves
    assert gae(paid, values, 0.9, 0.0) == pytest.approx([-0.14, -0.22, 0.8])


@pytest.mark.parametrize("fresh", [(), (1,)])
def test_observation_tokens_are_skipped(fresh):
    """The value after a turn's last token is that at the next turn's first one, also where a new stretch begins."""
    groups = [Group(TASK, (attempt(1.0, (2, 1), fresh=fresh),))]
    samples = Ppo(k=1, gamma=0.9, lam=0.8).credit(groups, Listed([0.5, 0.4, 0.2]), NOW)
    assert len(samples) == 1 + len(fresh)
    assert of_actions(samples, "advantages") == pytest.approx([0.11632, 0.356, 0.8])
    assert of_actions(samples, "target") == pytest.approx([0.61632, 0.756, 1.0])  # A + V
    assert not any(column[~s.mask].any() for s in samples for column in (s.advantages, s.columns["target"]))


def test_without_discount_the_advantage_is_what_the_value_missed():
    """gamma = lambda = 1: A_t = R - V_t at every action token, and every return is R. Values count within [0, 1]."""
    first, second = attempt(0.75, (1, 2), 0), attempt(0.0, (2,), 1)
    samples = Ppo(k=2).credit([Group(TASK, (first, second))], Listed([0.25, 1.5, -0.5], [0.5, 0.0]), NOW)
    # 0.75 - 0.25, 0.75 - 1 (clipped from 1.5), 0.75 - 0 (clipped from -0.5); 0 - 0.5, 0 - 0
    assert of_actions(samples, "advantages") == pytest.approx([0.5, -0.25, 0.75, -0.5, 0.0])
    assert of_actions(samples, "target") == pytest.approx([0.75, 0.75, 0.75, 0.0, 0.0])


def test_a_value_that_is_the_group_mean_gives_grpo_without_std():
    """V = mean of the group at every token: the advantages of Dr.GRPO."""
    groups = [Group(TASK, (attempt(1.0, (2, 1), 0), attempt(0.0, (1,), 1), attempt(0.5, (1, 1), 2, fresh=(1,))))]
    samples = Ppo(k=3).credit(groups, Listed([0.5] * 3, [0.5], [0.5] * 2), NOW)  # the mean of 1, 0 and 0.5
    assert of_actions(samples, "advantages") == [0.5, 0.5, 0.5, -0.5, 0.0, 0.0]
    assert of_actions(samples, "advantages") == of_actions(DrGrpo(k=3).credit(groups, None, NOW), "advantages")


@pytest.mark.parametrize(
    ("step", "coefficient"),
    # 0.1 + (0.001 - 0.1) * (step - 1) / 200: half way 0.0505; constant afterwards
    [(1, 0.1), (2, 0.099505), (101, 0.0505), (201, 0.001), (1000, 0.001)],
)
def test_value_weight_falls_linearly(step, coefficient):
    """The value loss is coefficient * (V - return)^2 / 2, with the tokens' own weights."""
    of = batch([-1.0, -1.0], [0.0, 0.0], [0.5, 0.5], step=step, returns=[1.0, 0.5])
    # 1/2 * (0.2 - 1)^2 / 2 + 1/2 * (0.9 - 0.5)^2 / 2 = 0.16 + 0.04
    loss, _ = loss_and_slopes(Ppo(), [-1.0, -1.0], of, value=[0.2, 0.9])
    assert loss == pytest.approx(coefficient * 0.2, rel=1e-5)


def test_warmup_leaves_the_policy_out_of_the_loss():
    """Up to step `warmup` the loss is the value's; from the next on min(rA, clip(r) A) joins it."""
    numbers = {"old": [-1.0], "adv": [2.0], "weight": [1.0], "returns": [1.0]}
    loss, slopes = loss_and_slopes(Ppo(warmup=10), [-1.0], batch(**numbers, step=10), value=[1.0])
    assert loss == 0 and slopes == [0.0]
    loss, slopes = loss_and_slopes(Ppo(warmup=10), [-1.0], batch(**numbers, step=11), value=[1.0])
    assert loss == pytest.approx(-2.0) and slopes == pytest.approx([-2.0])


def test_warmup_trains_the_head_only():
    """A warm-up update changes the value head and no other weight, weight decay included."""
    algo = Ppo(k=3, warmup=1, weight_decay=0.5)
    model = learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model, on_policy=True)
    model.gradient(minibatch, algo.loss)
    assert all(p.grad is None or not p.grad.any() for p in model.policy.trainable().values())
    before = weights(model)
    model.update(minibatch, algo.loss)
    moved = {name for name, old in before.items() if not torch.equal(old, model.parameters[name])}
    assert moved and all(name.startswith("value_head.") for name in moved)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model, step=2, on_policy=True)
    model.update(minibatch, algo.loss)
    assert any(not torch.equal(old, model.parameters[n]) for n, old in before.items() if n in model.policy.trainable())


def test_the_value_loss_does_not_reach_the_policy():
    """After warm-up, the policy's gradient is the same to the bit whether the value loss counts or not."""
    algo, without = Ppo(k=3, warmup=0), Ppo(k=3, warmup=0, value_weight=0.0, value_weight_end=0.0)
    model = learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model), model)
    grads, _ = gradient(model, minibatch, algo.loss)
    other, _ = gradient(model, minibatch, without.loss)
    policy = model.policy.trainable()
    assert any(grads[name].any() for name in policy)
    assert all(torch.equal(grads[name], other[name]) for name in policy)
    heads = [name for name in grads if name not in policy]
    assert heads and all(grads[name].any() and not other[name].any() for name in heads)
