"""Credit of turns and critics, by hand: the numbers of the methods' specifications, and GiGPO on crossroads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from longloop.algos.bnpo import Bnpo
from longloop.algos.composed import Parts
from longloop.algos.digirl import DigiRL
from longloop.algos.gigpo import Gigpo
from longloop.algos.gtpo import Gtpo
from longloop.algos.igpo import Igpo
from longloop.algos.parts.credit import Anchors, BetaNormalized, NormalizedRewards, Returns, beta, state_keys
from longloop.algos.parts.critic import CUT, AfterWarmup, Gae, ValueLoss, gae
from longloop.algos.parts.objective import Clipped
from longloop.algos.parts.part import Paid
from longloop.algos.parts.rewards import TurnRewards
from longloop.algos.ppo import Ppo
from longloop.algos.reinforce_value import ReinforceValue
from longloop.algos.tppo import Tppo
from longloop.algos.turn_ppo import TurnPpo
from longloop.envs.crossroads import ROADS
from longloop.training import schedule
from longloop.types import Batch, Group, Now, Sample, Scored, StopReason, Task, Trajectory, UserError
from tests.contract.test_methods import gradient
from tests.support.samples import NOW, attempt, learner, once, sampled
from tests.support.samples import gradient as gradient_of
from tests.support.tabular import FORKS, PATHS, STATES, Exact, TableLearner, expected

TASK = Task("task", "train")
NOBODY = cast(Any, None)
"""A learner that is not asked."""
SEEDED = cast(Any, SimpleNamespace(seed=0, steps=1))


def walked(number: int, reward: float, *states: str, rewards: Sequence[float] = (), **changed: Any) -> Trajectory:
    """An attempt that met these states after its first turn, each turn one token."""
    one = attempt(reward, (1,) * (len(states) + 1), number)
    turns = [
        replace(turn, reward=paid, info={"state": state} if state else {})
        for turn, state, paid in zip(one.turns, (*states, ""), rewards or [0.0] * len(one.turns), strict=True)
    ]
    return replace(one, turns=tuple(turns), **changed)


def paid(*rewards: Sequence[float]) -> Paid:
    """Turn rewards whose last is the outcome."""
    return Paid([[*some[:-1], 0.0] for some in rewards], [some[-1] for some in rewards])


def of_group(part: Any, *trajectories: Trajectory) -> list[list[float]]:
    group = Group(TASK, trajectories)
    (found,) = part.credit([group], TurnRewards().pay([group], NOBODY, NOW), NOBODY, Now(1, 1))
    return found


# --- GiGPO ---

TWO = walked(0, 1.0, "s1"), walked(1, 0.0, "s2", "s1")


def test_gigpo_by_hand() -> None:
    """G = (0.95, 1) and (0, 0, 0): +-0.475 where both began, +-0.5 at s1, nothing at s2, which one of them met."""
    one, other = of_group(Anchors(w=1.0, gamma=0.95), *TWO)
    assert one == pytest.approx([0.5 + 0.475, 0.5 + 0.5])
    assert other == pytest.approx([-0.5 - 0.475, -0.5, -0.5 - 0.5])
    assert of_group(Anchors(w=0.0), *TWO) == [[0.5] * 2, [-0.5] * 3]


def test_without_keys_only_the_beginning_is_shared() -> None:
    alone = walked(0, 1.0, ""), walked(1, 0.0, "", "")
    assert of_group(Anchors(gamma=0.95), *alone) == [[0.975, 0.5], [-0.975, -0.5, -0.5]]


def test_a_state_that_is_met_twice_by_one_attempt_counts_twice() -> None:
    """G = (0.25, 0.5, 1) at begin, a, a and (0, 0) at begin, a: the mean at a is 0.5."""
    one, other = of_group(Anchors(gamma=0.5), walked(0, 1.0, "a", "a"), walked(1, 0.0, "a"))
    assert one == [0.5 + 0.125, 0.5 + 0.0, 0.5 + 0.5] and other == [-0.5 - 0.125, -0.5 - 0.5]


def test_rewards_of_turns_are_part_of_the_return() -> None:
    """G = (0.25 + 0.5, 1) and (0, 0)."""
    one, _ = of_group(Anchors(gamma=0.5), walked(0, 1.0, "a", rewards=(0.25, 0.0)), walked(1, 0.0, "a"))
    assert one == [0.5 + 0.375, 0.5 + 0.5]


def test_histories_by_hand() -> None:
    """HGPO: at s1 the paths differ, so of the keys of length 2 none agrees and the length 1 alone counts. Behind s1
    both lengths agree, and have the same mean."""
    one, other = walked(0, 1.0, "s1", "s3"), walked(1, 0.0, "s2", "s1", "s3")
    assert state_keys(other, 2) == [("begin",), ("begin", "s2"), ("s2", "s1"), ("s1", "s3")]
    third = walked(2, 0.5, "s3")
    plain = of_group(Anchors(gamma=1.0), one, other, third)
    with_history = of_group(Anchors(gamma=1.0, history=1, alpha=1.0), one, other, third)
    assert plain[0] == pytest.approx([0.5 + 0.5, 0.5 + 0.5, 0.5 + 0.5])
    # s3: the mean of all three is 0.5, that of those who came from s1 is 0.5 as well; the third came from the beginning
    assert with_history[0] == pytest.approx([1.0, 1.0, 1.0]) and with_history[2] == pytest.approx(plain[2])
    fourth = walked(3, 1.0, "s1", "s3")
    found = of_group(Anchors(gamma=1.0, history=1, alpha=2.0), one, other, third, fourth)
    # s3 with length 1: 1 - 2.5/4; with length 2, weight 2^2: 1 - 2/3; the mean over weights 1 and 4
    assert found[0][2] == pytest.approx((1 - 0.625) + (0.375 + 4 * (1 / 3)) / 5)
    # the beginning has one length of key in effect: both are the same
    assert found[0][0] == pytest.approx((1 - 0.625) + (1 - 0.625))


def test_the_share_of_states_met_again_is_logged() -> None:
    """Of five turns, two began at the beginning and two at s1."""
    algo = Gigpo(kl=0.0)
    model = learner(algo)
    groups = sampled([Group(TASK, TWO)], model)
    now = Now(1, 1)
    samples = algo.credit(groups, model, now)
    facts = algo.parts.credit.facts(samples, now)
    assert facts == {"states_met_again": 4 / 5}
    _, metrics = algo.loss(Scored(torch.zeros(5), torch.zeros(5)), _batch(5, facts))
    assert metrics["states_met_again"] == (4 / 5, 1)


def _batch(n: int, facts: Any) -> Batch:
    zeros = torch.zeros(n)
    return Batch(zeros, zeros, zeros, zeros, torch.arange(n), torch.arange(n), n, n, 1, facts=facts)


THETA = np.random.default_rng(0).normal(0, 0.7, (STATES, 2))


def test_on_crossroads_the_second_term_has_the_sign_of_the_exact_advantage() -> None:
    """The mean of G - mean G over many groups, by fork and choice, against Q - V from the list of all roads.

    At gamma = 1 and with the group's own mean as baseline it is Q - V times at most 1: the sign is the same, and the
    size at most that of Q - V.
    """
    exact = Exact(THETA)

    def value(at: str | float) -> float:
        if not isinstance(at, str):
            return at
        p = exact.p[FORKS.index(at)]
        return float(sum(p[turn] * value(ROADS[at][turn]) for turn in (0, 1)))

    table = TableLearner(THETA)
    chance = np.random.default_rng(0)
    seen: dict[tuple[int, int], list[float]] = {}
    part = Anchors(w=1.0, gamma=1.0)
    for _ in range(600):
        drawn = chance.choice(len(PATHS), p=exact.probability, size=8).tolist()
        trajectories = []
        for number, path in enumerate(drawn):
            forks = [FORKS[turn[0][0]] for turn in PATHS[path].turns]
            one = table.trajectory(path, number)
            turns = [replace(t, info={"state": s}) for t, s in zip(one.turns, (*forks[1:], ""), strict=True)]
            trajectories.append(replace(one, turns=tuple(turns)))
        found = of_group(part, *trajectories)
        whole = of_group(Anchors(w=0.0, gamma=1.0), *trajectories)
        for path, both, first in zip(drawn, found, whole, strict=True):
            for turn, a, b in zip(PATHS[path].turns, both, first, strict=True):
                seen.setdefault(turn[0], []).append(a - b)
    assert len(seen) == 2 * len(FORKS)
    for (fork, choice), terms in seen.items():
        truth = value(ROADS[FORKS[fork]][choice]) - value(FORKS[fork])
        assert np.sign(np.mean(terms)) == np.sign(truth), (FORKS[fork], choice)
        assert 0.3 * abs(truth) < abs(np.mean(terms)) <= 1.1 * abs(truth)


# --- GTPO ---


def test_gtpo_by_hand() -> None:
    one = walked(0, 1.0, "", "")
    other = walked(1, 0.0, "", "")
    turns = list(other.turns)
    turns[1] = replace(turns[1], info={"failed": True})
    algo = Gtpo(kl=0.0)
    group = Group(TASK, (one, replace(other, turns=tuple(turns))))
    (rewards,) = algo.parts.rewards.pay([group], NOBODY, NOW)
    assert rewards.with_outcomes() == [[0, 0, 1], [0, -0.1, 0]]
    first, second = algo.parts.credit.of_group(group, rewards)
    assert first == pytest.approx([0.7303, 0.8989, 1.0861], abs=1e-4)
    assert second == pytest.approx([-0.9550, -0.9738, -0.7865], abs=1e-4)


def test_long_attempts_weigh_no_more_where_trajectories_are_pooled() -> None:
    """Returns 1 and (0, 0, 0): mean 1/4 over turns, 1/2 over trajectories."""
    both = walked(0, 1.0), walked(1, 0.0, "", "")
    over_turns, over_trajectories = (of_group(Returns(1.0, pool), *both) for pool in ("turns", "trajectories"))
    assert over_turns[0] == pytest.approx([0.75 / 0.5], abs=1e-5)
    assert over_trajectories[0] == pytest.approx([0.5 / 0.5**0.5], abs=1e-5)
    # returns (2, 1) and 0: means 1.5 and 0, squares 1.25^2 + 0.25^2 over 2, and 0.75^2
    mixed = walked(0, 1.0, "", rewards=(1.0, 0.0)), walked(1, 0.0)
    spread = ((1.25**2 + 0.25**2) / 2 + 0.75**2) ** 0.5
    assert of_group(Returns(1.0, "trajectories"), *mixed)[0] == pytest.approx([1.25 / spread, 0.25 / spread], abs=1e-5)


# --- BNPO ---


def rates(*rewards: Sequence[float]) -> list[Group]:
    return [Group(TASK, tuple(attempt(r, (1,), n) for n, r in enumerate(some))) for some in rewards]


def beta_credit(part: BetaNormalized, *rewards: Sequence[float]) -> list[list[float]]:
    groups = rates(*rewards)
    found = part.credit(groups, TurnRewards().pay(groups, NOBODY, NOW), NOBODY, NOW)
    return [[turns[0] for turns in one or []] for one in found]


def test_bnpo_by_hand() -> None:
    """p = 1/4 and 3/4: v = 1/8, c = 1, a = b = 7/6, and the density at both is 1.04660."""
    assert beta(7 / 6, 7 / 6)(0.25) == pytest.approx(1.04660, abs=1e-5)
    first, second = beta_credit(Bnpo().parts.credit, (1, 0, 0, 0), (1, 1, 1, 0))  # type: ignore[arg-type]
    assert first == pytest.approx([0.71661] + [-0.23887] * 3, abs=1e-5)
    assert second == pytest.approx([0.23887] * 3 + [-0.71661], abs=1e-5)


def test_bnpo_without_anything_to_fit_only_centers() -> None:
    assert beta_credit(BetaNormalized(), (1, 0, 0, 0)) == [[0.75, -0.25, -0.25, -0.25]]
    assert beta_credit(BetaNormalized(), (1, 0), (0, 1)) == [[0.5, -0.5], [-0.5, 0.5]], "equal rates have no spread"
    scaled = beta_credit(BetaNormalized(low=-2.0, high=2.0), (2, -2, -2, -2))
    assert scaled == [[0.75, -0.25, -0.25, -0.25]]


def test_bnpo_bounds_its_factor() -> None:
    """Rates near 0.5 fit a narrow density, which at 1/8 is close to 0."""
    even = [(1, 0)] * 12
    odd = (1, 0, 0, 0, 0, 0, 0, 0)
    *_, bounded = beta_credit(BetaNormalized(most=3.0), *even, odd)
    assert bounded[0] == pytest.approx(3 * 7 / 8)
    *_, free = beta_credit(BetaNormalized(most=1e6), *even, odd)
    assert free[0] > 3


# --- critics ---


def test_gae_by_hand() -> None:
    value, nothing, one = np.array([0.2, 0.4, 0.5]), np.zeros(3), np.array([0.0, 0.0, 1.0])
    assert gae(nothing, value, 1.0, 0.5, cut=True).tolist() == pytest.approx([0.25, 0.10, 0.0])
    assert gae(one, value, 1.0, 0.5).tolist() == pytest.approx([0.375, 0.35, 0.5])
    assert gae(one, value, 1.0, 1.0).tolist() == pytest.approx([0.8, 0.6, 0.5])
    assert gae(one, value, 0.5, 0.0).tolist() == pytest.approx([0.0, -0.15, 0.5])


class Says:
    """A learner whose heads say given values, token by token."""

    def __init__(self, **heads: Sequence[float]) -> None:
        self.heads = heads

    def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
        said = {name: iter(self.heads[name]) for name in columns}
        filled = []
        for sample in samples:
            rows = {name: np.zeros(len(sample.ids)) for name in columns}
            for name, row in rows.items():
                row[sample.mask] = [next(said[name]) for _ in range(sample.action_tokens)]
            filled.append(sample.with_columns(**rows))
        return filled


def credited(algo: Any, trajectory: Trajectory, **heads: Sequence[float]) -> dict[str, list[float]]:
    """The advantages and columns of an attempt's action tokens."""
    samples = algo.credit([Group(TASK, (trajectory,))], cast(Any, Says(**heads)), NOW)
    names = ("target", "value_weight")
    columns = {name: [x for s in samples for x in s.columns[name][s.mask].tolist()] for name in names}
    return columns | {"advantage": [x for s in samples for x in s.advantages[s.mask].tolist()]}


