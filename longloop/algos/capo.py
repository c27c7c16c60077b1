"""CAPO: curvature-aware policy optimization (arXiv 2510.00819). Tokens whose own step would go too far are dropped.

    for each token, with pi its distribution, a its id, h its last hidden state and v = e_a - pi:
        G = A v h^T, a gradient step of size lr on the last layer;   u = G h
        policy shift     1/2 lr^2 (v^T u)^2
        objective shift  lr |G|^2 + 1/2 lr^2 A [(v^T u)^2 - u^T (diag(pi) - pi pi^T) u]
    drop tokens with a policy shift >= policy_shift or an |objective shift| >= objective_shift, the largest first and
        at most `max_share` of all;  GRPO's clipped objective over the rest, divided by the number before that

Differs from the paper: the step is plain gradient ascent (closed form, four numbers a token) where the authors model
Adam's. The thresholds are theirs, and too low for this step with a large model or learning rate: then `max_share`,
which is ours, decides, and it drops first of all the unlikely tokens of rare successes and failures. With LoRA the last
layer is frozen and the shifts are only a measure. The divisor counts tokens dropped by shift (the authors' does not).
"""

from longloop.algos.composed import Composed, DropSmall, Parts, Standardized, clipped
from longloop.algos.parts.choose import Curvature


class Capo(Composed):
    policy_shift: float = 1e-4
    """Tokens that would move the policy by so much or more are dropped."""
    objective_shift: float = 0.01
    """Tokens that would move the objective by so much or more, up or down, are dropped."""
    max_share: float = 0.02
    """The most of all tokens that are dropped; 0 for none."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        curvature = Curvature(self.lr, self.policy_shift, self.objective_shift, self.max_share)
        objective = clipped(self.clip, average="tokens")
        return Parts(credit=Standardized(), choose=(DropSmall(), curvature), objective=objective)
