"""A novice that imitates an expert learns what the expert knows, from live or from stored demonstrations."""

import pytest

from longloop import api
from longloop.types import Now
from tests.support.helpers import load_config, train

SETTINGS = ["algo.name=sft", "algo.k=1", "algo.lr=3e-3", "steps=60", "save.every=60", "eval.attempts=8"]


def test_sft_learns_from_the_expert(tmp_path):
    _, _, steps = train(tmp_path, *SETTINGS)
    assert steps[0]["success"] == 1.0, "the demonstrations are the expert's"
    losses = [step["update"]["loss"] for step in steps]
    assert losses[-1] < 0.1 * losses[0]
    assert steps[-1]["eval"]["success"] >= 0.9, "halving the range finds every number"
    assert "kl" not in steps[0]["update"] and not any(step["guard"] for step in steps)


def test_sft_from_stored_demonstrations_is_the_same_run(tmp_path):
    """What the expert said is told again in the same tokens, so every loss is equal to the bit."""
    live = train(tmp_path, *SETTINGS, "steps=5", "name=live")
    config = load_config(tmp_path, "name=demos")
    folder, done = api.demonstrate(config)
    assert list(done.values()) == [""] * 3, "one for each number, and none failed"
    stored = train(tmp_path, *SETTINGS, "steps=5", "name=stored", f"demos={folder}")
    assert [s["update"]["loss"] for s in stored[2]] == [s["update"]["loss"] for s in live[2]]


def test_the_learning_rate_rises_and_falls():
    from longloop.algos.sft import SFT

    scales = [SFT(warmup=0.1).lr_scale(Now(step, 100)) for step in range(1, 101)]
    assert scales[0] == pytest.approx(0.05) and max(scales) < 1.0  # half of the first hundredth, over a warm-up of ten
    assert scales.index(max(scales)) == 10, "the first step after the warm-up"
    assert scales[10:] == sorted(scales[10:], reverse=True) and scales[-1] < 1e-4
