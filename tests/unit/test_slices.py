"""All weights trained on several ranks: each optimizes a slice, and the step is the one that all would take alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from longloop.cluster.exchange import Exchange
from longloop.cluster.rank import add_up, spread
from longloop.learners.batching import laid_out, microbatches
from longloop.learners.local import LocalLearner
from longloop.learners.shares import NOTHING, OneRank, deal
from longloop.learners.slices import owners
from tests.support.gloo import together
from tests.support.ranks import SimulatedRanks
from tests.support.samples import first_minibatch, learner, make, mixed_groups

UPDATES = 3


def test_slices_are_about_equal():
    """By hand: e (9) to rank 0, b (8) to rank 1, c (4) to rank 1, a (3) to rank 0, d (1) to rank 0."""
    tensors = {name: torch.empty(size) for name, size in {"a": 3, "b": 8, "c": 4, "d": 1, "e": 9}.items()}
    assert owners(tensors, 2) == {"a": 0, "b": 1, "c": 1, "d": 0, "e": 0}
    assert list(owners(tensors, 2)) == list(tensors)
    assert owners(tensors, 1) == dict.fromkeys(tensors, 0)
    assert sorted(owners(tensors, 8).values()) == [0, 1, 2, 3, 4]


def _sums(exchange: Exchange) -> Any:
    """Four tensors, one of each rank's own; the last has a gradient on rank 2 alone, and the third on none."""
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(4)]
    for number in (0, 1):
        parameters[number].grad = torch.tensor(NUMBERS[exchange.rank]) * (number + 1)
    if exchange.rank == 2:
        parameters[3].grad = torch.tensor([-0.0, 3.0, 4.0])
    norms = exchange.add_up_at(parameters, [0, 3, 2, 1])
    return norms.tolist(), [None if p.grad is None else p.grad.numpy().tobytes() for p in parameters]


NUMBERS = [[2.0**24, 0.1, -0.0], [1.0, 0.7, -0.0], [1.0, -0.3, -0.0], [1.0, 1e-9, -0.0]]


def test_a_sum_goes_to_its_owner_through_the_tree():
    """In float32 2^24 + 1 is 2^24, so the order of additions is seen in the sum; and -0.0 + -0.0 is -0.0."""
    first = (np.float32([2**24, 0.1, -0.0]) + np.float32([1, 0.7, -0.0])) + (
        np.float32([1, -0.3, -0.0]) + np.float32([1, 1e-9, -0.0])
    )
    assert first[0] == 2**24 + 2 and np.signbit(first[2])
    expected = [first.tobytes(), (first * np.float32(2)).tobytes(), None, np.float32([-0.0, 3, 4]).tobytes()]
    for rank, (norms, sums) in enumerate(together(4, _sums)):
        assert norms == pytest.approx([2**24 + 2, 2**25 + 4, -1, 5])
        assert sums == [value if owner == rank else None for value, owner in zip(expected, [0, 3, 2, 1], strict=True)]


def _learned(exchange: Exchange, variant: str, dtype: str) -> Any:
    """Updates as the crew leads them, by all ranks at once."""
    algo = make(variant, k=3, lr=0.01)
    own = learner(algo, micro_tokens=20, dtype=dtype, rank=exchange.rank, count=exchange.count)
    norms = []
    for _ in range(UPDATES):
        own.gradients([_block(own, algo, exchange.rank, exchange.count)], _minibatch(own, algo), algo.loss)
        add_up(exchange, own)
        gone = {name for name, p in own.elsewhere.items() if p.grad is None}
        norms.append(own.clip())
        own.step(1.0)
        spread(exchange, own)
    weights = {name: p.detach().float().numpy() for name, p in own.policy.module.named_parameters()}
    assert gone == set(own.elsewhere)
    return norms, weights, {name: value.numpy() for name, value in own.optimizer_tensors().items()}, _bytes(own)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoint_of_one_rank_is_divided_among_two(rank, tmp_path):
    """In bfloat16: float32 weights are divided, too. What a rank does not hold it passes on."""
    algo = make("ppo", k=3, lr=0.01)
    alone = learner(algo, micro_tokens=20, dtype="bfloat16")
    alone.update(_minibatch(alone, algo), algo.loss)
    alone.save(tmp_path)
    own = learner(algo, dtype="bfloat16", seed=1, rank=rank, count=2)
    own.ranks = passed = Passed()
    own.load(tmp_path)
    held, expected = own.optimizer_tensors(), alone.optimizer_tensors()
    assert not held.keys() & passed.stored.keys()
    assert (held | passed.stored).keys() == expected.keys()
    for name, value in (held | passed.stored).items():
        assert torch.equal(value, expected[name]), name
        parameter = name.partition("/")[2]
        assert (name in held) == (own.owners.get(parameter, rank) == rank), name
    assert all(torch.equal(p, own.policy.trainable()[name]) for name, p in alone.policy.trainable().items())
    own.restart()
    for name, p in own.policy.trainable().items():
        if own.owners[name] == rank:
            assert torch.equal(own.parameters[name], p.float()) and not own.optimizer.state.get(own.parameters[name])


