"""The algorithms against numbers worked out by hand, and the identities that tie the methods to each other.

PPO's value head and GAE are in test_ppo.py; that the estimators are right on average is in test_estimators.py.
"""

import itertools
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from longloop.algos.dapo import Dapo
from longloop.algos.dr_grpo import DrGrpo
from longloop.algos.grpo import Grpo
from longloop.algos.gspo import Gspo
from longloop.algos.loop import Loop
from longloop.algos.ppo import Ppo
from longloop.algos.reduce import leave_one_out, mean_by, standardize, sum_by, to_samples
from longloop.algos.reinforce import Reinforce
from longloop.algos.rloo import Rloo
from longloop.learners.batching import microbatches, minibatches, pack
from longloop.training import schedule
from longloop.types import Group, Now, Scored, StopReason, UserError
from tests.support.samples import (
    CPU,
    NOW,
    TASK,
    VARIANTS,
    assert_close,
    attempt,
    batch,
    first_minibatch,
    gradient,
    group,
    learner,
    loss_and_slopes,
    make,
    mixed_groups,
    sampled,
    with_known,
)

UNSCORED = [StopReason.ENV_ERROR, StopReason.TIMEOUT, StopReason.CANCELLED]
ALONE = ("reinforce", "ppo", "sft", "ei")
"""What does not compare a task's attempts with each other."""


class Values:
    """A learner that gives every action token of an attempt the same value, and its old log-prob as the reference's."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def read(self, samples, *columns):
        return with_known(
            samples, columns, lambda s: {"value": self.value * s.mask, "logprobs": s.logprobs, "reference": s.logprobs}
        )


# --- advantages ---


def test_leave_one_out():
    """A_k = R_k - mean of the others = K/(K-1) (R_k - mean), and sums to 0."""
    # 1 - (0 + 1/2)/2 = 3/4;   0 - (1 + 1/2)/2 = -3/4;   1/2 - (1 + 0)/2 = 0
    assert leave_one_out([1.0, 0.0, 0.5]) == [0.75, -0.75, 0.0]
    rewards = [0.2, 1.0, 0.0, 0.7, 0.7]  # mean 0.52; 5/4 of (-0.32, 0.48, -0.52, 0.18, 0.18)
    assert leave_one_out(rewards) == pytest.approx([-0.4, 0.6, -0.65, 0.225, 0.225])
    assert sum(leave_one_out(rewards)) == pytest.approx(0)


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_equal_rewards_have_no_advantage(reward, k):
    for advantages in (leave_one_out, standardize, DrGrpo(k=k).parts.credit.advantages):
        assert advantages([reward] * k) == pytest.approx([0] * k, abs=1e-9)


def test_standardise():
    """(R - mean) / (std + 1e-6) with the unbiased std: GRPO, DAPO and GSPO."""
    # mean 1/3; variance ((2/3)^2 + 2 (1/3)^2) / 2 = 1/3; std 0.5773503; 2/3 / 0.5773513 = 1.1546985
    by_hand = [1.1546985, -0.5773493, -0.5773493]
    for algo in (Grpo(), Dapo(), Gspo()):
        assert algo.parts.credit.advantages([1.0, 0.0, 0.0]) == pytest.approx(by_hand, abs=1e-7)
    assert Loop().advantages([1.0, 0.0, 0.0]) == [1.0, -0.5, -0.5]  # and LOOP itself does not divide


def test_loop_normalised():
    """LOOP RwNorm: the leave-one-out advantage over the standard deviation of a population."""
    # variance ((2/3)^2 + 2 (1/3)^2) / 3 = 2/9, its root 0.4714045; 1 / 0.4714055 = 2.1213159, -0.5 / 0.4714055
    by_hand = [2.1213159, -1.0606579, -1.0606579]
    assert Loop(normalize=True).advantages([1.0, 0.0, 0.0]) == pytest.approx(by_hand, abs=1e-7)
    assert Loop(normalize=True).advantages([0.3] * 4) == pytest.approx([0.0] * 4, abs=1e-6)


def test_gspo_goes_over_a_step_once_in_four_minibatches():
    """With LOOP's 40 tasks and 6 attempts, as in its paper."""
    algo = Gspo()
    groups = [group(1.0, 0.0, 0.0, 0.0, 0.0, 0.0) for _ in range(40)]
    samples = algo.credit(groups, None, NOW)
    sizes = [len(m.samples) for m in schedule(SimpleNamespace(seed=0, steps=1), algo, groups, samples, Now(1, 1))]
    assert sizes == [60] * 4


