"""The only maths that algorithms share: group baselines, trajectories as samples, masked sums.

Shapes: N trained tokens of a micro-batch, U units (tokens, turns or trajectories) that have one ratio each; T turns of
a trajectory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from longloop.types import Batch, Floats, Metrics, Sample, SampleSource, Trajectory, UserError

Unit = Literal["token", "turn", "trajectory"]

_MAX_LOG_RATIO = 20.0
"""The log-ratio from which on a ratio grows along its tangent. Ratios of more than e^20 say only that the policy is far
away, and the squares in the gradient's norm still fit float32."""


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """A_k = R_k - mean of the others' rewards = K/(K-1) (R_k - mean). Sums to 0."""
    total, others = sum(rewards), len(rewards) - 1
    return [reward - (total - reward) / others for reward in rewards]


def standardize(rewards: Sequence[float]) -> list[float]:
    """A_k = (R_k - mean) / (std + 1e-6), std unbiased. All zero when the rewards are equal."""
    mean, deviation = fmean(rewards), stdev(rewards)
    return [(reward - mean) / (deviation + 1e-6) for reward in rewards]


def refuse_conversations(
    trajectories: Iterable[Trajectory],
    why: str = "this method goes by the turns in the order of time. Take one that credits whole attempts, such as loop",
) -> None:
    """Raise UserError if an attempt has several conversations, whose turns are kept one conversation after the
    other."""
    for one in trajectories:
        if len({turn.thread for turn in one.turns}) > 1:
            raise UserError(
                f"Attempt {one.attempt} at task {one.task.id!r} has several conversations (Step.thread), which are "
                f"kept one after the other, and {why}."
            )


def to_samples(
    trajectory: Trajectory, group_index: int, advantage: float | Floats, weights: Unit | float, own: bool = True
) -> list[Sample]:
    """A trajectory as samples. `advantage` is that of all its action tokens, or of each turn's.

    `weights` says what a token counts: `token` and `trajectory` 1/|a|, `turn` 1/(turns * |a_turn|), so that the units
    of a trajectory have weights that add up to 1; a number is taken as it is.
    """
    sizes = np.array([len(turn.action_ids) for turn in trajectory.turns])
    sizes[: trajectory.replayed] = 0
    advantage_T = np.broadcast_to(np.asarray(advantage, dtype=float), len(sizes))
    if weights == "turn":
        weight_T = 1 / (np.maximum(sizes, 1) * np.count_nonzero(sizes))
    else:
        weight_T = np.full(len(sizes), 1 / max(1, sizes.sum()) if isinstance(weights, str) else weights)
    samples = []
    for number, stretch in enumerate(trajectory.stretches()):
        mask = stretch.mask & (stretch.turns >= trajectory.replayed)
        if mask.any():
            samples.append(
                Sample(
                    ids=stretch.ids,
                    mask=mask,
                    logprobs=stretch.logprobs,
                    turns=stretch.turns,
                    advantages=advantage_T[stretch.turns] * mask,
                    weights=weight_T[stretch.turns] * mask,
                    source=SampleSource(group_index, trajectory.attempt),
                    stretch=number,
                    own=own,
                )
            )
    return samples


def last_action(trajectory: Trajectory, group_index: int, weight: float = 1.0, own: bool = True) -> Sample:
    """An attempt's last action as a sample, without advantage yet: the actions before it are read and nothing more."""
    *_, sample = to_samples(replace(trajectory, replayed=0), group_index, 0.0, weight, own)
    mask = sample.mask & (sample.turns == len(trajectory.turns) - 1)
    return replace(sample, mask=mask, weights=weight * mask)


def sum_by(x_N: Tensor, batch: Batch, unit: Unit) -> Tensor:
    """Sums of x over each unit of the micro-batch, [U]. For tokens, x itself."""
    if unit == "token":
        return x_N
    index_N, units = (batch.turn_N, batch.turns) if unit == "turn" else (batch.unit_N, batch.units)
    return torch.zeros(units, dtype=x_N.dtype, device=x_N.device).index_add(0, index_N, x_N)


def mean_by(x_N: Tensor, batch: Batch, unit: Unit) -> Tensor:
    """Means of x over each unit, [U]. For tokens, x itself."""
    return x_N if unit == "token" else sum_by(x_N, batch, unit) / sum_by(torch.ones_like(x_N), batch, unit)


def probability_ratio(log_ratio_U: Tensor) -> Tensor:
    """exp(log-ratio), continued along its tangent where the log-ratio exceeds 20. Finite wherever the log-ratio is.

    Up to 20, value and gradient are those of exp, to the bit. A plain exp overflows beyond 88, which the sum over a
    turn or a trajectory can reach, and the backward pass then multiplies the zero slope of a clipped ratio by infinity:
    NaN. On the tangent, a clipped ratio has gradient 0. One that is not clipped (its advantage is negative) keeps the
    gradient at e^20: clamped, it would have none, and what became far too likely would never be unlearned.
    """
    return log_ratio_U.clamp(max=_MAX_LOG_RATIO).exp() * (1 + (log_ratio_U - _MAX_LOG_RATIO).relu())


def clip_metrics(ratio_U: Tensor, adv_U: Tensor, low: float, high: float) -> Metrics:
    """The share of ratios outside the clip range whose gradient is therefore zero."""
    clipped = ((adv_U > 0) & (ratio_U > high)) | ((adv_U < 0) & (ratio_U < low))
    return {"clipped": (clipped.sum(), ratio_U.numel())}
