"""Choices, objectives and holds: numbers that follow by hand from their equations, and what they must not depend on.

Whether they are right for every cut into micro-batches is tested here at settings at which they change the gradient.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.composed import Composed
from longloop.algos.inpo import Inpo
from longloop.algos.parts.choose import (
    Corrected,
    Curvature,
    DampDrift,
    DropCovarying,
    DropSmall,
    Extremes,
    TopTokens,
    covariances,
    extremes,
    growing,
    shifts,
)
from longloop.algos.parts.hold import (
    Anchor,
    Corridor,
    Hold,
    HoldCovarying,
    HoldRare,
    Kl,
    ReverseKl,
    nucleus_entropy,
    outside,
    phase,
)
from longloop.algos.parts.objective import (
    Balanced,
    Clipped,
    Implicit,
    KeepGradient,
    Objective,
    Reinforce,
    TrustRegion,
    Weighted,
    _way,
)
from longloop.algos.parts.shape import Thermostat
from longloop.algos.parts.tokens import Tokens, mean
from longloop.registry import ALGOS
from longloop.types import Batch, Group, Now, Sample, SampleSource, Scored, Task, UserError
from tests.contract.test_methods import gradient, lively_groups, make, of, stepped
from tests.support.samples import attempt, batch, group, learner, loss_and_slopes, sampled

NOW = Now(1, 10)
TASKS = [Group(Task(f"task {n}", "train"), ()) for n in range(9)]


def sample(
    logp: Sequence[float],
    adv: Sequence[float],
    source: tuple[int, int] = (0, 0),
    turns: Sequence[int] = (),
    **columns: Sequence[float],
) -> Sample:
    """An attempt of one opening token and these action tokens, each with weight 1."""
    size = len(logp)
    return Sample(
        ids=range(size + 1),
        mask=[False] + [True] * size,
        logprobs=[0.0, *logp],
        turns=[0, *(turns or [0] * size)],
        advantages=[0.0, *adv],
        weights=[0.0] + [1.0] * size,
        source=SampleSource(*source),
        columns={name: np.array([0.0, *values]) for name, values in columns.items()},
    )


def weights(samples: Sequence[Sample]) -> list[float]:
    return [w for s in samples for w in s.weights[s.mask].tolist()]


def column(samples: Sequence[Sample], name: str) -> list[float]:
    return [x for s in samples for x in s.columns[name][s.mask].tolist()]


def slopes_of(part: Objective | Hold, ratios: Sequence[float], adv: Sequence[float], **columns: Any) -> list[float]:
    """The loss's derivative by each log-prob, where these are the ratios to what was sampled."""
    return value_and_slopes(part, ratios, adv, **columns)[1]


def value_and_slopes(
    part: Objective | Hold, ratios: Sequence[float], adv: Sequence[float], **columns: Any
) -> tuple[float, list[float]]:
    old = [-2.0] * len(ratios)
    of = batch(old, list(adv), [1.0] * len(old))
    of = replace(of, columns={name: torch.tensor(values) for name, values in columns.items()})
    return loss_and_slopes(part, [-2.0 + math.log(r) for r in ratios], of)


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-7)


# -- objectives --------------------------------------------------------------------------------------------------------


def test_cispo_a_bounded_ratio_is_a_weight() -> None:
    close(slopes_of(Weighted(low=0.8, high=1.28), [1.5, 0.5, 1.0], [1.0, -1.0, 1.0]), [-1.28, 0.8, -1.0])
    assert slopes_of(Clipped(low=0.8, high=1.28), [1.5, 0.5], [1.0, -1.0]) == [0.0, 0.0]
    close(slopes_of(Weighted(low=0.0, high=1e9), [1.5, 0.5], [1.0, -1.0]), [-1.5, 0.5])


def test_a_token_above_the_range_keeps_the_gradient_of_the_bound() -> None:
    ppo, kept = Clipped(low=0.8, high=1.28), KeepGradient(low=0.8, high=1.28)
    ratios, adv = [1.5, 1.5, 1.1, 1.5, 0.5], [1.0, 1.0, 1.0, -1.0, -1.0]
    value, slopes = value_and_slopes(ppo, ratios, adv)
    kept_value, kept_slopes = value_and_slopes(kept, ratios, adv, uncertain=[1.0, 0.0, 1.0, 1.0, 1.0])
    close(kept_value, value)
    assert slopes[0] == slopes[1] == 0
    close(kept_slopes, [-1.28, *slopes[1:]])
    close(slopes_of(replace(kept, tokens="all"), ratios, adv), [-1.28, -1.28, *slopes[2:]])
    assert slopes_of(replace(kept, tokens="none"), ratios, adv) == slopes
    close(kept_slopes[0], slopes_of(Weighted(low=0.0, high=1.28), [1.5], [1.0])[0])


def test_uncertain_tokens_have_more_entropy_than_the_steps_mean() -> None:
    samples = [sample([-1.0] * 2, [1.0] * 2, (0, n), entropy=x) for n, x in enumerate([(0.1, 0.9), (0.4, 0.5)])]
    assert column(KeepGradient().mark(samples, TASKS, NOW), "uncertain") == [0, 1, 0, 1]  # 0.475


def test_agentic_aepo_has_one_mean_entropy_for_both_its_uses() -> None:
    """A token gains advantage where it is uncertain, and nowhere else; attempts without advantage count in both."""
    algo = make("aepo", minibatch=0, epochs=1)
    model = learner(algo)
    groups = [*lively_groups(), Group(Task("equal", "train"), group(0.0, 0.0, 0.0, sizes=(7, 9)).trajectories)]
    groups = sampled(groups, model)
    samples = stepped(algo, model, groups, NOW)
    assert {s.source.group for s in samples} == {0, 1, 2}
    entropy, unsure = column(samples, "entropy"), column(samples, "uncertain")
    assert [h > mean(np.array(entropy)) for h in entropy] == [bool(u) for u in unsure]
    plain = stepped(replace(algo, w=0.0), model, groups, NOW)
    gained = [a / b > 1 for s, t in zip(samples, plain, strict=True) for a, b in
              zip(s.advantages[s.mask], t.advantages[t.mask], strict=True) if b]  # fmt: skip
    assert gained == [bool(u) for s in samples if s.source.group < 2 for u in s.columns["uncertain"][s.mask]]


def test_a_ratio_beyond_the_dual_bound_has_no_gradient() -> None:
    close(slopes_of(Clipped(dual=3.0), [2.9, 3.1], [-1.0, -1.0]), [2.9, 0.0])
    value, _ = value_and_slopes(Clipped(dual=3.0), [5.0], [-1.0])
    close(value, 3.0)


