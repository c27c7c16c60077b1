"""Methods that learn from pairs improve on the same short imitation, measured by playing every few steps.

A run ends when it is better by 15 of 100. The start wins 26 of 100, with a standard error of 3 in an evaluation's 240
attempts and of 4 in the difference of two: without learning, fewer than 1 evaluation in 5,000 would pass for it.
"""

from typing import Any

import pytest

from tests.support.helpers import imitated, train

GAME = ["rollout.turn_tokens=2", "eval.every=5", "eval.attempts=80"]
BETTER = 0.15
METHODS = {
    "dpo": ["steps=30", "tasks_per_step=3", "algo.k=8", "algo.lr=1.5e-3", "algo.minibatch=8"],
    "eto": ["steps=12", "tasks_per_step=3", "algo.k=8", "algo.lr=2e-3", "algo.minibatch=8"],
    "spin": ["steps=12", "tasks_per_step=3", "algo.k=8", "algo.lr=2e-3", "algo.minibatch=8"],
    "dmpo": [
        *("steps=80", "eval.every=10", "tasks_per_step=6", "algo.k=6", "algo.lr=1e-3"),
        *("algo.epochs=1", "algo.minibatch=64", "algo.weight_decay=0.01"),
    ],
    "tree_dpo": ["steps=25", "tasks_per_step=6", "algo.k=12", "algo.lr=5e-4", "algo.minibatch=8"],
    "mcts_ipl": [
        *("steps=30", "tasks_per_step=12", "algo.k=24", "algo.lr=1e-3", "algo.minibatch=0"),
        *("algo.epochs=2", "algo.beta=0.5", "algo.explore=3"),
    ],
    "agent_q": [
        *("steps=30", "tasks_per_step=12", "algo.k=12", "algo.lr=1e-3", "algo.minibatch=0", "algo.epochs=2"),
        *("algo.beta=0.5", "algo.alpha=0.8", "rollout.context=512"),
    ],
}
"""The papers' settings are for large models; a tiny one needs larger steps. The first three have the expert beside
them, the others only their own attempts."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return imitated(tmp_path_factory.mktemp("start"))


def success(steps: list[dict[str, Any]]) -> list[float]:
    """Of the evaluations, the first of which is that of the start."""
    return [step["eval"]["success"] for step in steps if "eval" in step]


def improvement(steps: list[dict[str, Any]]) -> float:
    """From the start to the last evaluation."""
    return success(steps)[-1] - success(steps)[0]


@pytest.mark.parametrize("method", METHODS)
def test_improves_on_its_start(method: str, start: str, tmp_path) -> None:
    settings = [f"algo.name={method}", f"model.path={start}", *GAME, *METHODS[method]]
    *_, steps = train(tmp_path, *settings, seen=lambda steps: improvement(steps) >= BETTER)
    assert 0.15 < success(steps)[0] < 0.75
    assert improvement(steps) >= BETTER, success(steps)
