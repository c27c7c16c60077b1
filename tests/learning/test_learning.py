"""Every algorithm must learn: from random weights, in at most 90 steps, a guessing game that chance wins 1 time in 10.

The number is 1, 2 or 3 and there are two tries, so that only an agent that listens to "higher" and "lower" wins
always: without listening, 2 of 3 games are won at best. Success is the mean of five steps' 240 training attempts, at
temperature 1; a run that has it ends, after 25 to 55 steps.
"""

from statistics import fmean
from typing import Any

import pytest

from tests.support.helpers import train

STEPS = 90
START = 0.25
"""At most this much at the start, mean of the first five steps ..."""
END = 0.85
"""... and at least this much at the end, mean of the last five."""

VARIANTS = {
    "loop": [],
    "loop turn": ["algo.ratio=turn", "rollout.turn_tokens=2"],
    "loop trajectory": ["algo.ratio=trajectory"],
    "reinforce": ["algo.lr=4e-3"],
    "rloo": ["algo.lr=4e-3"],
    "grpo": ["algo.lr=6e-3", "algo.kl=0.001"],
    "dr_grpo": ["algo.lr=6e-3", "algo.divisor=4.0"],
    "dapo": ["algo.tries=3"],
    "gspo": ["algo.clip_low=0.1", "algo.clip_high=0.1", "algo.lr=5e-3", "algo.epochs=2", "algo.minibatch=32"],
    "ppo": ["algo.warmup=3", "algo.lr=4e-3"],
}
"""The papers' settings are for large models and thousands of tokens; what is changed for so few is listed."""


def learned(steps: list[dict[str, Any]]) -> bool:
    return len(steps) >= 5 and fmean(step["success"] for step in steps[-5:]) >= END


@pytest.mark.parametrize("variant", VARIANTS)
def test_learns_the_guessing_game(variant, tmp_path):
    name = variant.split()[0]
    game = ["algo.k=8", "tasks_per_step=6", "rollout.turn_tokens=1", "model.layers=1"]
    settings = [*game, "algo.lr=3e-3", f"steps={STEPS}", f"save.every={STEPS}", *VARIANTS[variant]]
    _, _, steps = train(tmp_path, f"algo.name={name}", *settings, seen=learned)
    success = [step["success"] for step in steps]
    assert fmean(success[:5]) <= START
    assert learned(steps), [round(fmean(success[i : i + 5]), 2) for i in range(0, len(success), 5)]
    worst = max(step["update"]["ratio_gap"] for step in steps if step["updates"])
    assert worst < 1e-4, f"engine and learner must agree at the first update of every step, but |ratio - 1| = {worst}"