def test_turn_ppo_by_hand() -> None:
    """Two turns of two and three tokens with values 0.2 and 0.4 at their first tokens; the others are not looked at."""
    one = attempt(1.0, (2, 3))
    values = [0.2, 9.0, 0.4, 9.0, 9.0]
    found = credited(TurnPpo(lam=1.0), one, value=values)
    assert found["advantage"] == pytest.approx([0.8, 0.8, 0.6, 0.6, 0.6]), "R - V_u"
    assert found["target"] == pytest.approx([1.0, 0.0, 1.0, 0.0, 0.0])
    assert found["value_weight"] == [0.5, 0.0, 0.5, 0.0, 0.0]
    found = credited(TurnPpo(lam=0.5), one, value=values)
    assert found["advantage"] == pytest.approx([0.2 + 0.5 * 0.6] * 2 + [0.6] * 3)
    assert found["target"] == pytest.approx([0.7, 0.0, 1.0, 0.0, 0.0])
    constant = credited(TurnPpo(), one, value=[0.3] * 5)
    assert constant["advantage"] == pytest.approx([0.7] * 5)


def test_rewards_of_turns_reach_the_turns_before_them() -> None:
    one = attempt(1.0, (2, 1, 1), fresh=(2,))
    one = replace(one, turns=tuple(replace(t, reward=r) for t, r in zip(one.turns, (0.5, 0.25, 0.0), strict=True)))
    found = credited(TurnPpo(gamma=0.5, value_high=9.0), one, value=[0.0] * 4)
    # in two stretches: 1, then 0.25 + 0.5, then 0.5 + 0.375
    assert found["advantage"] == pytest.approx([0.875, 0.875, 0.75, 1.0])
    token = credited(TurnPpo(gamma=0.5, value_high=9.0, critic="token"), one, value=[0.0] * 4)
    assert token["advantage"] == pytest.approx([0.4375, 0.875, 0.75, 1.0]), "paid with the last token of a turn"
    assert credited(TurnPpo(turn_weight=0.0), one, value=[0.0] * 4)["advantage"] == [1.0] * 4


