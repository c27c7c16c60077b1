"""What an algorithm may count on: samples that are not the policy's own, columns to read, and a memory."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from longloop import api
from longloop.algos.ei import Ei
from longloop.algos.loop import Loop
from longloop.algos.ppo import Ppo
from longloop.algos.reduce import to_samples
from longloop.learners.batching import pack
from longloop.learners.local import LocalLearner
from longloop.protocols import Learner
from longloop.store.run import Run
from longloop.types import Group, Minibatch, Now, Sample, UserError
from tests.support.helpers import Silent, load_config, train
from tests.support.runs import contents, differences
from tests.support.samples import CPU, TASK, attempt, gradient, learner, mixed_groups, once, sampled, weights

# --- samples that are not the policy's own ---


def both_kinds(model: LocalLearner, shift: float = 0.0, expert_is_own: bool = False) -> list[Sample]:
    """Two trajectories of the policy's own, `shift` off its log-probs, and one of an expert between them.

    The expert's log-probs, -9 for every token, are nobody's.
    """
    tried = sampled([Group(TASK, (attempt(1.0, (2, 3), 0), attempt(0.0, (4,), 1)))], model)[0].trajectories
    one, other = (
        replace(sample, logprobs=sample.logprobs + shift * sample.mask)
        for trajectory, advantage in zip(tried, (0.5, -0.5), strict=True)
        for sample in to_samples(trajectory, 0, advantage, "token")
    )
    shown = attempt(1.0, (3, 2), 2, logprobs=[-9.0] * 5)
    (expert,) = to_samples(shown, 0, 1.0, "token", own=expert_is_own)
    return [one, expert, other]


def minibatch(samples: Sequence[Sample], on_policy: bool = True) -> Minibatch:
    return Minibatch(samples, float(len(samples)), 1, on_policy)


def test_a_batch_says_which_tokens_are_the_policys_own() -> None:
    samples = both_kinds(learner(Loop()))
    assert pack(samples, 1, CPU).batch.own_N.tolist() == [1.0] * 5 + [0.0] * 5 + [1.0] * 4


@pytest.mark.parametrize("micro_tokens", [1, 10**6])
def test_only_own_samples_must_have_ratios_of_one(micro_tokens: int) -> None:
    """At a step's first update. The same mini-batch is refused where the expert's sample is said to be the policy's."""
    algo = Loop()
    model = learner(algo, micro_tokens=micro_tokens)
    metrics = model.gradient(minibatch(both_kinds(model)), algo.loss)
    assert metrics["ratio_gap"] < 1e-4
    with pytest.raises(UserError, match=r"disagree.*attempt 2"):
        model.gradient(minibatch(both_kinds(model, expert_is_own=True)), algo.loss)
    with pytest.raises(UserError, match=r"disagree.*attempt [01]"):
        model.gradient(minibatch(both_kinds(model, shift=0.01)), algo.loss)
    assert "ratio_gap" not in model.gradient(minibatch(both_kinds(model)[1:2]), algo.loss)


@pytest.mark.parametrize("micro_tokens", [1, 10**6])
def test_how_far_the_policy_moved_is_measured_on_own_samples(micro_tokens: int) -> None:
    """Log-probs 0.1 off at 5 and at 4 tokens: a mean of 0.45 for the two own trajectories, whatever is between them."""
    algo = Loop(kl_guard=0.5)
    model = learner(algo, micro_tokens=micro_tokens)
    one, expert, other = both_kinds(model, shift=0.1)
    for samples in ([one, expert, other], [one, other]):
        assert gradient(model, minibatch(samples, on_policy=False), algo.loss)[1]["kl"] == pytest.approx(0.45, abs=1e-4)
    assert "kl" not in gradient(model, minibatch([expert], on_policy=False), algo.loss)[1]
    before = weights(model)
    assert (
        "KL guard" in model.update(minibatch([one, replace(expert, own=True), other], on_policy=False), algo.loss).stop
    )
    assert all(torch.equal(p, before[name]) for name, p in model.parameters.items())
    assert not model.update(minibatch([one, expert, other], on_policy=False), algo.loss).stop
    assert not all(torch.equal(p, before[name]) for name, p in model.parameters.items())


@pytest.mark.parametrize(("shift", "old"), [(0.0, "sampler"), (0.1, "learner")])
def test_only_own_samples_get_behavior_log_probs(shift: float, old: str) -> None:
    """Neither does an expert's sample say whose log-probs are used, nor is it given any."""
    algo = Loop()
    model = learner(algo, dtype="bfloat16")
    one, expert, other = samples = both_kinds(model, shift)
    told: list[str] = []
    assert model.with_behavior_logprobs(once([expert], False), algo.loss, told.append) == [expert]
    assert model.agreement is None and not told
    got = model.with_behavior_logprobs(once(samples, False), algo.loss, told.append)
    assert model.agreement is not None and (model.agreement.old, model.agreement.tokens) == (old, 9)
    assert len(told) == 1 and f"the {old}'s are used" in told[0]
    first, last = model.logprobs([one, other]) if old == "learner" else (one.logprobs, other.logprobs)
    assert [sample.logprobs.tolist() for sample in got] == [first.tolist(), [*expert.logprobs], last.tolist()]
    assert [replace(sample, logprobs=before.logprobs) for sample, before in zip(got, samples, strict=True)] == samples
    assert model.with_behavior_logprobs(once([expert], False), algo.loss, told.append) == [expert]


