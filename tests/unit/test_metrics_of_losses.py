"""What the losses report beside their value: sums and counts worked out by hand, without a graph that would be kept."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from longloop.algos.dpo import Dpo
from longloop.algos.grpo import Grpo
from longloop.algos.ppo import Ppo
from longloop.algos.reduce import clip_metrics, sum_by
from longloop.algos.stepagent_inverse import StepAgentInverse
from longloop.learners.local import _standard_metrics
from longloop.types import Scored
from tests.support.samples import VARIANTS, batch, make


def metrics_of(algo: Any, logp: list[float], of: Any, value: list[float] | None = None) -> dict[str, tuple[Any, int]]:
    """The metrics of a loss whose inputs have gradients, as the learner's have."""
    heads = {} if value is None else {"value": torch.tensor(value, requires_grad=True)}
    _, metrics = algo.loss(Scored(torch.tensor(logp, requires_grad=True), torch.zeros(len(logp)), heads), of)
    for name, (total, _) in metrics.items():
        assert not torch.as_tensor(total).requires_grad, f"{name} would keep the graph of every micro-batch"
    return {name: (float(total), count) for name, (total, count) in metrics.items()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_metric_keeps_a_graph(variant: str) -> None:
    of = batch([-1.0] * 3, [1.0, -1.0, 0.5], [1.0] * 3, reference=[-1.5] * 3, returns=[0.5] * 3)
    metrics_of(make(variant), [-1.2, -0.7, -1.0], of, [0.1, 0.2, 0.3])


def test_the_learners_own_metrics_keep_none_either() -> None:
    """How far the policy moved counts its own tokens alone: the last one is an expert's."""
    logp_N, entropy_N = (torch.tensor([-1.0, -2.0, -3.0], requires_grad=True) for _ in range(2))
    batch: Any = SimpleNamespace(old_N=torch.tensor([-1.5, -1.0, -7.0]), own_N=torch.tensor([1.0, 1.0, 0.0]))
    of: Any = SimpleNamespace(batch=batch)
    metrics = _standard_metrics(Scored(logp_N, entropy_N), of, logp_N.sum())
    assert {name: (float(total), count) for name, (total, count) in metrics.items()} == {
        "loss": (-6.0, 1),
        "kl": (0.5, 1),
        "entropy": (-6.0, 3),
    }
    assert not any(torch.as_tensor(total).requires_grad for total, _ in metrics.values())


def test_sums_have_the_type_of_what_is_summed() -> None:
    of = batch([-1.0] * 3, [1.0] * 3, [1.0] * 3)
    assert sum_by(torch.ones(3, dtype=torch.float64), of, "trajectory").dtype == torch.float64


def test_the_distance_to_the_reference() -> None:
    """e^d - d - 1 with d = 0.5 and -1: 0.1487213 and 0.3678794."""
    of = batch([-1.0] * 2, [0.0] * 2, [0.25] * 2, reference=[-0.5, -2.0])
    found = metrics_of(Grpo(kl=0.04), [-1.0, -1.0], of)
    assert found["reference_kl"] == (pytest.approx(0.1487213 + 0.3678794, abs=1e-6), 2)
    assert "reference_kl" not in metrics_of(Grpo(kl=0.0), [-1.0, -1.0], of)


def test_margins_and_settled_pairs() -> None:
    """Margins of three pairs: 0.5 (0.4 - 0.2) = 0.1, 0.5 (0 - 0.6) = -0.3, and 0, which is not settled."""
    of = batch([0.0] * 6, [1, -1] * 3, [1.0] * 6, unit=[0, 0, 1, 1, 2, 2], reference=[-1.0] * 6)
    found = metrics_of(Dpo(beta=0.5), [-0.6, -0.8, -1.0, -0.4, -1.0, -1.0], of)
    assert found["margin"] == (pytest.approx(-0.2, abs=1e-6), 3) and found["settled"] == (1.0, 3)


def test_value_errors() -> None:
    """(0.2 - 1)^2 + (0.9 - 0.5)^2 = 0.64 + 0.16, whatever the tokens' weights; in warm-up, too."""
    for step in (1, 11):
        of = batch([-1.0] * 2, [0.0] * 2, [0.5] * 2, step=step, returns=[1.0, 0.5])
        found = metrics_of(Ppo(), [-1.0, -1.0], of, [0.2, 0.9])
        assert found["value_error"] == (pytest.approx(0.8), 2)
        assert ("clipped" in found) == (step == 11)


def test_what_actions_were_paid() -> None:
    of = batch([-1.0] * 3, [1.0] * 3, [1.0] * 3, returns=[0.5, -2.0, 1.0])
    assert metrics_of(StepAgentInverse(), [-1.0] * 3, of)["paid"] == (-0.5, 3)


def test_a_ratio_at_the_edge_of_the_clip_range_is_not_clipped() -> None:
    """Only beyond it is there no slope; and an advantage of 0 has none to lose."""
    ratio = torch.tensor([1.2, 1.3, 0.8, 0.7, 2.0, 0.1, 1.3, 0.7])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0, 0.0, 0.0, -1.0, 1.0])
    ((clipped, count),) = clip_metrics(ratio, advantage, float(ratio[2]), float(ratio[0])).values()
    assert (int(clipped), count) == (2, 8)


def test_stepagent_clips_as_ppo_does() -> None:
    """min(r A, clip(r, 0.8, 1.2) A): by hand at r = 1.5 and 0.5."""
    for ratio, advantage, value, slope in (
        (1.5, 2.0, 2.4, 0.0),
        (1.5, -2.0, -3.0, -3.0),
        (0.5, 2.0, 1.0, 1.0),
        (0.5, -2.0, -1.6, 0.0),
    ):
        logp = torch.tensor([math.log(ratio) - 0.7], requires_grad=True)
        of = batch([-0.7], [advantage], [0.5], returns=[0.0])
        loss, metrics = StepAgentInverse(clip=0.2).loss(Scored(logp, torch.zeros(1)), of)
        loss.backward()
        assert loss.item() == pytest.approx(-0.5 * value) and logp.grad == pytest.approx(-0.5 * slope)
        assert metrics["clipped"] == (int(slope == 0), 1)