def test_values_outside_their_range_are_clipped() -> None:
    one = attempt(1.0, (1,))
    assert credited(TurnPpo(), one, value=[3.0])["advantage"] == [0.0]
    assert credited(TurnPpo(value_high=4.0), one, value=[3.0])["advantage"] == [-2.0]


@pytest.mark.parametrize("lam", [1.0, 0.7])
def test_with_one_token_a_turn_turn_ppo_is_ppo(lam: float) -> None:
    one, other = TurnPpo(lam=lam, warmup=0), Ppo(lam=lam, warmup=0)
    slopes = []
    for algo in (one, other):
        model = learner(algo)
        groups = sampled([Group(TASK, (attempt(1.0, (1, 1), 0), attempt(0.0, (1, 1, 1), 1)))], model, shift=0.2)
        samples = algo.credit(groups, model, NOW)
        slopes.append(gradient(algo, model, samples, groups))
    assert torch.equal(*slopes) and slopes[0].abs().sum() > 0


@pytest.mark.parametrize("stop", CUT)
def test_a_cut_attempt_is_worth_what_the_critic_says(stop: StopReason) -> None:
    finished = attempt(1.0, (1, 2))
    cut = replace(finished, stop=stop, reward=0.9)
    values = [0.2, 0.4, 0.5]
    found = credited(Tppo(lam=0.5), cut, value=values)
    assert found["advantage"] == pytest.approx([0.25, 0.10, 0.0]) and found["value_weight"] == [0.0] * 3
    found = credited(Tppo(lam=0.5), finished, value=values)
    assert found["advantage"] == pytest.approx([0.375, 0.35, 0.5])
    assert found["target"] == [1.0] * 3 and found["value_weight"] == pytest.approx([1 / 3] * 3)
    # PPO knows no cut: the verifier's reward is the return
    assert credited(TurnPpo(critic="token"), cut, value=values)["target"] == pytest.approx([0.9] * 3)