def test_bapo_counts_what_has_a_gradient() -> None:
    ratio, push = np.array([1.49, 0.5, 1.0]), np.array([1.0, -1.0, -1.0])
    close(Balanced().search(ratio, push), (0.9, 1.5))  # at 1.5 positives are 1.49 / 2.49
    close(Balanced(target=0.0).search(ratio, push), (0.6, 1.2))
    close(Balanced().search(np.array([1.1, 0.7, 1.0]), np.array([1.0, -1.0, -0.5])), (0.75, 1.2))  # 1.1 of 1.6 at 0.75
    close(Balanced(target=0.99).search(ratio, push), (0.9, 3.0))
    read = [sample([-2.0] * 3, push.tolist(), logprobs=(-2 + np.log(ratio)).tolist())]
    close(list(Balanced().facts(read, NOW).values()), (0.9, 1.5))


def test_bapo_counts_nothing_beyond_the_dual_bound() -> None:
    """r = 10 is a failure's: it has no gradient, and all that has is positive. A success beyond it has none either."""
    ratio, push = np.array([1.0, 10.0]), np.array([1.0, -1.0])
    low, high = Balanced().search(ratio, push)
    close((low, high), (0.6, 1.2))
    close(slopes_of(Balanced(), ratio.tolist(), push.tolist()), [-1.0, 0.0])
    close(Balanced().search(np.array([1.0, 3.0]), push), (0.9, 3.0))  # at the bound it pushes
    close(Balanced(dual=1.1).search(np.array([1.15, 1.0]), push), (0.9, 3.0))
    assert slopes_of(Balanced(dual=1.1), [1.15], [1.0]) == [0.0]


def test_bapo_clips_by_the_facts_of_its_mini_batch() -> None:
    of = batch([-2.0] * 2, [1.0, -1.0], [1.0] * 2)
    logp = [-2 + math.log(1.49), -2 + math.log(0.7)]
    assert loss_and_slopes(Balanced(), logp, of)[1][0] == 0
    wide = replace(of, facts={"clip_low": 0.9, "clip_high": 1.5})
    close(loss_and_slopes(Balanced(), logp, wide)[1], [-1.49, 0.0])


def test_bapo_at_the_policy_that_sampled_the_range_has_no_effect() -> None:
    of = batch([-2.0] * 2, [1.0, -1.0], [1.0] * 2)
    found = [
        loss_and_slopes(Balanced(), [-2.0] * 2, replace(of, facts={"clip_low": low, "clip_high": high}))
        for low, high in ((0.6, 1.2), (0.9, 3.0))
    ]
    assert found[0] == found[1] == (0.0, [-1.0, 1.0])


def test_nft_by_hand() -> None:
    on = {"reward": [1.0, 0.0], "mean_reward": [0.25, 0.25]}
    close(slopes_of(Implicit(), [1.0, 1.0], [0.0, 0.0], **on), [-0.75, 0.25])  # Dr.GRPO's advantages
    close(slopes_of(Implicit(negatives=0.0), [1.0, 1.0], [0.0, 0.0], **on), [-0.75, 0.0])
    for ratio, value, slope in ((1.2, 0.0, 0.4), (0.8, -0.0645385, 0.25)):
        found = value_and_slopes(Implicit(), [ratio], [0.0], reward=[0.0], mean_reward=[0.25])
        close((found[0] / 0.75, found[1][0] / 0.75), (value, slope))
    graded = slopes_of(Implicit(), [1.0], [0.0], reward=[0.5], mean_reward=[0.25])
    close(graded, [-0.25])  # half of a success and half of a failure: the mean of both, R - m
    assert Implicit(divisor=1000.0).weights == 0.001


@pytest.mark.parametrize(("m", "x"), [(0.98, 13.0), (0.5, 18.0), (0.5, 30.0)])
def test_nft_a_ratio_that_float32_cannot_count_to_still_has_its_slope(m: float, x: float) -> None:
    """The value is -log 1 and the slope m r, beyond e^20 that of the tangent."""
    on = {"reward": torch.zeros(1), "mean_reward": torch.tensor([m])}
    of = replace(batch([-40.0], [0.0], [1.0]), columns=on)
    value, (slope,) = loss_and_slopes(Implicit(), [-40.0 + x], of)
    assert value == 0.0
    close(slope, m * math.exp(min(x, 20.0)), 1e-5)


def test_nft_knows_its_groups_rewards_and_refuses_others() -> None:
    groups = [group(1.0, 0.0, 0.5, 0.5)]
    marked = Implicit().mark([sample([-1.0], [0.5], (0, 2))], groups, NOW)
    assert column(marked, "reward") == [0.5] and column(marked, "mean_reward") == [0.5]
    with pytest.raises(UserError, match="between 0 and 1"):
        Implicit().mark([], [group(-1.0, 1.0)], NOW)


def test_trm_one_token_drops_its_turn() -> None:
    x = [0.0, 0.1, -0.2, 0.0]

    def slopes(**options: Any) -> list[float]:
        of = replace(batch([-2.0] * 4, [-1.0] * 4, [1.0] * 4), turn_N=torch.tensor([0, 0, 0, 1]), turns=2)
        part = TrustRegion(low=0.0, high=9.0, **options)
        return loss_and_slopes(part, [-2.0 + d for d in x], replace(of, unit_N=torch.zeros(4, dtype=int), units=1))[1]

    ratios = np.exp(x)
    close(slopes(delta=0.0199, divergence="k3"), ratios)  # at most 0.01873
    close(slopes(delta=0.0199, divergence="k2"), [0, 0, 0, 1])  # 0.02
    close(slopes(delta=0.0187, divergence="k3"), [0, 0, 0, 1])
    close(slopes(delta=0.0187, unit="token"), ratios * [1, 1, 0, 1])
    close(slopes(delta=0.0187, unit="trajectory"), [0, 0, 0, 0])
    assert TrustRegion(unit="trajectory").whole_units and not TrustRegion().whole_units


def test_what_a_token_counts_and_which_tokens_must_stay_together() -> None:
    assert (Reinforce().weights, Reinforce("tokens").weights, Reinforce(divisor=4.0).weights) == ("token", 1.0, 0.25)
    assert (Clipped(ratio="turn").weights, Clipped("tokens", ratio="turn").weights) == ("turn", 1.0)
    assert Clipped(ratio="turn", divisor=4.0).weights == 0.25
    assert [Clipped(ratio=unit).whole_units for unit in ("token", "turn", "trajectory")] == [False, False, True]


def test_cispo_counts_the_tokens_outside_the_bounds() -> None:
    of = batch([-2.0] * 5, [2.0] * 5, [1.0] * 5)
    logp_N = torch.tensor([-4.0, -3.0, -2.0, -1.0, 0.0], requires_grad=True)
    total, metrics = Weighted(low=1.0, high=1.0).loss(Scored(logp_N, torch.zeros(5)), of)
    assert torch.autograd.grad(total, logp_N)[0].tolist() == [-2.0] * 5
    outside_tokens, tokens = metrics["bounded"]
    assert (int(outside_tokens), tokens) == (4, 5)  # a ratio at the bound is inside


