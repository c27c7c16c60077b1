"""GTPO (arXiv 2511.14846): turns are paid for themselves, and returns to go are standardized over a group's turns.

    reward_iu = what the environment paid for turn u, plus `failed` if the action was malformed or failed
    G_iu = sum_v gamma^(v-u) reward_iv,   the outcome added to the last reward
    A_iu = (G_iu - mean G) / (std G + 1e-6),   over all turns of all attempts at the task
    maximize the mean over all action tokens of  min(r_t A, clip(r_t, 1 - clip, 1 + clip) A) - kl penalty

For agents that call tools: the environment says which calls failed (`Step.info["failed"]`). `pool = "trajectories"`
lets long attempts weigh no more than short ones; with that, gamma = 1 and no rewards of turns it is GRPO.

Differs from the paper: gamma, the penalty, the pooling over turns and KL = 0.01 are those of a public port, as there is
no official code. The paper also pays failed attempts for code that is similar to successful ones'; its formula is not
public, and it is left out. (Not the GTPO of arXiv 2508.04349.)
"""

from typing import Literal

from longloop.algos.composed import FromGrpoTwice, Parts, clipped
from longloop.algos.parts import credit, rewards


class Gtpo(FromGrpoTwice):
    gamma: float = 0.9
    """The discount of later turns' rewards."""
    failed: float = -0.1
    """The reward of a turn whose action failed."""
    turn_weight: float = 1.0
    """How much the environment's rewards for turns count."""
    pool: Literal["turns", "trajectories"] = "turns"
    """What counts the same in mean and standard deviation."""
    kl: float = 0.01

    def compose(self) -> Parts:
        paid, returns = rewards.TurnRewards(self.turn_weight, self.failed), credit.Returns(self.gamma, self.pool)
        return self.grpo(rewards=paid, credit=returns, objective=clipped(self.clip, average="tokens"))
