"""An update through torch.compile: the same gradient, and compiled once for all layers and micro-batches.

Most tests stop short of generating code, which changes nothing that is asked here and takes much longer.
"""

from collections import Counter

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from longloop.algos.loop import Loop
from longloop.config import LearnerConfig
from longloop.learners.local import LocalLearner
from longloop.types import Minibatch
from tests.support.families import plain_module, policy_of, prompt
from tests.support.processes import Program
from tests.support.samples import assert_close, gradient
from tests.unit.test_shared_openings import MUCH, everything, sample, weighted


class Compiler:
    """Counts the graphs that it is given, and runs them as they are. It can refuse all those of one kind."""

    def __init__(self):
        self.graphs = Counter()
        self.refused = ""

    def __call__(self, graph, inputs):
        return aot_autograd(fw_compiler=self._takes("forward"), bw_compiler=self._takes("backward"))(graph, inputs)

    def _takes(self, kind):
        def compiled(graph, inputs):
            if kind == self.refused:
                raise NotImplementedError(kind)
            self.graphs[kind] += 1
            return make_boxed_func(graph.forward)

        return compiled


@pytest.fixture
def compiler(monkeypatch):
    made, plain = Compiler(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda call, **options: plain(call, backend=made, **options))
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()


def learner_of(module, lora=0, **options):
    """Adapters begin as nothing, with half of their gradients zero; here they are something."""
    learner = LocalLearner(policy_of(module, lora), Loop().needs, LearnerConfig(**options), 0.7, seed=0)
    if lora:
        torch.manual_seed(0)
        for parameter in learner.parameters.values():
            torch.nn.init.normal_(parameter, std=0.1)
    return learner


def of_length(tokens):
    return Minibatch([sample(prompt(tokens, 5), tokens - 5, (tokens, 0))], 1.0, 1, False)


@pytest.mark.parametrize(
    ("family", "lora", "checkpointing", "graphs"), [("llama", 4, False, 4), ("gemma3", 0, True, 5)]
)
def test_same_gradient_and_compiled_once(compiler, family, lora, checkpointing, graphs):
    """However the mini-batch is cut. A layer has four pieces: the norm, what is before attention, what is right after
    it, and the rest. Gemma's layers are of two kinds, which differ in the second piece. However long a row is, too:
    also as long as one of the model's own sizes, and first of all as long as it is wide."""
    module, minibatch = plain_module(family), Minibatch(everything(), 1.0, 1, False)
    assert module.config.num_hidden_layers == 3
    compiled = learner_of(module, lora, checkpointing=checkpointing, compile=True)
    plain = learner_of(module, lora, checkpointing=checkpointing)
    for tokens in (32, 48, 8, 9, 100, 16, 300):
        expected, _ = gradient(plain, of_length(tokens), weighted)
        assert_close(expected, gradient(compiled, of_length(tokens), weighted)[0], rtol=5e-6)
        assert compiler.graphs == {"forward": graphs, "backward": graphs}
    for budget in (MUCH, 500, 200, 1):
        for learner in (compiled, plain):
            learner.config = learner.config.model_copy(update={"micro_tokens": budget})
        assert_close(gradient(plain, minibatch, weighted)[0], gradient(compiled, minibatch, weighted)[0], rtol=5e-6)
        assert compiler.graphs == {"forward": graphs, "backward": graphs}
    pairs = zip(compiled.logprobs(minibatch.samples), plain.logprobs(minibatch.samples), strict=True)
    assert all(one.tolist() == other.tolist() for one, other in pairs)  # by what was compiled already
    assert compiler.graphs == {"forward": graphs, "backward": graphs}


def test_what_cannot_be_compiled_runs_as_it_is(compiler):
    """Even if that shows only in what would run backward."""
    compiler.refused = "backward"
    module = plain_module("llama")
    learner, plain = learner_of(module, compile=True), learner_of(module)
    for tokens in (20, 30):
        expected, _ = gradient(plain, of_length(tokens), weighted)
        assert_close(expected, gradient(learner, of_length(tokens), weighted)[0], rtol=1e-6)
    assert compiler.graphs["forward"] and not compiler.graphs["backward"]


GENERATED = """
import sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters
from torch._inductor import config
from tests.support.helpers import train
config.compile_threads, config.cpp.vec_isa_ok = 1, True
try:
    torch.compile(lambda x: x.relu() + 1)(torch.ones(9))
except Exception as error:
    sys.exit(f"no code: {error}")
counters.clear()
_, _, steps = train(Path(sys.argv[1]), "learner.compile=true", "algo.name=reinforce", "steps=2", "model.device=cpu")
print(max(step["update"]["ratio_gap"] for step in steps), counters["stats"]["unique_graphs"])
"""


def test_a_run_with_generated_code(tmp_path):
    """Its updates find the log-probs that were sampled. In a process of its own: other tests compile as well. That this
    machine's vectors work is not tried out first, which would take as long as the rest, and no process is started for
    each core, which would have to import torch."""
    file = tmp_path / "generated.py"
    file.write_text(GENERATED)
    program = Program(file, str(tmp_path), folder=tmp_path)
    code, printed = program.finish(840)
    if "no code: " in program.errors:
        pytest.skip("torch.compile finds no working C++ compiler: `apt-get install g++`")
    assert code == 0, program.errors
    gap, graphs = printed.split()[-2:]
    assert float(gap) < 1e-5
    assert int(graphs) == 4, program.errors
