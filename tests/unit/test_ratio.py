"""Probability ratios: exp to the bit where it is safe, and finite with a useful gradient where exp overflows."""

import math
from typing import Any

import pytest
import torch

from longloop.algos.reduce import probability_ratio
from longloop.algos.stepagent_inverse import StepAgentInverse
from tests.support.samples import batch, loss_and_slopes, make

E20 = math.exp(20)
FAR = [20.5, 88.0, 89.0, 1000.0, 1e6]
"""Log-ratios beyond the bound; exp overflows float32 from 88.8 on."""
CLIPPED = {name: make(name) for name in ("loop", "loop turn", "loop trajectory", "grpo", "dr_grpo", "dapo", "gspo")} | {
    "ppo": make("ppo", value_weight=0.0, value_weight_end=0.0),
    "grpo no kl": make("grpo", kl=0.0),
    "stepagent_inverse": StepAgentInverse(),
}
"""Every method that clips a ratio."""


def slope(x: torch.Tensor, function: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    value = function(x)
    # Odd factors: a rounding that differs would show.
    value.backward(torch.linspace(-3.1, 2.7, len(x)))
    assert x.grad is not None
    return value.detach(), x.grad


def test_in_the_normal_range_value_and_gradient_are_those_of_exp_to_the_bit() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(5000) * scale for scale in (1e-4, 0.1, 1.0, 10.0)]).clamp(max=20.0)
    x = torch.cat([x, torch.tensor([0.0, 20.0, -90.0, -1000.0])])
    for ours, theirs in zip(slope(x, probability_ratio), slope(x, torch.exp), strict=True):
        assert torch.equal(ours, theirs)


def test_beyond_it_goes_on_along_the_tangent() -> None:
    x = torch.tensor(FAR, requires_grad=True)
    value = probability_ratio(x)
    value.sum().backward()
    assert value.tolist() == pytest.approx([E20 * (1 + far - 20) for far in FAR], rel=1e-6)
    assert x.grad is not None and x.grad.tolist() == pytest.approx([E20] * len(FAR), rel=1e-6)


def of(advantage: float, tokens: int = 4) -> Any:
    """One trajectory of one turn, each token with weight 1 / tokens."""
    return batch(
        [-1.0] * tokens,
        [advantage] * tokens,
        [1 / tokens] * tokens,
        turn=[0] * tokens,
        unit=[0] * tokens,
        step=100,
        reference=[-1.0] * tokens,
        returns=[0.0] * tokens,
    )


@pytest.mark.parametrize("name", CLIPPED)
@pytest.mark.parametrize("far", FAR)
def test_a_clipped_ratio_has_no_gradient_however_large_it_is(name: str, far: float) -> None:
    """With a positive advantage the objective is constant beyond the clip."""
    algo = CLIPPED[name]
    loss, slopes = loss_and_slopes(algo, [-1.0 + far] * 4, of(0.5), value=[0.0] * 4)
    penalty = 0.0
    if name == "grpo":  # its penalty, whose difference is clamped to 10, is constant there too
        penalty = algo.kl * (math.exp(-10) + 10 - 1)
    high = 1 + (algo.clip_high if hasattr(algo, "clip_high") else algo.clip)
    assert loss == pytest.approx(-0.5 * high + penalty) and slopes == [0.0] * 4


@pytest.mark.parametrize("name", CLIPPED)
@pytest.mark.parametrize("far", FAR)
def test_a_ratio_that_is_not_clipped_keeps_a_large_and_finite_gradient(name: str, far: float) -> None:
    """With a negative advantage A, a larger ratio costs more: the slope is -A times the ratio's, bounded by e^20.

    A ratio over all four tokens has a log of 4 x far and the whole weight; GSPO's is their mean, and each token has a
    quarter of its slope.
    """
    loss, slopes = loss_and_slopes(CLIPPED[name], [-1.0 + far] * 4, of(-0.5), value=[0.0] * 4)
    whole = name in ("loop turn", "loop trajectory")
    log_ratio = 4 * far if whole else far
    assert loss == pytest.approx(0.5 * E20 * (1 + log_ratio - 20), rel=1e-5)
    assert slopes == pytest.approx([0.5 * E20 * (1 if whole else 1 / 4)] * 4, rel=1e-5)


@pytest.mark.parametrize("name", CLIPPED)
def test_no_advantage_no_loss(name: str) -> None:
    """0 times infinity was NaN in the forward pass as well."""
    loss, slopes = loss_and_slopes(CLIPPED[name], [99.0] * 4, of(0.0), value=[0.0] * 4)
    assert math.isfinite(loss) and slopes == [0.0] * 4


def test_one_trajectory_far_away_does_not_spoil_the_others() -> None:
    """LOOP with one ratio per trajectory: the first is clipped, the second still learns."""
    both = batch([-1.0] * 4, [0.5] * 4, [0.5] * 4, turn=[0, 0, 1, 1], unit=[0, 0, 1, 1])
    _, slopes = loss_and_slopes(CLIPPED["loop trajectory"], [-0.2 + 50, -0.2 + 50, -1.0, -1.0], both)
    assert slopes == [0.0, 0.0, -0.5, -0.5]