def test_the_head_alone_learns_during_the_warm_up() -> None:
    algo = TurnPpo(warmup=2, value_weight=0.5, value_weight_end=0.5)
    columns = {"target": torch.tensor([1.0, 0.0]), "value_weight": torch.tensor([1.0, 0.0])}
    for step, learns in ((2, False), (3, True)):
        batch = replace(_batch(2, {}), adv_N=torch.ones(2), weight_N=torch.ones(2), step=step, columns=columns)
        logp_N, value_N = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
        total, metrics = algo.loss(Scored(logp_N, torch.zeros(2), {"value": value_N}), replace(batch, turns=1))
        policy, head = torch.autograd.grad(total, (logp_N, value_N), allow_unused=True)
        assert (policy is not None) == learns and head.tolist() == [-0.5, 0.0]
        assert metrics["value_error"] == (1.0, 1)


def test_a_warm_up_without_a_value_loss_learns_nothing() -> None:
    """Neither the policy nor the head; the step after it is REINFORCE's."""
    algo = ReinforceValue(warmup=10, value_weight=0.0)
    model = learner(algo)
    groups = sampled([Group(TASK, (attempt(1.0, (1, 2)),))], model)
    samples = algo.credit(groups, model, NOW)
    for step, learns in ((1, False), (10, False), (11, True)):
        (minibatch,) = once(samples, algo.whole_units)
        slopes, _ = gradient_of(model, replace(minibatch, step=step), algo.loss)
        assert any(slope.any() for slope in slopes.values()) == learns


