"""OTC (arXiv 2504.14870): a reward is multiplied by how few calls it took.

    R_i * (1 - w + w economy_i)
    economy = sin(m pi / (m + n))         m the attempt's calls, n the fewest of any success at its task so far
            = cos(m pi / (2 m + c))       if n = 0 and m > 0
            = 1                           if m = n = 0
    A_i = (R_i - mean) / (std + 1e-6)

n is remembered for each task from step to step. A call is a turn, or a match of `calls`: leave calls out that should
not be saved, such as those that look up documentation.

Differs from the paper: n is lowered before a step's attempts are scored, so that no success has fewer calls than n. A
task that was never solved pays in full (partial rewards), and rewards below 0 stay as they are. The paper's factor
alpha, which the standardization takes out again, is not here; its c and its KL coefficient were not seen. One update a
step; K and the learning rate are LOOP's.
"""

from dataclasses import dataclass

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import Standardized
from longloop.algos.parts.hold import Kl
from longloop.algos.parts.objective import Clipped
from longloop.algos.parts.rewards import Economy


@dataclass(frozen=True, kw_only=True)
class Otc(Composed):
    epochs: int = 1
    minibatch: int = 0
    w: float = 1.0
    """How much economy counts; at 0 not at all."""
    c: float = 4.0
    """How gently calls are punished at a task that needs none: a larger one is gentler."""
    calls: str = ""
    """A regular expression: each match in an action is a call. Empty: each turn is one."""
    clip: float = 0.2
    kl: float = 0.001

    @property
    def parts(self) -> Parts:
        return Parts(
            rewards=Economy(self.w, self.c, self.calls),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=1 - self.clip, high=1 + self.clip),
            hold=(Kl(self.kl),) if self.kl else (),
        )
