"""Gradients through a transformer against an independent float64 model and the losses as the papers write them.

The learner's side is the real one: `credit` on groups, mini-batches, packing with shared openings, attention, chunks of
logits, the loss. The other side shares no code with it: `Plain` is a Llama in a few lines that reads one sequence at a
time, the losses below are loops over trajectories, and autograd does the rest.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from longloop.algos.dapo import Dapo
from longloop.algos.dmpo import Dmpo
from longloop.algos.dpo import Dpo
from longloop.algos.dr_grpo import DrGrpo
from longloop.algos.grpo import Grpo
from longloop.algos.gspo import Gspo
from longloop.algos.loop import Loop
from longloop.algos.ppo import Ppo
from longloop.algos.reduce import to_samples
from longloop.algos.reinforce import Reinforce
from longloop.algos.rloo import Rloo
from longloop.learners.batching import pack
from longloop.learners.local import LocalLearner
from longloop.training import schedule
from longloop.types import Group, Message, Now, StopReason, Trajectory, Turn
from tests.support.samples import CPU, NOW, TASK, assert_close, learner, sampled

TEMPERATURE = 0.7
PIECES = [(0, 10**6), (4, 150)]
"""LoRA rank (0: all weights), and tokens in a micro-batch."""


class Plain:
    """The tiny model of model/tiny.py in float64: log-probs and values of one sequence at a time."""

    def __init__(self, of: LocalLearner) -> None:
        self.config = of.policy.module.config
        everything = dict(of.policy.module.named_parameters()) | of.parameters
        self.weights = {name: p.detach().double().requires_grad_() for name, p in everything.items()}
        lora = of.policy.config
        self.scale = lora.lora_alpha / lora.lora_rank if lora.lora_rank else 0.0
        self.adapters = True

    def without_adapters(self) -> "Plain":
        self.adapters = False
        return self

    def linear(self, name: str, x: Tensor) -> Tensor:
        if f"{name}.weight" in self.weights:
            return x @ self.weights[f"{name}.weight"].T
        out = x @ self.weights[f"{name}.base_layer.weight"].T
        if not self.adapters:
            return out
        a, b = (self.weights[f"{name}.lora_{half}.default.weight"] for half in "AB")
        return out + self.scale * (x @ a.T @ b.T)

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps).sqrt() * self.weights[name]

    def hidden(self, ids: Sequence[int]) -> Tensor:
        config, length = self.config, len(ids)
        heads, of_keys = config.num_attention_heads, config.num_key_value_heads
        size = config.hidden_size // heads
        angle = torch.arange(length).double()[:, None] * 10000.0 ** -(torch.arange(0, size, 2).double() / size)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

        def rotated(x: Tensor) -> Tensor:
            one, other = x.chunk(2, -1)
            return x * cos + torch.cat([-other, one], -1) * sin

        x = self.weights["model.embed_tokens.weight"][list(ids)]
        future = torch.ones(length, length).triu(1).bool()
        for number in range(config.num_hidden_layers):
            layer = f"model.layers.{number}"
            y = self.norm(f"{layer}.input_layernorm.weight", x)
            q, k, v = (self.linear(f"{layer}.self_attn.{name}_proj", y) for name in "qkv")
            mixed = []
            for head in range(heads):
                mine, theirs = (slice(n * size, (n + 1) * size) for n in (head, head * of_keys // heads))
                scores = rotated(q[:, mine]) @ rotated(k[:, theirs]).T / math.sqrt(size)
                mixed.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v[:, theirs])
            x = x + self.linear(f"{layer}.self_attn.o_proj", torch.cat(mixed, -1))
            y = self.norm(f"{layer}.post_attention_layernorm.weight", x)
            gate, up = (self.linear(f"{layer}.mlp.{name}_proj", y) for name in ("gate", "up"))
            x = x + self.linear(f"{layer}.mlp.down_proj", gate * gate.sigmoid() * up)
        return self.norm("model.norm.weight", x)

    def turns(self, trajectory: Trajectory, column: Callable[[Tensor, Sequence[int]], Tensor]) -> list[Tensor]:
        """For each turn a column over its action tokens. The sequence is what the turns say, one after another."""
        rows = []
        ids: tuple[int, ...] = ()
        for turn in trajectory.turns:
            ids = (*(() if turn.restarts_context else ids), *turn.context_ids)
            whole = (*ids, *turn.action_ids)
            at = slice(len(ids) - 1, len(whole) - 1)
            rows.append(column(self.hidden(whole)[at], turn.action_ids))
            ids = whole
        return rows

    def logp(self, trajectory: Trajectory) -> list[Tensor]:
        def column(hidden: Tensor, ids: Sequence[int]) -> Tensor:
            logits = self.linear("lm_head", hidden) / TEMPERATURE
            return logits.log_softmax(-1)[range(len(ids)), list(ids)]

        return self.turns(trajectory, column)

    def values(self, trajectory: Trajectory) -> Tensor:
        """The head reads the policy's hidden states, and its loss does not reach the policy."""

        def column(hidden: Tensor, ids: Sequence[int]) -> Tensor:
            x = hidden.detach()
            for layer in (0, 2, 4):
                x = x @ self.weights[f"value_head.{layer}.weight"].T + self.weights[f"value_head.{layer}.bias"]
                x = x if layer == 4 else x.clamp(min=0)
            return x[:, 0]

        return torch.cat(self.turns(trajectory, column))


