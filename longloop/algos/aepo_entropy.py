"""AEPO, arbitrary entropy (arXiv 2510.08141): the policy's entropy is steered to a chosen level.

    A = (R - mean) / (std + 1e-6)
    H = mean of -log p over the tokens of the step before (0 at first);  T = hot where H <= target, else cold
    A'_t = (1 - a) A + a [R > 0] p^T_t / p_t,   a = x / (x + 1),   x = min(|target - H|, most) / share of successes
    maximize the mean over all action tokens of  min(r_t A', clip(r_t, 1 -+ clip) A')

p^T is the policy at temperature T: to learn from successes as if they had been drawn hotter makes the policy less
certain. At H = target, and without a success, A' is A.

Differs from the paper: it draws further attempts at temperature T and adds (its code: replaces) samples. This is the
code's variant that weighs the attempts there are (DCPO).
"""

from longloop.algos.composed import Composed, Parts, Standardized, clipped
from longloop.algos.parts.shape import Thermostat


class AepoEntropy(Composed):
    target: float = 0.5
    """The entropy to reach, in nats a token."""
    most: float = 0.1
    """The largest distance from it that counts; at 0 A' is A."""
    hot: float = 1.2
    """The temperature T where entropy is at the target or below."""
    cold: float = 0.8
    """The temperature T where entropy is above the target."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        shape = (Thermostat(self.target, self.most, self.hot, self.cold),)
        return Parts(credit=Standardized(), shape=shape, objective=clipped(self.clip, average="tokens"))
