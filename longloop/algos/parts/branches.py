"""Credit and rewards from side rollouts: what the states of an attempt are worth, and what each turn changed of it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from longloop.algos.parts.credit import LeaveOneOut, OfGroups
from longloop.algos.parts.part import Advantages, Paid
from longloop.algos.parts.rewards import Rewards
from longloop.algos.parts.rollouts import State, state_before
from longloop.algos.reduce import leave_one_out
from longloop.types import Group, Trajectory


class ValueSteps(OfGroups):
    """VinePPO's: A_u = V(s_u+1) - V(s_u), and for the last turn R - V(s_u). An attempt none of whose states has a value
    is compared with the other attempts, as in LOOP."""

    in_time = True
    min_scored = 1

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        known = state_values(group)
        alone = leave_one_out(paid.outcomes) if len(paid.outcomes) > 1 else [0.0]
        return [
            [after - before for before, after in pairwise(values_of(t, outcome, known))]
            if valued(t, known)
            else [advantage] * len(t.turns)
            for t, outcome, advantage in zip(group.scored, paid.outcomes, alone, strict=True)
        ]


class Progress(Rewards):
    """PAV's: a turn is paid alpha (Q(s_u+1) - Q(s_u)), Q the success of the best of so many attempts from a state. One
    without a value counts as the next, so that its turn is paid nothing."""

    in_time = True
    alpha: float = 3.0
    best_of: int = 4

    def of_group(self, group: Group) -> Paid:
        known, turns = state_values(group), []
        for t in group.scored:
            values = map(self.prover, values_of(t, t.reward, known))
            turns.append([self.alpha * (after - before) for before, after in pairwise(values)])
        return Paid(turns, [t.reward for t in group.scored])

    def prover(self, value: float) -> float:
        """Q = 1 - (1 - q)^n: how often the best of n attempts succeeds, when a share q of them does."""
        return float(1 - (1 - min(max(value, 0.0), 1.0)) ** self.best_of)


class PlusTurns(LeaveOneOut):
    """A_iu = R_i - mean of the other attempts' rewards + what turn u was paid."""

    def of_group(self, group: Group, paid: Paid) -> Advantages:
        whole = self.advantages(paid.outcomes)
        return [[a + reward for reward in turns] for a, turns in zip(whole, paid.turns, strict=True)]


def state_values(group: Group) -> dict[State, float]:
    """The mean reward of the side rollouts from each state."""
    rewards: dict[State, list[float]] = defaultdict(list)
    for side in group.sides:
        rewards[state_before(side, side.replayed)].append(side.reward)
    return {state: fmean(paid) for state, paid in rewards.items()}


def valued(trajectory: Trajectory, known: Mapping[State, float]) -> bool:
    """Whether any of its states has a value."""
    return any(state_before(trajectory, turn) in known for turn in range(len(trajectory.turns)))


def values_of(trajectory: Trajectory, outcome: float, known: Mapping[State, float]) -> Sequence[float]:
    """The values of the states before each turn, and after the last the outcome. A state without one has that of the
    next: its turn has no advantage, and the last turn before it that has a value takes it all."""
    values = [outcome]
    for turn in reversed(range(len(trajectory.turns))):
        values.append(known.get(state_before(trajectory, turn), values[-1]))
    return values[::-1]
