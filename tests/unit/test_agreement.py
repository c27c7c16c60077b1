"""Sampler against learner: what is used, what is computed again, what is refused. Gaps by hand."""

import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.loop import Loop
from longloop.learners.agreement import check, compare, still_good
from longloop.types import Batch, Group, Minibatch, Sample, Scored, UserError
from tests.support.samples import NOW, attempt, first_minibatch, learner, make, mixed_groups, once, sampled


def sample(logprobs: list[float]) -> Sample:
    n = len(logprobs)
    return Sample((7,) * n, (0,) + (1,) * (n - 1), tuple(logprobs), (0,) * n, (1.0,) * n, (1.0,) * n, source=(4, 2))


def test_gaps_by_hand() -> None:
    """Ratios of 1, 1.5, 0.5 and 1: the unmasked first token does not count."""
    mine = sample([-9.0, -1.0, -1.0, -1.0, -1.0])
    rows = [np.array([0.0, -1.0, -1.0 + math.log(1.5), -1.0 + math.log(0.5), -1.0])]
    found = compare([mine], rows)
    assert (found.tokens, found.mean, found.worst) == (4, pytest.approx(0.25), pytest.approx(0.5))
    assert "group 4, attempt 2, turn 0, token " in found.where
    assert found.old == "learner" and "the learner's are used" in str(found)
    assert compare([], []).tokens == 0
    assert compare([mine], [np.full(5, math.nan)]).worst == math.inf


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
    rows = [np.array([0.0] + [math.log(1 + (odd if n % 50 == 0 else gap)) for n in range(100)])]
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
    found = compare([mine], [np.array([*mine.logprobs[:99], *(math.log(1.05 * p) for p in (0.3, 0.6))])])
    assert (found.mean, found.unsure) == (pytest.approx(0.001), pytest.approx(0.05))
    assert found.old == "learner"


def test_noise_in_old_log_probs_unlearns() -> None:
    """The reason for it: at equal advantages for and against a token, a ratio with rounding noise pushes it down."""
    log_ratios, none = torch.linspace(-0.3, 0.3, 601), torch.zeros(601, dtype=torch.long)
    pushed = {}
    for advantage in (1.0, -1.0):
        logp = torch.zeros(601, requires_grad=True)
        advantages, weights, own = torch.full((601,), advantage), torch.ones(601) / 601, torch.ones(601)
        batch = Batch(-log_ratios, advantages, weights, own, none, none, 1, 1, step=1)
        Loop().loss(Scored(logp, torch.zeros(601)), batch)[0].backward()
        assert logp.grad is not None
        pushed[advantage] = -float(logp.grad.sum())  # what ascent does
    assert pushed[1.0] == pytest.approx(sum(math.exp(x) for x in log_ratios.tolist() if x < math.log(1.1)) / 601, 1e-3)
    assert pushed[1.0] + pushed[-1.0] < -0.1


def test_in_float32_only_rounding_is_allowed() -> None:
    for gap, refused in ((5e-5, False), (2e-4, True)):
        found = compare([sample([0.0, 0.0])], [np.array([0.0, math.log(1 + gap)])])
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
        assert made.with_behavior_logprobs(once([], False), algo.loss, told.append) == [] and not told
        for _ in range(2):
            got = made.with_behavior_logprobs(once(samples, False), algo.loss, told.append)
        assert len(told) == 1 and f"the {old}'s are used" in told[0]
        own = made.logprobs(samples)
        wanted = samples if old == "sampler" else [replace(s, logprobs=r) for s, r in zip(samples, own, strict=True)]
        assert got == wanted


def test_a_sampler_that_loses_touch_is_refused_also_where_its_log_probs_are_not_used() -> None:
    """An engine with weights of its own may become stale at any step."""
    algo = Loop(k=3)
    made = learner(algo, dtype="bfloat16")

    def behavior(shift: float) -> None:
        samples = first_minibatch(algo, sampled(mixed_groups(), made, shift=shift), made).samples
        made.with_behavior_logprobs(once(samples, False), algo.loss, lambda text: None)

    behavior(0.1)
    assert made.agreement is not None and made.agreement.old == "learner"
    behavior(0.1)
    with pytest.raises(UserError, match=r"Engine and learner disagree.*mean 0\.\d+, may be 0\.2"):
        behavior(0.5)


def off_by(shift: float, variant: str) -> tuple[Any, Any, list[Sample]]:
    """A method, its learner in bfloat16, and samples of forty tokens whose log-probs are all too high or too low."""
    algo = make(variant, k=2)
    made = learner(algo, dtype="bfloat16")
    attempts = (attempt(1.0, (20, 20), 0), attempt(0.0, (20, 20), 1))
    samples = algo.credit(sampled([Group(attempts[0].task, attempts)], made), made, NOW)
    shifts = [math.copysign(shift, max(s.advantages, key=abs)) for s in samples]
    return algo, made, [replace(s, logprobs=s.logprobs - x * s.mask) for s, x in zip(samples, shifts, strict=True)]


