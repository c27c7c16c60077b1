"""Hand-made attempts and a tiny learner: what the tests of algorithms and of the learner share."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from longloop.algos.reduce import to_samples
from longloop.config import LearnerConfig, ModelConfig, RanksConfig
from longloop.learners.local import LocalLearner
from longloop.model.policy import Policy, load
from longloop.registry import ALGOS
from longloop.training import schedule
from longloop.types import Batch, Group, Message, Minibatch, Now, Sample, Scored, StopReason, Task, Trajectory, Turn

torch.set_num_threads(1)  # the tensors are tiny: a second thread only costs, most of all on a busy machine

CPU = torch.device("cpu")
TASK = Task("task", "train")
NOW = Now(1, 1)

# Every algorithm that takes plain groups of own attempts, LOOP with each of its ratios. PPO without warm-up, so that
# its policy loss takes part. Those that need an expert or trees beside them have tests of their own.
_GROUPS = ["loop", "reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "ppo", "sft", "ei", "dmpo"]
VARIANTS: dict[str, dict[str, Any]] = {name: {} for name in _GROUPS} | {
    "sft": {"least_reward": -1.0},
    "ei": {"least_reward": -1.0},
    "ppo": {"warmup": 0},
    "loop turn": {"ratio": "turn"},
    "loop trajectory": {"ratio": "trajectory"},
}


def make(variant: str, **options: Any) -> Any:
    """The algorithm of that name in ALGOS, or one of the variants above."""
    module, _, name = ALGOS[variant.split()[0]].partition(":")
    return getattr(import_module(module), name)(**VARIANTS[variant] | options)


def attempt(
    reward: float,
    sizes: Sequence[int] = (2,),
    number: int = 0,
    stop: StopReason = StopReason.FINISHED,
    fresh: Sequence[int] = (),
    logprobs: Sequence[float] = (),
) -> Trajectory:
    """An attempt whose turns have these numbers of action tokens; the turns in `fresh` begin a new stretch."""
    chance = random.Random(f"{number}/{sizes}")
    given = iter(logprobs or [-1.0] * sum(sizes))
    turns = tuple(
        Turn(
            context=(),
            context_ids=tuple(chance.randrange(1, 45) for _ in range(2 + place)),
            action=Message("assistant", ""),
            action_ids=tuple(chance.randrange(1, 45) for _ in range(size)),
            action_logprobs=tuple(next(given) for _ in range(size)),
            restarts_context=place in fresh,
        )
        for place, size in enumerate(sizes)
    )
    return Trajectory(TASK, number, turns, reward, reward == 1.0, stop)


def group(*rewards: float, sizes: Sequence[int] = (2,)) -> Group:
    """One scored attempt for each reward."""
    return Group(TASK, tuple(attempt(reward, sizes, number) for number, reward in enumerate(rewards)))


def mixed_groups() -> list[Group]:
    """Two groups with turns and attempts of unequal length, one attempt in two stretches."""
    first = Group(TASK, (attempt(1.0, (2, 3), 0), attempt(0.0, (4,), 1), attempt(0.75, (1, 2, 1), 2, fresh=(2,))))
    return [first, Group(TASK, (attempt(0.25, (3, 5), 3), attempt(0.75, (4,), 4), attempt(0.0, (2, 1), 5)))]


def batch(
    old: Sequence[float],
    adv: Sequence[float],
    weight: Sequence[float],
    turn: Sequence[int] = (),
    unit: Sequence[int] = (),
    step: int = 1,
    reference: Sequence[float] = (),
    returns: Sequence[float] = (),
) -> Batch:
    """A micro-batch from plain numbers; without turn and unit, every token is a turn and a unit of its own.

    `reference` and `returns` go to the columns by whatever name a method has for them; every value counts as its token.
    """
    columns = {"reference": reference, "logprobs": reference, "target": returns, "logged": returns}
    columns["value_weight"] = weight if returns else ()
    turn, unit = turn or range(len(old)), unit or range(len(old))
    return Batch(
        torch.tensor(old),
        torch.tensor(adv),
        torch.tensor(weight),
        torch.ones(len(old)),
        torch.tensor(list(turn)),
        torch.tensor(list(unit)),
        turns=len(set(turn)),
        units=len(set(unit)),
        step=step,
        columns={name: torch.tensor(values) for name, values in columns.items() if values},
    )


def loss_and_slopes(algo: Any, logp: Sequence[float], of: Batch, **heads: Sequence[float]) -> tuple[float, list[float]]:
    """An algorithm's loss on plain numbers, and its derivative by each log-prob."""
    logp_N = torch.tensor(logp, requires_grad=True)
    said = {name: torch.tensor(values, requires_grad=True) for name, values in heads.items()}
    total, _ = algo.loss(Scored(logp_N, torch.zeros(len(logp)), said), of)
    slopes = torch.autograd.grad(total, logp_N, allow_unused=True)[0]
    return total.item(), (torch.zeros(len(logp)) if slopes is None else slopes).tolist()


