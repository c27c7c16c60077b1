"""Every composed method learns a small game: from where it starts to a stated success in a stated number of steps."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.support.helpers import train

LEARNS: dict[str, list[str]] = {
    "compose": [],
    # rollouts and branches
    "vineppo": ["algo.m=3", "algo.kl=0.0", "tasks_per_step=3", "algo.lr=8e-3"],
    "pav": ["algo.m=2", "tasks_per_step=3", "algo.lr=5e-3"],
    "arpo": ["algo.first=4", "algo.epochs=2", "algo.minibatch=24", "algo.lr=5e-3"],
    # Only every other step learns to act: with 8 attempts it is too slow at a rate of 4e-3, and unstable at 6e-3.
    "himac": ["rollout.context=256", "algo.kl=0.0", "algo.k=16", "algo.lr=5e-3", "algo.epochs=2", "algo.minibatch=48"],
    "critique_grpo": ["rollout.context=512", "algo.minibatch=16", "algo.lr=5e-3"],
    "drpo": ["algo.k=12", "algo.kl=0.02"],
    # turns and critics
    "gigpo": ["algo.kl=0.0"],
    "igpo": ["algo.kl=0.0", "algo.prefix=", "algo.normalize=split"],
    "gtpo": ["algo.kl=0.0"],
    "turn_ppo": ["algo.warmup=2"],
    "reinforce_value": ["algo.warmup=0", "algo.lr=6e-3"],
    "tppo": ["algo.warmup=2"],
    "digirl": [],
    "eapo": [
        *("env.name=tests.support.rebuilt:RebuiltGuess", "rollout.context=256"),
        *("algo.epochs=2", "algo.minibatch=24", "algo.clip_low=0.2", "algo.clip_high=0.28"),
    ],
    "archer": ["algo.critic_steps=50", "algo.replay=1", "algo.lr=6e-3"],
    "bnpo": [],
    "riskpo": ["algo.bundle=3", "algo.rate=0.3", "algo.k=16", "algo.minibatch=48", "algo.lr=6e-3"],
    # shapes, rewards and tasks
    "empg": ["algo.lr=6e-3"],
    "seed_grpo": ["algo.lr=6e-3"],
    "aspo": ["algo.behavior='[123]'", "algo.epochs=2", "algo.minibatch=24"],
    "aepo": [],
    "ettrl": ["algo.votes=0.1"],  # without labels: test_shapes_rewards_tasks.py
    "empo": ["algo.votes=0.1", "algo.epochs=2", "algo.minibatch=24"],
    "otc": ["algo.kl=0.0", "algo.epochs=2", "algo.minibatch=24"],
    "ares": ["algo.kl=0.0", "algo.epochs=2", "algo.minibatch=24"],
    "dump": ["algo.kl=0.0", "algo.epochs=2", "algo.minibatch=24"],
    "scaling_inter": ["algo.kl=0.0", "algo.epochs=2", "algo.minibatch=24", "algo.rounds=[1,2]", "algo.every=8"],
    # choices, objectives and holds
    "cispo": [],
    "bapo": [],
    "nft": ["algo.divisor=2"],
    "clip_cov": [],
    "kl_cov": [],
    "d3s": [],
    "tis": [],
    "mis": [],
    "trm": [],
    "capo": [],
    "steer": [],
    "epo": [],
    "siren": ["algo.divisor=2", "algo.lr=6e-3"],
    "lp_reg": ["algo.lr=1e-2"],
    "demo_rl": [],
    "aepo_entropy": [],
    "inpo": ["algo.minibatch=8", "algo.epochs=2"],
}
"""Name -> settings that differ from the common ones."""
COMMON = [
    "algo.k=8",
    "tasks_per_step=6",
    "rollout.turn_tokens=1",
    "algo.lr=4e-3",
    "eval.every=0",
    "steps=60",
    "save.every=60",
]
TWO_LAYERS = {"vineppo", "pav", "himac", "critique_grpo", "gigpo", "eapo", "cispo", "inpo"}
"""These need both layers of the tiny model to learn in time; the others get one, which is faster."""
START, END = 0.25, 0.6
"""At most this success in the first three steps; at least this much, on average, in five steps in a row within 60."""


def learned(steps: list[dict[str, Any]]) -> bool:
    return len(steps) >= 5 and fmean(step["success"] for step in steps[-5:]) >= END


@pytest.mark.parametrize("name", LEARNS)
def test_it_learns_the_guessing_game(tmp_path: Path, name: str) -> None:
    layers = f"model.layers={1 + (name in TWO_LAYERS)}"
    *_, steps = train(tmp_path, f"algo.name={name}", layers, *COMMON, *LEARNS[name], seen=learned)
    assert fmean(step["success"] for step in steps[:3]) <= START
    assert learned(steps), [round(step["success"], 2) for step in steps]
