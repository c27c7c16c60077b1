"""T-PPO (arXiv 2506.15050): truncated PPO, where an attempt that did not come to its end is credited up to its cut.

    delta_t = reward_t + gamma V_{t+1} - V_t,   A_t = sum_l (gamma lam)^l delta_{t+l}      over action tokens
    V after the last token is 0; where the attempt was cut, that of the last token
    maximize the mean over attempts of the mean over action tokens of
        min(r_t A_t, clip(r_t, 1/(1 + clip), 1 + clip) A_t) - value_weight * (V_t - G_t)^2 / 2

An attempt is cut when it has used all its turns or its context: the critic then stands for what would have followed. V
learns from finished attempts only, towards their discounted reward G. If nothing is cut, this is PPO for lam = 1.

Differs from the paper: cut attempts are not continued in the next step with the new weights; environments would have to
live across steps, and a killed run could not be resumed. Its settings are not public; the critic's are those of `ppo`.
"""

from longloop.algos.composed import Parts
from longloop.algos.parts.critic import Gae
from longloop.algos.parts.rewards import TurnRewards
from longloop.algos.ppo import Ppo


class Tppo(Ppo):
    def compose(self) -> Parts:
        return self.ppo(TurnRewards(weight=0.0), Gae("token", self.gamma, self.lam, cut=True))
