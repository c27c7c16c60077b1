"""TIS: truncated importance sampling (verl's rollout correction), for an engine that samples from another policy.

    q_t = p_learner / p_engine before the step's first update
    maximize LOOP's objective with the weight of each token times min(q_t, cap), and r_t = p / p_learner

LOOP's ratio against the log-probs of an engine with other kernels or stale weights corrects that too, but within its
clip range; here the correction and the clip are apart. With longloop's own engine q is 1 up to rounding.

Differs from the paper: the settings are LOOP's. verl's masks by geometric means of q are not here; see `trm`.
"""

from typing import Literal

from longloop.algos.composed import Composed, DropSmall, Parts
from longloop.algos.parts.choose import Corrected
from longloop.algos.reduce import Unit


class Tis(Composed):
    cap: float = 2.0
    """The largest weight; 0 for no correction at all, which is LOOP."""
    unit: Unit = "token"
    """What has one q: a turn's and a trajectory's is the product over its tokens."""
    beyond: Literal["cap", "drop"] = "cap"
    """What becomes of a larger q: it is cut to the cap, or the unit does not count."""

    def compose(self) -> Parts:
        return Parts(choose=(DropSmall(), Corrected(self.cap, self.unit, self.beyond)) if self.cap else (DropSmall(),))