def old(trajectory: Trajectory) -> list[Tensor]:
    return [torch.tensor(turn.action_logprobs, dtype=torch.float64) for turn in trajectory.turns]


# --- what is trained on ---


def trajectory(number: int, opening: int, length: int, sizes: Sequence[int], reward: float, fresh: int = -1) -> Any:
    """Opens with `length` tokens that all attempts with this `opening` share; the turn `fresh` begins a new stretch."""
    shared, mine = random.Random(opening), random.Random(f"{opening}/{number}")
    turns = []
    for place, size in enumerate(sizes):
        chance, count = (shared, length) if place == 0 else (mine, 80 if place == fresh else 2 + place)
        context = tuple(chance.randrange(1, 45) for _ in range(count))
        action = tuple(mine.randrange(1, 45) for _ in range(size))
        turns.append(
            Turn((), context, Message("assistant", ""), action, (0.0,) * size, restarts_context=place == fresh)
        )
    return Trajectory(TASK, number, tuple(turns), reward, reward == 1.0, StopReason.FINISHED)


def groups() -> list[Group]:
    """Shared openings, turns and attempts of unequal length, two stretches, one attempt spoilt by its environment."""
    first = (
        trajectory(0, 1, 70, (2, 3), 1.0),
        trajectory(1, 1, 70, (4,), 0.0),
        replace(trajectory(2, 1, 70, (3,), 0.0), stop=StopReason.ENV_ERROR),
        trajectory(3, 1, 70, (1, 2, 3), 0.75, fresh=2),
    )
    second = (
        trajectory(0, 2, 9, (3, 5), 0.25),
        trajectory(1, 2, 9, (4,), 0.75),
        trajectory(2, 2, 9, (2, 1, 1, 2), 0.0),
    )
    return [Group(TASK, first), Group(TASK, second)]


def with_expert() -> list[Group]:
    """An expert's attempt in two stretches beside own ones, one of them paid as much; and a group without an expert."""
    expert = replace(trajectory(9, 1, 70, (3, 2, 1), 1.0, fresh=1), expert=True)
    own = trajectory(0, 1, 70, (2, 3), 0.5), trajectory(1, 1, 70, (4,), 0.0), trajectory(2, 1, 70, (1, 2), 1.0)
    return [Group(TASK, (expert, *own)), Group(TASK, (trajectory(0, 2, 9, (3, 5), 0.25),))]


# --- the papers' losses ---