def test_the_learners_log_probs_are_kept_of_own_samples() -> None:
    """A viewer sets them against the sampler's; an expert's sample has none of those."""
    algo = Loop()
    model = learner(algo)
    samples = both_kinds(model)
    learned = model.update(minibatch(samples), algo.loss).learned
    assert {sample.source.attempt for sample, _ in learned} == {0, 1} and len(learned) == 2
    for sample, row in learned:
        np.testing.assert_allclose(row[sample.mask], sample.logprobs[sample.mask], atol=1e-5)
        assert not row[~sample.mask].any()
    assert model.update(minibatch(samples[1:2]), algo.loss).learned == ()


def test_clipped_samples_of_others_do_not_decide_whose_log_probs_are_used() -> None:
    """The expert's sample is clipped away before any weight has moved. Between own samples this ends a run."""
    algo = Loop()
    model = learner(algo)
    samples = both_kinds(model)
    model.with_behavior_logprobs(once(samples, False), algo.loss, lambda text: None)
    assert model.agreement is not None and model.agreement.old == "sampler"
    agreed = model.agreement
    assert model.gradient(minibatch(samples), algo.loss)["clipped"] == pytest.approx(5 / 14)
    assert model.agreement == agreed
    model.agreement = replace(agreed, old="learner")
    model.gradient(minibatch(samples), algo.loss)
    assert model.agreement == replace(agreed, old="learner")


# --- columns that are read ---


def test_one_forward_pass_reads_all_columns_but_the_reference() -> None:
    """`reference` takes a pass of its own. The columns are what each would be when it is read alone."""
    heads = ("value", "other")
    algo: Any = SimpleNamespace(needs=replace(Ppo().needs, heads=heads, reference=True))
    for lora in (0, 2):
        model = learner(algo, lora=lora)
        model.heads["other"][-1].bias.data += 3.0  # type: ignore[index]
        samples = [
            sample.with_columns(mine=np.arange(len(sample.ids)))
            for group in mixed_groups()
            for trajectory in group.trajectories
            for sample in to_samples(trajectory, 0, 1.0, 1.0)
        ]
        at_first = model.logprobs(samples)
        torch.manual_seed(1)
        with torch.no_grad():
            for p in model.parameters.values():
                p += 0.05 * torch.randn_like(p)
        passes: list[int] = []
        hidden = model.policy.hidden

        def counted(ids_T: Any, *rest: Any, hidden: Any = hidden, passes: list[int] = passes) -> Any:
            passes.append(len(ids_T))
            return hidden(ids_T, *rest)

        model.policy.hidden = counted  # type: ignore[method-assign]
        names = ("logprobs", "entropy", "value", "other")
        read = model.read(samples, *names)
        assert len(passes) == 1, "all samples fit one micro-batch"
        model.read(samples, "reference")
        assert len(passes) == 2
        everything = model.read(samples, "value", "reference", "logprobs", "entropy", "other")
        assert len(passes) == 4
        for n, (sample, known, whole) in enumerate(zip(samples, read, everything, strict=True)):
            assert set(known.columns) == {"mine", *names} and set(whole.columns) == {"mine", "reference", *names}
            assert replace(whole, columns=sample.columns) == sample, "nothing else was changed"
            for name in names:
                alone = model.read([sample], name)[0].columns[name]
                np.testing.assert_allclose(known.columns[name], alone, atol=1e-5)
                assert whole.columns[name].tolist() == known.columns[name].tolist()
                assert not known.columns[name][~sample.mask].any() and known.columns[name][sample.mask].all()
            np.testing.assert_allclose(whole.columns["reference"], at_first[n], atol=1e-5)
            assert np.abs(whole.columns["logprobs"] - at_first[n]).max() > 1e-3
        assert model.read([], *names, "reference") == []


# --- what an algorithm remembers ---


@dataclass(frozen=True, kw_only=True)
class Counting(Ei):
    """Counts its steps and halves its learning rate with each; also looks at the groups of all earlier steps."""

    collected: ClassVar[dict[int, list[Group]]] = {}
    """The groups of every step of the process."""

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        now.memory["counted"] = now.memory.get("counted", 0) + 1
        now.memory.setdefault("tasks", []).append([group.task.id for group in groups])
        for step in range(1, now.step):
            assert now.past(step) == self.collected[step], f"the groups of step {step}, as they were"
        self.collected[now.step] = list(groups)
        assert now.memory["tasks"] == [[g.task.id for g in self.collected[n]] for n in range(1, now.step + 1)]
        return super().credit(groups, learner, now)

    def lr_scale(self, now: Now, within: float = 0.5) -> float:
        return 0.5 ** float(now.memory["counted"])


def test_what_an_algorithm_remembers_is_saved_and_resumed(tmp_path: Path) -> None:
    """Stopped after step 3 with checkpoints at 2 and 4: what step 3 had remembered is gone, and remembered again."""
    settings = [f"algo.name={__name__}:Counting", "algo.least_reward=-1.0", "steps=5", "save.every=2"]
    _, whole, steps = train(tmp_path, *settings, "name=whole")
    assert all(step["updates"] for step in steps), "or the learning rate would not matter"
    state = json.loads((whole.folder / "checkpoints" / "000005" / "state.json").read_text())
    assert state["memory"]["counted"] == 5 and len(state["memory"]["tasks"]) == 5
    Counting.collected.clear()
    _, stopped, _ = train(tmp_path, *settings, "name=stopped", seen=lambda seen: len(seen) == 3)
    assert max(contents(stopped.folder)["metrics"]) == 3
    parts = api.prepared(load_config(tmp_path, *settings, "name=stopped"))
    with Run.reopen(stopped.folder) as run:
        asyncio.run(api.run_loop(parts, run, Silent()))
    assert differences(whole.folder, stopped.folder) == []
