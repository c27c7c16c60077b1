"""The number of ranks is no part of a gradient: shares, their tree, and every algorithm on 1, 2 and 4 ranks."""

import random
from dataclasses import replace

import pytest
import torch

from longloop.learners.shares import OneRank, add_up, deal, in_order, plus
from tests.support.ranks import SimulatedRanks
from tests.support.samples import VARIANTS, first_minibatch, learner, make, mixed_groups, sampled, weights

SHARES = 4


def test_pieces_are_dealt_from_half_to_half():
    assert deal([1] * 11, 8) == [[0, 8], [4], [2, 10], [6], [1, 9], [5], [3], [7]]
    assert deal([1, 2, 3], 1) == [[0, 1, 2]]
    assert deal([], 2) == [[], []]
    assert deal([5, 1, 4, 8], 2) == [[1, 3], [0, 2]], "8 + 1 and 5 + 4"
    assert deal([1, 3, 2, 2, 4, 6], 4) == [[5], [0, 2], [4], [1, 3]], "6 + 2 + 1 and 4 + 3 + 2, then in two"


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("pieces", [1, 3, 6, 8, 21])
def test_every_rank_gets_its_part_of_the_pieces(pieces, ranks):
    dealt, size = deal([7] * pieces, 8), 8 // ranks
    parts = [sum(map(len, dealt[rank * size : (rank + 1) * size])) for rank in range(ranks)]
    assert max(parts) - min(parts) <= 1 and sum(parts) == pieces
    assert in_order(dealt, [f"piece {n}" for share in dealt for n in share]) == [f"piece {n}" for n in range(pieces)]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_rank_gets_its_part_of_the_tokens(ranks):
    """No two parts differ by more than the longest piece, at each level of the tree."""
    tokens = [random.Random(ranks).randint(100, 2000) for _ in range(40)]
    dealt, size = deal(tokens, 8), 8 // ranks
    parts = [sum(tokens[n] for share in dealt[rank * size : (rank + 1) * size] for n in share) for rank in range(ranks)]
    assert sum(parts) == sum(tokens) and max(parts) < 1.1 * sum(tokens) / ranks


def test_the_sum_is_that_of_the_tree():
    """In float32, 2^24 + 1 is 2^24: the order of additions is seen in the sum."""
    big, one = 2.0**24, 1.0
    numbers = [big, one, one, one]

    def sum_of(shares: list[float]) -> float:
        (total,) = add_up(shares, lambda share: [torch.tensor(share)])
        assert total is not None
        return total.item()

    assert sum_of(numbers) == big + 2  # (big + 1) + (1 + 1); one after another it would be big
    assert sum_of([one, one, one, big]) == big + 2  # (1 + 1) + (1 + big); one after another it would be big + 4


def test_a_gradient_that_is_missing_is_no_zero():
    negative = torch.tensor(-0.0)
    assert plus(None, None) is None
    for kept in (plus(negative, None), plus(None, negative)):
        assert kept is not None and torch.signbit(kept)
    found = add_up([None, 1.0, None, 2.0], lambda share: [None if share is None else torch.tensor(share), None])
    assert found == [torch.tensor(3.0), None]


@pytest.mark.parametrize("variant", VARIANTS)
def test_any_number_of_ranks_gives_the_same_bits(variant):
    """Gradient, metrics, weights and moments after two updates; micro-batches of a sample or two."""
    algo = make(variant, k=3, lr=0.01)
    results = []
    for count in (1, 2, 4):
        team = [learner(algo, lora=4, micro_tokens=20, shares=SHARES) for _ in range(count)]
        lead = team[0]
        if count > 1:
            lead.ranks = SimulatedRanks(team, SHARES)
        else:
            assert isinstance(lead.ranks, OneRank)
        groups = sampled(mixed_groups(), lead, shift=0.1)
        updates = [lead.update(first_minibatch(algo, groups, lead), algo.loss) for _ in range(2)]
        assert not any(update.stop for update in updates)
        for other in team[1:]:
            assert all(torch.equal(p, weights(other)[name]) for name, p in weights(lead).items())
            assert all(p.grad is None for p in other.parameters.values())
        if isinstance(lead.ranks, SimulatedRanks):
            assert min(lead.ranks.computed) > 0
        state = [moment for p in lead.parameters.values() for moment in lead.optimizer.state.get(p, {}).values()]
        results.append(([update.metrics for update in updates], [*weights(lead).values(), *state]))
    (metrics, tensors), *others = results
    for other_metrics, other_tensors in others:
        assert other_metrics == metrics
        assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(tensors, other_tensors, strict=True))


def test_shares_are_seen_in_the_last_bits_and_only_there():
    """Otherwise the test above would say nothing."""
    algo = make("loop", k=3)
    found = []
    for shares in (1, SHARES):
        lead = learner(algo, lora=4, micro_tokens=20, shares=shares)
        lead.gradient(first_minibatch(algo, sampled(mixed_groups(), lead, shift=0.1), lead), algo.loss)
        found.append(torch.cat([p.grad.flatten() for p in lead.parameters.values() if p.grad is not None]))
    assert not torch.equal(*found)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_all_weights_have_one_share_a_rank():
    """Sums that wait would take as much memory as the model; two ranks agree with one up to rounding."""
    algo = make("loop", k=3)
    alone, *pair = (learner(algo, micro_tokens=20, shares=SHARES) for _ in range(3))
    assert alone.shares == 1
    pair[0].ranks = SimulatedRanks(pair, len(pair))
    minibatch = first_minibatch(algo, sampled(mixed_groups(), alone, shift=0.1), alone)
    for one in (alone, pair[0]):
        one.gradient(minibatch, algo.loss)
        one.ranks.add_up()
    for name, p in alone.parameters.items():
        torch.testing.assert_close(p.grad, pair[0].parameters[name].grad, rtol=1e-4, atol=1e-6, msg=name)


def test_a_guard_leaves_every_rank_without_a_step_and_without_a_gradient():
    algo = make("loop", k=3)
    team = [learner(algo, lora=4, micro_tokens=20, shares=SHARES) for _ in range(2)]
    team[0].ranks = SimulatedRanks(team, SHARES)
    minibatch = first_minibatch(algo, sampled(mixed_groups(), team[0], shift=0.0), team[0])
    before = weights(team[1])
    update = team[0].update(replace(minibatch, norm=float("nan")), algo.loss)
    assert "NaN guard" in update.stop
    for one in team:
        assert all(torch.equal(p, before[name]) for name, p in weights(one).items())
        assert all(p.grad is None for p in one.parameters.values()) and one.policy.version == 0
