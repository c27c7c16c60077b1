"""On a CUDA device: a model in shards. Two processes share the card, with gloo between them, which is not recorded; and
one alone records its passes, with the sums of NCCL in them.

The same functions run on CPUs in tests/unit/test_shards.py and tests/unit/test_graphs.py.
"""

from typing import Any

import numpy as np
import pytest
import torch

from longloop.engines.engine import NativeEngine
from tests.support.families import CHAT, FAMILIES, config, prompt
from tests.support.gloo import together
from tests.support.shards import (
    Said,
    all_recorded,
    both_readers,
    frozen,
    gradients,
    held,
    logits,
    recorded,
    talks,
    whole,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
AGREES = 2e-3
"""Log-probs in float32, of models whose logits are in the tens."""


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """What each of two ranks on the card has found, for every family."""
    return together(2, both_readers, FAMILIES, "cuda", spawned=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_readers_of_one_copy(family: str, ranks: list[dict[str, Any]]) -> None:
    """The learner's logits and gradients of adapters are the whole model's, the engine's too but for the order of sums;
    every number of a matrix is held by one rank."""
    model = whole(family, "cuda")
    expected = logits(model, prompt(9, 20))
    for rank, found in enumerate(ranks):
        by_engine, by_learner, own, _ = found[family][0]
        assert np.abs(by_engine - expected).max() < 5e-3
        assert np.abs(by_learner - expected).max() < 1e-3
        model.module.zero_grad()
        of_whole = gradients(model, rank)
        assert of_whole.keys() == own.keys() == model.trainable().keys()
        for name, gradient in of_whole.items():
            assert np.linalg.norm(gradient - own[name]) < 1e-3 * np.linalg.norm(gradient), name
    first, second = (found[family][0][3] for found in ranks)
    for name, p in frozen(model).items():
        parts = [first[name]] if p.ndim == 1 else [first[name], second[name]]
        dim = int(p.ndim > 1 and first[name].shape[0] == p.shape[0])
        np.testing.assert_array_equal(np.concatenate(parts, dim), p.cpu().numpy(), err_msg=name)


def assert_mostly_equal(said: Said, expected: Said) -> None:
    """A draw that falls between the rounding of two ways to compute ends one conversation otherwise, not two."""
    same = [[ids for ids, _ in one] == [ids for ids, _ in other] for one, other in zip(said, expected, strict=True)]
    assert sum(same) >= len(same) - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_two_ranks_sample_together(family: str, ranks: list[dict[str, Any]]) -> None:
    """Log-probs are the learner's, with the first weights and with others; tokens those of the whole model."""
    ((said, gap), (_, later)), (page, left) = (found[family][1] for found in ranks)
    assert max(gap, later) < AGREES
    assert_mostly_equal(said, talks(NativeEngine(whole(family, "cuda"), CHAT, slots=6)))
    assert page[2] == config(family).num_key_value_heads // 2, "a rank keeps keys and values of its own heads"
    assert left == 0


def test_two_ranks_hold_one_copy() -> None:
    """By what each has taken of the card's memory; adapters and norms are on both."""
    (first, of_whole), (second, _) = together(2, held, "cuda", spawned=True)
    assert 0.95 * of_whole < first + second < 1.3 * of_whole


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """What a rank has found whose group, of NCCL, has no other, for every family. It ends by itself: the recordings, in
    which the connection is used, have gone before it."""
    return together(1, all_recorded, FAMILIES, "cuda", spawned=True, device="cuda:0")[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_passes_hold_the_sums_over_ranks(family: str, alone: dict[str, Any]) -> None:
    """Two of each layer and one of the embeddings, in every recording; old recordings use new weights."""
    said, gaps, made, sums = alone[family]
    assert max(gaps) < AGREES
    assert made > 1 and sums == made * (2 * config(family).num_hidden_layers + 1)
    assert_mostly_equal(said, talks(NativeEngine(whole(family, "cuda"), CHAT, slots=6)))


@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_recorded_passes_can_be_compiled(family: str) -> None:
    """Sums over ranks and all."""
    ((said, gaps, made, _),) = together(1, recorded, family, "cuda", True, spawned=True, device="cuda:0")
    assert max(gaps) < 5e-3 and made > 1
    assert_mostly_equal(said, talks(NativeEngine(whole(family, "cuda"), CHAT, slots=6)))
