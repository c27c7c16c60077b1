"""EPO: entropy-regularized policy optimization (arXiv 2509.22576), for agents with many turns and one reward.

    W = mean over the steps before of the step's mean token entropy
    P_t = [low W - H_t]+ + [H_t - high W]+
    minimize  L - bonus * mean over attempts, turns and tokens of (H_t - beta_k penalty P_t),   L LOOP's loss
    beta_k = 1 + exp(-decay k / k_mid),  k steps done, k_mid half of all;  no penalty at the first step

With one reward after many turns, entropy first collapses, later explodes: the bonus works against the one, the corridor
against both.

Differs from the paper: this is its second version; in the authors' code the penalty is a constant without gradient, and
what remains is the bonus. The corridor is their README's (0 to 2; their yaml has 0.8 to 1.2), the penalty that of
ScienceWorld (0.1 elsewhere), `decay` is not given. Their learning rate is 3e-6 to 5e-6. Attempts without advantage are
kept, for their entropy.
"""

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.hold import Corridor


class Epo(Composed):
    bonus: float = 0.001
    """How much entropy counts beside the reward."""
    penalty: float = 0.05
    """How much a distance from the corridor counts beside entropy."""
    low: float = 0.0
    """The corridor's lower end, as a multiple of W."""
    high: float = 2.0
    """The corridor's upper end, as a multiple of W."""
    decay: float = 1.0
    """How fast the weight of the penalty falls during the run, from twice `penalty` towards `penalty`."""

    def compose(self) -> Parts:
        return Parts(choose=(), hold=(Corridor(self.bonus, self.penalty, self.low, self.high, self.decay),))