@pytest.mark.parametrize(
    ("variant", "shift", "old"),
    [
        ("loop", 0.006, "sampler"),  # a token may be off by 10%
        ("loop turn", 0.004, "sampler"),  # twenty of them: 8%
        ("loop turn", 0.006, "learner"),  # 12%
        ("loop trajectory", 0.002, "sampler"),  # forty: 8%
        ("loop trajectory", 0.004, "learner"),  # 16%
        ("gspo", 0.0002, "sampler"),  # clips the mean at 0.03 and 0.04%
        ("gspo", 0.001, "learner"),
        ("grpo", 0.006, "sampler"),
        ("ppo", 0.006, "sampler"),
    ],
)
def test_the_unit_that_a_method_clips_decides(variant: str, shift: float, old: str) -> None:
    """Gaps far below 2% of a token's probability add up over a turn or a trajectory. All units are then lost."""
    algo, made, samples = off_by(shift, variant)
    chosen = made.with_behavior_logprobs(once(samples, algo.whole_units), algo.loss, lambda text: None)
    assert made.agreement.unsure < 0.02
    assert (made.agreement.old, made.agreement.clipped) == (old, 0.0 if old == "sampler" else 1.0)
    assert (chosen == samples) is (old == "sampler")


def test_every_step_can_still_change_the_decision(tmp_path: Path) -> None:
    """The first step agreed, a later one does not: from the next on the learner's are used, also after a resume."""
    algo, made, samples = off_by(0.004, "loop trajectory")

    def behavior(learner: Any, of: list[Sample], tell: Any = lambda text: None) -> list[Sample]:
        return learner.with_behavior_logprobs(once(of, algo.whole_units), algo.loss, tell)

    good = [replace(s, logprobs=row) for s, row in zip(samples, made.logprobs(samples), strict=True)]
    assert behavior(made, good) == good and made.agreement.old == "sampler"
    assert behavior(made, samples) == samples, "it is not measured again before an update"
    made.update(Minibatch(samples, 2.0, step=2, on_policy=True, whole_units=True), algo.loss)
    assert made.agreement.old == "learner"
    made.save(tmp_path)
    _, resumed, _ = off_by(0.004, "loop trajectory")
    resumed.load(tmp_path)
    assert resumed.agreement == made.agreement
    own = [replace(s, logprobs=row) for s, row in zip(samples, resumed.logprobs(samples), strict=True)]
    assert behavior(resumed, samples, pytest.fail) == own != samples


def test_ratios_that_are_not_one_are_refused() -> None:
    """The learner's own log-probs are in use, and the update still clips: there is nothing left to choose."""
    algo, made, samples = off_by(0.004, "loop trajectory")
    made.with_behavior_logprobs(once(samples, algo.whole_units), algo.loss, lambda text: None)
    assert still_good(made.agreement, 0.0) == made.agreement
    assert still_good(made.agreement, 0.01).clipped == 0.01
    with pytest.raises(UserError, match=r"already clips 6\.0% of its units"):
        still_good(made.agreement, 0.06)
    assert still_good(replace(made.agreement, old="sampler"), 0.06).old == "learner"


def test_the_learners_log_probs_are_computed_in_the_micro_batches_of_the_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A product may round differently in a micro-batch of another size. The first ratio is 1 all the same."""
    algo, made, samples = off_by(0.004, "loop trajectory")
    hidden = made.policy.hidden
    monkeypatch.setattr(made.policy, "hidden", lambda ids_T, *more: hidden(ids_T, *more) * (1 + len(ids_T) / 1e4))
    epoch = [Minibatch([sample], 1.0, step=1, on_policy=True, whole_units=True) for sample in samples]
    scored = made.with_behavior_logprobs(epoch, algo.loss, lambda text: None)
    assert made.agreement.old == "learner" and len(scored) == 2
    for sample in scored:
        assert made.gradient(replace(epoch[0], samples=[sample]), algo.loss)["ratio_gap"] == 0.0
    together = made.gradient(replace(epoch[0], samples=scored), algo.loss)
    assert together["ratio_gap"] > 1e-4, "or the size would not matter"


def test_compiled_updates_are_scored_by_the_same_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients torch.compile makes another one, whose rounding differs as much as the sampler's."""
    algo, made, samples = off_by(0.0, "loop")
    made.config = made.config.model_copy(update={"compile": True})
    fused, hidden, seen = 0, made.policy.hidden, []

    def entered() -> Any:
        nonlocal fused
        fused += 1
        return nullcontext()

    monkeypatch.setattr(made.policy, "fused", entered)
    monkeypatch.setattr(made.policy, "hidden", lambda *a: seen.append(torch.is_grad_enabled()) or hidden(*a))
    made.logprobs(samples)
    made.with_behavior_logprobs(once(samples, algo.whole_units), algo.loss, lambda text: None)
    assert fused == 2 and seen and all(seen)
    made.config = made.config.model_copy(update={"compile": False})
    seen.clear()
    made.logprobs(samples)
    assert seen and not any(seen), "otherwise gradients would only cost memory"