def test_dr_grpo_only_subtracts_the_mean():
    # mean 0.5; LOO times (K-1)/K = 2/3: 0.75 * 2/3 = 0.5
    assert DrGrpo().parts.credit.advantages([1.0, 0.0, 0.5]) == [0.5, -0.5, 0.0]


def test_reinforce_compares_with_the_whole_step():
    """The baseline is the mean of all other attempts, whatever their task; RLOO's is that of the same task."""
    groups = [group(1.0, 0.0), Group(TASK, (attempt(0.5, number=0),))]
    # 1 - (0 + 1/2)/2 = 3/4, 0 - (1 + 1/2)/2 = -3/4, 1/2 - (1 + 0)/2 = 0
    assert [s.advantages[-1] for s in Reinforce().credit(groups, None, NOW)] == [0.75, -0.75, 0.0]
    # within the first group: 1 - 0 and 0 - 1; the second has no other attempt and is skipped
    assert [s.advantages[-1] for s in Rloo(k=2).credit(groups, None, NOW)] == [1.0, -1.0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stop", UNSCORED)
def test_unscored_attempts_leave_the_baseline(variant, stop):
    """An attempt that an environment failed has no reward: it is neither trained on nor compared with."""
    groups = mixed_groups()
    failed = replace(attempt(0.0, (3,), 9), stop=stop)
    with_failed = [replace(g, trajectories=(failed, *g.trajectories)) for g in groups]
    algo = make(variant, k=3)
    assert algo.credit(with_failed, Values(0.3), NOW) == algo.credit(groups, Values(0.3), NOW)


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_with_fewer_than_two_scored_attempts(variant):
    """A group method skips them; REINFORCE (with another group's attempt) and the others in ALONE need no second."""
    lonely = Group(TASK, (attempt(1.0), attempt(0.0, number=1, stop=StopReason.TIMEOUT)))
    kept = make(variant).credit([lonely, replace(lonely)], Values(), NOW)
    assert [s.source for s in kept] == ([(0, 0), (1, 0)] if variant in ALONE else [])
    # and when nothing at all was scored, no algorithm has anything to do
    failed = Group(TASK, (attempt(0.0, stop=StopReason.ENV_ERROR), attempt(0.0, number=1, stop=StopReason.TIMEOUT)))
    assert make(variant).credit([failed], Values(), NOW) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_without_a_scored_attempt_has_no_update(variant):
    """Every environment of a step may fail; the run goes on without a gradient step."""
    algo = make(variant)
    failed = Group(TASK, (attempt(0.0, stop=StopReason.ENV_ERROR),) * 2)
    config = SimpleNamespace(seed=0, steps=1)
    assert list(schedule(config, algo, [failed], algo.credit([failed], Values(), NOW), Now(1, 1))) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_attempt_per_task(variant):
    """K = 1 is refused where attempts at one task are compared, and only there."""
    if variant in ALONE:
        assert make(variant, k=1).k == 1
    else:
        with pytest.raises(UserError, match=r"algo\.k = 1.*needs algo\.k >= 2"):
            make(variant, k=1)


# --- the loss of LOOP ---


def test_loop_on_policy_is_reinforce_with_a_token_mean():
    """At ratio 1 the slope by each log-prob is -A/|a|."""
    first, second = attempt(1.0, (2,), 0), attempt(0.0, (1, 3), 1)
    samples = Loop(k=2).credit([Group(TASK, (first, second))], None, NOW)  # A = 1 and -1
    packed = pack(samples, 1, CPU)
    _, slopes = loss_and_slopes(Loop(), packed.batch.old_N.tolist(), packed.batch)
    # two tokens with A = 1: -1/2 each; four with A = -1: +1/4 each
    assert slopes == pytest.approx([-0.5, -0.5, 0.25, 0.25, 0.25, 0.25])


def test_loop_with_one_epoch_and_one_minibatch_has_the_gradient_of_reinforce():
    """The same, through mini-batches and the tiny model: against -A * mean of log p, written out."""
    algo = Loop(k=3, epochs=1, minibatch=6)
    model = learner(algo)
    groups = sampled(mixed_groups(), model)
    # LOO: 1 - 3/8, 0 - 7/8, 3/4 - 1/2; 1/4 - 3/8, 3/4 - 1/8, 0 - 1/2
    by_hand = {(0, 0): 0.625, (0, 1): -0.875, (0, 2): 0.25, (1, 3): -0.125, (1, 4): 0.625, (1, 5): -0.5}
    sizes = {(0, 0): 5, (0, 1): 4, (0, 2): 4, (1, 3): 8, (1, 4): 4, (1, 5): 3}

    minibatch = first_minibatch(algo, groups, model, on_policy=True)
    assert {s.source: s.advantages[-1] for s in minibatch.samples} == by_hand and minibatch.norm == 6
    # all fit one micro-batch, which numbers the attempts as they come: shorter samples first
    order = list(dict.fromkeys(s.source for s in microbatches(minibatch.samples, 10**9, False)[0]))

    def reinforce(scored, batch):
        means = [scored.logp_N[batch.unit_N == number].sum() / sizes[key] for number, key in enumerate(order)]
        return -sum(by_hand[key] * mean for key, mean in zip(order, means, strict=True)), {}

    ours, _ = gradient(model, minibatch, algo.loss)
    theirs, _ = gradient(model, minibatch, reinforce)
    assert_close(theirs, ours)


RATIOS = [0.5, 0.9, 0.905, 0.912, 0.99, 1.0, 1.01, 1.09, 1.11, 1.5, 3.0]
ADVANTAGES = [-2.0, -0.5, 0.0, 0.5, 2.0]


@pytest.mark.parametrize("unit", ["token", "turn", "trajectory"])
def test_loop_clip(unit):
    """min(rA, g(A)) is min(rA, clip(r) A); the slope is -rA, and 0 just where A > 0, r > 1+e or A < 0, r < 1/(1+e)."""
    clip = 0.1
    for r, a in itertools.product(RATIOS, ADVANTAGES):
        loss, (slope,) = loss_and_slopes(Loop(clip=clip, ratio=unit), [math.log(r)], batch([0.0], [a], [1.0]))
        clipped = min(max(r, 1 / (1 + clip)), 1 + clip)
        assert loss == pytest.approx(-min(r * a, clipped * a), abs=1e-6)
        flat = (a > 0 and r > 1 + clip) or (a < 0 and r < 1 / (1 + clip))
        assert slope == pytest.approx(0 if flat else -r * a, abs=1e-6)
    # by hand, at A = 2 and -2: 1.1 * 2 = 2.2; -2 / 1.1 = -1.8181818
    assert loss_and_slopes(Loop(ratio=unit), [1.0], batch([0.0], [2.0], [1.0]))[0] == pytest.approx(-2.2)
    assert loss_and_slopes(Loop(ratio=unit), [-1.0], batch([0.0], [-2.0], [1.0]))[0] == pytest.approx(1.8181818)


@pytest.mark.parametrize(
    ("algo", "low", "high"),
    [
        (Grpo(kl=0), 0.8, 1.2),
        (DrGrpo(), 0.8, 1.2),
        (Dapo(), 0.8, 1.28),
        (Gspo(), 0.9997, 1.0004),
        (Ppo(warmup=0), 1 / 1.1, 1.1),
    ],
)
def test_ppo_clip(algo, low, high):
    """The others clip to [1 - low, 1 + high]; DAPO's range is wider above, GSPO's is tiny, PPO's is LOOP's."""
    for r, a in itertools.product([*RATIOS, 1.25, 1.27, 1.29, 0.9998, 1.0003], ADVANTAGES):
        of = batch([0.0], [a], [1.0], returns=[0.0])
        loss, (slope,) = loss_and_slopes(algo, [math.log(r)], of, value=[0.0])
        assert loss == pytest.approx(-min(r * a, min(max(r, low), high) * a), abs=1e-6)
        flat = (a > 0 and r > high) or (a < 0 and r < low)
        assert slope == pytest.approx(0 if flat else -r * a, abs=1e-6)


@pytest.mark.parametrize(
    ("algo", "clipped"),
    # A > 0: r = 1.15, 1.25, 1.5; A < 0: r = 0.85, 0.92, 0.5; and three that no clip range excludes
    [(Loop(), 5), (Grpo(kl=0), 3), (DrGrpo(), 3), (Dapo(), 2), (Gspo(), 6), (Ppo(warmup=0), 5)],
)
def test_the_share_of_clipped_ratios(algo, clipped):
    ratios = [1.15, 1.25, 1.5, 0.85, 0.92, 0.5, 1.0, 0.5, 1.5]
    of = batch([0.0] * 9, [1.0] * 3 + [-1.0] * 3 + [1.0, 1.0, -1.0], [1.0] * 9, returns=[0.0] * 9)
    logp_N = torch.tensor(ratios).log()
    _, metrics = algo.loss(Scored(logp_N, torch.zeros(9), {"value": torch.zeros(9)}), of)
    assert metrics["clipped"] == (clipped, 9)


def test_ratios_of_turns_and_trajectories():
    """The product of the turn ratios is the trajectory's; GSPO's is its |a|-th root."""
    # log-ratios 0.1, 0.2 | -0.05: turns e^0.3 = 1.3498588, e^-0.05 = 0.9512294; all e^0.25 = 1.2840254
    of = batch([0.0] * 3, [1.0] * 3, [1 / 3] * 3, turn=[0, 0, 1], unit=[0, 0, 0])
    logp = [0.1, 0.2, -0.05]
    turns = torch.exp(sum_by(torch.tensor(logp), of, "turn"))
    whole = torch.exp(sum_by(torch.tensor(logp), of, "trajectory"))
    assert turns.tolist() == pytest.approx([1.3498588, 0.9512294])
    assert turns.prod().item() == pytest.approx(1.2840254) and whole.item() == pytest.approx(1.2840254)
    assert torch.exp(mean_by(torch.tensor(logp), of, "trajectory")).item() == pytest.approx(1.2840254 ** (1 / 3))
    # with A = 1 and no clipping, that is what the losses are
    assert loss_and_slopes(Loop(ratio="trajectory", clip=9.0), logp, of)[0] == pytest.approx(-1.2840254)
    loss, slopes = loss_and_slopes(Gspo(clip_high=9.0), logp, of)
    assert loss == pytest.approx(-1.0869040)  # e^(0.25/3)
    assert slopes == pytest.approx([-1.0869040 / 3] * 3)


def test_turn_ratio_is_a_mean_over_turns_of_unequal_length():
    """LOOP turn: each turn counts the same, however long; a clipped turn has no slope."""
    trajectory = attempt(1.0, (1, 3))
    packed = pack(to_samples(trajectory, 0, 2.0, Loop(ratio="turn").weights), 1, CPU)  # log-probs were -1
    assert packed.batch.weight_N.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    # turn 0: r = e^0.05 = 1.0512711, rA = 2.1025422; turn 1: r = e^(0.02 + 0.03 + 0.06) = 1.1162781 > 1.1, g(A) = 2.2
    loss, slopes = loss_and_slopes(Loop(ratio="turn"), [-0.95, -0.98, -0.97, -0.94], packed.batch)
    assert loss == pytest.approx(-(2.1025422 + 2.2) / 2)
    assert slopes == pytest.approx([-2.1025422 / 2, 0, 0, 0])
    # at A = -2: turn 1 is not clipped and its three tokens share its slope, r A / 2 = -1.1162781
    packed = pack(to_samples(trajectory, 0, -2.0, "turn"), 1, CPU)
    loss, slopes = loss_and_slopes(Loop(ratio="turn"), [-0.95, -0.98, -0.97, -0.94], packed.batch)
    assert loss == pytest.approx((2.1025422 + 2.2325561) / 2)
    assert slopes == pytest.approx([1.0512711, 1.1162781, 1.1162781, 1.1162781])


def test_attempts_without_advantage_change_nothing():
    """LOOP divides by the nominal mini-batch: adding attempts with A = 0 leaves the gradient as it was."""
    algo = Loop(k=3, minibatch=32)
    keep = Loop(k=3, minibatch=32, drop_below=0.0)
    model = learner(algo)
    groups = sampled(mixed_groups(), model, shift=0.05)
    more = sampled([*mixed_groups(), group(1.0, 1.0, 1.0, sizes=(3, 2)), group(0.0, 0.0, 0.0)], model)
    expected, _ = gradient(model, first_minibatch(algo, groups, model), algo.loss)
    for chosen, attempts in ((algo, 6), (keep, 12)):
        minibatch = first_minibatch(chosen, [*groups, *more[2:]], model)
        assert len({s.source for s in minibatch.samples}) == attempts and minibatch.norm == 32
        assert_close(expected, gradient(model, minibatch, chosen.loss)[0])


# --- the other losses ---


def test_reinforce_and_rloo_sum_over_tokens():
    """-A * sum of log p: every token has the slope -A, whatever the attempt's length."""
    for algo in (Reinforce(), Rloo()):
        packed = pack(algo.credit([Group(TASK, (attempt(1.0, (1,)), attempt(0.0, (2,), 1)))], None, NOW), 1, CPU)
        loss, slopes = loss_and_slopes(algo, [-0.5, -2.0, -3.0], packed.batch)
        assert loss == pytest.approx(-4.5)  # A = 1 and -1: -(1 * -0.5 + -1 * (-2 - 3))
        assert slopes == [-1.0, 1.0, 1.0]


def test_grpo_penalty():
    """kl * (e^d - d - 1), d = log p_ref - log p; its slope by log p is kl * (1 - e^d)."""
    # d = -1.5 - -1 = -0.5: e^-0.5 = 0.6065307, penalty 0.1065307, 1 - e^d = 0.3934693
    # d = -0.3 - -1 = 0.7: e^0.7 = 2.0137527, penalty 0.3137527, 1 - e^d = -1.0137527
    of = batch([-1.0, -1.0], [2.0, 0.0], [0.5, 0.5], unit=[0, 0], reference=[-1.5, -0.3])
    loss, slopes = loss_and_slopes(Grpo(kl=0.1), [-1.0, -1.0], of)
    assert loss == pytest.approx(-(0.5 * (2.0 - 0.01065307) + 0.5 * (0.0 - 0.03137527)))
    assert slopes == pytest.approx([0.5 * (-2.0 + 0.03934693), 0.5 * -0.10137527])


def test_grpo_without_a_penalty_needs_no_reference():
    assert Grpo().needs_reference and not Grpo(kl=0.0).needs_reference
    samples = Grpo(kl=0.0).credit(mixed_groups(), None, NOW)  # a learner would be asked for the reference
    assert pack(samples, 1, CPU).batch.columns == {}
    assert learner(Grpo(kl=0.0)).second_copy is None and learner(Grpo()).second_copy is not None
    assert learner(Grpo(), lora=2).second_copy is None  # adapters off is the reference


def test_dr_grpo_divides_by_a_constant():
    """Every token counts 1/divisor, whatever the length of its attempt."""
    algo = DrGrpo(k=2, divisor=10.0)
    packed = pack(algo.credit([Group(TASK, (attempt(1.0, (1,)), attempt(0.0, (2, 1), 1)))], None, NOW), 1, CPU)
    # A = 1/2 for one token, -1/2 for three: sum 0.5 - 1.5 = -1, over 10
    loss, slopes = loss_and_slopes(algo, packed.batch.old_N.tolist(), packed.batch)
    assert loss == pytest.approx(0.1)
    assert slopes == pytest.approx([-0.05, 0.05, 0.05, 0.05])


def test_dapo_is_a_mean_over_tokens():
    """The denominator is the number of action tokens; equal groups take no part in it."""
    algo = Dapo(k=2)
    groups = [group(1.0, 1.0, sizes=(7,)), Group(TASK, (attempt(1.0, (3,)), attempt(0.0, (4, 1), 1)))]
    samples = algo.credit(groups, None, NOW)
    assert [s.source for s in samples] == [(1, 0), (1, 1)]
    (minibatch,) = minibatches(samples, 32, average=algo.average, whole_units=algo.whole_units, step=1, epoch=0, seed=0)
    assert minibatch.norm == 3 + 5
    packed = pack(samples, 1, CPU)
    # A = +-0.5 / (0.7071068 + 1e-6) = +-0.7071058; (3 - 5) * 0.7071058 = -1.4142116
    assert loss_and_slopes(algo, packed.batch.old_N.tolist(), packed.batch)[0] == pytest.approx(1.4142116)


# --- all of them against a naive implementation ---

CLIPS = {
    "loop": (1 / 1.1, 1.1),
    "grpo": (0.8, 1.2),
    "dr_grpo": (0.8, 1.2),
    "dapo": (0.8, 1.28),
    "gspo": (1 - 3e-4, 1 + 4e-4),
    "ppo": (1 / 1.1, 1.1),
}


def naive_advantages(name, rewards):
    """From the definitions, in plain loops."""
    k = len(rewards)
    mean = sum(rewards) / k
    squares = sum((r - mean) ** 2 for r in rewards)
    others = [r - (sum(rewards) - r) / (k - 1) for r in rewards]
    return {
        "loop": others,
        "loop normalised": [a / (math.sqrt(squares / k) + 1e-6) for a in others],
        "rloo": others,
        "dr_grpo": [r - mean for r in rewards],
        "ppo": [r - 0.3 for r in rewards],
    }.get(name, [(r - mean) / (math.sqrt(squares / (k - 1)) + 1e-6) for r in rewards])


def naive_loss(name, ratio, rewards, attempts):
    """The sum that a loss returns. `attempts`: for each a list of (turn, log-prob now, when sampled, reference's)."""
    total = 0.0
    low, high = CLIPS.get(name.split()[0], (0.0, math.inf))
    for a, tokens in zip(naive_advantages(name, rewards), attempts, strict=True):
        if name == "rloo":
            total -= a * sum(now for _, now, _, _ in tokens)
            continue
        turns = {"token": range(len(tokens)), "turn": [t for t, *_ in tokens], "trajectory": [0] * len(tokens)}[ratio]
        units = {}
        for unit, (_, now, old, _) in zip(turns, tokens, strict=True):
            units.setdefault(unit, []).append(now - old)
        power = 1 / len(tokens) if name == "gspo" else 1.0
        ratios = [math.exp(power * sum(logs)) for logs in units.values()]
        terms = [min(r * a, min(max(r, low), high) * a) for r in ratios]
        scale = {"dr_grpo": 1 / 1024, "dapo": 1.0}.get(name, 1 / len(terms))
        total -= scale * sum(terms)
        if name == "grpo":
            gaps = [reference - now for _, now, _, reference in tokens]
            total += 0.04 * sum(math.exp(d) - d - 1 for d in gaps) / len(tokens)
        if name == "ppo":
            reward = a + 0.3
            total += 0.1 * sum((0.45 - reward) ** 2 / 2 for _ in tokens) / len(tokens)
    return total


@pytest.mark.parametrize(
    ("name", "ratio", "algo"),
    [
        ("loop", "token", Loop(k=3)),
        ("loop", "turn", Loop(k=3, ratio="turn")),
        ("loop", "trajectory", Loop(k=3, ratio="trajectory")),
        ("loop normalised", "token", Loop(k=3, normalize=True)),
        ("rloo", "token", Rloo(k=3)),
        ("grpo", "token", Grpo(k=3)),
        ("dr_grpo", "token", DrGrpo(k=3)),
        ("dapo", "token", Dapo(k=3)),
        ("gspo", "trajectory", Gspo(k=3)),
        ("ppo", "token", Ppo(k=3, warmup=0)),
    ],
)
def test_a_naive_implementation_agrees(name, ratio, algo):
    """Rewards to loss, in float64 and plain Python, on attempts of unequal turns and lengths with ratios far from 1."""
    chance = random.Random(name)
    sizes = [(2, 3), (4,), (1, 2, 1)]
    rewards = [1.0, 0.1, 0.8]
    old = [[chance.uniform(-2, -0.1) for _ in range(sum(s))] for s in sizes]
    tried = [attempt(r, s, n, logprobs=o) for n, (r, s, o) in enumerate(zip(rewards, sizes, old, strict=True))]
    samples = algo.credit([Group(TASK, tuple(tried))], Values(0.3), NOW)
    packed = pack(samples, 1, CPU)
    now = [[o + chance.gauss(0, 0.2) for o in row] for row in old]
    reference = [[o + chance.gauss(0, 0.3) for o in row] for row in old]
    columns = {**packed.batch.columns, "reference": torch.tensor([x for row in reference for x in row])}
    given = replace(packed.batch, columns=columns)
    loss, _ = loss_and_slopes(algo, [x for row in now for x in row], given, value=[0.45] * sum(map(len, old)))
    turns = [[t for t, size in enumerate(s) for _ in range(size)] for s in sizes]
    attempts = [list(zip(*columns, strict=True)) for columns in zip(turns, now, old, reference, strict=True)]
    assert loss == pytest.approx(naive_loss(name, ratio, rewards, attempts), rel=1e-5, abs=1e-6)


# --- environment tokens ---


@pytest.mark.parametrize("variant", VARIANTS)
def test_environment_tokens_play_no_part(variant):
    """Whatever stands in their columns, the loss, every metric (the KL guard's too) and the gradient stay the same."""
    algo = make(variant, k=3)
    model = learner(algo)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), model, shift=0.1), model)

    def litter(sample):
        """Nonsense in every column wherever the environment spoke."""

        def spoiled(column):
            return np.where(sample.mask, column, -7.0)

        return replace(
            sample,
            logprobs=spoiled(sample.logprobs),
            advantages=spoiled(sample.advantages),
            weights=spoiled(sample.weights),
            columns={name: spoiled(column) for name, column in sample.columns.items()},
        )

    littered = [litter(sample) for sample in minibatch.samples]
    assert all((a.logprobs != b.logprobs).any() for a, b in zip(littered, minibatch.samples, strict=True))
    expected, metrics = gradient(model, minibatch, algo.loss)
    got, same = gradient(model, replace(minibatch, samples=littered), algo.loss)
    assert same == metrics and {"loss", "entropy"} <= metrics.keys() and ("kl" in metrics) == algo.on_policy
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_a_number_fills_a_column() -> None:
    sample = to_samples(attempt(1.0, (2, 1)), 0, 1.0, 1.0)[0].with_columns(known=np.arange(8.0))
    added = sample.with_columns(whole=2, part=0.5, known=3.0)
    assert added.columns.keys() == {"known", "whole", "part"} and sample.columns.keys() == {"known"}
    for name, number in (("whole", 2), ("part", 0.5), ("known", 3.0)):
        assert added.columns[name].tolist() == [number] * len(sample.ids)
