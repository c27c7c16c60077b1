"""On a CUDA device: an update through torch.compile, in bfloat16 and around flash attention."""

import pytest
import torch
from torch._dynamo.utils import counters

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.learners.local import LocalLearner
from longloop.types import Minibatch
from tests.support.families import plain_module, policy_of
from tests.support.samples import gradient
from tests.unit.test_shared_openings import everything, weighted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def gradients(module, dtype, **options):
    """Of a mini-batch with shared openings and of one without, which is shorter; each as one vector."""
    policy = policy_of(module, device="cuda", dtype=dtype)
    learner = LocalLearner(policy, Loop().needs, LearnerConfig(**options), 1.0, seed=0)
    for samples in (everything(), everything()[:1]):
        parts, _ = gradient(learner, Minibatch(samples, 1.0, 1, False), weighted)
        yield torch.cat([part.float().flatten() for part in parts.values()])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_update_agrees(checkpointing):
    """With float32 about as well as the plain one does; and the second mini-batch compiles nothing."""
    module = plain_module("llama")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.4 if parameter.ndim > 1 else 1.0)  # for a function that rounding does not upset
    torch._dynamo.reset()
    counters.clear()
    graphs = []
    exact, plain = gradients(module, "float32"), gradients(module, "bfloat16")
    for compiled in gradients(module, "bfloat16", compile=True, checkpointing=checkpointing):
        right = next(exact)
        assert (compiled - right).norm() < 1.5 * (next(plain) - right).norm() + 1e-3 * right.norm()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [4, 4]