def test_the_kept_gradient_counts_by_weight_and_advantage() -> None:
    part, of = KeepGradient(low=0.8, high=1.25, tokens="all"), batch([-2.0], [2.0], [3.0])
    close(loss_and_slopes(part, [-1.0], of)[1], [-1.25 * 2 * 3])
    at_the_bound = [slopes_of(kind(low=0.5, high=1.0, **more), [1.0], [1.0]) for kind, more in (
        (Clipped, {}), (KeepGradient, {"tokens": "all"}),
    )]  # fmt: skip
    assert at_the_bound[0] == at_the_bound[1]
    even = [sample([-1.0] * 2, [1.0] * 2, entropy=[0.5, 0.5])]
    assert column(part.mark(even, TASKS, NOW), "uncertain") == [0, 0]


def test_bapo_the_way_of_its_bounds() -> None:
    close(_way(0.0, 1.0, 0.25), [0, 0.25, 0.5, 0.75, 1])
    close(_way(0.0, 0.6, 0.25), [0, 0.25, 0.5, 0.6])
    search = Balanced().search
    close(search(np.array([1.2, 1.0]), np.array([1.0, -1.0])), (0.6, 1.2))  # a ratio at the bound counts
    close(search(np.array([1.22, 1.0]), np.array([1.0, -1.0])), (0.9, 1.25))
    close(search(np.array([1.0, 1.0]), np.array([0.5, -0.6])), (0.9, 3.0))


E20 = math.exp(20)


@pytest.mark.parametrize(
    ("log_ratios", "pushes", "met"),
    [
        ((0, 25), (1.5 * E20, -1.0), True),
        ((0, 25), (0.7 * E20, -1.0), False),
        ((-25, 0), (E20, -0.7), True),
        ((-25, 0), (E20, -1.5), False),
    ],
)
def test_bapo_takes_no_ratio_beyond_e_to_the_20(
    log_ratios: tuple[int, int], pushes: tuple[float, float], met: bool
) -> None:
    read = [sample([-2.0] * 2, pushes, logprobs=[-2.0 + x for x in log_ratios])]
    close(list(Balanced(dual=math.inf).facts(read, NOW).values()), (0.6, 1.2) if met else (0.9, 3.0))


def test_bapo_without_facts_has_its_first_bounds_and_says_them() -> None:
    of = batch([-2.0] * 2, [-1.0] * 2, [1.0] * 2)
    close(loss_and_slopes(Balanced(), [-2 + math.log(0.7), -2 + math.log(5.0)], of)[1], [0.7, 0.0])  # 5 > dual
    metrics = Balanced().loss(Scored(torch.zeros(2), torch.zeros(2)), of)[1]
    assert (metrics["clip_low"], metrics["clip_high"]) == ((0.6, 1), (1.2, 1))


def test_nft_where_all_or_none_succeeded() -> None:
    close(slopes_of(Implicit(), [1.0], [0.0], reward=[1.0], mean_reward=[1.0]), [-0.02])
    close(slopes_of(Implicit(), [1.0], [0.0], reward=[0.0], mean_reward=[0.0]), [0.02])
    with pytest.raises(UserError, match="between 0 and 1"):
        Implicit().mark([], [group(1.5, 1.0)], NOW)


@pytest.mark.parametrize("x", [25.0, -25.0])
def test_trm_bounds_the_divergence(x: float) -> None:
    """At 20^2 / 2."""
    of = batch([-30.0, -30.0], [-1.0] * 2, [1.0] * 2)

    def slopes(delta: float) -> list[float]:
        return loss_and_slopes(TrustRegion(low=0.0, delta=delta, unit="token", divergence="k2"), [-30 + x, -30.0], of)[
            1
        ]

    assert slopes(199.0)[0] == 0 and slopes(201.0)[0] > 0
    assert slopes(0.0)[1] == 1.0  # nothing moved: not beyond 0
    near = batch([-2.0], [-1.0], [1.0])
    close(loss_and_slopes(TrustRegion(low=0.0, delta=0.03, divergence="k2"), [-1.8], near)[1], [math.exp(0.2)])


# -- choices -----------------------------------------------------------------------------------------------------------


def test_small_advantages_are_left_out() -> None:
    """By the largest of the attempt, whichever stretch has it."""
    one, other = sample([-1.0] * 2, [0.001, -0.02], (0, 0)), sample([-1.0], [0.0], (0, 0))
    small, just = sample([-1.0], [0.0099], (0, 1)), sample([-1.0], [0.01], (1, 0))
    assert [id(s) for s in DropSmall().choose([one, small, other, just], TASKS, NOW)] == [id(one), id(other), id(just)]


def test_ties_go_to_the_first_of_many() -> None:
    """Of 1024 tokens, 768 are alike and 256 are; a sort that is not stable would take others than the first ones."""
    high = np.tile([0.0, 1.0, 1.0, 1.0], 256)
    size, half = len(high), [math.log(0.5)] * len(high)
    first = high * (np.cumsum(high) <= 256)
    same = [sample([0.0] * size, (1 + high).tolist(), entropy=[1.0] * size)]
    close(weights(TopTokens(1 / 4).choose(same, TASKS, NOW)), first * (1024 / 256))
    rare = [sample((high - 2).tolist(), high.tolist())]  # (3/4)^2 for the fewer, (1/4)^2 for the others
    held = (1 - high) * (np.cumsum(1 - high) <= 128)
    assert column(HoldCovarying(1 / 8).mark(rare, TASKS, NOW), "held") == held.tolist()
    known = {"logprobs": half, "sum_p2": [0.5] * size, "sum_p3": [0.25] * size, "hidden_norm2": [1.0] * size}
    part = Curvature(lr=1.0, policy_shift=0.5, objective_shift=math.inf, max_share=1 / 4)
    assert weights(part.choose([sample(half, (4 + high).tolist(), **known)], TASKS, NOW)) == (1 - first).tolist()


def test_d3s_keeps_what_varies_most() -> None:
    assert extremes([2, 1, 0, -1, -3], 2) == 1 and extremes([2, 1, 0, -1, -3], 3) == 2
    samples = [sample([-1.0], [a], (n, 0)) for n, a in enumerate([0, -3, 1, -1, 2])]
    for share, kept in ((0.4, {2, -3}), (0.6, {2, 1, -3}), (1.0, {0, -3, 1, -1, 2})):
        chosen = Extremes(share).choose(samples, TASKS, NOW)
        assert {s.advantages[1] for s in chosen} == kept
    assert len(Extremes(0.2).choose(samples, TASKS, Now(10, 10))) == 5


@pytest.mark.parametrize("seed", range(5))
def test_d3s_no_other_choice_varies_more(seed: int) -> None:
    values = sorted(np.random.default_rng(seed).normal(size=7).round(1), reverse=True)
    for size in (2, 3, 5):
        best = extremes(values, size)
        chosen = values[:best] + values[len(values) - (size - best) :]
        close(np.var(chosen), max(np.var(some) for some in combinations(values, size)))


