"""DigiRL (arXiv 2406.11896): imitate the turns that a critic, or the outcome, speaks for.

    V(s) = how likely success is from the state before a turn: the smaller of two heads' probabilities
    a_u = V(s_{u+1}) - V(s_u) + reward_u + R - margin
    minimize the mean over all action tokens of  1[a_u > 0] (-log p(x_t | ..))
             + value_weight * the mean over turns of each head's cross-entropy with 1[what is still paid > 0]

Turns of a success are imitated unless V falls by nearly all of R; turns of a failure if they raised V by more than the
margin. Without the critic (`progress = 0`) it imitates every attempt that is paid more than the margin.

Differs from the paper: this is the authors' code; the doubly robust mixture of outcome and critic in the paper is not
in it. The choice of tasks by a classifier of instructions is left out. The heads are on the policy's own hidden states,
where they have a second model; the state after the last turn counts as worth what the last was.
"""

from longloop.algos.composed import OneStep, Parts
from longloop.algos.parts import critic, objective, rewards


class DigiRL(OneStep):
    margin: float = 0.05
    """What a turn must gain at least to be imitated."""
    progress: float = 1.0
    """How much the change of V counts."""
    turn_weight: float = 1.0
    """How much the environment's rewards for turns count."""
    value_weight: float = 1.0
    """The weight of the critic's loss."""

    def compose(self) -> Parts:
        heads = critic.ValueLoss(critic.Progress.heads, self.value_weight, self.value_weight, logits=True)
        return Parts(
            rewards=rewards.TurnRewards(self.turn_weight),
            credit=critic.Progress("turn", self.progress, self.margin),
            choose=(),
            objective=objective.Reinforce("tokens"),
            hold=(heads,) if self.value_weight else (),
        )