def scored(group: Group) -> list[Trajectory]:
    good = (StopReason.FINISHED, StopReason.MAX_TURNS, StopReason.CONTEXT_FULL)
    return [t for t in group.trajectories if t.stop in good]


def compared(groups: list[Group], how: str) -> list[tuple[Trajectory, float]]:
    """Each scored attempt with its advantage in its group."""
    pairs = []
    for group in groups:
        rewards = [t.reward for t in scored(group)]
        mean = sum(rewards) / len(rewards)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        for number, t in enumerate(scored(group)):
            others = rewards[:number] + rewards[number + 1 :]
            advantage = {
                "leave one out": t.reward - sum(others) / len(others),
                "standardized": (t.reward - mean) / (deviation + 1e-6),
                "centered": t.reward - mean,
            }[how]
            pairs.append((t, advantage))
    return pairs


def clipped(ratio: Tensor, advantage: float, low: float, high: float) -> Tensor:
    """min(r A, clip(r) A)"""
    return torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def loop(unit: str) -> Callable[..., Any]:
    """Equations 8 to 10 of LOOP, with the authors' lower clip 1 / (1 + eps)."""

    def objective(now: Plain, before: Plain, groups: list[Group]) -> Any:
        total: Any = 0.0
        for t, advantage in compared(groups, "leave one out"):
            change = [new - then for new, then in zip(now.logp(t), old(t), strict=True)]
            tokens = torch.cat(change)
            ratios = {"token": list(tokens), "turn": [c.sum() for c in change], "trajectory": [tokens.sum()]}[unit]
            total += sum(clipped(r.exp(), advantage, 1 / 1.1, 1.1) for r in ratios) / len(ratios)
        return total / 4

    return objective


def grpo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """Equation 3 of DeepSeekMath with its unbiased estimate of the KL divergence (equation 4)."""
    total: Any = 0.0
    for t, advantage in compared(groups, "standardized"):
        new, then, reference = (torch.cat(rows) for rows in (now.logp(t), old(t), before.logp(t)))
        divergence = (reference - new).exp() - (reference - new) - 1
        total += (clipped((new - then).exp(), advantage, 0.8, 1.2) - 0.3 * divergence).mean()
    return total / 4


def gspo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """Equations 5 to 7 of GSPO."""
    total: Any = 0.0
    for t, advantage in compared(groups, "standardized"):
        change = torch.cat(now.logp(t)) - torch.cat(old(t))
        total += clipped((change.sum() / len(change)).exp(), advantage, 0.97, 1.04)
    return total / 4


def dr_grpo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    total: Any = 0.0
    for t, advantage in compared(groups, "centered"):
        total += clipped((torch.cat(now.logp(t)) - torch.cat(old(t))).exp(), advantage, 0.8, 1.2).sum() / 50
    return total / 4


def rloo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    return sum(a * torch.cat(now.logp(t)).sum() for t, a in compared(groups, "leave one out")) / 4


