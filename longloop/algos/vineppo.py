"""VinePPO (arXiv 2410.01679): the values of an attempt's states are estimated by playing on from each of them.

    V(s_u) = mean reward of m side rollouts from the state before turn u
    A_u = V(s_u+1) - V(s_u),    for the last turn R - V(s_u)
    maximize the mean over attempts of the mean over action tokens of
        min(r_t A, clip(r_t, 1 - clip, 1 + clip) A) - kl * (exp(d_t) - d_t - 1),   d_t = log p_ref - log p

Each advantage is unbiased, which no critic's is. Side rollouts are never trained on; they are what the method costs, m
for each state, all counted against a budget. `every` and `max_states` buy fewer; a turn whose state was not valued has
advantage 0, as in the authors' code. With m = 0 this is LOOP with a symmetric clip and a KL term. The environment must
answer equal actions equally: a state is reached by taking its actions again.

Differs from the paper: attempts that share a state share its value (the first state always, K m rollouts become m);
advantages are not whitened, which would end their adding up to R - V(s_0); the temperature is the run's.
"""

from longloop.algos.composed import DropSmall, FromGrpoTwice, Parts
from longloop.algos.parts.branches import ValueSteps
from longloop.algos.parts.rollouts import FromStates


class VinePpo(FromGrpoTwice):
    k: int = 8
    m: int = 9
    """Side rollouts from each state."""
    every: int = 1
    """Value the states before every so many-th turn."""
    max_states: int = 20
    """The most states of an attempt that are valued."""
    kl: float = 1e-4

    def compose(self) -> Parts:
        rollouts = FromStates(self.m, self.every, self.max_states)
        return self.grpo(rollouts=rollouts, credit=ValueSteps(), choose=() if self.kl else (DropSmall(),))
