"""DMPO: direct multi-turn preference optimization (arXiv 2406.14868), as LOOP's paper compares it.

    two attempts at each of n tasks                                          collect
    a pair wherever their rewards differ by more than `gap`                  pairs
    minimize -log sigmoid(margin), a token of turn u weighted by             algos/preference.py
        phi(u, T) = gamma^u (1 - gamma^(T-u)) / (1 - gamma^T)                phi

phi falls from 1 at the first turn towards 0 at the last of T, with gamma = 1 as (T - u) / T, which takes the different
lengths of two attempts out of the comparison. Epochs and warm-up are those of the authors' code.

Differs from the paper: as in LOOP's comparison, both attempts are the policy's own and the reference is renewed in
every iteration; the authors compare an expert's with an own one, once, against the imitated model. `gap` is ours.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from longloop.algos.preference import Preference
from longloop.algos.reduce import refuse_conversations
from longloop.types import Group, Sample, Trajectory


class Dmpo(Preference):
    k: int = 2
    epochs: int = 3
    warmup: float = 0.1
    gamma: float = 0.7
    """The discount of later turns; at 1 their weights fall evenly."""
    gap: float = 0.0
    """Pairs whose rewards differ by no more are left out."""

    min_scored = 2

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        refuse_conversations(group.policy_trajectories)
        for pair in combinations(group.policy_trajectories, 2):
            worse, better = sorted(pair, key=lambda t: t.reward)
            if better.reward - worse.reward > self.gap:
                yield better, worse

    def to_samples(self, trajectory: Trajectory, group_index: int) -> list[Sample]:
        turns = len(trajectory.turns)
        phi_T = np.array([phi(turn, turns, self.gamma) for turn in range(turns)])
        return [
            replace(sample, weights=sample.weights * phi_T[sample.turns])
            for sample in super().to_samples(trajectory, group_index)
        ]


def phi(turn: int, turns: int, gamma: float) -> float:
    """What turn number `turn` of so many counts, the first being number 0."""
    if gamma == 1:
        return (turns - turn) / turns
    return gamma**turn * (1 - gamma ** (turns - turn)) / (1 - gamma**turns)
