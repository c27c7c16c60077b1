"""What every method that is composed of parts keeps to. A method that is added later is tested here for free.

A method's neutral setting is that at which it is another method, to the bit: give it a line in NEUTRAL.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.base import Algorithm
from longloop.algos.composed import Composed, Parts
from longloop.algos.dr_grpo import DrGrpo
from longloop.algos.loop import Loop
from longloop.algos.parts.credit import Centered, Credit, OfAttempts, Standardized, over_turns
from longloop.algos.parts.objective import Clipped, Reinforce, Weighted
from longloop.algos.reduce import Unit
from longloop.learners.local import LocalLearner
from longloop.registry import ALGOS
from longloop.training import schedule
from longloop.types import Group, Now, Sample, Task
from tests.support.losses import ONE, Imitated, WrittenOut, WrittenOutOverTokens, grpo_tokens
from tests.support.samples import learner, mixed_groups, sampled


@dataclass(frozen=True, kw_only=True)
class Of(Composed):
    """A composition made in a test."""

    made_of: Parts = field(default_factory=Parts)

    @property
    def parts(self) -> Parts:
        return self.made_of


class Bare(OfAttempts):
    """The reward itself."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return list(rewards)


class Filtered(OfAttempts):
    """1 for what was paid more than 0.05, else 0."""

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        return [float(reward > 0.05) for reward in rewards]


class CenteredOverStep(Credit):
    """Rewards less the largest of the step, centered over the step: as without the largest, but for rounding."""

    def credit(self, groups: Any, paid: Any, learner: Any, now: Any) -> Any:
        every = [reward for one in paid for reward in one.outcomes]
        mean = fmean(reward - max(every) for reward in every)
        return [
            over_turns(group, [reward - max(every) - mean for reward in one.outcomes])
            for group, one in zip(groups, paid, strict=True)
        ]


class SummedOver(Reinforce):
    """A mean over trajectories of sums over tokens."""

    @property
    def weights(self) -> Unit | float:
        return 1.0


def of(**parts: Any) -> Of:
    return Of(made_of=Parts(**parts), epochs=1, minibatch=0)


