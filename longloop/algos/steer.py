"""STEER (arXiv 2510.10150): tokens count less, the more their update would change the entropy, up or down.

    A = (R - mean) / (std + 1e-6);   d_t = |A_t (1 - p_t)(log p_t + H_t)|, the change of entropy to the first order
    weight_t = exp(-k d_t), within [least, 1],   k = -log(least) / max(0.02, largest d_t of the step)
    maximize the mean over all action tokens of  weight_t min(r_t A, clip(r_t, 1 - clip_low, 1 + clip_high) A)

Differs from the paper: d and its largest value are those of the step, with the sampling policy (the authors': of a
micro-batch). Their second, linear map to weights is not here. The number of the paper is not certain.
"""

from longloop.algos.composed import DropSmall, FromDapo, Parts, clipped
from longloop.algos.parts.choose import DampDrift


class Steer(FromDapo):
    least: float = 0.8
    """The weight of the token that changes the entropy most; 1 treats all alike."""
    dual: float = 10.0
    """The ratio beyond which negative tokens no longer push."""

    def compose(self) -> Parts:
        objective = clipped(self.clip_low, self.clip_high, average="tokens", dual=self.dual)
        return self.dapo(choose=(DropSmall(), DampDrift(self.least)), objective=objective)
