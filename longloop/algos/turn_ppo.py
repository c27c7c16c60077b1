"""Turn-PPO (arXiv 2512.17008): PPO whose steps are turns, not tokens.

    V_u = a small MLP on the hidden state from which the first token of turn u is drawn
    delta_u = reward_u + gamma V_{u+1} - V_u,   A_u = sum_l (gamma lam)^l delta_{u+l},   V after the end is 0
    maximize the mean over attempts of
        the mean over action tokens of min(r_t A_u, clip(r_t, 1/(1 + clip), 1 + clip) A_u)
        - value_weight * the mean over turns of (V_u - (A_u + V_u old))^2 / 2

reward_u is what the environment paid for turn u, the outcome added to the last. The critic does not have to tell what
each token of a thought is worth, and lam < 1 reaches over turns. `critic = "token"` is PPO.

Differs from the paper: its settings are not public; the critic's are those of LOOP's comparison with PPO, gamma and lam
the ones that were stable there. Whether its ratios are of tokens or of turns is not clear either; `ratio` offers both.
"""

from typing import Literal

from longloop.algos.composed import Parts
from longloop.algos.parts.critic import Gae
from longloop.algos.parts.rewards import TurnRewards
from longloop.algos.ppo import Ppo


class TurnPpo(Ppo):
    ratio: Literal["token", "turn"] = "token"
    """What has one ratio."""
    critic: Literal["turn", "token"] = "turn"
    """What begins with a value."""
    turn_weight: float = 1.0
    """How much the environment's rewards for turns count."""
    value_low: float = 0.0
    """The lower end of the range that values are clipped to: that of the returns."""
    value_high: float = 1.0
    """The upper end of that range."""

    def compose(self) -> Parts:
        credit = Gae(self.critic, self.gamma, self.lam, self.value_low, self.value_high)
        return self.ppo(TurnRewards(self.turn_weight), credit, self.ratio)
