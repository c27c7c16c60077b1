"""What memory is foreseen is what an update takes on a card, in bfloat16, by the count of torch's own allocator."""

import gc

import pytest
import torch
from transformers import AutoModelForCausalLM

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig, ModelConfig
from longloop.learners.local import LocalLearner
from longloop.memory import forecast, shapes
from longloop.model.fused_projections import Projection, fuse
from longloop.model.policy import Policy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOKENS = 4096


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("rank", [0, 16], ids=["full", "lora"])
def test_peak_of_an_update(rank, checkpointing):
    shape = shapes.named("smollm2-135m")
    model = ModelConfig(device="cuda", lora_rank=rank)
    config = LearnerConfig(micro_tokens=TOKENS, checkpointing=checkpointing)
    book = forecast.forecast(shape, model, config, Loop().needs, TOKENS, sessions=1)

    before = _of_cublas()
    torch.manual_seed(0)
    policy = Policy(AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16), None, model)
    algo = Loop(kl_guard=1e9)
    learner = LocalLearner(policy, algo.needs, config, 1.0, 0)
    batch = forecast._made_up([TOKENS] * 3)
    assert not learner.update(batch, algo.loss).stop
    gc.collect()
    held = torch.cuda.memory_allocated() - before
    torch.cuda.reset_peak_memory_stats()
    assert not learner.update(batch, algo.loss).stop
    peak = torch.cuda.max_memory_allocated() - before
    print(
        f"held {held / 2**20:.0f} of {book.held / 2**20:.0f} MiB, peak {peak / 2**20:.0f} of {book.update / 2**20:.0f}"
    )
    assert book.held == pytest.approx(held, rel=0.05)
    assert book.update == pytest.approx(peak, rel=0.15)


@pytest.mark.parametrize("rank", [0, 16], ids=["full", "lora"])
def test_weights_that_are_laid_together_take_no_more(rank):
    """Nor is there ever more than one company of them twice."""
    shape = shapes.named("smollm2-135m")
    model = ModelConfig(device="cuda", lora_rank=rank)
    policy = Policy(AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16), None, model)
    gc.collect()
    before = _asked()
    torch.cuda.reset_peak_memory_stats()
    fuse(policy.module)
    assert sum(isinstance(part, Projection) for part in policy.module.modules()) == 30 * (7 if rank else 5)
    largest = max(part.all_weights.nbytes for part in policy.module.modules() if isinstance(part, Projection))
    assert _asked() == before
    assert _asked("peak") <= before + largest


def _asked(when: str = "current") -> int:
    return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]


def _of_cublas() -> int:
    """What is allocated when cuBLAS has what it takes for itself: once for each thread that calls it."""
    gc.collect()
    one = torch.ones(8, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    (one @ one).sum().backward()
    del one
    return torch.cuda.memory_allocated()
