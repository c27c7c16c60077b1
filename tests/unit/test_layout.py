"""How samples become mini-batches, micro-batches and tensors: devices, types, budgets and order."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from longloop.algos.reduce import to_samples
from longloop.learners.batching import microbatches, minibatches, pack
from longloop.types import Message, Sample, Turn
from tests.support.samples import CPU, attempt


def sample(opening: int, length: int, number: int, rest: int = 9) -> Sample:
    """An opening of so many equal ids, then chosen tokens."""
    n = length + rest
    return Sample(
        ids=(opening,) * length + tuple(range(1, rest + 1)),
        mask=(0,) * length + (1,) * rest,
        logprobs=(-1.0,) * n,
        turns=(0,) * n,
        advantages=(1.0,) * n,
        weights=(1.0,) * n,
        source=(0, number),
    )


def test_all_tensors_are_on_the_device() -> None:
    one = sample(5, 70, 0).with_columns(reference=np.full(79, -1.0), mine=np.full(79, 0.5))
    packed = pack([one, replace(one, source=(0, 1))], 1, torch.device("meta"))
    tensors = [getattr(x, f.name) for x in (packed, packed.batch) for f in fields(x)]
    tensors = [t for t in (*tensors, *packed.batch.columns.values()) if isinstance(t, torch.Tensor)]
    assert len(tensors) == 12 and {t.device.type for t in tensors} == {"meta"}


def test_whole_numbers_become_floats() -> None:
    """Where an algorithm gave an int for a float."""
    one = replace(sample(5, 3, 0), weights=(1,) * 12, advantages=(2,) * 12, logprobs=(0,) * 12)
    batch = pack([one], 7, CPU).batch
    assert {t.dtype for t in (batch.weight_N, batch.adv_N, batch.old_N, batch.own_N)} == {torch.float32}
    assert batch.step == 7 and batch.columns == {}


def test_openings_that_are_not_shared_count_in_full() -> None:
    """Three samples of 79 tokens with openings of their own fill a budget of 3 * 79, and not one token less."""
    samples = [sample(opening, 70, opening) for opening in (5, 6, 7)]
    assert [len(piece) for piece in microbatches(samples, 3 * 79, False)] == [3]
    assert [len(piece) for piece in microbatches(samples, 3 * 79 - 1, False)] == [2, 1]
    assert [len(piece) for piece in microbatches(samples, 79, False)] == [1, 1, 1]


def test_short_samples_come_first() -> None:
    samples = [sample(5, 3, 0, rest=9), sample(6, 3, 1, rest=2), sample(7, 3, 2, rest=5)]
    (piece,) = microbatches(samples, 100, False)
    assert [s.source for s in piece] == [(0, 1), (0, 2), (0, 0)]
    equal = [replace(sample(5, 3, n), stretch=s) for n, s in ((2, 0), (1, 1), (1, 0))]
    (piece,) = microbatches(equal, 100, False)
    assert [(s.source, s.stretch) for s in piece] == [((0, 1), 0), ((0, 1), 1), ((0, 2), 0)]


def test_turns_and_trajectories_are_numbered_through() -> None:
    """A turn of one attempt is not that of another; stretches of an attempt share its number."""
    attempts = [attempt(1.0, (2, 1), 0), attempt(1.0, (1, 2, 1), 1, fresh=(2,))]
    batch = pack([s for t in attempts for s in to_samples(t, 4, 1.0, 1.0)], 1, CPU).batch
    assert batch.turn_N.tolist() == [0, 0, 1, 2, 3, 3, 4] and batch.unit_N.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert (batch.turns, batch.units) == (5, 2)


def test_pairs_are_units() -> None:
    """Samples of one pair lie in one mini-batch and have one number, whatever their trajectories."""
    samples = [replace(sample(5, 3, n), pair=p) for n, p in ((0, 0), (1, 0), (0, 1), (2, 1), (3, 2), (4, 2))]
    options: Any = {"average": "trajectories", "whole_units": True, "step": 3, "epoch": 0, "seed": 0}
    cut = list(minibatches(samples, 2, **options))
    assert sorted(len(m.samples) for m in cut) == [2, 4]
    assert all(m.norm == 2.0 and m.whole_units and m.step == 3 for m in cut)
    assert all(len([s for s in m.samples if s.pair == p]) in (0, 2) for m in cut for p in range(3))
    assert [m.on_policy for m in cut] == [True, False]
    assert not any(m.on_policy for m in minibatches(samples, 2, **options | {"epoch": 1}))
    assert pack(samples, 1, CPU).batch.units == 3
    assert [m.norm for m in minibatches(samples, 0, **options)] == [3.0], "all at once: as many as there are"


def test_a_mean_over_tokens_counts_those_of_the_minibatch() -> None:
    samples = [sample(5, 3, n, rest=n + 1) for n in range(5)]
    options: Any = {"whole_units": False, "step": 1, "epoch": 0, "seed": 0}
    for m in minibatches(samples, 2, average="tokens", **options):
        assert m.norm == sum(s.action_tokens for s in m.samples) and not m.whole_units


@pytest.mark.parametrize("length", [64, 65])
def test_positions_go_on_behind_an_opening(length: int) -> None:
    """From 65 tokens on, 64 of them are shared: they lie once, and what follows has its own positions."""
    samples = [sample(5, length, n, rest=2 + n) for n in range(2)]
    packed = pack(samples, 1, CPU)
    if length == 64:
        assert packed.lengths == [66, 67] and packed.after == [-1, -1]
        assert packed.position_T.tolist() == [*range(66), *range(67)]
    else:
        assert packed.lengths == [64, 3, 4] and packed.after == [-1, 0, 0]
        assert packed.position_T.tolist() == [*range(64), 64, 65, 66, 64, 65, 66, 67]


def test_columns_are_read_only_and_leave_the_callers_array_alone() -> None:
    mine = np.array([1, 2, 3])
    turn = Turn((), mine, Message("assistant", ""), [4, 5], [-0.5, -0.25])  # type: ignore[arg-type]
    for column in (turn.context_ids, turn.action_ids, turn.action_logprobs, sample(5, 3, 0).weights):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 9
    mine[0] = 7  # the caller's own stays writable
    assert turn == Turn((), mine, Message("assistant", ""), np.array([4, 5]), np.array([-0.5, -0.25]))
    assert turn != Turn((), mine, Message("assistant", ""), np.array([4, 6]), np.array([-0.5, -0.25]))
