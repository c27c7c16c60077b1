"""AEPO, agentic (arXiv 2510.14545): tokens that the policy was unsure of count more.

    A_it = A_i (1 + w z_it),   A_i = (R_i - mean) / (std + 1e-6)
    z_it = (H_it - mean H) / std H,   over all action tokens of the step
    maximize the mean over attempts of the mean over action tokens of
        min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A)

H is the entropy of the distribution a token was drawn from. Forks in an agent's reasoning have high entropy: there is
where exploration pays.

Differs from the paper: this page is its advantages alone. The clip that keeps the gradient of unsure tokens and the
rollouts that branch at unsure turns are parts of their own; here the clip is PPO's and attempts are independent. The
authors' code takes the mean and the deviation over a micro-batch of current entropies; here they are the step's, from
the policy that sampled.
"""

from dataclasses import dataclass

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import Standardized
from longloop.algos.parts.objective import Clipped
from longloop.algos.parts.shape import EntropyUp


@dataclass(frozen=True, kw_only=True)
class Aepo(Composed):
    w: float = 0.2
    """How much a token gains whose entropy is one standard deviation above the mean."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    @property
    def parts(self) -> Parts:
        objective = Clipped(low=1 - self.clip_low, high=1 + self.clip_high)
        return Parts(credit=Standardized(), shape=(EntropyUp(self.w),), objective=objective)
