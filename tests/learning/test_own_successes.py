"""Methods that imitate their own successes improve on the same short imitation of an expert, measured by playing every
few steps. A run ends when it is better by 30 of 100, of which an evaluation's standard error is 4."""

from pathlib import Path

import pytest

from tests.learning.test_pairs import improvement, success
from tests.support.helpers import imitated, train

GAME = ["eval.every=5", "eval.attempts=40", "tasks_per_step=6"]
BETTER = 0.3
METHODS = {
    "ei": ["steps=60", "save.every=60", "algo.k=8", "algo.lr=2e-3"],
    "rft": ["steps=3", "save.every=3", "algo.epochs=20", "algo.k=20", "algo.lr=1e-3"],
    "nat": ["steps=50", "save.every=50", "algo.k=2", "algo.lr=3e-3"],
}
"""The papers' settings, but for the learning rates that a tiny model needs."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return imitated(tmp_path_factory.mktemp("start"))


@pytest.mark.parametrize("method", METHODS)
def test_improves_on_its_start(method: str, start: str, tmp_path: Path) -> None:
    settings = [f"algo.name={method}", f"model.path={start}", *GAME, *METHODS[method]]
    *_, steps = train(tmp_path, *settings, seen=lambda steps: improvement(steps) >= BETTER)
    assert 0.15 < success(steps)[0] < 0.5
    assert improvement(steps) >= BETTER, success(steps)
    trained = [step for step in steps if "update" in step]
    assert not any(step["guard"] for step in trained)
    assert ("kl" in trained[0]["update"]) == (method == "ei"), "only EI's actions are the policy's at its temperature"


def test_sft_gt_learns_the_words_by_heart(start: str, tmp_path: Path) -> None:
    _, _, steps = train(
        tmp_path, "algo.name=sft_gt", "algo.lr=3e-3", "steps=30", "save.every=30", f"model.path={start}"
    )
    losses = [step["update"]["loss"] for step in steps]
    assert steps[0]["success"] == 1.0, "the demonstrations are the expert's"
    assert losses[-1] < 0.75 * losses[0] and not any(step["guard"] for step in steps)
