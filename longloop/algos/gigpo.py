"""GiGPO (arXiv 2505.10978): an attempt is compared with its group, each turn with the turns that began in its state.

    A_iu = (R_i - mean R) + w (G_iu - mean of G at the same state),    G_iu = sum_v gamma^(v-u) reward_v

reward_v is what the environment paid for turn v, the outcome added to the last. Equal states have equal keys, which the
environment gives (`Step.info["state"]`); a state that was met once has the second term 0, and with w = 0 this is GRPO
without the division. The metric `states_met_again` is the share of turns in states that were met more than once.

With history = h (HGPO, arXiv 2602.22817, has up to 2) the second term is a mean over keys of the last n = 1 .. h + 1
states, weighted n^alpha, of those lengths at which the turn has another to be compared with.

Differs from the paper: neither term is divided by a standard deviation (their `mean_norm`), and the mean of R is over
trajectories, where the authors' code counts one once for each of its turns. The same state met twice in one attempt
counts twice, as there. One update a step at LOOP's learning rate (theirs is 1e-6); rewards are the environment's
(theirs: 10 for a success, -0.1 for an invalid action). HGPO's code leaves out every length whose term is 0.
"""

from longloop.algos.composed import FromGrpo, Parts
from longloop.algos.parts.credit import Anchors


class Gigpo(FromGrpo):
    k: int = 8
    w: float = 1.0
    """How much the comparison at equal states counts."""
    gamma: float = 0.95
    """The discount of later turns' rewards."""
    history: int = 0
    """States before the turn's own that the longest key has; 0 for GiGPO, more for HGPO."""
    alpha: float = 1.0
    """How much more longer keys count, where there is a history."""
    kl: float = 0.01

    def compose(self) -> Parts:
        return self.grpo(credit=Anchors(self.w, self.gamma, self.history, self.alpha))
