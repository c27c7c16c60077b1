"""A module in bfloat16 is trained in float32: no step is too small to count, and no sum is rounded on the way."""

from pathlib import Path

import pytest
import torch

from longloop.algos.loop import Loop
from longloop.types import Batch, Metrics, Minibatch, Scored
from tests.support.samples import first_minibatch, learner, mixed_groups, sampled


def push(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
    return -(batch.weight_N * scored.logp_N).sum(), {}


def prepared(lr: float = 1e-3, lora: int = 0, dtype: str = "bfloat16", **options: int) -> tuple:
    algo = Loop(k=3, lr=lr, weight_decay=0.0, kl_guard=1e9)
    made = learner(algo, lora=lora, dtype=dtype, **options)
    groups = sampled(mixed_groups(), made)
    return made, first_minibatch(algo, groups, made)


@pytest.mark.parametrize("lora", [0, 4])
def test_the_module_holds_what_the_masters_round_to(lora: int) -> None:
    made, minibatch = prepared(lora=lora)
    before = {name: p.clone() for name, p in made.policy.trainable().items()}
    assert {p.dtype for p in made.policy.module.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in made.parameters.values()} == {torch.float32}
    for _ in range(3):
        assert made.update(minibatch, push).stop == ""
    for name, p in made.policy.trainable().items():
        assert torch.equal(p, made.parameters[name].bfloat16())
        assert p.grad is None and made.parameters[name].grad is None
    assert any(not torch.equal(p, before[name]) for name, p in made.policy.trainable().items())


def test_in_float32_there_is_no_second_tensor() -> None:
    made, _ = prepared(dtype="float32")
    assert not made.fp32_weights.apart
    assert all(made.parameters[name] is p for name, p in made.policy.trainable().items())


def test_steps_too_small_for_bfloat16_add_up() -> None:
    """AdamW moves a weight by about the learning rate. 1e-6 is far below the spacing of weights around 0.1 (5e-4)."""
    made, minibatch = prepared(lr=1e-6)
    start = {name: p.detach().clone() for name, p in made.parameters.items()}
    for _ in range(20):
        made.update(minibatch, push)
    moved = torch.cat([(made.parameters[name] - start[name]).abs().flatten() for name in start])
    large = torch.cat([start[name].abs().flatten() > 0.05 for name in start])
    assert moved[large].median() > 1e-5
    still = [torch.equal(p, start[name].bfloat16()) for name, p in made.policy.trainable().items() if p.ndim > 1]
    assert sum(still) < len(still), "the small weights, at least, must have moved in the module too"


def test_gradients_are_summed_in_float32() -> None:
    """Of many micro-batches: the sum of their gradients, each as the module gives it, with no rounding in between."""
    made, minibatch = prepared(micro_tokens=1)
    made.gradient(minibatch, push)
    total = {name: p.grad.clone() for name, p in made.parameters.items() if p.grad is not None}
    assert total and {g.dtype for g in total.values()} == {torch.float32}
    made.optimizer.zero_grad()
    alone: dict[str, torch.Tensor] = {}
    for sample in minibatch.samples:
        made.gradient(Minibatch([sample], minibatch.norm, step=1, on_policy=False), push)
        for name, p in made.parameters.items():
            if p.grad is not None:
                assert torch.equal(p.grad, p.grad.bfloat16().float()), "one micro-batch gives what bfloat16 can hold"
                alone[name] = alone.get(name, 0.0) + p.grad
        made.optimizer.zero_grad()
    for name in total:
        assert torch.allclose(total[name], alone[name], rtol=1e-5, atol=1e-7)
    assert any(not torch.equal(g, g.bfloat16().float()) for g in total.values()), "nothing here needed float32"


@pytest.mark.parametrize("lora", [0, 4])
def test_a_saved_learner_goes_on_as_if_it_had_never_stopped(lora: int, tmp_path: Path) -> None:
    made, minibatch = prepared(lr=1e-4, lora=lora)
    for _ in range(2):
        made.update(minibatch, push)
    made.save(tmp_path)
    made.update(minibatch, push)
    other, _ = prepared(lr=1e-4, lora=lora)
    other.load(tmp_path)
    other.update(minibatch, push)
    for name, p in made.parameters.items():
        assert torch.equal(p, other.parameters[name])
    for name, p in made.policy.trainable().items():
        assert torch.equal(p, other.policy.trainable()[name])
