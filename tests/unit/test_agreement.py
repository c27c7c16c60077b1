"""Sampler against learner: what is used, what is computed again, what is refused. Gaps by hand."""

import math
from dataclasses import replace

import pytest
import torch

from longloop.algos.loop import Loop
from longloop.learners.agreement import check, compare
from longloop.types import Batch, Sample, Scored, UserError
from tests.samples import first_minibatch, learner, mixed_groups, sampled


def sample(logprobs: list[float]) -> Sample:
    n = len(logprobs)
    return Sample((7,) * n, (0,) + (1,) * (n - 1), tuple(logprobs), (0,) * n, (1.0,) * n, (1.0,) * n, trajectory=(4, 2))


def test_gaps_by_hand() -> None:
    """Ratios of 1, 1.5, 0.5 and 1: the unmasked first token does not count."""
    mine = sample([-9.0, -1.0, -1.0, -1.0, -1.0])
    rows = [[0.0, -1.0, -1.0 + math.log(1.5), -1.0 + math.log(0.5), -1.0]]
    found = compare([mine], rows)
    assert (found.tokens, found.mean, found.worst) == (4, pytest.approx(0.25), pytest.approx(0.5))
    assert "group 4, attempt 2, turn 0, token " in found.where
    assert found.old == "learner" and "the learner's are used" in str(found)
    assert compare([], []).tokens == 0
    assert compare([mine], [[math.nan] * 5]).worst == math.inf


@pytest.mark.parametrize(
    ("gap", "odd", "old", "refused"),
    [
        (0.0, 0.0, "sampler", False),
        (0.015, 0.015, "sampler", False),
        (0.1, 0.1, "learner", False),
        (0.3, 0.3, "", True),
        (0.0, 0.95, "", True),
    ],
)
def test_the_bounds_in_bfloat16(gap: float, odd: float, old: str, refused: bool) -> None:
    """Equal gaps everywhere; or none but in two tokens of a hundred, as a mask that is off by one would make."""
    rows = [[0.0] + [math.log(1 + (odd if n % 50 == 0 else gap)) for n in range(100)]]
    found = compare([sample([0.0] * 101)], rows)
    if refused:
        with pytest.raises(UserError, match="disagree"):
            check(found, bf16=True)
    else:
        check(found, bf16=True)
        assert found.old == old


def test_what_decides_is_where_the_sampler_was_unsure() -> None:
    """Of 98 tokens it was sure, and both say the same; of two it was not, and they differ by 5%."""
    mine = sample([0.0] * 99 + [math.log(0.3), math.log(0.6)])
    found = compare([mine], [[*mine.logprobs[:99], *(math.log(1.05 * p) for p in (0.3, 0.6))]])
    assert (found.mean, found.unsure) == (pytest.approx(0.001), pytest.approx(0.05))
    assert found.old == "learner"


def test_noise_in_old_log_probs_unlearns() -> None:
    """The reason for it: at equal advantages for and against a token, a ratio with rounding noise pushes it down."""
    log_ratios, none = torch.linspace(-0.3, 0.3, 601), torch.zeros(601, dtype=torch.long)
    pushed = {}
    for advantage in (1.0, -1.0):
        logp = torch.zeros(601, requires_grad=True)
        batch = Batch(-log_ratios, torch.full((601,), advantage), torch.ones(601) / 601, none, none, 1, 1, step=1)
        Loop().loss(Scored(logp, torch.zeros(601)), batch)[0].backward()
        assert logp.grad is not None
        pushed[advantage] = -float(logp.grad.sum())  # what ascent does
    assert pushed[1.0] == pytest.approx(sum(math.exp(x) for x in log_ratios.tolist() if x < math.log(1.1)) / 601, 1e-3)
    assert pushed[1.0] + pushed[-1.0] < -0.1


def test_in_float32_only_rounding_is_allowed() -> None:
    for gap, refused in ((5e-5, False), (2e-4, True)):
        found = compare([sample([0.0, 0.0])], [[0.0, math.log(1 + gap)]])
        if refused:
            with pytest.raises(UserError, match=r"may be 0\.0001"):
                check(found, bf16=False)
        else:
            check(found, bf16=False)


def test_log_probs_are_the_samplers_or_computed_again() -> None:
    """Measured on the first samples and told once; kept to for the rest of the run."""
    algo = Loop(k=3)
    for shift, old in ((0.0, "sampler"), (0.1, "learner")):
        made = learner(algo, dtype="bfloat16")
        groups = sampled(mixed_groups(), made, shift=shift)
        samples = first_minibatch(algo, groups, made).samples
        told: list[str] = []
        assert made.with_old([], told.append) == [] and not told
        for _ in range(2):
            got = made.with_old(samples, told.append)
        assert len(told) == 1 and f"the {old}'s are used" in told[0]
        own = made.logprobs(samples)
        wanted = samples if old == "sampler" else [replace(s, logprobs=r) for s, r in zip(samples, own, strict=True)]
        assert [s.logprobs for s in got] == [s.logprobs for s in wanted]
        assert [s.ids for s in got] == [s.ids for s in samples]