def test_d3s_keeps_tokens_by_advantage_and_entropy() -> None:
    samples = [
        sample([-1.0] * 3, [2.0] * 3, (0, 0), entropy=[0.1, 0.5, 0.3]),
        sample([-1.0] * 2, [-0.1] * 2, (1, 0), entropy=[0.2, 0.9]),
    ]
    # 0.2, 1.0, 0.6 and 0.02, 0.09; of the second attempt the best is kept as well, and 3 weigh as much as 5 did
    close(weights(TopTokens(0.4).choose(samples, TASKS, NOW)), np.array([0, 1, 1, 0, 1]) * 5 / 3)
    assert weights(TopTokens(0.4).choose(samples, TASKS, Now(10, 10))) == [1.0] * 5
    assert growing(0.4, Now(1, 1)) == 0.4 and growing(0.4, Now(6, 11)) == pytest.approx(0.7)


def test_tis_and_mis_by_hand() -> None:
    logs = np.log([3.0, 0.5, 1.0, 3.0])
    samples = [sample([-2.0] * 4, [1.0] * 4, turns=[0, 0, 1, 1], logprobs=(-2 + logs).tolist())]
    for options, expected in (
        ({}, [2, 0.5, 1, 2]),
        ({"beyond": "drop"}, [0, 0.5, 1, 0]),
        ({"unit": "turn"}, [1.5, 1.5, 2, 2]),
        ({"unit": "turn", "beyond": "drop"}, [1.5, 1.5, 0, 0]),
        ({"unit": "trajectory", "cap": 5.0}, [4.5] * 4),
        ({"unit": "trajectory", "cap": 4.0, "beyond": "drop"}, [0] * 4),
    ):
        (corrected,) = Corrected(**options).choose(samples, TASKS, NOW)  # type: ignore[arg-type]
        close(weights([corrected]), expected)
        close(corrected.logprobs[1:], -2 + logs)  # or the ratio would correct once more
    same = [sample([-2.0], [1.0], logprobs=[-2.0])]
    assert weights(Corrected().choose(same, TASKS, NOW)) == [1.0]


def test_capo_by_hand() -> None:
    pi = np.array([0.8, 0.2])
    known = [np.array([x]) for x in (1.0, 0.8, (pi**2).sum(), (pi**3).sum(), 1.0)]
    close(np.concatenate(shifts(*known, lr=0.1)), [3.2e-5, 0.007904])  # type: ignore[call-arg]
    assert [float(x[0]) for x in shifts(known[0] * 0, *known[1:], lr=0.1)] == [0.0, 0.0]  # type: ignore[call-arg]


@pytest.mark.parametrize("advantage", [-0.7, 1.3])
def test_capo_the_closed_form_is_that_of_the_matrices(advantage: float) -> None:
    chance = np.random.default_rng(0)
    pi, hidden, lr = chance.dirichlet(np.ones(5)), chance.normal(size=3), 0.03
    v = np.eye(5)[2] - pi
    step = advantage * np.outer(v, hidden)
    u = step @ hidden
    fisher = np.diag(pi) - np.outer(pi, pi)
    policy = 0.5 * lr**2 * (v @ u) ** 2
    objective = lr * (step**2).sum() + 0.5 * lr**2 * advantage * ((v @ u) ** 2 - u @ fisher @ u)
    known = [np.array([x]) for x in (advantage, pi[2], (pi**2).sum(), (pi**3).sum(), hidden @ hidden)]
    close(np.concatenate(shifts(*known, lr=lr)), [policy, objective])  # type: ignore[call-arg]


def test_capo_reads_its_numbers_and_drops_the_largest_shifts() -> None:
    part = Curvature(lr=1.0, policy_shift=0.5, objective_shift=math.inf, max_share=0.5)
    logp = torch.tensor([[0.8, 0.2], [0.5, 0.5]]).log()
    found = [of(logp, torch.tensor([[3.0, 4.0], [1.0, 0.0]])).tolist() for of in part.of_logits.values()]
    close(found, [[0.68, 0.5], [0.52, 0.25], [25.0, 1.0]])
    size = 4  # policy shifts of 1/2 n^2 A^2 with n = 0.5: 0.125, 1.125, 0.5, 2
    columns = {"logprobs": [math.log(0.5)] * size, "sum_p2": [0.5] * size, "sum_p3": [0.25] * size}
    samples = [sample([-1.0] * size, [1.0, 3.0, 2.0, 4.0], hidden_norm2=[1.0] * size, **columns)]
    assert weights(part.choose(samples, TASKS, NOW)) == [1, 0, 1, 0]
    assert weights(replace(part, max_share=1.0).choose(samples, TASKS, NOW)) == [1, 0, 0, 0]
    assert weights(replace(part, policy_shift=math.inf).choose(samples, TASKS, NOW)) == [1, 1, 1, 1]


def covarying() -> list[Sample]:
    return [sample([-0.1, -2.0], [a, a], (n, 0)) for n, a in enumerate((1.0, -1.0))]


def test_clip_cov_by_hand() -> None:
    close(covariances(Tokens(covarying(), TASKS)), [0.95, -0.95, -0.95, 0.95])
    assert weights(DropCovarying(0.5, 0.5, 5.0).choose(covarying(), TASKS, NOW)) == [0, 1, 1, 0]
    assert weights(DropCovarying(0.0, 0.5, 5.0).choose(covarying(), TASKS, NOW)) == [1, 1, 1, 1]
    assert weights(DropCovarying(1.0, 0.5, 0.9).choose(covarying(), TASKS, NOW)) == [1, 1, 1, 1]
    one = [weights(DropCovarying(1e-9, 0.5, 5.0).choose(covarying(), TASKS, Now(step, 50))) for step in range(1, 40)]
    assert {tuple(w) for w in one} == {(0, 1, 1, 1), (1, 1, 1, 0)}  # one token, now this, now that


def test_steer_by_hand() -> None:
    def entropy(p: float) -> float:
        return -(p * math.log(p) + (1 - p) * math.log(1 - p))

    chances = [0.5, 0.9, 0.1]
    samples = [sample([math.log(p) for p in chances], [1.0] * 3, entropy=[entropy(p) for p in chances])]
    rate = -math.log(0.8) / 1.7798
    close(weights(DampDrift().choose(samples, TASKS, NOW)), [1.0, math.exp(-rate * 0.021972), 0.8], 1e-4)
    assert weights(DampDrift(1.0).choose(samples, TASKS, NOW)) == [1.0] * 3
    small = [sample([math.log(0.9)], [0.5], entropy=[entropy(0.9)])]  # 0.011: below 0.02, so it is not the measure
    close(weights(DampDrift().choose(small, TASKS, NOW)), [0.8 ** (0.010986 / 0.02)], 1e-4)


