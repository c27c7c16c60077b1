"""LOOP: leave-one-out proximal policy optimization (arXiv 2502.01600), the method this project is built around.

    for each iteration:
        for each of n tasks: K attempts from the policy psi          rollout/groups.py
        A_k = R_k - mean of the other attempts' rewards              advantages
        drop attempts with |A| < 0.01                                keep
        for 2 epochs, for mini-batches of 32 attempts:               training.py
            r_t = p_theta(x_t | ..) / p_psi(x_t | ..)
            maximize the mean over attempts of
                1/|a(x)| sum over action tokens of min(r_t A, g(A))   loss          (eq. 10)

No value network, no reference model, no KL term, no normalisation. g(A) is the value at which the objective stops
rewarding a larger change: (1 + clip) A for A > 0; for A < 0 the authors' code divides, A / (1 + clip), so that the
range of r is symmetric in log space; the paper's text has (1 - clip) A, which differs by 1% at clip = 0.1.

`ratio` is the granularity of r: `token` (the paper's best), `turn` (one ratio per turn, the mean over turns), or
`trajectory` (the "bandit" of eq. 9). `normalize` divides A by the group's standard deviation, that of a population, as
in the authors' code (LOOP RwNorm).

Differs from the paper: the lower clip bound is that of the authors' code, the norm that gradients are clipped at (1,
their code has 0.1) that of the paper. The paper gives no formula for `turn` and the code has none; here it is the mean
over turns of min(r_u A, g(A)).
"""

from collections.abc import Sequence
from statistics import pstdev

import torch
from torch import Tensor

from longloop.algos.base import Grouped
from longloop.algos.reduce import Unit, clip_metrics, leave_one_out, mean_by, probability_ratio, sum_by
from longloop.types import Batch, Metrics, Scored, UserError


class Loop(Grouped):
    epochs: int = 2
    minibatch: int = 32
    drop_below: float = 0.01
    """Leave out attempts whose |advantage| is smaller: they only cost time."""
    clip: float = 0.1
    """The clip range is 1 / (1 + clip) to 1 + clip."""
    ratio: Unit = "token"
    """What has one probability ratio."""
    normalize: bool = False
    """Divide advantages by the standard deviation of the group's rewards."""

    @property
    def weights(self) -> Unit | float:
        return self.ratio

    @property
    def whole_units(self) -> bool:
        return self.ratio == "trajectory"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip <= 0:
            raise UserError(f"algo.clip = {self.clip}: it must be greater than 0, or nothing could be learned.")

    def keep(self, advantage: float) -> bool:
        return abs(advantage) >= self.drop_below

    def advantages(self, rewards: Sequence[float]) -> list[float]:
        scale = pstdev(rewards) + 1e-6 if self.normalize else 1.0
        return [advantage / scale for advantage in leave_one_out(rewards)]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        low, high = 1 / (1 + self.clip), 1 + self.clip
        ratio_U = probability_ratio(sum_by(scored.logp_N - batch.old_N, batch, self.ratio))
        adv_U = mean_by(batch.adv_N, batch, self.ratio)
        weight_U = sum_by(batch.weight_N, batch, self.ratio)
        limit_U = torch.where(adv_U > 0, high * adv_U, low * adv_U)
        objective_U = torch.minimum(ratio_U * adv_U, limit_U)
        return -(weight_U * objective_U).sum(), clip_metrics(ratio_U, adv_U, low, high)
