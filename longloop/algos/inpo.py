"""INPO: iterative Nash policy optimization (arXiv 2407.00617), self-play to a policy that none is preferred to.

    K attempts at n tasks; of each task the best-paid and the worst-paid one, if they differ      pairs
    D_x = log x(better) - log x(worse), summed over action tokens
    h = D_p - tau/eta D_ref - (eta - tau)/eta D_t                                                 reference_logp
    minimize the mean over pairs of (h - 1 / (2 eta))^2                                           penalty

p_t is the policy at the iteration's start, p_ref that before training. tau = eta is IPO against p_ref, 0 against p_t.

Differs from the paper: whole attempts of an agent are compared by the verifier's reward instead of answers by a
preference model; the target 1 / (2 eta) is not scaled with their length. Known from a port; K and mini-batches: LOOP's.
"""

from collections.abc import Iterator

from torch import Tensor

from longloop.algos.preference import Preference
from longloop.types import Batch, Group, Trajectory, UserError


class Inpo(Preference):
    k: int = 6
    beta: float = 0.1
    """Not used: eta says how far a pair is drawn apart."""
    eta: float = 7.5e-3
    """The smaller, the further a pair is to be drawn apart: to 1 / (2 eta) nats."""
    tau: float = 2.5e-3
    """How much the policy before training holds; from 0 to eta."""

    needs_reference = True
    reads = ("logprobs", "reference")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tau <= self.eta or self.eta == 0:
            raise UserError(f"algo.tau = {self.tau}, algo.eta = {self.eta}: INPO needs 0 <= tau <= eta and eta > 0.")

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        ranked = sorted(group.policy_trajectories, key=lambda t: (-t.reward, t.attempt))
        if ranked and ranked[0].reward > ranked[-1].reward:
            yield ranked[0], ranked[-1]

    def strength(self, step: int) -> float:
        return 1.0

    def reference_logp(self, batch: Batch) -> Tensor:
        share = self.tau / self.eta
        return share * batch.columns["reference"] + (1 - share) * batch.columns["logprobs"]

    def penalty(self, margin_P: Tensor, batch: Batch) -> Tensor:
        return (margin_P - 1 / (2 * self.eta)).square()