def test_choices_at_their_edges() -> None:
    assert growing(0.4, Now(2, 2)) == 1.0
    samples = [sample([-1.0], [a], (n, 0)) for n, a in enumerate([0, -3, 1, -1, 2])]
    assert [s.advantages[1] for s in Extremes(0.1).choose(samples, TASKS, NOW)] == [-3]  # one at least
    uneven = [sample([-1.0], [2.0], (0, 0)), sample([-1.0] * 3, [1.0] * 3, (1, 0)), sample([-1.0], [0.0], (2, 0))]
    chosen = Extremes(2 / 3).choose(uneven, TASKS, NOW)
    assert [s.source.group for s in chosen] == [0, 2]  # by the mean over an attempt's tokens
    assert make("d3s").denominator([], chosen) == 2  # those that are left
    assert DampDrift().choose([], TASKS, NOW) == [] and mean(np.zeros(0)) == 0.0


def test_tis_and_mis_take_no_ratio_beyond_e_to_the_20() -> None:
    samples = [sample([-2.0] * 2, [1.0] * 2, logprobs=[23.0, -27.0])]
    assert weights(Corrected(cap=1e12).choose(samples, TASKS, NOW)) == pytest.approx([E20, 1 / E20])
    same = [sample([-2.0], [1.0], logprobs=[-2.0])]
    assert weights(Corrected(1.0, beyond="drop").choose(same, TASKS, NOW)) == [1.0]  # at the cap: not beyond it


def test_covariances_around_the_means_and_strictly_between_the_bounds() -> None:
    uneven = [sample([-0.1, -2.0], [a, a], (n, 0)) for n, a in enumerate((1.0, 0.0))]
    close(covariances(Tokens(uneven, TASKS)), np.array([0.95, -0.95, -0.95, 0.95]) / 2)
    exact = [sample([0.0, -2.0], [a, a], (n, 0)) for n, a in enumerate((1.0, -1.0))]  # 1, -1, -1, 1
    for low, high, dropped in ((0.5, 2.0, 2), (1.0, 2.0, 0), (0.5, 1.0, 0)):
        assert weights(DropCovarying(1.0, low, high).choose(exact, TASKS, NOW)).count(0.0) == dropped


def test_capo_reads_in_float32() -> None:
    half = torch.tensor([[0.8, 0.2]]).log().bfloat16()
    assert {of(half, half).dtype for of in Curvature().of_logits.values()} == {torch.float32}


def test_the_chance_of_a_token_follows_from_its_place_alone() -> None:
    one = sample([-1.0] * 3, [1.0] * 3, (0, 0))
    others = [replace(one, source=SampleSource(0, 1)), replace(one, source=SampleSource(1, 0)), replace(one, stretch=1)]
    tokens = Tokens([one, *others], TASKS)
    every = tokens.chances(np.arange(12), 1)
    assert len(set(every)) == 12 and not set(every) & set(tokens.chances(np.arange(12), 2))
    for n, alone in enumerate(tokens.samples):
        assert Tokens([alone], TASKS).chances(np.arange(3), 1) == every[3 * n : 3 * n + 3]


def test_tokens_lie_in_one_order_and_columns_in_that_of_the_samples() -> None:
    one, other = sample([-1.0, -2.0], [0.0] * 2, (0, 0)), sample([-3.0], [0.0], (1, 0))
    tokens = Tokens([other, one], TASKS)
    flat = tokens.flat(lambda s: s.logprobs)
    assert flat.tolist() == [-1.0, -2.0, -3.0]
    assert [x.tolist() for x in tokens.columns(flat)] == [[0.0, -3.0], [0.0, -1.0, -2.0]]
    assert Tokens([], TASKS).units("turn").dtype == int


# -- holds -------------------------------------------------------------------------------------------------------------


def test_kl_by_hand() -> None:
    """d = log 2: 2 - 0.693147 - 1, and e^10 - 11 where d = 12 and beyond."""
    of = batch([-1.0] * 3, [0.0] * 3, [4.0] * 3, reference=[-1.0, -1.0, -20.0])
    logp_N = torch.tensor([-1 - math.log(2), -13.0, -8.0], requires_grad=True)
    total, metrics = Kl(0.5).loss(Scored(logp_N, torch.zeros(3)), of)
    each = [0.306853, math.exp(10) - 11, math.exp(-10) + 9]
    close(total.item(), 2 * sum(each))
    close(torch.autograd.grad(total, logp_N)[0].tolist(), [-2.0, 0.0, 0.0])
    close((float(metrics["reference_kl"][0]), metrics["reference_kl"][1]), (sum(each), 3))


def test_reverse_kl_by_hand() -> None:
    of = batch([-1.0] * 2, [0.0] * 2, [4.0] * 2, reference=[-1.0, -1.0])
    total, metrics = ReverseKl(0.5).loss(Scored(torch.tensor([-1.5, -4.0]), torch.zeros(2)), of)
    close(total.item(), 2 * (0.125 + 4.5))
    close((float(metrics["reference_kl"][0]), metrics["reference_kl"][1]), (-3.5, 2))
    assert "reference" in ReverseKl().reads


def test_kl_cov_counts_by_weight_and_coefficient() -> None:
    of = replace(batch([-2.0] * 2, [0.0] * 2, [3.0] * 2), columns={"held": torch.tensor([1.0, 0.0])})
    total, metrics = HoldCovarying(coefficient=2.0).loss(Scored(torch.tensor([-1.5, -1.0]), torch.zeros(2)), of)
    close(total.item(), 3.0)
    close((float(metrics["held"][0]), metrics["held"][1]), (0.5, 2))


def test_lp_reg_at_its_edges() -> None:
    logp = torch.tensor([[0.7, 0.3]]).log()
    close(float(HoldRare(floor=1.0).of_logits["log_kept_mass"](logp, logp)), math.log(0.7))  # the likeliest stays
    known = {"logprobs": [-3.0, -5.0, -6.0], "log_floor": [-3.0] * 3, "log_kept_mass": [0.0] * 3}
    marked = HoldRare(share=1.0).mark([sample([-1.0] * 3, [-1.0, 0.0, 0.5], **known)], TASKS, NOW)
    assert column(marked, "rare") == [1, 0, 0]  # at the floor it is in q; the others were not paid less
    few = HoldRare(share=0.5).mark(
        [sample([-1.0] * 2, [-1.0, 0.0], **{n: x[:2] for n, x in known.items()})], TASKS, NOW
    )
    assert column(few, "rare") == [1, 0]
    value, slopes = value_and_slopes(HoldRare(), [1.0], [0.0], rare=[1.0], target=[10.0])  # log p is -2: d = 12
    close((value, *slopes), (math.exp(10) - 11, 0.0))