def reinforce(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """The baseline is the mean of all other attempts of the step."""
    attempts = [t for group in groups for t in scored(group)]
    total, others = sum(t.reward for t in attempts), len(attempts) - 1
    return sum((t.reward - (total - t.reward) / others) * torch.cat(now.logp(t)).sum() for t in attempts) / 4


def dapo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """Equation 8 of DAPO: a mean over the tokens of all attempts, and a wider upper clip."""
    tokens = [
        clipped(ratio, advantage, 0.9, 1.14)
        for t, advantage in compared(groups, "standardized")
        for ratio in (torch.cat(now.logp(t)) - torch.cat(old(t))).exp()
    ]
    return sum(tokens) / len(tokens)


def ppo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """GAE over action tokens with gamma = 0.9 and lambda = 0.8; at step 51 of 200 the value loss counts 0.07525."""
    total: Any = 0.0
    for group in groups:
        for t in scored(group):
            value = now.values(t)
            known = [min(max(v, 0.0), 1.0) for v in value.tolist()]
            steps = len(known)
            delta = [(t.reward if i == steps - 1 else 0.9 * known[i + 1]) - known[i] for i in range(steps)]
            advantage = [sum(0.72 ** (j - i) * delta[j] for j in range(i, steps)) for i in range(steps)]
            ratio = (torch.cat(now.logp(t)) - torch.cat(old(t))).exp()
            error = value - torch.tensor([a + v for a, v in zip(advantage, known, strict=True)])
            policy = sum(clipped(r, a, 0.9, 1.1) for r, a in zip(ratio, advantage, strict=True))
            total += (policy - 0.07525 * error.square().sum() / 2) / steps
    return total / 4


def dpo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """Equation 7 of DPO: the expert's attempt against each own one that was paid less."""
    expert, *own = groups[0].trajectories
    total: Any = 0.0
    for worse in own[:2]:
        gain, loss = (torch.cat(now.logp(t)).sum() - torch.cat(before.logp(t)).sum() for t in (expert, worse))
        total += torch.sigmoid(0.4 * (gain - loss)).log()
    return total / 4


def dmpo(now: Plain, before: Plain, groups: list[Group]) -> Any:
    """Equation 14 of DMPO with gamma = 0.7, for every two own attempts of which one was paid more."""
    own = groups[0].trajectories[1:]

    def weighted(t: Trajectory) -> Any:
        turns = len(t.turns)
        phi = [0.7**u * (1 - 0.7 ** (turns - u)) / (1 - 0.7**turns) for u in range(turns)]
        rows = zip(phi, now.logp(t), before.logp(t), strict=True)
        return sum(weight * (new - reference).sum() for weight, new, reference in rows)

    pairs = [(better, worse) for better in own for worse in own if better.reward > worse.reward]
    return sum(torch.sigmoid(0.4 * (weighted(better) - weighted(worse))).log() for better, worse in pairs) / 4


# --- the comparison ---


def moved(model: LocalLearner) -> None:
    """Other weights than those it began with, adapters above all: a zero half would hide the other's gradient."""
    torch.manual_seed(7)
    with torch.no_grad():
        for p in model.parameters.values():
            p += 0.05 * torch.randn_like(p)


def all_gradients(model: LocalLearner, algo: Any, groups: list[Group], samples: Any, step: int) -> Any:
    """The sum over the mini-batches of one epoch, and the share of clipped ratios in each."""
    config: Any = SimpleNamespace(seed=0, steps=200)
    minibatches = [replace(m, on_policy=False) for m in schedule(config, algo, groups, samples, Now(step, 200))]
    model.optimizer.zero_grad()
    metrics = [model.gradient(m, algo.loss) for m in minibatches]
    return {name: p.grad.double() for name, p in model.parameters.items() if p.grad is not None}, metrics


def assert_is(objective: Any, now: Plain, found: dict[str, Tensor]) -> None:
    """Every trained parameter's gradient is that of minus the objective."""
    expected = torch.autograd.grad(-objective, [now.weights[name] for name in found])
    assert_close(dict(zip(found, expected, strict=True)), found)


SETTINGS: dict[str, Any] = {"k": 4, "epochs": 1, "minibatch": 4}
METHODS: dict[str, tuple[Any, Any]] = {
    "loop token": (Loop(**SETTINGS, clip=0.1), loop("token")),
    "loop turn": (Loop(**SETTINGS, clip=0.1, ratio="turn"), loop("turn")),
    "loop trajectory": (Loop(**SETTINGS, clip=0.1, ratio="trajectory"), loop("trajectory")),
    "grpo": (Grpo(**SETTINGS, clip=0.2, kl=0.3), grpo),
    "gspo": (Gspo(**SETTINGS, clip_low=0.03, clip_high=0.04), gspo),
    "dr_grpo": (DrGrpo(**SETTINGS, clip=0.2, divisor=50.0), dr_grpo),
    "rloo": (Rloo(**SETTINGS), rloo),
    "reinforce": (Reinforce(**SETTINGS), reinforce),
    "dapo": (Dapo(**SETTINGS | {"minibatch": 6}, clip_low=0.1, clip_high=0.14), dapo),
    "ppo": (Ppo(**SETTINGS, clip=0.1, gamma=0.9, lam=0.8, warmup=10), ppo),
}


@pytest.mark.parametrize(("rank", "micro_tokens"), PIECES)
@pytest.mark.parametrize("method", METHODS)
def test_the_gradient_is_the_papers(method: str, rank: int, micro_tokens: int) -> None:
    """Ratios differ from 1 and some are clipped; six attempts in two mini-batches of four and two."""
    algo, objective = METHODS[method]
    model = learner(algo, lora=rank, temperature=TEMPERATURE, micro_tokens=micro_tokens)
    before = Plain(model)
    moved(model)
    now, attempts = Plain(model), sampled(groups(), model, shift=0.15)
    found, metrics = all_gradients(model, algo, attempts, algo.credit(attempts, model, NOW), step=51)
    assert len(metrics) == (1 if method == "dapo" else 2) and len(found) == len(model.parameters)
    if method not in ("rloo", "reinforce"):
        assert 0 < sum(values["clipped"] for values in metrics) < 2, "some ratios must be clipped, and some not"
    assert_is(objective(now, before, attempts), now, found)


@pytest.mark.parametrize(("rank", "micro_tokens"), PIECES)
@pytest.mark.parametrize(
    ("algo", "objective"),
    [
        (Dpo(k=3, epochs=1, minibatch=4, beta=0.4), dpo),
        (Dmpo(k=3, epochs=1, minibatch=4, beta=0.4, gamma=0.7, gap=0.0), dmpo),
    ],
    ids=["dpo", "dmpo"],
)
def test_the_gradient_of_pairs_is_the_papers(algo: Any, objective: Any, rank: int, micro_tokens: int) -> None:
    """The reference is the policy that `credit` asked; then it moved, so that margins differ from 0."""
    model = learner(algo, lora=rank, temperature=TEMPERATURE, micro_tokens=micro_tokens)
    before, attempts = Plain(model), with_expert()
    samples = algo.credit(attempts, model, NOW)
    moved(model)
    now = Plain(model)
    found, (metrics,) = all_gradients(model, algo, attempts, samples, step=1)
    assert len(found) == len(model.parameters) and abs(metrics["margin"]) > 0.01
    assert_is(objective(now, before, attempts), now, found)


@pytest.mark.parametrize("rank", [0, 4])
def test_the_reference_is_the_model_before_training(rank: int) -> None:
    """Adapters off, or the second copy: log-probs by the plain model with the weights it began with."""
    model = learner(Grpo(), lora=rank, temperature=TEMPERATURE)
    before = Plain(model)
    moved(model)
    for plain in (before, *([Plain(model).without_adapters()] if rank else [])):
        for t in groups()[0].trajectories:
            samples = model.read(to_samples(t, 0, 1.0, 1.0), "reference")
            found = [x for s in samples for x in s.columns["reference"][s.mask].tolist()]
            assert found == pytest.approx(torch.cat(plain.logp(t)).tolist(), abs=1e-5)
            now = [x for s, row in zip(samples, model.logprobs(samples), strict=True) for x in row if x]
            assert now == pytest.approx(torch.cat(Plain(model).logp(t)).tolist(), abs=1e-5)
            assert now != pytest.approx(found, abs=1e-3)


def test_the_attempts_share_an_opening() -> None:
    """Or the comparison would not see how shared openings are laid out."""
    samples = [s for t in groups()[0].trajectories for s in to_samples(t, 0, 1.0, 1.0)]
    packed = pack(samples, 1, CPU)
    assert packed.after.count(0) == 4 and packed.lengths[0] == 69
    assert [s.stretch for s in samples].count(1) == 1
