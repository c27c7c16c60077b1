"""REINFORCE with a learned value baseline (Williams 1992): the score function, less what a critic expected.

    V_u = a small MLP on the hidden state from which the first token of turn u is drawn
    G_u = sum_v gamma^(v-u) reward_v,   A_u = G_u - V_u
    maximize the mean over attempts of  sum over action tokens of A_u log p(x_t | ..)
                                      - value_weight * the mean over turns of (V_u - G_u)^2 / 2

One on-policy step, without ratios or clipping; LOOP's paper cites it for agents in WebShop. The baseline is that of a
state, so K = 1 works. `value_high = 0` leaves the bare reward. The gradient is unbiased whatever V is.

Differs from the paper: nothing; it leaves the baseline open. The critic is that of LOOP's comparison with PPO, at a
constant weight.
"""

from longloop.algos.composed import OneStep, Parts
from longloop.algos.parts import critic, objective, rewards


class ReinforceValue(OneStep):
    gamma: float = 1.0
    """The discount of later rewards, per turn; 1 for none."""
    turn_weight: float = 1.0
    """How much the environment's rewards for turns count."""
    value_low: float = 0.0
    """The lower end of the range that values are clipped to: that of the returns."""
    value_high: float = 1.0
    """The upper end of that range."""
    warmup: int = 10
    """Steps that train the head alone."""
    value_weight: float = 0.1
    """The weight of the critic's loss."""

    def compose(self) -> Parts:
        heads = critic.ValueLoss(("value",), self.value_weight, self.value_weight)
        return Parts(
            rewards=rewards.TurnRewards(self.turn_weight),
            credit=critic.Gae("turn", self.gamma, 1.0, self.value_low, self.value_high),
            choose=(),
            objective=critic.AfterWarmup(objective=objective.Summed(), steps=self.warmup),
            hold=(heads,) if self.value_weight or self.warmup else (),
        )
