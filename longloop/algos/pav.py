"""PAV (arXiv 2410.08146): besides its outcome, an attempt is paid for the progress that each turn makes.

    q(s_u) = mean reward of m side rollouts from the state before turn u;  after the last turn, R
    Q(s) = 1 - (1 - q(s))^best_of                      the best of so many attempts, picked by a perfect verifier
    A_iu = R_i - mean of the other attempts' rewards + alpha (Q(s_u+1) - Q(s_u))
    maximize LOOP's objective

Progress is measured under a prover: where the policy rarely succeeds, Q still rises with each step in the right
direction. best_of = 1 gives alpha times VinePPO's advantage, alpha = 0 LOOP. Rewards are shares of success, in 0..1.

Differs from the paper: q comes from side rollouts instead of a model fitted to them once, so it is that of the policy
as it is now. alpha is not certain (3 to 5 in what we read); m and its bounds are VinePPO's, all else LOOP's.
"""

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts import branches, rollouts


class Pav(Composed):
    alpha: float = 3.0
    """How much progress counts beside the outcome."""
    best_of: int = 4
    """Attempts of which the prover's is the best."""
    m: int = 9
    """Side rollouts from each state."""
    every: int = 1
    """Value the states before every so many-th turn."""
    max_states: int = 20
    """The most states of an attempt that are valued."""

    def compose(self) -> Parts:
        sides = rollouts.FromStates(self.m, self.every, self.max_states)
        return Parts(rollouts=sides, rewards=branches.Progress(self.alpha, self.best_of), credit=branches.PlusTurns())