def test_values_are_learned_less_and_less() -> None:
    hold = ValueLoss(start=0.1, end=0.0, steps=10)
    columns = {"target": torch.zeros(1), "value_weight": torch.ones(1)}
    scored = Scored(torch.zeros(1), torch.zeros(1), {"value": torch.ones(1)})
    losses = [
        hold.loss(scored, replace(_batch(1, {}), step=step, columns=columns))[0].item() for step in (1, 6, 11, 99)
    ]
    assert losses == pytest.approx([0.05, 0.025, 0.0, 0.0])


@dataclass(frozen=True, kw_only=True)
class Wrong(ReinforceValue):
    """Subtracts the value of the state that a turn led to, which depends on what the turn did."""

    @property
    def parts(self) -> Parts:
        return replace(super().parts, credit=Late(high=1.0))


@dataclass(frozen=True)
class Late(Gae):
    def units(self, heads: Any, paid_U: Any, outcome: float, cut: bool) -> Any:
        value_U = heads["value"]
        return super().units({"value": np.append(value_U[1:], outcome)}, paid_U, outcome, cut)


def test_reinforce_with_any_critic_has_the_gradient_of_the_expected_reward() -> None:
    """E[sum over tokens of (R - V(s_u)) s_t] = grad J; a baseline that knows the action is another matter."""
    value = np.random.default_rng(2).uniform(0.1, 0.9, STATES)
    algo = ReinforceValue(k=2, warmup=0, value_weight=0.0)
    table = TableLearner(THETA, value=value)
    mean = expected(algo, table, k=2)[: 2 * STATES]
    truth = Exact(THETA).gradient_of_reward()
    assert mean == pytest.approx(truth, abs=1e-5 * np.linalg.norm(truth))
    wrong = expected(Wrong(k=2, warmup=0, value_weight=0.0), table, k=2)[: 2 * STATES]
    assert np.linalg.norm(wrong - truth) > 0.05 * np.linalg.norm(truth)


