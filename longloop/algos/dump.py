"""DUMP (arXiv 2504.09710): a bandit chooses the sources of tasks by how much is being learned from them.

    UCB_d = mean |A| of source d's last 300 attempts + sqrt(2 ln(N + 1) / (n_d + 1))
    the next tasks come from source d with probability softmax(UCB / temperature)_d
    A_i = (R_i - mean) / (std + 1e-6)

A source is a scenario, or a split where tasks have none; n_d counts its attempts, N all of them. Tasks that always or
never succeed have A = 0, and their source is left alone until the second term calls it back. Advantages and counts are
remembered from step to step.

Differs from the paper: evaluations never teach the bandit (the authors' code feeds it their rewards); within a source
no task comes twice before all have come once. The learning rate is LOOP's, with one update a step. With a single source
the tasks come as for any method.
"""

from dataclasses import dataclass

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import Standardized
from longloop.algos.parts.hold import Kl
from longloop.algos.parts.objective import Clipped
from longloop.algos.parts.tasks import Bandit


@dataclass(frozen=True, kw_only=True)
class Dump(Composed):
    k: int = 16
    epochs: int = 1
    minibatch: int = 0
    temperature: float = 0.1
    """Of the softmax over sources; a high one makes them equally likely."""
    window: int = 300
    """Attempts of a source that its mean |A| is taken over."""
    clip: float = 0.2
    kl: float = 0.001

    @property
    def parts(self) -> Parts:
        return Parts(
            tasks=Bandit(self.temperature, self.window),
            credit=Standardized(),
            choose=(),
            objective=Clipped(low=1 - self.clip, high=1 + self.clip),
            hold=(Kl(self.kl),) if self.kl else (),
        )