def test_epo_at_its_edges() -> None:
    close(
        [phase(Now(2, 5), 1.0), phase(Now(1, 1), 1.0), phase(Now(2, 2), 1.0)], [1 + math.exp(-0.5), 2, 1 + math.exp(-1)]
    )
    first = Corridor().mark([sample([-1.0], [1.0], entropy=[0.5])], TASKS, Now(1, 4, {}))
    assert column(first, "past_entropy") == [0.0]
    logp = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    close(Corridor().of_logits["entropy_with_gradient"](logp, logp).tolist(), [0.693147, 0.325083])
    of = replace(
        batch([-1.0] * 3, [0.0] * 3, [1.0] * 3),
        columns={
            name: torch.full((3,), x)
            for name, x in (("turn_share", 1.0), ("past_entropy", 2.0), ("entropy_penalty", 1.0))
        },
    )
    entropy = torch.tensor([0.5, 2.0, 4.0])  # around 1 to 3: 0.5 too low, inside, 1 too high
    scored = Scored(torch.zeros(3), torch.zeros(3), numbers={"entropy_with_gradient": entropy})
    close(Corridor(bonus=1.0, low=0.5, high=1.5).loss(scored, of)[0].item(), -(6.5 - 1.5))


def test_siren_at_its_edges() -> None:
    even = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    assert nucleus_entropy(even, 0.5).tolist() == [0.0]  # the first alone reaches the mass
    samples = [sample([-1.0] * 2, [1.0] * 2, (n, 0), nucleus_entropy=x) for n, x in enumerate([(1, 2), (4, 3), (5, 6)])]
    assert column(Anchor(quantile=1.0).mark(samples, TASKS, Now(1, 4, {})), "peak") == [0, 1, 1, 0, 0, 1]
    assert Anchor().mark([], TASKS, Now(1, 4, {})) == []
    of = replace(
        batch([-1.0] * 2, [0.0] * 2, [1.0] * 2),
        columns={"peak": torch.tensor([0.5, 1.0]), "first_entropy": torch.full((2,), 3.0)},
    )
    scored = Scored(torch.zeros(2), torch.zeros(2), numbers={"nucleus_entropy": torch.tensor([1.0, 2.0])})
    total, units = Anchor().loss(scored, of)[1]["peak_entropy"]
    assert (float(total), units) == (2.5, 2)


def test_kl_cov_holds_the_largest_covariances() -> None:
    samples = covarying()
    assert column(HoldCovarying(0.5).mark(samples, TASKS, NOW), "held") == [1, 0, 0, 1]
    assert sum(column(HoldCovarying(1e-9).mark(samples, TASKS, NOW), "held")) == 1
    assert sum(column(HoldCovarying(0.0).mark(samples, TASKS, NOW), "held")) == 0
    moved = slopes_of(HoldCovarying(), [math.exp(0.1), math.exp(-0.1), 1.0, 2.0], [0.0] * 4, held=[1.0, 1.0, 1.0, 0.0])
    assert moved == [1.0, -1.0, 0.0, 0.0]


def test_lp_reg_by_hand() -> None:
    part = HoldRare()
    chances = torch.tensor([[0.7, 0.2, 0.09, 0.01]])
    floor, mass = (float(of(chances.log(), chances)) for of in part.of_logits.values())
    close((math.exp(floor), math.exp(mass)), (0.014, 0.99))
    logp = [math.log(p) for p in (0.09, 0.01, 0.2, 0.09)]
    known = {"logprobs": logp, "log_floor": [floor] * 4, "log_kept_mass": [mass] * 4}
    samples = [sample(logp, [-1.0, -1.0, -1.0, 1.0], **known)]
    marked = replace(part, share=0.5).mark(samples, TASKS, NOW)
    assert column(marked, "rare") == [1, 0, 0, 0]  # 0.01 is not in q, 0.2 is not rare, the last was paid
    assert column(part.mark(samples, TASKS, NOW), "rare") == [0] * 4  # of three, the rarest alone: 0.01
    close(column(marked, "target")[0], math.log(0.09 / 0.99))
    target = [math.log(0.09 / 0.99)] * 2
    of = replace(
        batch([-2.0] * 2, [-1.0] * 2, [1.0] * 2),
        columns={"rare": torch.tensor([1.0, 1.0]), "target": torch.tensor(target)},
    )
    value, slopes = loss_and_slopes(part, [math.log(0.09), math.log(0.1)], of)  # the second is above q
    close(value, 5.07e-5, 2e-3)
    close(slopes, [-0.010101, 0.0], 1e-3)


def test_epo_the_corridor_by_hand() -> None:
    entropy = torch.tensor([0.1, 0.5, 1.2], requires_grad=True)
    found = outside(entropy, torch.full((3,), 0.4), torch.full((3,), 1.0))
    close(found.tolist(), [0.3, 0.0, 0.2])
    found.sum().backward()
    assert entropy.grad is not None and entropy.grad.tolist() == [-1, 0, 1]
    close([phase(Now(k + 1, 100), 1.0) for k in (0, 50, 100)], [2, 1.3679, 1.1353], 1e-4)


def test_epo_remembers_the_steps_before_and_weighs_turns_alike() -> None:
    part, memory = Corridor(penalty=0.1), dict[str, Any]()
    samples = [
        sample([-1.0] * 3, [1.0] * 3, turns=[0, 0, 1], entropy=[0.2, 0.4, 0.9]),
        sample([-1.0], [1.0], (1, 0), entropy=[0.5]),
    ]
    found = [part.mark(samples, TASKS, Now(step, 4, memory)) for step in (1, 2)]
    assert column(found[0], "entropy_penalty") == [0.0] * 4
    close(column(found[1], "past_entropy"), [0.5] * 4)
    close(column(found[1], "entropy_penalty"), [0.1 * (1 + math.exp(-0.5))] * 4)
    assert column(found[1], "turn_share") == [0.25, 0.25, 0.5, 1.0]
    assert len(memory["Corridor"]["entropies"]) == 2


def test_epo_pays_for_entropy_and_charges_what_lies_outside() -> None:
    of = batch([-1.0] * 2, [0.0] * 2, [7.0] * 2)
    known = {"turn_share": [0.5, 1.0], "past_entropy": [1.0] * 2, "entropy_penalty": [0.1] * 2}
    of = replace(of, columns={name: torch.tensor(x) for name, x in known.items()})
    entropy = torch.tensor([1.5, 2.5], requires_grad=True)
    scored = Scored(torch.zeros(2), torch.zeros(2), numbers={"entropy_with_gradient": entropy})
    value, _ = Corridor(bonus=2.0).loss(scored, of)
    value.backward()
    close(value.item(), -2 * (0.5 * 1.5 + 1.0 * (2.5 - 0.1 * 0.5)))
    assert entropy.grad is not None
    close(entropy.grad.tolist(), [-1.0, -2 * 0.9])


def test_siren_the_nucleus_has_the_token_that_reaches_the_mass() -> None:
    logp = torch.tensor([[0.1, 0.6, 0.3], [0.05, 0.9, 0.05]]).log().requires_grad_()
    found = nucleus_entropy(logp, 0.8)
    close(found.tolist(), [0.6365, 0.0], 1e-4)
    close(nucleus_entropy(logp, 1.0).tolist(), (-(logp.exp() * logp).sum(-1)).tolist())
    found.sum().backward()
    assert logp.grad is not None and logp.grad.isfinite().all() and logp.grad[0, 0] == 0


