"""OTC (arXiv 2504.14870): a reward is multiplied by how few calls it took.

    R_i * (1 - w + w economy_i),   A_i = (R_i - mean) / (std + 1e-6)
    economy = sin(m pi / (m + n))         m the attempt's calls, n the fewest of any success at its task so far
            = cos(m pi / (2 m + c))       if n = 0 and m > 0
            = 1                           if m = n = 0

A call is a turn, or a match of `calls`, which should leave out calls worth making, such as those for documentation.

Differs from the paper: n is lowered before a step's attempts are scored, so that no success has fewer calls than n. A
task that was never solved pays in full (partial rewards), and rewards below 0 stay as they are. The paper's factor
alpha, which standardization takes out, is not here; its c and KL coefficient were not seen.
"""

from longloop.algos.composed import FromGrpo, Parts
from longloop.algos.parts.rewards import Economy


class Otc(FromGrpo):
    w: float = 1.0
    """How much economy counts; at 0 not at all."""
    c: float = 4.0
    """How gently calls are punished at a task that needs none: a larger one is gentler."""
    calls: str = ""
    """A regular expression: each match in an action is a call. Empty: each turn is one."""

    def compose(self) -> Parts:
        return self.grpo(rewards=Economy(self.w, self.c, self.calls))
