"""TRM: trust region masking (arXiv 2512.23075). One token that the policy moved too far on drops its whole turn.

    x_t = log p_t - log p_sampling,t before the update;   k_t = e^x_t - 1 - x_t   (or x_t^2 / 2)
    maximize LOOP's objective over the units with max k_t <= delta, divided by the number of all

How far the objective may be from the truth depends on the largest divergence of a sequence's tokens, which clipping
each token alone does not bound. At a step's first update with the policy's own samples nothing is dropped.

Differs from the paper: the unit is a turn, since with many turns almost every trajectory has such a token (`unit =
"trajectory"` is the paper's). No delta is given for the maximum; 0.05 is a guess. All else is LOOP's.
"""

from typing import Literal

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.objective import TrustRegion
from longloop.algos.reduce import Unit


class Trm(Composed):
    delta: float = 0.05
    """The largest divergence of a token; inf keeps everything."""
    unit: Unit = "turn"
    """What is dropped for one token."""
    divergence: Literal["k2", "k3"] = "k3"
    """A token's divergence: `k3` is e^x - 1 - x, `k2` is x^2 / 2."""

    def compose(self) -> Parts:
        return Parts(objective=TrustRegion(delta=self.delta, unit=self.unit, divergence=self.divergence))
