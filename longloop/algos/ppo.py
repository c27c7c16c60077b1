"""PPO with a value head and GAE, as LOOP's appendix C describes its comparison.

    V = a small MLP on the policy's last hidden state; its loss does not reach the policy; used clipped to [0, 1]
    delta_t = r_t + gamma V_{t+1} - V_t,   A_t = sum_l (gamma lam)^l delta_{t+l}      over action tokens only
    maximize mean over attempts of the mean over action tokens of
        min(r_t A_t, clip(r_t, 1/(1 + clip), 1 + clip) A_t) - value_weight * (V_t - return_t)^2 / 2

gamma = lam = 1 makes A_t = R - V_t, the only setting the paper found stable. The first `warmup` steps train the head
alone; value_weight falls linearly over `value_steps` steps. The value after the last token of an action is the value at
the first token of the next one. The only reward is the attempt's, at its end.

Differs from the paper: the clip range is that of LOOP's code, where PPO's own paper has 1 -+ 0.2. The head's layers are
3/5 and 2/5 as wide as the model, which is what 5120-3072-2048-1 is for LOOP's.
"""

from longloop.algos.composed import Clipped, Composed, Parts
from longloop.algos.parts.critic import AfterWarmup, Gae, ValueLoss
from longloop.algos.parts.rewards import TurnRewards
from longloop.algos.reduce import Unit


class Ppo(Composed):
    clip: float = 0.1
    """The clip range is 1 / (1 + clip) to 1 + clip."""
    gamma: float = 1.0
    """The discount of later rewards; 1 for none."""
    lam: float = 1.0
    """GAE's lambda: 1 goes by what was paid, 0 by the values of the next states."""
    warmup: int = 10
    """Steps that train the head alone."""
    value_weight: float = 0.1
    """The weight of the critic's loss at the first step."""
    value_weight_end: float = 0.001
    """The weight of the critic's loss after `value_steps` steps."""
    value_steps: int = 200
    """Steps in which that weight changes evenly from `value_weight` to `value_weight_end`."""

    def compose(self) -> Parts:
        return self.ppo(TurnRewards(weight=0.0), Gae("token", self.gamma, self.lam))

    def ppo(self, rewards: TurnRewards, credit: Gae, ratio: Unit = "token") -> Parts:
        """PPO's parts with these rewards, and values where this credit has them."""
        clipped = Clipped(low=1 / (1 + self.clip), high=1 + self.clip, ratio=ratio)
        heads = ValueLoss(("value",), self.value_weight, self.value_weight_end, self.value_steps, credit.unit)
        objective = AfterWarmup(objective=clipped, steps=self.warmup)
        return Parts(rewards=rewards, credit=credit, choose=(), objective=objective, hold=(heads,))