@cache
def loaded(lora: int, dtype: Any, seed: int) -> tuple[Policy, torch.Tensor]:
    """The tiny model, to be copied, and the state of random numbers when it has been made: making it, and checking that
    it can be run, takes longer than most of what is then asked of it."""
    return load(
        ModelConfig(hidden=32, layers=2, lora_rank=lora, device="cpu", dtype=dtype), seed
    ), torch.get_rng_state()


def learner(
    algo: Any,
    *,
    lora: int = 0,
    seed: int = 0,
    temperature: float = 1.0,
    dtype: Any = "float32",
    shares: int = 1,
    rank: int = 0,
    count: int = 1,
    **options: Any,
) -> LocalLearner:
    """The tiny model and its learner. The last layer of each head, which starts at zero, is given numbers."""
    policy, random_state = copy.deepcopy(loaded(lora, dtype, seed))
    torch.set_rng_state(random_state)
    made = LocalLearner(
        policy,
        algo.needs,
        LearnerConfig(**options),
        temperature,
        seed,
        RanksConfig(count=count, shares=max(shares, count)),
        rank,
    )
    for head in made.heads.values():
        torch.manual_seed(seed)
        torch.nn.init.normal_(head[-1].weight)  # type: ignore[index]
    return made


def sampled(groups: Sequence[Group], policy: LocalLearner, shift: float = 0.0) -> list[Group]:
    """The groups with the log-probs of the learner's own policy, as an engine would have filled them in.

    `shift` adds noise of this size: the policy that sampled was then another one.
    """
    noise = random.Random(1)

    def fill(trajectory: Trajectory) -> Trajectory:
        samples = to_samples(trajectory, 0, 0.0, 1.0)
        rows = zip(samples, policy.logprobs(samples), strict=True)
        logprobs = iter([p for sample, row in rows for p, is_action in zip(row, sample.mask, strict=True) if is_action])
        turns = (
            replace(turn, action_logprobs=np.array([next(logprobs) + noise.gauss(0, shift) for _ in turn.action_ids]))
            for turn in trajectory.turns
        )
        return replace(trajectory, turns=tuple(turns))

    return [replace(group, trajectories=tuple(map(fill, group.trajectories))) for group in groups]


def first_minibatch(
    algo: Any, groups: Sequence[Group], policy: LocalLearner, step: int = 1, on_policy: bool = False
) -> Minibatch:
    """The first mini-batch that the training loop would make of these groups."""
    samples = algo.credit(groups, policy, NOW)
    config: Any = SimpleNamespace(seed=0, steps=1)
    return replace(next(iter(schedule(config, algo, groups, samples, Now(step, 1)))), on_policy=on_policy)


def once(samples: Sequence[Sample], whole_units: bool) -> list[Minibatch]:
    """An epoch of one mini-batch."""
    return [Minibatch(list(samples), 1.0, step=1, on_policy=True, whole_units=whole_units)]


def gradient(policy: LocalLearner, minibatch: Minibatch, loss: Any) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Every parameter's gradient (zero where there is none) and the metrics."""
    policy.optimizer.zero_grad()
    metrics = policy.gradient(minibatch, loss)
    grads = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in policy.parameters.items()}
    policy.optimizer.zero_grad()
    return grads, metrics


def assert_close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], rtol: float = 1e-4) -> None:
    """Equal up to float32 rounding, measured against each tensor's own size; and not both zero everywhere."""
    assert any(tensor.any() for tensor in a.values()), "there is no gradient to compare"
    for name, tensor in a.items():
        torch.testing.assert_close(tensor, b[name], rtol=0, atol=rtol * tensor.abs().max().item() + 1e-9, msg=name)


def weights(policy: LocalLearner) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in policy.parameters.items()}


def with_known(
    samples: Sequence[Sample], columns: Sequence[str], known: Callable[[Sample], Mapping[str, Any]]
) -> list[Sample]:
    """What `Learner.read` returns when `known` says what stands in a sample's columns."""
    return [sample.with_columns(**{name: known(sample)[name] for name in columns}) for sample in samples]


def changed(sample: Sample, place: int, **columns: Any) -> Sample:
    """The sample with one entry of the named columns replaced."""
    entries = np.arange(len(sample.ids)) == place
    return replace(sample, **{name: np.where(entries, x, getattr(sample, name)) for name, x in columns.items()})


def turn(context: tuple[int, ...], action: tuple[int, ...], restarts_context: bool = False) -> Turn:
    return Turn((), context, Message("assistant", ""), action, (0.0,) * len(action), restarts_context=restarts_context)


EXPERT = Trajectory(TASK, 7, (turn((1, 2), (3,)), turn((4,), (5, 6)), turn((7,), (8,))), 1.0, True, StopReason.FINISHED)
EXPERT = replace(EXPERT, expert=True)


def own(number: int, turns: int, action: tuple[int, ...], of: Trajectory = EXPERT) -> Trajectory:
    """An action that was practised instead of the last of so many turns of the expert's."""
    said = replace(of.turns[turns - 1], action_ids=action, action_logprobs=(-1.0,) * len(action))
    return Trajectory(TASK, number, (*of.turns[: turns - 1], said), 0.0, False, StopReason.PRACTISED)