class Passed(OneRank):
    """Notes what other ranks are to hold."""

    def __init__(self) -> None:
        super().__init__(1)
        self.stored: dict[str, torch.Tensor] = {}

    def follow(self, heads: bool = False, stored: Mapping[str, torch.Tensor] = NOTHING) -> None:
        self.stored = dict(stored)


def test_the_norm_is_that_of_all_tensors_that_have_a_gradient():
    """3, none, 4: it is 5. One that is not a number makes the whole so, and the step is not taken."""
    own = learner(make("loop", k=3), rank=0, count=2)
    own.norm_P = torch.tensor([3.0, -1.0, 4.0])
    assert own.clip() == 5.0
    own.norm_P = torch.tensor([3.0, -1.0, torch.nan])
    assert np.isnan(own.clip())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_rank_alone_moves_its_slice_and_a_trial_is_undone(dtype):
    """As `longloop doctor` tries an update before the ranks are connected."""
    algo = make("loop", k=3, lr=0.1)
    own = learner(algo, dtype=dtype, rank=0, count=2)
    before = {name: p.detach().clone() for name, p in own.policy.trainable().items()}

    def moved() -> set[str]:
        return {name for name, p in own.policy.trainable().items() if not torch.equal(p, before[name])}

    with own.on_trial():
        assert not own.update(_minibatch(own, algo), algo.loss).stop
        assert moved() and all(own.owners[name] == 0 for name in moved())
    assert not moved() and not own.optimizer.state


def _minibatch(own: LocalLearner, algo: Any) -> Any:
    """What does not depend on the weights: the ratios' denominators are those of the hand-made attempts."""
    return first_minibatch(algo, mixed_groups(), own)


def _block(own: LocalLearner, algo: Any, rank: int, count: int) -> Any:
    minibatch = _minibatch(own, algo)
    pieces = microbatches(minibatch.samples, own.config.micro_tokens, minibatch.whole_units)
    return [pieces[n] for n in deal([laid_out(piece) for piece in pieces], count)[rank]]


def _bytes(own: LocalLearner) -> int:
    """What is really held for the optimizer."""
    moments = [x for state in own.optimizer.state.values() for x in state.values() if x.ndim]
    apart = [p for p in own.parameters.values() if p.dtype == torch.float32]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in [*moments, *apart]}
    return sum(storages.values())


@pytest.mark.parametrize(("variant", "dtype", "count"), [("loop", "float32", 4), ("ppo", "bfloat16", 2)])
def test_a_step_in_slices_is_the_step_of_ranks_that_hold_everything(variant, dtype, count):
    """Weights, norms, float32 weights and moments, to the bit. PPO has a head beside, which every rank optimizes."""
    algo = make(variant, k=3, lr=0.01)
    team = [learner(algo, micro_tokens=20, dtype=dtype) for _ in range(count)]
    team[0].ranks = SimulatedRanks(team, count)
    updates = [team[0].update(_minibatch(team[0], algo), algo.loss) for _ in range(UPDATES)]
    assert not any(update.stop for update in updates)
    expected = team[0].optimizer_tensors()
    ranks = together(count, _learned, variant, dtype)
    gathered: dict[str, Any] = {}
    for norms, weights, held, _ in ranks:
        assert norms == [update.metrics["grad_norm"] for update in updates]
        for name, p in team[0].policy.module.named_parameters():
            assert p.detach().float().numpy().tobytes() == weights[name].tobytes(), name
        twice = {name for name in gathered.keys() & held.keys() if "head" not in name}
        assert not twice, "a moment exists once"
        gathered |= held
    assert gathered.keys() == expected.keys()
    for name, value in gathered.items():
        assert value.tobytes() == expected[name].numpy().tobytes(), name
    most = max(size for *_, size in ranks)
    if dtype == "bfloat16":  # three numbers of float32 for each weight; the slices of a tiny model are not quite equal
        assert most < 0.65 * _bytes(team[0])
