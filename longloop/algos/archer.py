"""ArCHer (arXiv 2402.19446): a critic of turns that learns from stored attempts, and a policy that learns from it.

    Q_j(s, a) -> reward + gamma V_j slow(s')              for turns of this step and of the `replay` steps before it
    V_j(s) -> Q_j slow(s, a'),  a' drawn now              for their states; two heads each, j = 1, 2
    A_u = min(Q_1, Q_2)(s_u, a_u) - min(V_1, V_2)(s_u)
    maximize the mean over attempts of the sum over action tokens of A_u log p(x_t | ..)

What old turns were paid does not depend on the policy, so that they teach Q without a ratio; V learns from actions
drawn at old states now, without an environment. With `critic_steps = 0` this is REINFORCE. A turn's pay reaches those
before it one critic step at a time: long tasks need more of them.

Differs from the paper: the heads are on the policy's own hidden states, where they have a second model; these change
with the policy, so each step trains the critic anew before the policy learns. The policy learns from this step's turns;
theirs draws states from all stored ones. The token-level baseline and the 20 iterations of the critic alone are left
out. Rates and numbers of steps are ours: the released code adds up the gradients of 32 micro-batches.
"""

from longloop.algos.composed import OneStep, Parts
from longloop.algos.parts import critic, objective, rewards, rollouts


class Archer(OneStep):
    gamma: float = 0.95
    """The discount of later rewards, per turn; 1 for none."""
    turn_weight: float = 1.0
    """How much the environment's rewards for turns count."""
    replay: int = 4
    """Earlier steps whose turns the critic learns from."""
    states: int = 64
    """Stored states at which the policy acts anew in each step."""
    slow: float = 0.1
    """How much of the way the slow copies go after each of the critic's steps."""
    critic_lr: float = 3e-3
    """The critic's learning rate."""
    critic_steps: int = 200
    """The critic's gradient steps in each step; 0 for no critic, which is REINFORCE."""

    def compose(self) -> Parts:
        paid = rewards.TurnRewards(self.turn_weight)
        fresh = rollouts.FreshActions(self.replay, self.states if self.critic_steps else 0)
        credit = critic.TurnCritic(self.gamma, self.replay, self.slow, self.critic_lr, self.critic_steps, paid)
        return Parts(rollouts=fresh, rewards=paid, credit=credit, choose=(), objective=objective.Summed())