def test_siren_peaks_and_the_first_steps_entropy() -> None:
    part, memory = Anchor(quantile=0.5), dict[str, Any]()
    samples = [
        sample([-1.0] * 4, [1.0] * 4, nucleus_entropy=[1.0, 2.0, 3.0, 5.0]),
        sample([-1.0], [1.0], (1, 0), nucleus_entropy=[2.0]),
    ]
    marked = part.mark(samples, TASKS, Now(1, 4, memory))
    assert column(marked, "peak") == [0, 0, 0.5, 0.5, 1.0]
    assert column(marked, "first_entropy") == [3.0] * 5  # of (4 + 2) / 2
    later = [s.with_columns(nucleus_entropy=2 * s.columns["nucleus_entropy"]) for s in samples]
    marked = part.mark(later, TASKS, Now(2, 4, memory))
    assert column(marked, "first_entropy") == [3.0] * 5
    assert part.facts(marked, Now(2, 4, memory)) == {"peak_entropy": 6.0}


@pytest.mark.parametrize(("now", "slope"), [(3.0, 0.0), (2.0, -1.0), (4.0, 1.0)])
def test_siren_pulls_entropy_to_where_it_was(now: float, slope: float) -> None:
    of = replace(
        batch([-1.0] * 2, [0.0] * 2, [7.0] * 2),
        columns={"peak": torch.tensor([0.5, 0.0]), "first_entropy": torch.full((2,), 3.0)},
        facts={"peak_entropy": now},
    )
    entropy = torch.tensor([1.0, 2.0], requires_grad=True)
    scored = Scored(torch.zeros(2), torch.zeros(2), numbers={"nucleus_entropy": entropy})
    Anchor(coefficient=1.0).loss(scored, of)[0].backward()
    assert entropy.grad is not None and entropy.grad.tolist() == [slope, 0.0]


def bandit(hold: Hold, policy: torch.Tensor, reference: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """The exact mean gradient by the logits of REINFORCE with this hold."""
    logits = policy.log().requires_grad_()
    logp = logits.log_softmax(0)
    of = Batch(
        policy.log(), rewards, policy, torch.ones(3), torch.arange(3), torch.arange(3), 3, 3, 1,
        columns={"reference": reference.log()},
    )  # fmt: skip
    total, _ = hold.loss(Scored(logp, torch.zeros(3)), of)
    (total - (policy * rewards * logp).sum()).backward()
    assert logits.grad is not None
    return logits.grad


def test_the_optimum_of_demonstration_regularized_rl() -> None:
    reference, rewards = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.0, 1.0, 0.5])
    best = reference * torch.exp(rewards / 0.7)
    best /= best.sum()
    close(bandit(ReverseKl(0.7), best, reference, rewards).tolist(), [0, 0, 0])
    assert bandit(Kl(0.7), best, reference, rewards).abs().max() > 0.02  # that of the other direction is elsewhere
    assert bandit(ReverseKl(0.7), reference, reference, rewards * 0).abs().max() == 0


# -- AEPO, arbitrary entropy -------------------------------------------------------------------------------------------


def thermostat(entropy: float, **options: Any) -> list[Sample]:
    """A success and a failure, each of one token with p = 0.8 of two."""
    part = Thermostat(**options)
    logp_nV = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log()
    numbers = {name: [float(of(logp_nV, logp_nV))] for name, of in part.of_logits.items()}
    samples = [sample([-1.0], [a], (0, n), logprobs=[math.log(0.8)], **numbers) for n, a in enumerate((1.0, -1.0))]
    return part.shape(samples, [group(1.0, 0.0)], Now(2, 9, {"Thermostat": {"entropy": entropy}}))


@pytest.mark.parametrize(("entropy", "temperature"), [(0.45, 1.2), (0.55, 0.8)])
def test_aepo_weighs_successes_as_at_another_temperature(entropy: float, temperature: float) -> None:
    shaped = thermostat(entropy)
    hot = np.array([0.8, 0.2]) ** (1 / temperature)
    share = 0.1 / (1 + 0.1)  # 0.05 over half of the attempts
    close(shaped[0].advantages, [0, (1 - share) + share * hot[0] / hot.sum() / 0.8])
    close(shaped[1].advantages, [0, -(1 - share)])


def test_aepo_at_the_target_is_grpo_and_the_distance_counts_up_to_a_limit() -> None:
    assert [s.advantages.tolist() for s in thermostat(0.5)] == [[0, 1], [0, -1]]
    assert thermostat(0.0)[1].advantages.tolist() == thermostat(0.3)[1].advantages.tolist()
    memory: dict[str, Any] = {}
    samples = [sample([-1.0], [1.0], logprobs=[-0.7], log_norm_hot=[0.0], log_norm_cold=[0.0])]
    Thermostat().shape(samples, [group(0.0, 0.0)], Now(1, 9, memory))
    assert memory == {"Thermostat": {"entropy": 0.7}}


def test_aepo_at_its_edges() -> None:
    numbers = {"log_norm_hot": [0.5] * 2, "log_norm_cold": [-0.5] * 2}
    samples = [sample([-1.0] * 2, [1.0] * 2, logprobs=[-0.6, -0.8], **numbers)]
    memory: dict[str, Any] = {}
    (first,) = Thermostat().shape(samples, [group(1.0)], Now(1, 9, memory))  # nothing is remembered: as at entropy 0
    (cold,) = Thermostat().shape(samples, [group(1.0)], Now(2, 9, {"Thermostat": {"entropy": 0.0}}))
    close(first.advantages, cold.advantages)
    share = 0.1 / (1 + 0.1)  # 0.1 over one attempt of one
    hot = [math.exp(x / 1.2 - 0.5 - x) for x in (-0.6, -0.8)]
    close(first.advantages[1:], [(1 - share) + share * x for x in hot])
    close(memory["Thermostat"]["entropy"], 0.7)
    (lost,) = Thermostat().shape(samples, [group(0.0)], Now(2, 9, {"Thermostat": {"entropy": 0.0}}))
    assert lost.advantages.tolist() == samples[0].advantages.tolist()
    assert Thermostat().shape([], [], Now(2, 9, {"Thermostat": {"entropy": 0.0}})) == []


