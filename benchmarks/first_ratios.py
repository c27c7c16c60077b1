"""The share of its units that each method clips at the first mini-batch, before any weight has moved.

    .venv/bin/python benchmarks/first_ratios.py                              float32, on a CPU
    .venv/bin/python benchmarks/first_ratios.py --model novice smollm2       bfloat16, on a GPU

Real attempts at Errands, sampled by the engine. Every ratio should be 1, so nothing should be clipped: first with the
sampler's log-probs as the old ones, then with those that the learner chooses (learners/agreement.py). Rewards are drawn
by lot, so that every attempt has an advantage whichever model plays.
"""

import argparse
import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from longloop import build
from longloop.algos.base import Algorithm
from longloop.config import Config, LearnerConfig, resolve
from longloop.learners.batching import minibatches
from longloop.learners.local import LocalLearner
from longloop.model.policy import Policy, load
from longloop.rollout.groups import GroupRollouts
from longloop.types import Group, Minibatch, Now, Sample, SamplingParams, Start, Trajectory

METHODS: list[dict[str, Any]] = [
    {"name": "loop", "ratio": "token"},
    {"name": "loop", "ratio": "turn"},
    {"name": "loop", "ratio": "trajectory"},
    {"name": "grpo"},
    {"name": "dr_grpo"},
    {"name": "dapo"},
    {"name": "gspo"},
    {"name": "ppo"},
    {"name": "turn_ppo"},
    {"name": "gigpo"},
    {"name": "bapo"},
    {"name": "aspo"},
    {"name": "capo"},
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["novice"])
    parser.add_argument("--lora", type=int, nargs="+", default=[0])
    parser.add_argument("--compile", action="store_true", help="compile the engine's passes and the update")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--attempts", type=int, default=8)
    options = parser.parse_args()
    print("| model | LoRA | method | units in the first mini-batch | sampler's: clipped | used | clipped |")
    print("|---|---|---|---|---|---|---|")
    for model in options.model:
        for lora in options.lora:
            for line in measured(model, lora, options):
                print(line, flush=True)


def measured(model: str, lora: int, options: Any) -> Iterator[str]:
    config = resolve(
        {
            "env": {"name": "errands", "difficulty": 1, "example": False},
            "model": {"path": model, "lora_rank": lora, "dtype": options.dtype},
            "engine": {"name": "native"} | ({"compile": True} if options.compile else {}),
            "rollout": {
                "max_turns": 8,
                "turn_tokens": 96,
                "context": 2048,
                "concurrency": 128,
                "straggler_cutoff": 1.0,
            },
        },
        "this benchmark",
    )
    world = build.world(config)
    rollouts = GroupRollouts(build.rollout_context(config, world, policy_of(config), SamplingParams()), "ratios")
    starts = [Start(task) for task in world.tasks("train")[: options.tasks]]
    groups = paid(asyncio.run(rollouts.play(starts, options.attempts, seed=0)))
    learner_config = LearnerConfig(compile=options.compile)
    for method in METHODS:
        algo = build.algorithm(config.model_copy(update={"algo": method | {"k": options.attempts}}))
        learner = LocalLearner(policy_of(config), algo.needs, learner_config, 1.0, config.seed)
        samples = algo.credit(groups, learner, Now(1, 1))
        chosen = learner.with_behavior_logprobs(epoch(algo, samples), algo.loss, lambda text: None)
        assert learner.agreement is not None
        old = learner.agreement.old
        name = " ".join(str(value) for value in method.values())
        units, before = clipped(algo, learner, samples)
        _, after = clipped(algo, learner, chosen)
        yield f"| {model} | {lora} | {name} | {units} | {before:.2%} | the {old}'s | {after:.2%} |"


def policy_of(config: Config) -> Policy:
    """A model as after some training: fresh adapters would add nothing."""
    policy = load(config.model, config.seed)
    torch.manual_seed(0)
    for name, parameter in policy.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.01)
    return policy


def paid(groups: list[Group]) -> list[Group]:
    """The same attempts, half of them successes by lot."""
    chance = random.Random(0)

    def one(trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, reward=float(chance.random() < 0.5)) if trajectory.stop.scored else trajectory

    return [Group(group.task, tuple(map(one, group.trajectories))) for group in groups]


def epoch(algo: Algorithm, samples: list[Sample]) -> list[Minibatch]:
    """The step's first epoch, past any warm-up."""
    late = 10**9
    how: dict[str, Any] = {"average": algo.average, "whole_units": algo.whole_units, "step": late}
    return list(minibatches(samples, algo.minibatch or late, **how, epoch=0, seed=0))


def clipped(algo: Algorithm, learner: LocalLearner, samples: list[Sample]) -> tuple[int, float]:
    """How many units the first mini-batch has, and which share of them the loss clips. No weight changes."""
    counted = 0

    def loss(scored: Any, batch: Any) -> Any:
        nonlocal counted
        total, metrics = algo.loss(scored, batch)
        counted += metrics["clipped"][1]
        return total, metrics

    values = learner.gradient(replace(epoch(algo, samples)[0], on_policy=False), loss)
    learner.optimizer.zero_grad()
    return counted, values["clipped"]


if __name__ == "__main__":
    main()
