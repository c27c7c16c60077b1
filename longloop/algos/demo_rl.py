"""Demonstration-regularized RL (arXiv 2310.17303): maximize the reward, and stay near what cloning experts gave.

    maximize  E[R] - kl KL(p || p_BC),   p_BC cloned from demonstrations;   at its optimum p ~ p_BC exp(R / kl)

First train `sft` on demonstrations; then name that run in `model.path`: the policy before training is then p_BC. The
loss is LOOP's plus kl * d_t^2 / 2, d_t = log p_t - log p_BC,t: on the policy's own tokens the gradient of that is the
one of KL(p || p_BC) at each state, where GRPO's penalty has the one of KL(p_BC || p). It is 0 at the first update.

Differs from the paper: known from its abstract alone. The KL is that of tokens, and what a token does to those after it
is left out, as in all LLM training; kl = 0.05 lies in the range that is usual there.
"""

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.hold import ReverseKl


class DemoRl(Composed):
    kl: float = 0.05
    """The weight of the divergence from p_BC; at 0 that policy is not needed."""

    def compose(self) -> Parts:
        return Parts(choose=(), hold=(ReverseKl(self.kl),) if self.kl else ())
