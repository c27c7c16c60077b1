"""INPO: iterative Nash policy optimization (arXiv 2407.00617), self-play to a policy that none is preferred to.

    K attempts at n tasks; of each task the best-paid and the worst-paid one, if they differ      pairs
    D_x = log x(better) - log x(worse), summed over action tokens
    h = D_p - tau/eta D_ref - (eta - tau)/eta D_t                                                 loss
    minimize the mean over pairs of (h - 1 / (2 eta))^2

p_t is the policy at the start of the iteration, p_ref the one before training. With tau = eta this is IPO against
p_ref, with tau = 0 against p_t. A preference needs no reward that explains it; here the verifier prefers.

Differs from the paper: whole attempts of an agent are compared by the verifier's reward instead of answers by a
preference model; the target 1 / (2 eta) is not scaled with their length. Known from a port of the authors' method; K
and the mini-batches are LOOP's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from longloop.algos.preference import Preference
from longloop.algos.reduce import sum_by
from longloop.protocols import Learner
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored, Trajectory, UserError


@dataclass(frozen=True, kw_only=True)
class Inpo(Preference):
    k: int = 6
    eta: float = 7.5e-3
    """The smaller, the further a pair is to be drawn apart: to 1 / (2 eta) nats."""
    tau: float = 2.5e-3
    """How much the policy before training holds; from 0 to eta."""

    @property
    def needs_reference(self) -> bool:
        return True

    @property
    def anchor(self) -> str:
        return "logprobs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tau <= self.eta or self.eta == 0:
            raise UserError(f"algo.tau = {self.tau}, algo.eta = {self.eta}: INPO needs 0 <= tau <= eta and eta > 0.")

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        ranked = sorted(group.policy_trajectories, key=lambda t: (-t.reward, t.attempt))
        if ranked and ranked[0].reward > ranked[-1].reward:
            yield ranked[0], ranked[-1]

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        return learner.read(super().credit(groups, learner, now), "reference")

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        share = self.tau / self.eta
        anchor_N = share * batch.columns["reference"] + (1 - share) * batch.columns["logprobs"]
        h_P = sum_by(batch.adv_N * batch.weight_N * (scored.logp_N - anchor_N), batch, "trajectory")
        metrics: Metrics = {
            "margin": (h_P.detach().sum(), batch.units),
            "settled": ((h_P.detach() > 0).sum(), batch.units),
        }
        return (h_P - 1 / (2 * self.eta)).square().sum(), metrics
