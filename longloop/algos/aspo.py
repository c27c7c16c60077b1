"""ASPO (arXiv 2508.19201): successes that show a wanted behavior early gain advantage, within bounds; late ones lose.

    A_i = (R_i - mean) / (std + 1e-6)
    A_i + clip(delta (x_i - mean x) / mean L, -bound |A_i|, bound |A_i|)    where i succeeds and shows the behavior

x_i is the number of turns before the first action that shows it, L_i the attempt's turns; the means are over the
group's attempts that succeed and show it. A reward for the behavior could be earned without success; a bounded change
of A cannot flip its sign. delta < 0 favors early behavior.

Differs from the paper: positions and lengths are counted in turns, not tokens; the bounds take |A|, since with graded
rewards a success may have A < 0. The base is DAPO's clip and mean over tokens, without its refilling of batches. delta
and the bound are those of a public port. (Not the ASPO of arXiv 2510.06062.)
"""

from longloop.algos.composed import FromDapo, Parts
from longloop.algos.parts.shape import Nudge


class Aspo(FromDapo):
    k: int = 8
    epochs: int = 1
    delta: float = -2.0
    """How much a later start of the behavior adds; below 0, an earlier one adds."""
    bound: float = 0.7
    """The most that an advantage changes, as a share of it."""
    behavior: str = r"```|<tool_call>|(?i:\bsearch\[)"
    """A regular expression that an action showing the behavior matches; by default code, a tool call or a search."""

    def compose(self) -> Parts:
        return self.dapo(shape=(Nudge(self.delta, self.bound, self.behavior),))
