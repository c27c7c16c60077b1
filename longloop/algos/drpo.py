"""DR-PO (arXiv 2404.08495): attempts begin in states of a demonstration, where rewards are near.

    for each task, with probability beta: a demonstration of it, and one of its turns but the first, drawn uniformly;
        its actions before that turn are taken, and K attempts go on from there
    A_k = R_k - mean of the other attempts' rewards
    maximize the mean over attempts of the mean over their OWN action tokens of
        min(r_t A, clip(r_t, 1 - clip, 1 + clip) A) - kl * (exp(d_t) - d_t - 1),   d_t = log p_ref - log p

For tasks at which the policy never succeeds from the beginning. The demonstration's tokens are read and nothing more.
beta = 0 is LOOP with a symmetric clip and a KL term. The success of a training step is that of attempts with a head
start; an evaluation begins at the beginning. The environment must answer equal actions equally.

Differs from the paper: its critic and its KL in the reward are replaced by LOOP's baseline and a KL term in the loss;
in the authors' code values and whitening include the demonstration's tokens.
"""

from longloop.algos.composed import DropSmall, FromGrpoTwice, LeaveOneOut, Parts
from longloop.algos.parts.rollouts import Attempts, Resets


class DrPo(FromGrpoTwice):
    epochs: int = 4
    beta: float = 1.0
    """The share of tasks that are begun in a demonstration's state."""
    kl: float = 0.05

    def compose(self) -> Parts:
        rollouts = Resets(self.beta) if self.beta else Attempts()
        return self.grpo(rollouts=rollouts, credit=LeaveOneOut(), choose=() if self.kl else (DropSmall(),))