# --- DigiRL ---


def logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def test_digirl_by_hand() -> None:
    """V = 0.2, 0.6, 0.5: the first turn of a failure raised it by more than 0.05, the second lowered it. Three turns
    weigh as much as their four tokens."""
    failed, won = attempt(0.0, (1, 2, 1)), attempt(1.0, (1, 2, 1))
    heads = {"success_1": [logit(p) for p in (0.2, 0.6, 0.9, 0.5)], "success_2": [9.0] * 4}
    found = credited(DigiRL(), failed, **heads)
    assert found["advantage"] == [1.0, 0.0, 0.0, 0.0] and found["target"] == [0.0] * 4
    assert found["value_weight"] == pytest.approx([4 / 3, 4 / 3, 0.0, 4 / 3])
    found = credited(DigiRL(), won, **heads)
    assert found["advantage"] == [1.0] * 4 and found["target"] == [1.0, 1.0, 0.0, 1.0]
    heads["success_1"][1:] = [logit(0.99), 0.0, logit(0.01)]
    assert credited(DigiRL(), won, **heads)["advantage"] == [1.0, 0.0, 0.0, 1.0], "V fell by 0.98"
    assert credited(DigiRL(progress=0.0), won, **heads)["advantage"] == [1.0] * 4


def test_digirl_takes_the_smaller_of_two_heads() -> None:
    one = attempt(0.0, (1, 1))
    up, down = [logit(0.2), logit(0.8)], [logit(0.1), logit(0.1)]
    assert credited(DigiRL(), one, success_1=up, success_2=[9.0, 9.0])["advantage"] == [1.0, 0.0]
    assert credited(DigiRL(), one, success_1=up, success_2=down)["advantage"] == [0.0, 0.0]


def test_its_heads_begin_differently() -> None:
    one, other = learner(DigiRL()).heads.values()
    assert not torch.equal(one[0].weight, other[0].weight)


def test_digirl_trains_its_heads_by_cross_entropy() -> None:
    hold = ValueLoss(("success_1", "success_2"), 1.0, 1.0, logits=True)
    columns = {"target": torch.tensor([1.0, 0.0]), "value_weight": torch.tensor([0.5, 0.5])}
    heads = {"success_1": torch.zeros(2), "success_2": torch.tensor([100.0, -100.0])}
    total, metrics = hold.loss(Scored(torch.zeros(2), torch.zeros(2), heads), replace(_batch(2, {}), columns=columns))
    assert total.item() == pytest.approx(np.log(2)) and set(metrics) == {"success_1_error", "success_2_error"}


@pytest.mark.parametrize("size", [1, 50])
def test_digirl_learns_values_by_the_mean_over_turns_however_long_they_are(size: int) -> None:
    """Nothing is imitated, and two heads that say 1/2 everywhere cost log 2 each."""
    algo = DigiRL(margin=99.0, value_weight=2.0)
    model = learner(algo)
    for head in model.heads.values():
        torch.nn.init.zeros_(head[-1].weight)  # type: ignore[index]
    groups = sampled([Group(TASK, (attempt(1.0, (size, 2 * size), 0), attempt(0.0, (size,), 1)))], model)
    (minibatch,) = schedule(SEEDED, algo, groups, algo.credit(groups, model, NOW), NOW)
    assert minibatch.norm == 4 * size
    assert gradient_of(model, minibatch, algo.loss)[1]["loss"] == pytest.approx(2.0 * 2 * np.log(2), rel=1e-5)


