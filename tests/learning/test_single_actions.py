"""From a novice that has seen a little of the expert, practising the expert's actions makes a better one.

Twenty steps of imitation win the guessing game in two of five cases. Neither method then plays it: they learn from the
expert's states alone, and are measured by playing every four steps, until they win four of five.
"""

import pytest

from tests.learning.test_pairs import success
from tests.support.helpers import train

START = ["algo.name=sft", "algo.k=1", "algo.lr=3e-3", "algo.warmup=0.0", "steps=20", "save.every=20", "name=start"]
NEXT = ["name=next", "steps=30", "save.every=30", "tasks_per_step=6", "eval.every=4", "eval.attempts=40"]
WINS = 0.8

VARIANTS = {
    "implicit": ["algo.name=stepagent_implicit", "algo.k=1", "algo.lr=2e-3"],
    "inverse": [
        "algo.name=stepagent_inverse",
        "algo.lr=1e-3",
        "algo.practice=12",
        "algo.head_lr=1e-2",
        "algo.head_steps=100",
    ],
    "inverse with the final reward": [
        "algo.name=stepagent_inverse",
        "algo.lr=1e-3",
        "algo.practice=12",
        "algo.head_lr=1e-2",
        "algo.head_steps=100",
        "algo.final=1.0",
        "algo.k=6",
    ],
}
"""The paper's learning rates are for large models, and its three own actions for ones that know the language."""


@pytest.fixture(scope="module")
def novice(tmp_path_factory):
    """The novice's weights."""
    _, start, _ = train(tmp_path_factory.mktemp("start"), *START)
    return start.folder / "checkpoints" / "000020" / "model"


@pytest.mark.parametrize("variant", VARIANTS)
def test_practice_makes_better(variant, novice, tmp_path):
    settings = [f"model.path={novice}", *NEXT, *VARIANTS[variant]]
    *_, steps = train(tmp_path, *settings, seen=lambda steps: success(steps)[-1] >= WINS)
    assert success(steps)[0] <= 0.5 and success(steps)[-1] >= WINS, success(steps)
    assert not any(step.get("guard") for step in steps)
    if variant != "implicit":  # which learns from the expert's actions as well, so that there are no ratios
        worst = max(step["update"]["ratio_gap"] for step in steps if step.get("updates"))
        assert worst < 1e-4, "the head's training must leave the policy as it sampled"
    if variant == "inverse":
        assert steps[1]["stops"].keys() == {"finished", "practised"}, "the demonstrations' own end, and no attempts"
        paid = [step["update"]["paid"] for step in steps[1:] if "paid" in step["update"]]
        assert sum(paid[:5]) < sum(paid[-5:]) < 0.5, "the discriminator finds the two ever harder to tell apart"