NEUTRAL: dict[str, Callable[[], tuple[Algorithm, Algorithm]]] = {
    "compose": lambda: (make("compose"), Loop()),
    "rloo": lambda: (make("rloo"), of(objective=SummedOver())),
    "grpo": lambda: (make("grpo", kl=0.0), WrittenOut()),
    "dr_grpo": lambda: (make("dr_grpo"), WrittenOut(std=False, divisor=1024.0)),
    "dapo": lambda: (make("dapo"), WrittenOutOverTokens(high=1.28)),
    "gspo": lambda: (make("gspo"), WrittenOut(low=1 - 3e-4, high=1 + 4e-4, whole=True)),
    "ppo": lambda: (make("ppo", warmup=0), make("turn_ppo", critic="token", turn_weight=0.0, warmup=0)),
    # rollouts and branches
    "vineppo": lambda: (make("vineppo", m=0, kl=0.0), of(objective=Clipped(low=0.8, high=1.2))),
    "arpo": lambda: (make("arpo"), make("grpo", kl=0.0)),
    "himac": lambda: (make("himac", plans=0, kl=0.0), make("grpo", kl=0.0)),
    "critique_grpo": lambda: (make("critique_grpo"), make("dr_grpo", clip=1e9)),
    "pav": lambda: (make("pav", alpha=0.0), Loop()),
    "drpo": lambda: (make("drpo", beta=0.0, kl=0.0), of(objective=Clipped(low=0.8, high=1.2))),
    # turns and critics
    "gigpo": lambda: (
        make("gigpo", w=0.0, kl=0.0),
        of(credit=Centered(), choose=(), objective=Clipped(low=0.8, high=1.2)),
    ),
    "igpo": lambda: (
        make("igpo", gain=0.0, normalize="split", kl=0.0, epochs=1, minibatch=0),
        of(credit=Standardized(), choose=(), objective=Clipped(low=0.8, high=1.2)),
    ),
    "gtpo": lambda: (
        make("gtpo", gamma=1.0, failed=0.0, turn_weight=0.0, pool="trajectories", kl=0.0, epochs=1, minibatch=0),
        of(credit=Standardized(), choose=(), objective=Clipped(average="tokens", low=0.8, high=1.2)),
    ),
    "turn_ppo": lambda: (
        make("turn_ppo", critic="token", turn_weight=0.0, lam=0.9, warmup=0),
        make("ppo", lam=0.9, warmup=0),
    ),
    "reinforce_value": lambda: (
        make("reinforce_value", value_high=0.0, turn_weight=0.0, value_weight=0.0, warmup=0),
        of(credit=Bare(), choose=(), objective=SummedOver()),
    ),
    "tppo": lambda: (make("tppo", warmup=0), make("ppo", warmup=0)),  # nothing was cut
    "digirl": lambda: (
        make("digirl", progress=0.0, turn_weight=0.0, value_weight=0.0),
        of(credit=Filtered(), choose=(), objective=Reinforce(average="tokens")),
    ),
    "eapo": lambda: (
        make("eapo", gamma=1.0, pool="trajectories", ratio="trajectory"),
        make("gspo"),
    ),
    "archer": lambda: (
        make("archer", critic_steps=0, gamma=1.0, turn_weight=0.0),
        of(credit=Bare(), choose=(), objective=SummedOver()),
    ),
    "bnpo": lambda: (
        make("bnpo", share=0.0, epochs=1, minibatch=0),
        of(credit=Centered(), objective=Clipped(low=0.8, high=1.2)),
    ),
    "riskpo": lambda: (
        make("riskpo", bundle=1, low=0.0, high=1.0, weight=0.0, normalize=False, **ONE),
        of(credit=CenteredOverStep(), objective=Clipped(low=0.8, high=1.2)),
    ),
    # shapes, rewards and tasks
    "empg": lambda: (make("empg", scale=0.0, zeta=0.0, center=False), of(credit=Standardized())),
    "seed_grpo": lambda: (make("seed_grpo", alpha=0.0), of(credit=Centered())),
    "aspo": lambda: (make("aspo", delta=0.0), make("dapo")),
    "aepo": lambda: (
        make("aepo", first=16, w=0.0, keep="none"),
        of(credit=Standardized(), objective=Clipped(low=0.8, high=1.28)),
    ),
    "ettrl": lambda: (make("ettrl", votes=0.0, w=0.0), make("grpo", kl=0.0)),
    "empo": lambda: (make("empo", votes=0.0), make("grpo", kl=0.0)),
    "otc": lambda: (make("otc", w=0.0, kl=0.0), make("grpo", kl=0.0)),
    "ares": lambda: (make("ares", alpha=0.0, kl=0.0), make("grpo", kl=0.0)),
    "dump": lambda: (make("dump", kl=0.0), make("grpo", kl=0.0)),
    "scaling_inter": lambda: (make("scaling_inter", rounds=[], kl=0.0), make("grpo", kl=0.0)),
    # choices, objectives and holds
    "cispo": lambda: (
        make("cispo", clip_low=1.0, clip_high=1e9, epochs=1, minibatch=0),
        of(credit=Standardized(), objective=Weighted(average="tokens", low=0.0, high=1e9 + 1)),
    ),
    "bapo": lambda: (make("bapo", target=0.0, **ONE), of(**grpo_tokens(0.6, 1.2, dual=3.0))),
    "nft": lambda: (make("nft", negatives=0.0, **ONE), of(credit=Centered(), objective=Imitated(divisor=1000.0))),
    "clip_cov": lambda: (make("clip_cov", share=0.0, **ONE), of(**grpo_tokens(0.0, 2.0))),
    "kl_cov": lambda: (make("kl_cov", share=0.0, **ONE), of(**grpo_tokens(0.0, 1e9))),
    "d3s": lambda: (make("d3s", attempts_share=1.0, tokens_share=1.0), of(credit=Standardized(), choose=())),
    "tis": lambda: (make("tis", cap=0.0), Loop()),
    "mis": lambda: (make("mis", cap=0.0), Loop()),
    "trm": lambda: (make("trm", delta=math.inf), Loop()),
    "capo": lambda: (make("capo", max_share=0.0, **ONE), of(**grpo_tokens(0.8, 1.2))),
    "steer": lambda: (make("steer", least=1.0, **ONE), of(**grpo_tokens(0.8, 1.28, dual=10.0))),
    "epo": lambda: (make("epo", bonus=0.0), of(choose=())),
    "siren": lambda: (make("siren", coefficient=0.0, clip=0.3), DrGrpo(clip=0.3)),
    "lp_reg": lambda: (make("lp_reg", coefficient=0.0), of(**grpo_tokens(0.0, 10.0))),
    "demo_rl": lambda: (make("demo_rl", kl=0.0), of(choose=())),
    "aepo_entropy": lambda: (make("aepo_entropy", most=0.0, **ONE), of(**grpo_tokens(0.8, 1.2))),
}
"""The method at its neutral setting, and what it is then."""


def kind(name: str) -> type[Algorithm]:
    module, _, attribute = ALGOS[name].partition(":")
    found: type[Algorithm] = getattr(import_module(module), attribute)
    return found


SHORT: dict[str, dict[str, Any]] = {"archer": {"critic_steps": 10}}
"""Settings of methods that would take seconds."""


def make(name: str, **options: Any) -> Algorithm:
    return kind(name)(**SHORT.get(name, {}) | options)


METHODS = [name for name in ALGOS if issubclass(kind(name), Composed)]


def lively_groups() -> list[Group]:
    """Groups whose turns are paid and meet the same states again, each with a task of its own and with two outcomes."""
    groups = []
    for number, group in enumerate(mixed_groups()):
        task = Task(f"task {number}", "train", {"answers": ["7"]})
        attempts = tuple(
            replace(
                t,
                task=task,
                info={"key": f"came to {t.attempt % 2}"},
                turns=tuple(
                    replace(turn, reward=0.1 * place, info={"state": f"at {place % 2}"})
                    for place, turn in enumerate(t.turns)
                ),
            )
            for t in group.trajectories
        )
        groups.append(Group(task, attempts))
    return groups


