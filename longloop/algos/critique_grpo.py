"""Critique-GRPO (arXiv 2506.03106): of K attempts at a task, one was told how an earlier one was judged.

    K - 1 attempts; for each, another that also reads what it said and how it was judged; the best of these is the K-th
    A_k = R_k - mean of all K
    maximize the mean over attempts of (1 / divisor) times the sum over action tokens of
        r_t A                        for the K - 1,
        p_t / (p_t + gamma) A        for the K-th, p_t its probability WITHOUT the critique

For tasks that the policy fails again and again. The critique is the verifier's verdict with the names of failed tests,
where `Outcome.info["tests"]` has them; it must fit rollout.context beside the opening. Without a refinement this is
Dr.GRPO without a clip. A task takes 2 (K - 1) attempts.

Differs from the paper: the shipped script's critique states the right answer, and others come from GPT-4o; ours knows
no more than the verifier says. Their entropy bonus of 0.001 is left out, refinements keep their tokens. `divisor` is a
setting, as in Dr.GRPO; theirs is the longest response.
"""

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts import credit, objective, rollouts


class CritiqueGrpo(Composed):
    k: int = 8
    """Attempts that are learned from, the refinement among them."""
    epochs: int = 1
    minibatch: int = 64
    gamma: float = 0.1
    """The probability at which a refinement's token has its largest gradient."""
    divisor: float = 1024.0
    """What the sum over an attempt's tokens is divided by: for scale only."""
    max_chars: int = 2000
    """The most characters of an attempt that its critique quotes, the last ones."""

    def compose(self) -> Parts:
        best = rollouts.BestRefinement(self.max_chars)
        loss = objective.Unclipped(gamma=self.gamma, divisor=self.divisor)
        return Parts(rollouts=best, credit=credit.Centered(), choose=(), objective=loss)
