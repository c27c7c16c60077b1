"""What the methods ask for and refuse: attempts and seeds, edges of their settings, learning rates, their recipes."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longloop.algos.agent_q import AgentQ
from longloop.algos.base import Algorithm
from longloop.algos.dapo import Dapo
from longloop.algos.dmpo import Dmpo
from longloop.algos.dpo import Dpo
from longloop.algos.dr_grpo import DrGrpo
from longloop.algos.ei import Ei
from longloop.algos.eto import Eto
from longloop.algos.grpo import Grpo
from longloop.algos.gspo import Gspo
from longloop.algos.inpo import Inpo
from longloop.algos.loop import Loop
from longloop.algos.mcts_ipl import MctsIpl
from longloop.algos.nat import Nat
from longloop.algos.ppo import Ppo
from longloop.algos.preference import Preference
from longloop.algos.reduce import last_action, to_samples
from longloop.algos.reinforce import Reinforce
from longloop.algos.rft import Rft
from longloop.algos.riskpo import RiskPO
from longloop.algos.rloo import Rloo
from longloop.algos.scaling_inter import ScalingInter
from longloop.algos.sft import SFT
from longloop.algos.spin import Spin
from longloop.algos.stepagent_implicit import StepAgentImplicit
from longloop.algos.stepagent_inverse import StepAgentInverse
from longloop.algos.tree_dpo import TreeDpo
from longloop.types import Group, Now, Sample, Start, Task, UserError
from tests.support.samples import NOW, TASK, attempt, group, learner, make, with_known


class Asked:
    """A stream of tasks, of which ten were taken before, and rollouts that write down what they are asked for."""

    def __init__(self) -> None:
        self.taken = 10
        self.calls: list[Any] = []

    def take(self, n: int) -> list[Task]:
        self.taken += n
        return [TASK] * n

    async def play(
        self,
        starts: Sequence[Start],
        k: int,
        seed: int,
        *,
        temperatures: Sequence[float] = (),
        single_action: bool = False,
        max_turns: int = 0,
    ) -> list[Group]:
        if single_action:
            assert not temperatures and all(start.recorded is not None for start in starts)
            self.calls.append(("act once", [start.turn for start in starts], k, seed))
            return [Group(start.task, (attempt(0.0),) * k) for start in starts]
        assert all(start == Start(TASK) for start in starts)
        self.calls.append(("play", len(starts), k, seed, tuple(temperatures)))
        return [group(1.0, 0.0)] * len(starts)

    async def trees(
        self, tasks: Sequence[Task], attempts: int, explore: float, seed: int, *, puct: bool = False
    ) -> list[Group]:
        self.calls.append(("puct" if puct else "trees", len(tasks), attempts, explore, seed))
        return [group(1.0, 0.0)] * len(tasks)

    async def demonstrations(self, tasks: Sequence[Task]) -> list[Group]:
        self.calls.append(("demonstrations", len(tasks)))
        return [Group(TASK, (replace(attempt(1.0, (3, 1), 0), expert=True),))] * len(tasks)


SHOWN, OWN = ("demonstrations", 3), ("play", 3, 4, 10, ())
AT_STATES = ("act once", [0, 1, 0, 1, 0, 1], 5, 10)
"""Five own actions at each of the two states of each demonstration."""


@pytest.mark.parametrize(
    ("algo", "calls", "attempts"),
    [
        (Loop(k=4), [OWN], 2),
        (make("gspo", k=4), [OWN], 2),
        (SFT(), [SHOWN], 1),
        (Ei(k=4), [OWN], 2),
        (Rft(k=2, coldest=0.2, hottest=0.8), [("play", 3, 2, 10, (0.2, 0.8))], 2),
        (Rft(k=1, coldest=0.2, hottest=0.8, with_expert=True), [("play", 3, 1, 10, (0.2,)), SHOWN], 3),
        (StepAgentImplicit(practice=5), [SHOWN, AT_STATES], 11),
        (StepAgentInverse(practice=5, k=4), [SHOWN, AT_STATES], 11),
        (StepAgentInverse(practice=5, k=4, final=0.5), [SHOWN, AT_STATES, OWN], 13),
        (Eto(k=4), [SHOWN, OWN], 3),
        (TreeDpo(k=4, explore=0.5), [("trees", 3, 4, 0.5, 10)], 2),
        (MctsIpl(k=4, explore=0.5), [("puct", 3, 4, 0.5, 10)], 2),
        (AgentQ(k=4, alpha=1.0), [("trees", 3, 4, 1.0, 10)], 2),
    ],
)
def test_what_is_collected(algo: Any, calls: list[Any], attempts: int) -> None:
    """The seed is the place in the stream of tasks before any is taken: no two steps share one."""
    asked = Asked()
    groups = asyncio.run(algo.collect(asked, asked, 3, NOW))
    assert asked.calls == calls and asked.taken == 13
    assert [len(g.trajectories) for g in groups] == [attempts] * 3


@pytest.mark.parametrize(
    ("algo", "attempts"),
    [
        (Loop(k=4), 4),
        (Reinforce(k=4), 4),
        (SFT(), 1),
        (Rft(k=4), 4),
        (Rft(k=4, with_expert=True), 5),
        (Eto(k=4), 5),
        (Spin(k=4), 5),
        (Nat(k=4), 5),
        (StepAgentImplicit(), 1),
        (StepAgentInverse(k=4), 1),
        (StepAgentInverse(k=4, final=0.5), 5),
    ],
)
def test_attempts_that_count_against_a_budget(algo: Algorithm, attempts: int) -> None:
    assert algo.attempts_per_task == attempts


@pytest.mark.parametrize("practice", [StepAgentImplicit(least_reward=0.5), StepAgentInverse(least_reward=0.5)])
def test_poor_demonstrations_are_left_out_of_practice(practice: Any) -> None:
    asked = Asked()

    async def demonstrations(tasks: Sequence[Task]) -> list[Group]:
        return [Group(TASK, (attempt(reward),)) for reward in (0.4, 0.5, 1.0)]

    asked.demonstrations = demonstrations  # type: ignore[method-assign]
    groups = asyncio.run(practice.collect(asked, asked, 3, NOW))
    assert [g.trajectories[0].reward for g in groups] == [0.5, 1.0]


# --- refused, and not refused ---


@pytest.mark.parametrize(
    ("method", "bad", "good", "words"),
    [
        (Loop, {"clip": 0.0}, {"clip": 1e-9}, r"algo\.clip = 0\.0"),
        (Loop, {"k": 1}, {"k": 2}, r"algo\.k = 1"),
        (StepAgentInverse, {"k": 1, "final": 0.1}, {"k": 2, "final": 0.1}, r"algo\.final"),
        (StepAgentInverse, {"k": 0}, {"k": 1}, r"algo\.k = 0"),
        (StepAgentInverse, {"practice": 1}, {"practice": 2}, r"algo\.practice = 1"),
        (Rft, {"coldest": -0.1}, {"coldest": 0.0}, r"algo\.coldest"),
        (Rft, {"coldest": 0.6, "hottest": 0.5}, {"coldest": 0.5, "hottest": 0.5}, r"algo\.hottest"),
        (Dmpo, {"k": 1}, {"k": 2}, r"algo\.k = 1"),
        (Ppo, {"k": 0}, {"k": 1}, r"algo\.k = 0"),
        (Rft, {"k": 0}, {"k": 1}, r"algo\.k = 0"),
        (SFT, {"k": 0}, {"k": 1}, r"algo\.k = 0"),
        (Reinforce, {"k": 0}, {"k": 1}, r"algo\.k = 0"),
        (Inpo, {"tau": 0.0, "eta": 0.0}, {"tau": 0.5, "eta": 0.5}, r"algo\.eta = 0\.0"),
        (Inpo, {"tau": -0.1}, {"tau": 0.0}, r"algo\.tau = -0\.1"),
        (RiskPO, {"low": 0.5, "high": 0.5}, {"low": 0.0, "high": 1.0}, r"algo\.low = 0\.5"),
        (ScalingInter, {"every": 0}, {"every": 1}, r"algo\.every"),
        (ScalingInter, {"rounds": [5, 0]}, {"rounds": [1, 5]}, r"algo\.rounds"),
    ],
)
def test_settings_that_cannot_work_are_refused(method: Any, bad: Any, good: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        method(**bad)
    method(**good)


def test_without_own_attempts_one_is_enough() -> None:
    assert StepAgentInverse(k=1, final=0.0).k == 1


# --- edges ---


@pytest.mark.parametrize("method", [Loop, Rloo])
def test_an_advantage_that_is_just_large_enough_is_kept(method: Any) -> None:
    """Of two attempts that are paid x and 0, one has the advantage x and the other -x."""
    algo = method(k=2, drop_below=0.5)
    kept = [len(algo.credit([group(x, 0.0)], None, NOW)) for x in (-0.51, -0.5, -0.49, 0.0, 0.49, 0.5)]
    assert kept == [2, 2, 0, 0, 0, 2]


@pytest.mark.parametrize("method", [DrGrpo, Gspo])
def test_others_keep_all(method: Any) -> None:
    assert len(method(k=2).credit([group(0.0, 0.0)], None, NOW)) == 2


def test_reinforce_needs_two_attempts_in_all() -> None:
    alone = [Group(TASK, (attempt(1.0),))]
    assert Reinforce(k=1).credit(alone, None, NOW) == []  # type: ignore[arg-type]
    assert len(Reinforce(k=1).credit(alone * 2, None, NOW)) == 2  # type: ignore[arg-type]


def test_samples_say_where_they_come_from() -> None:
    """Group, attempt and stretch; and the columns are 0 where the environment spoke."""
    whole = attempt(1.0, (2, 1), 5, fresh=(1,))
    for samples in (to_samples(whole, 3, 2.0, 1.0), to_samples(whole, 3, 2.0, "turn")):
        assert [(s.source, s.stretch) for s in samples] == [((3, 5), 0), ((3, 5), 1)]
        for s in samples:
            assert s.advantages.tolist() == (2.0 * s.mask).tolist()
            assert (s.weights != 0).tolist() == s.mask.tolist()
    last = last_action(whole, 3, 0.5)
    assert (last.source, last.stretch) == ((3, 5), 1) and last.advantages.tolist() == [0.0] * len(last.ids)
    assert last.weights.tolist() == (0.5 * last.mask).tolist() and last.action_tokens == 1
    assert last_action(whole, 3).weights.tolist() == (1.0 * last.mask).tolist()


def test_a_turn_without_tokens_counts_for_nothing() -> None:
    """Of three turns one has no action token: the two others have half of the weight each."""
    (sample,) = to_samples(attempt(1.0, (2, 0, 1)), 0, 1.0, "turn")
    assert [w for w, chosen in zip(sample.weights, sample.mask, strict=True) if chosen] == [0.25, 0.25, 0.5]


def test_ppo_leaves_environment_tokens_at_zero() -> None:
    class Sure:
        def read(self, samples: Any, *columns: str) -> list[Sample]:
            return with_known(samples, columns, lambda s: {"value": [0.5] * len(s.ids)})

    for s in Ppo(k=1).credit([Group(TASK, (attempt(1.0, (2, 1)),))], Sure(), NOW):  # type: ignore[arg-type]
        for column in (s.advantages, s.columns["target"]):
            assert (column != 0).tolist() == s.mask.tolist()


# --- learning rates ---


def test_the_learning_rate_is_constant_unless_a_method_says_otherwise() -> None:
    for algo in (Loop(), Grpo(), Ppo(), Ei()):
        assert [algo.lr_scale(Now(step, 10)) for step in (1, 5, 10)] == [1.0] * 3


@pytest.mark.parametrize("algo", [SFT(), Nat(), Eto(warmup=0.8), Spin(), Dmpo(warmup=0.8)])
def test_without_a_word_an_update_lies_in_the_middle_of_its_step(algo: Algorithm) -> None:
    assert algo.lr_scale(Now(2, 3)) == algo.lr_scale(Now(2, 3), 0.5) != algo.lr_scale(Now(2, 3), 1.0)


def test_sfts_learning_rate_rises_and_falls_as_a_cosine() -> None:
    """Ten steps, a warm-up of 0.2 of the run. In the middle of step n, (n - 0.5) / 10 of it is done."""
    scales = [SFT(warmup=0.2).lr_scale(Now(step, 10)) for step in range(1, 11)]
    assert scales[:2] == pytest.approx([0.05 / 0.2, 0.15 / 0.2])
    assert scales[2:] == pytest.approx([(1 + math.cos(math.pi * (n - 0.5 - 2) / 8)) / 2 for n in range(3, 11)])
    assert SFT(warmup=0.05).lr_scale(Now(1, 10)) == 1.0  # just when the warm-up ends
    assert [Nat(warmup=0.2).lr_scale(Now(step, 10)) for step in range(1, 11)] == scales


def test_sft_on_everything_scores_all_tokens_but_the_first() -> None:
    groups = [Group(TASK, (attempt(1.0, (2, 1)),))]
    (plain,) = SFT().credit(groups, None, NOW)  # type: ignore[arg-type]
    (sample,) = SFT(everything=True).credit(groups, None, NOW)  # type: ignore[arg-type]
    n = len(sample.ids)
    assert sample.ids.tolist() == plain.ids.tolist() and plain.action_tokens == 3
    assert sample.mask.tolist() == [False, *[True] * (n - 1)]
    assert sample.weights.tolist() == sample.advantages.tolist() == [0.0, *[1.0] * (n - 1)]


# --- what a method needs of the learner ---


def test_only_who_asks_has_a_reference_and_a_head() -> None:
    assert not any(method().heads for method in (Loop, Rloo, Gspo, SFT, Dpo))
    assert Ppo().heads == ("value",) and StepAgentInverse.heads == ("discriminator",)
    for algo in (Loop(), Rloo(), Gspo()):
        one = learner(algo)
        assert one.second_copy is None and not one.heads and not algo.needs_reference
    assert Grpo(kl=1.0).needs_reference and not Grpo(kl=0.0).needs_reference
    copy = learner(Grpo()).second_copy
    assert not copy.training and not any(p.requires_grad for p in copy.parameters())
    for algo in (Ppo(), StepAgentInverse()):
        (head,) = learner(algo).heads.values()
        assert [tuple(p.shape) for p in head.parameters() if p.ndim == 2] == [(19, 32), (12, 19), (1, 12)]


def test_a_head_begins_at_zero_and_the_same_for_a_seed() -> None:
    from longloop.learners.local import _head

    policy = learner(Ppo()).policy
    one, same, other = (_head(policy, seed) for seed in (3, 3, 4))
    assert not one(torch.randn(5, 32)).any() and not one[-1].bias.any()
    assert torch.equal(one[0].weight, same[0].weight) and not torch.equal(one[0].weight, other[0].weight)


def test_a_head_has_eight_units_at_least() -> None:
    from longloop.learners.local import _head

    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=10))
    policy: Any = SimpleNamespace(module=SimpleNamespace(config=config), device="cpu")
    assert [tuple(p.shape) for p in _head(policy, 0).parameters() if p.ndim == 2] == [(8, 10), (8, 8), (1, 8)]


@pytest.mark.parametrize(
    ("algo", "whole"),
    [
        (SFT(), False),
        (Grpo(), False),
        (Loop(), False),
        (Loop(ratio="turn"), False),
        (Loop(ratio="trajectory"), True),
        (Gspo(), True),
        (Eto(), True),
    ],
)
def test_who_needs_trajectories_in_one_piece(algo: Algorithm, whole: bool) -> None:
    """Cutting others up as well would only cost memory."""
    assert algo.whole_units is whole


# --- the papers' recipes ---

COMMON = {"k": 6, "epochs": 1, "minibatch": 0, "lr": 5e-5, "weight_decay": 0.01, "max_grad_norm": 1.0, "kl_guard": 20.0}
PAIRS = COMMON | {"k": 1, "minibatch": 32, "lr": 1e-6, "beta": 0.1, "weight_decay": 0.0, "warmup": 0.0}
SETTINGS: dict[type[Algorithm], dict[str, Any]] = {
    Reinforce: COMMON,
    Rloo: COMMON | {"drop_below": 0.01},
    Loop: COMMON
    | {"epochs": 2, "minibatch": 32, "drop_below": 0.01, "clip": 0.1, "normalize": False, "ratio": "token"},
    Grpo: COMMON | {"clip": 0.2, "kl": 0.04},
    DrGrpo: COMMON | {"clip": 0.2, "divisor": 1024.0},
    Dapo: COMMON | {"minibatch": 32, "clip_low": 0.2, "clip_high": 0.28},
    Gspo: {"k": 6, "epochs": 1, "minibatch": 60, "lr": 5e-5, "clip_low": 3e-4, "clip_high": 4e-4},
    Ppo: COMMON
    | {"epochs": 2, "minibatch": 32, "gamma": 1.0, "lam": 1.0, "warmup": 10, "value_weight": 0.1}
    | {"value_weight_end": 0.001, "value_steps": 200},
    SFT: COMMON | {"k": 1, "lr": 1e-5, "minibatch": 64, "warmup": 0.03, "everything": False, "least_reward": 1.0},
    Ei: COMMON | {"epochs": 2, "minibatch": 32, "least_reward": 1.0},
    Rft: COMMON | {"k": 20, "epochs": 30, "minibatch": 32, "coldest": 0.05, "hottest": 1.0, "with_expert": False},
    Nat: COMMON | {"k": 1, "epochs": 2, "minibatch": 64, "weight_decay": 0.0, "warmup": 0.03},
    Dpo: PAIRS | {"minibatch": 64},
    Dmpo: PAIRS | {"k": 2, "epochs": 3, "warmup": 0.1, "gamma": 0.7, "gap": 0.0},
    Eto: PAIRS | {"epochs": 3, "warmup": 0.1, "later_beta": 0.5, "longer": 10},
    Spin: PAIRS | {"epochs": 3, "minibatch": 64, "lr": 5e-7, "warmup": 0.1},
    TreeDpo: PAIRS | {"k": 30, "epochs": 3, "gap": 0.2, "explore": 1.0},
    StepAgentImplicit: {"k": 1, "minibatch": 16, "lr": 5e-7, "beta": 0.1, "practice": 3, "least_reward": 1.0},
    StepAgentInverse: COMMON
    | {"minibatch": 16, "lr": 5e-7, "clip": 0.2, "practice": 3, "least_reward": 1.0}
    | {"head_lr": 1e-3, "head_steps": 200, "smoothing": 0.1, "most": 5.0, "final": 0.0},
}


@pytest.mark.parametrize("method", SETTINGS, ids=lambda method: method.__name__)
def test_defaults_are_the_recipe(method: type[Algorithm]) -> None:
    """A default is a claim about a paper, or a choice of ours: it does not change unnoticed."""
    one = method()
    assert {name: getattr(one, name) for name in SETTINGS[method]} == SETTINGS[method]
    assert one.on_policy != isinstance(one, SFT | Rft | Nat | Preference)