# --- IGPO ---


def test_igpo_by_hand() -> None:
    """Gains (0.3, 0.1) and outcome 1, gain 0.1 and outcome 0: jointly, mean 0.3 and std 0.40620."""
    both = Paid([[0.3, 0.1, 0.0], [0.1, 0.0]], [1.0, 0.0])
    group = Group(TASK, (walked(0, 1.0, "", ""), walked(1, 0.0, "")))
    one, other = NormalizedRewards().of_group(group, both)
    assert one == pytest.approx([1.2309, 1.2309, 1.7233], abs=1e-4)
    assert other == pytest.approx([-1.2309, -0.7385], abs=1e-4)
    # apart: outcomes +-0.7071; gains of mean 1/6 and std 0.11547
    one, other = NormalizedRewards(normalize="split").of_group(group, both)
    gains = [(x - 1 / 6) / 0.11547 for x in (0.3, 0.1, 0.1)]
    assert one == pytest.approx([0.7071 + gains[0] + gains[1], 0.7071 + gains[1], 0.7071], abs=1e-3)
    assert other == pytest.approx([-0.7071 + gains[2], -0.7071], abs=1e-3)
    _, other = NormalizedRewards(0.5, "split").of_group(group, both)
    assert other == pytest.approx([-0.35355 + gains[2], -0.7071], abs=1e-3)


def asked(number: int, reward: float, sizes: Sequence[int], **options: Any) -> Trajectory:
    return replace(attempt(reward, sizes, number, **options), task=Task("task", "train", {"answers": ["42", "43"]}))


def test_gains_are_those_of_the_answers_likelihood_and_telescope() -> None:
    """Against log-probs of the answer that are read here, context by context; one attempt in two stretches."""
    algo = Igpo(prefix="ab", kl=0.0)
    model = learner(algo)
    trajectories = asked(0, 1.0, (2, 3, 1)), asked(1, 0.0, (1, 2, 2), fresh=(1,))
    group = Group(trajectories[0].task, trajectories)
    (found,) = algo.parts.rewards.pay([group], model, NOW)
    prefix, answer = model.encode("ab"), model.encode("42")
    assert len(prefix) == 2 and len(answer) == 2 and found.outcomes == [1.0, 0.0]
    for trajectory, gains in zip(trajectories, found.turns, strict=True):
        likely = []
        for number in range(3):
            begin = max((n for n in range(number + 1) if trajectory.turns[n].restarts_context), default=0)
            ids: list[int] = []
            for turn in trajectory.turns[begin:number]:
                ids += [*turn.context_ids, *turn.action_ids]
            ids += [*trajectory.turns[number].context_ids, *prefix, *answer]
            nothing = [0.0] * len(ids)
            mask = [False] * (len(ids) - 2) + [True] * 2
            row = model.logprobs([Sample(ids, mask, nothing, nothing, nothing, nothing)])[0]
            likely.append(np.exp(row[-2:].mean()))
        assert gains == pytest.approx([likely[1] - likely[0], likely[2] - likely[1], 0.0], abs=1e-6)
        assert sum(gains) == pytest.approx(likely[2] - likely[0], abs=1e-6) and max(map(abs, gains)) > 0


def test_a_task_without_an_answer_is_refused() -> None:
    algo = Igpo()
    with pytest.raises(UserError, match="'task' has no answers"):
        algo.credit([Group(TASK, (attempt(1.0), attempt(0.0, number=1)))], learner(algo), NOW)


# --- at their edges ---


def test_anchors_at_their_edges() -> None:
    assert Anchors().credit([], [], NOBODY, Now(1, 1)) == []
    assert of_group(Anchors(gamma=1.0, alpha=0.0), *TWO) == of_group(Anchors(gamma=1.0), *TWO)  # one length, any weight