@pytest.mark.parametrize(("entropy", "rises"), [(0.0, True), (3.0, False)])
def test_aepo_raises_and_lowers_the_entropy_of_a_bandit(entropy: float, rises: bool) -> None:
    """Both actions succeed, so that all that acts is the thermostat: its exact gradient by the logits."""
    part = Thermostat()
    policy = torch.tensor([0.8, 0.2], dtype=torch.float64)
    numbers = {name: [float(of(policy.log()[None], policy[None]))] for name, of in part.of_logits.items()}
    samples = [sample([-1.0], [0.0], (0, n), logprobs=[math.log(p)], **numbers) for n, p in enumerate(policy.tolist())]
    shaped = part.shape(samples, [group(1.0, 1.0)], Now(2, 9, {"Thermostat": {"entropy": entropy}}))
    logits = policy.log().requires_grad_()
    (policy * torch.tensor([s.advantages[1] for s in shaped]) * logits.log_softmax(0)).sum().backward()
    assert logits.grad is not None and (logits.grad[0] < 0) == rises  # the likelier action becomes less likely


# -- pairs -------------------------------------------------------------------------------------------------------------


def pair(**columns: Sequence[float]) -> Batch:
    """Two tokens of a better action and one of a worse."""
    of = batch([0.0] * 3, [1.0, 1.0, -1.0], [1.0] * 3, unit=[0, 0, 0])
    return replace(of, columns={name: torch.tensor(values) for name, values in columns.items()})


def test_inpo_by_hand() -> None:
    logp = [-1.0, -2.0, -0.5]
    value, slopes = loss_and_slopes(Inpo(), logp, pair(reference=logp, logprobs=logp))
    close(value, 4444.444)
    close(slopes, [-133.333, -133.333, 133.333])  # DPO's direction
    moved = pair(reference=[-1.0, -2.0, -1.5], logprobs=[-1.5, -2.0, -0.5])  # D: -2.5, -1.5 and -3
    h = -2.5 + 1.5 / 3 + 3 * 2 / 3
    close(loss_and_slopes(Inpo(), logp, moved)[0], (h - 1 / 0.015) ** 2)
    for tau, name in ((7.5e-3, "logprobs"), (0.0, "reference")):  # the other anchor alone counts
        elsewhere = replace(moved, columns={**moved.columns, name: torch.tensor([-9.0, -9.0, -3.0])})
        assert loss_and_slopes(Inpo(tau=tau), logp, moved) == loss_and_slopes(Inpo(tau=tau), logp, elsewhere)
    with pytest.raises(UserError, match="0 <= tau <= eta"):
        Inpo(tau=0.1)


def test_inpo_says_how_far_its_pairs_are_apart() -> None:
    """Three pairs of one token each, with margins of 1/2, 0 and -1."""
    of = batch([0.0] * 3, [1.0, 1.0, -1.0], [0.5, 1.0, 1.0])
    of = replace(of, columns={name: torch.zeros(3) for name in ("reference", "logprobs")})
    total, metrics = Inpo(eta=0.5, tau=0.5).loss(Scored(torch.tensor([1.0, 0.0, 1.0]), torch.zeros(3)), of)
    assert {name: (float(x), n) for name, (x, n) in metrics.items()} == {"margin": (-0.5, 3), "settled": (1.0, 3)}
    close(total.item(), 0.25 + 1 + 4)


def test_inpo_pairs_the_best_with_the_worst() -> None:
    ((better, worse),) = Inpo().pairs(group(0.5, 0.0, 1.0, 0.0, 1.0))
    assert (better.attempt, worse.attempt) == (2, 3)
    assert not list(Inpo().pairs(group(0.5, 0.5)))
    algo = Inpo()
    model = learner(algo)
    samples = algo.credit([Group(TASKS[0].task, (attempt(1.0, (2,), 0), attempt(0.0, (3,), 1)))], model, NOW)
    assert all({"logprobs", "reference"} <= s.columns.keys() for s in samples) and len(samples) == 2


# -- what they must not depend on, where they act ----------------------------------------------------------------------

ACTIVE: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "bapo": ({"target": 0.9}, {"target": 0.0}, {}),
    "nft": ({}, {"negatives": 0.0}, {}),
    "clip_cov": ({"share": 0.2, "low": -9.0, "high": 9.0}, {"share": 0.0}, {}),
    "kl_cov": ({"share": 0.3}, {"share": 0.0}, {}),
    "d3s": ({}, {"attempts_share": 1.0, "tokens_share": 1.0}, {}),
    "tis": ({"cap": 1.1}, {"cap": 0.0}, {}),
    "mis": ({"cap": 1.1}, {"cap": 0.0}, {}),
    "trm": ({}, {"delta": math.inf}, {}),
    "capo": ({"lr": 0.1, "max_share": 0.2}, {"max_share": 0.0}, {}),
    "steer": ({"least": 0.1}, {"least": 1.0}, {}),
    "epo": ({"bonus": 0.3, "penalty": 0.8, "high": 0.5}, {"penalty": 0.0}, {"Corridor": {"entropies": [2.0]}}),
    "siren": ({"divisor": 4.0, "coefficient": 0.1}, {"coefficient": 0.0}, {"Anchor": {"first": 1.0}}),
    "lp_reg": ({"share": 0.8, "floor": 0.75}, {"coefficient": 0.0}, {}),
    "aepo_entropy": ({}, {"most": 0.0}, {"Thermostat": {"entropy": 2.0}}),
}
"""Settings at which a method acts, those that switch it off, and what it remembers from the steps before."""


def slope(algo: Any, memory: dict[str, Any], micro_tokens: int = 10**6, turned: bool = False) -> torch.Tensor:
    model = learner(algo, micro_tokens=micro_tokens)
    groups = sampled(lively_groups(), model, shift=0.3)
    if turned:
        groups = [Group(one.task, one.trajectories[::-1]) for one in groups[::-1]]
    samples = stepped(algo, model, groups, Now(3, 10, copy.deepcopy(memory)))
    return gradient(algo, model, samples, groups)


@pytest.mark.parametrize("name", ACTIVE)
def test_where_it_acts_neither_the_cut_nor_the_order_matters(name: str) -> None:
    options, off, memory = ACTIVE[name]
    algo = make(name, **options)
    whole = slope(algo, memory)
    scale = whole.abs().max().item()
    assert (whole - slope(replace(algo, **off), memory)).abs().max() > 1e-3 * scale, "it does nothing here"
    for other in (slope(algo, memory, micro_tokens=1), slope(algo, memory, turned=True)):
        torch.testing.assert_close(other, whole, rtol=0, atol=1e-5 * scale)


def test_every_method_here_is_tested_where_it_acts() -> None:
    names = list(ALGOS)
    mine = names[names.index("cispo") + 1 : names.index("sft")]
    assert {n for n in mine if isinstance(make(n), Composed)} - {"demo_rl"} == set(ACTIVE)


def test_the_aepo_clip_is_part_of_any_method() -> None:
    """Its mean entropy is the step's, so a cut changes nothing."""
    algo = of(objective=KeepGradient(low=0.8, high=1.1))
    whole = slope(algo, {})
    assert not torch.equal(whole, slope(of(objective=Clipped(low=0.8, high=1.1)), {}))
    torch.testing.assert_close(slope(algo, {}, micro_tokens=1), whole, rtol=0, atol=1e-5 * whole.abs().max().item())