@cache
def lively_sampled(shift: float) -> list[Group]:
    """These groups with the log-probs of the policy that every learner here begins with, and noise."""
    return sampled(lively_groups(), learner(Loop()), shift)


def stepped(algo: Algorithm, model: LocalLearner, groups: Sequence[Group], now: Now) -> list[Sample]:
    return algo.credit(groups, model, now)


def gradient(algo: Algorithm, model: LocalLearner, samples: Sequence[Sample], groups: Sequence[Group]) -> torch.Tensor:
    """Of the whole step as one mini-batch."""
    now = Now(1, 10)
    one = replace(algo, epochs=1, minibatch=0)
    model.optimizer.zero_grad()
    for minibatch in schedule(_Seeded(), one, groups, samples, now):  # type: ignore[arg-type]
        model.gradient(replace(one.look(minibatch, model, now), on_policy=False), one.loss)
    return torch.cat([p.grad.flatten() for p in model.parameters.values() if p.grad is not None])


class _Seeded:
    seed = 0


@pytest.mark.parametrize("name", METHODS)
def test_its_neutral_setting_is_the_method_it_reduces_to(name: str) -> None:
    assert name in NEUTRAL, "give it a neutral setting"
    one, other = NEUTRAL[name]()
    models = [learner(one), learner(other)]
    found = []
    for algo, model in zip((one, other), models, strict=True):
        groups = lively_sampled(shift=0.1)
        samples = stepped(algo, model, groups, Now(1, 10))
        found.append((samples, gradient(algo, model, samples, groups)))
    (samples, slope), (others, other_slope) = found
    assert [(s.source, s.advantages.tolist(), s.weights.tolist()) for s in samples] == [
        (s.source, s.advantages.tolist(), s.weights.tolist()) for s in others
    ]
    assert torch.equal(slope, other_slope) and slope.abs().sum() > 0


@pytest.mark.parametrize("name", METHODS)
def test_the_cut_into_micro_batches_changes_nothing(name: str) -> None:
    algo = make(name)
    slopes = []
    for micro_tokens in (1, 30, 10**6):
        model = learner(algo, micro_tokens=micro_tokens)
        groups = lively_sampled(shift=0.3)
        slopes.append(gradient(algo, model, stepped(algo, model, groups, Now(1, 10)), groups))
    assert slopes[0].abs().sum() > 0
    for slope in slopes[1:]:
        torch.testing.assert_close(slope, slopes[0], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", METHODS)
def test_tokens_of_the_environment_change_nothing(name: str) -> None:
    algo = make(name)
    model = learner(algo)
    groups = lively_sampled(shift=0.3)
    samples = stepped(algo, model, groups, Now(1, 10))
    noise = np.random.default_rng(0)

    def disturbed(sample: Sample) -> Sample:
        off = ~sample.mask
        columns = {name: x + off * noise.normal(size=len(x)) for name, x in sample.columns.items()}
        changed = {
            name: getattr(sample, name) + off * noise.normal(size=len(off))
            for name in ("logprobs", "advantages", "weights")
        }
        return replace(sample, **changed, columns=columns)

    assert torch.equal(
        gradient(algo, model, samples, groups), gradient(algo, model, [disturbed(s) for s in samples], groups)
    )


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_groups_and_attempts_changes_nothing(name: str) -> None:
    algo = make(name)
    model = learner(algo)
    groups = lively_sampled(shift=0.3)
    turned = [Group(group.task, group.trajectories[::-1]) for group in groups[::-1]]

    def by_attempt(groups: Sequence[Group]) -> dict[Any, Any]:
        samples = stepped(algo, model, groups, Now(1, 10))
        return {
            (groups[s.source.group].task.id, s.source.attempt, s.stretch): (s.advantages, s.weights) for s in samples
        }

    one, other = by_attempt(groups), by_attempt(turned)
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_allclose(one[key], other[key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_what_it_remembers_can_be_saved_and_resumed(name: str) -> None:
    """Three steps, and three steps with the memory written and read between them."""
    algo = make(name)
    model = learner(algo)
    groups = lively_sampled(shift=0.3)

    def steps(saved: bool) -> list[tuple[Any, dict[str, float]]]:
        memory: dict[str, Any] = {}
        found = []
        for step in (1, 2, 3):
            now = Now(step, 10, memory)
            samples = stepped(algo, model, groups, now)
            (minibatch,) = schedule(_Seeded(), replace(algo, epochs=1, minibatch=0), groups, samples, now)  # type: ignore[arg-type]
            facts = dict(algo.look(minibatch, model, now).facts)
            found.append(([(s.advantages.tolist(), s.weights.tolist()) for s in samples], facts))
            if saved:
                memory = json.loads(json.dumps(memory))
        return found

    assert steps(saved=True) == steps(saved=False)