def test_pooled_trajectories_share_what_varies_within_them() -> None:
    """Returns (2, 1), 0 and 0: means 1.5, 0, 0 with variance 3/4, and 1/4 within the first, of three less one."""
    three = walked(0, 1.0, "", rewards=(1.0, 0.0)), walked(1, 0.0), walked(2, 0.0)
    first = of_group(Returns(1.0, "trajectories"), *three)[0]
    assert first == pytest.approx([1.5 / 0.875**0.5, 0.5 / 0.875**0.5], abs=1e-5)


def test_igpo_with_a_single_reward_of_a_turn_and_an_attempt_without_turns() -> None:
    part = NormalizedRewards(normalize="split")
    found = of_group(part, walked(0, 1.0, "", rewards=(0.3, 0.0)), walked(1, 0.0))
    assert [x for one in found for x in one] == pytest.approx([0.5**0.5, 0.5**0.5, -(0.5**0.5)], abs=1e-5)
    empty = of_group(part, walked(0, 1.0), walked(1, 0.0), attempt(0.0, (), 2))
    assert empty[0] == pytest.approx([0.5**0.5], abs=1e-5) and empty[2] == []


def test_bnpo_at_its_edges() -> None:
    """Rates 1 and 1/2: m = 3/4, v = 1/8, c = 1/2."""
    first, second, third = beta_credit(BetaNormalized(), (1, 0, 0, 0), (1, 1, 1, 0), (1,))
    assert first == pytest.approx([0.71661] + [-0.23887] * 3, abs=1e-5) and len(second) == 4 and third == []
    mapped, _ = beta_credit(BetaNormalized(low=-2.0, high=2.0), (2, -2, -2, -2), (2, 2, 2, -2))
    assert mapped == pytest.approx(first, abs=1e-5)
    density = beta(1 + 0.125, 1 + 0.125 / 3)(0.5)
    beyond, half = beta_credit(BetaNormalized(), (2, 2), (1, 0))  # a rate beyond 1 is 1, where the density is 0
    assert beyond == [0.0, 0.0] and half == pytest.approx([0.5 / density, -0.5 / density])


def test_the_reward_of_an_only_turn_is_paid() -> None:
    one = attempt(1.0, (2,))
    one = replace(one, turns=(replace(one.turns[0], reward=0.5),))
    assert credited(TurnPpo(value_high=9.0), one, value=[0.0] * 2)["advantage"] == [1.5, 1.5]


def test_digirl_at_its_edges() -> None:
    failed = attempt(0.0, (1, 1, 1))

    def imitated(*values: float, of: Trajectory = failed) -> dict[str, list[float]]:
        return credited(DigiRL(), of, success_1=[logit(p) for p in values], success_2=[99.0] * 3)

    assert imitated(0.5, 0.53, 0.56)["advantage"] == [0.0] * 3  # 0.03 is less than the margin
    assert imitated(0.9, 0.2, 0.2)["advantage"] == [0.0] * 3  # nothing follows the last state
    turns = tuple(replace(t, reward=r) for t, r in zip(failed.turns, (0.5, 0.0, 0.0), strict=True))
    found = imitated(0.5, 0.5, 0.5, of=replace(failed, turns=turns))
    assert found["advantage"] == [1.0, 0.0, 0.0] and found["target"] == [1.0, 0.0, 0.0]


def test_cross_entropy_counts_where_there_is_a_weight() -> None:
    columns = {"target": torch.tensor([1.0, 0.0]), "value_weight": torch.tensor([2.0, 0.0])}
    scored = Scored(torch.zeros(2), torch.zeros(2), {"success": torch.tensor([0.0, 2.0])})
    hold = ValueLoss(("success",), 0.5, 0.5, logits=True)
    total, metrics = hold.loss(scored, replace(_batch(2, {}), columns=columns, turns=1))
    assert total.item() == pytest.approx(np.log(2)) and float(metrics["success_error"][0]) == pytest.approx(np.log(2))


def test_before_the_warm_up_ends_the_loss_is_nothing() -> None:
    part = AfterWarmup(objective=Clipped(ratio="trajectory"), steps=2)
    assert part.loss(Scored(torch.zeros(2), torch.zeros(2)), replace(_batch(2, {}), step=2)) == (0.0, {})
    assert part.whole_units is True and AfterWarmup().whole_units is False
