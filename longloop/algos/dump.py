"""DUMP (arXiv 2504.09710): a bandit chooses the sources of tasks by how much is being learned from them.

    UCB_d = mean |A| of source d's last 300 attempts + sqrt(2 ln(N + 1) / (n_d + 1))
    the next tasks come from source d with probability softmax(UCB / temperature)_d
    A_i = (R_i - mean) / (std + 1e-6)

A source is a scenario, or a split where tasks have none; n_d counts its attempts, N all of them. Tasks that always or
never succeed have A = 0, and their source is left alone until the second term calls it back.

Differs from the paper: evaluations never teach the bandit (the authors' code feeds it their rewards); within a source
no task comes twice before all have come once.
"""

from longloop.algos.composed import FromGrpo, Parts
from longloop.algos.parts.tasks import Bandit


class Dump(FromGrpo):
    k: int = 16
    temperature: float = 0.1
    """Of the softmax over sources; a high one makes them equally likely."""
    window: int = 300
    """Attempts of a source that its mean |A| is taken over."""

    def compose(self) -> Parts:
        return self.grpo(tasks=Bandit(self.temperature, self.window))
