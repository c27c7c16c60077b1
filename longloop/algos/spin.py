"""SPIN: self-play fine-tuning (arXiv 2401.01335). The expert's attempt is always the better one.

    for each iteration:
        the expert's attempt at n tasks, and the policy's own                       collect
        pairs of both, whatever they were paid; equal ones are left out             pairs
        for 3 epochs, minimize -log sigmoid(beta (log p/p_ref of the expert's       algos/preference.py
            - of the own))

p_ref is the policy at the start of the iteration, which is also the opponent. Epochs, batch and learning rate, which
rises over a tenth of an iteration's updates and then falls to zero on a line, are those of the authors' code.

Differs from the paper: an iteration learns from its own attempts alone (the authors add those of the iteration before),
at one learning rate and beta in all iterations (theirs end with 1e-7 and 5), with AdamW (RMSprop).
"""

from collections.abc import Iterator

from longloop.algos.preference import AgainstExpert
from longloop.types import Now, Trajectory


class Spin(AgainstExpert):
    epochs: int = 3
    minibatch: int = 64
    lr: float = 5e-7
    warmup: float = 0.1
    """Share of an iteration's updates over which the learning rate rises to `lr`; then it falls to zero."""

    def lr_scale(self, now: Now, within: float = 0.5) -> float:
        return within / self.warmup if within < self.warmup else (1 - within) / (1 - self.warmup)

    def against(self, expert: Trajectory, own: Trajectory) -> Iterator[tuple[Trajectory, Trajectory]]:
        yield expert, own
