"""Do sampler and learner give a token the same probability?

They run the same weights on the same ids, so they differ by the rounding of their kernels and nothing else: in float32
by less than 1e-4, in bfloat16 by a few percent of a token's probability. More means that ids, mask or weights are not
the ones that were sampled with, and such a run is refused.

Below that, the question is whose log-probs ratios are taken against. Rounding errors add up: a method that clips the
ratio of a turn or of a trajectory sums hundreds of them, and GSPO clips at 0.03%. So the method's own loss decides. If
it would clip more than a few in ten thousand of its units although no weight has moved, or if the tokens that the
sampler was unsure of are too far apart on average, the learner computes the log-probs again. Noise in a ratio is not
neutral: clipping drops large ratios of what was good and small ones of what was bad, so more is unlearnt than learnt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from longloop.types import Floats, Sample, UserError

_EXACT = 1e-4
"""In float32, the largest gap there may be."""
_FAR, _TAIL = 0.2, 0.9
"""In bfloat16, the run is refused beyond the first, on average over all tokens, and also when one token in a hundred is
further off than the second: rounding has no such tail, but a wrong mask has."""
_NEAR, _CLIPPED = 0.02, 0.0005
"""The sampler's log-probs are used up to this gap, on average over unsure tokens, and this share of clipped units."""
_REFUSED = 0.05
"""The share of its units that a method may clip at a step's first mini-batch. No weight has moved yet."""
_SURE = 0.9
"""The probability from which on the sampler was sure of a token."""


@dataclass(frozen=True)
class Agreement:
    """How far sampler and learner are apart on the same tokens. A gap is abs(learner's probability / sampler's - 1)."""

    tokens: int
    mean: float
    unsure: float
    """The mean over tokens that the sampler was unsure of; over all of them if it was sure of all."""
    p99: float
    """99 of 100 tokens have a smaller gap."""
    worst: float
    where: str
    """Where the worst is."""
    clipped: float
    """The share of its units (tokens, turns or trajectories) that the method's loss clips away at these ratios."""
    old: Literal["sampler", "learner"]
    """Whose log-probs ratios are taken against."""

    def __str__(self) -> str:
        return (
            f"log-probs of sampler and learner: {self.mean:.1e} apart on average over {self.tokens} tokens, "
            f"{self.unsure:.1e} where the sampler was unsure, 99 of 100 by less than {self.p99:.1e}, at most "
            f"{self.worst:.1e}; the loss would clip {self.clipped:.2%} of its units; the {self.old}'s are used"
        )


def check(agreement: Agreement, bf16: bool) -> None:
    """Refuse to train on tokens that were not sampled by this policy."""
    if bf16:
        fine = agreement.mean <= _FAR and agreement.p99 <= _TAIL
        allowed = f"mean {agreement.mean:.2g}, may be {_FAR}; 99 of 100 below {agreement.p99:.2g}, may be {_TAIL}"
    else:
        fine, allowed = agreement.worst <= _EXACT, f"may be {_EXACT:g}"
    if not fine:
        raise UserError(
            f"Engine and learner disagree, so this run cannot be trained. Worst at {agreement.where} (abs(ratio - 1) = "
            f"{agreement.worst:.2g}; {allowed}). The ids or the weights that were sampled with are not the ones being "
            "trained."
        )


def still_good(agreement: Agreement, clipped: float) -> Agreement:
    """The decision after a step's first mini-batch, of whose units the loss has clipped a share.

    If the sampler's log-probs were used, the learner's are from the next step on. If those were, something is wrong.
    """
    if clipped <= _CLIPPED:
        return agreement
    if agreement.old == "learner" and clipped > _REFUSED:
        raise UserError(
            f"Before any weight has moved, the loss already clips {clipped:.1%} of its units, so their gradients are "
            f"lost (at most {_REFUSED:.0%} may be). The old log-probs and the update's own differ by more than the "
            "method's clip allows: widen it, use model.dtype=float32, or set learner.compile=false."
        )
    return replace(agreement, clipped=clipped, old="learner")


def compare(samples: Sequence[Sample], rows: Sequence[Floats], clipped: float = 0.0) -> Agreement:
    """The log-probs that samples carry against the learner's rows, at the tokens that are trained on."""
    if not any(sample.action_tokens for sample in samples):
        return Agreement(0, 0.0, 0.0, 0.0, 0.0, "", 0.0, "sampler")
    sampled = np.concatenate([sample.logprobs[sample.mask] for sample in samples])
    learned = np.concatenate([row[sample.mask] for sample, row in zip(samples, rows, strict=True)])
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.nan_to_num(np.abs(np.exp(learned - sampled) - 1), nan=np.inf)
        p99 = np.quantile(gaps, 0.99)
        unsure = sampled < np.log(_SURE)
    n, i = _locate(samples, int(gaps.argmax()))
    sample = samples[n]
    where = (
        f"group {sample.source.group}, attempt {sample.source.attempt}, turn {sample.turns[i]}, token {i} "
        f"(id {sample.ids[i]}): log-prob {sample.logprobs[i]:.5f} when sampled, {rows[n][i]:.5f} in the learner"
    )
    near = float(gaps[unsure].mean() if unsure.any() else gaps.mean())
    mean, p99, worst = (float(x) for x in (gaps.mean(), p99, gaps.max()))
    old: Literal["sampler", "learner"] = "sampler" if near <= _NEAR and clipped <= _CLIPPED else "learner"
    return Agreement(len(gaps), mean, near, p99, worst, where, clipped, old)


def _locate(samples: Sequence[Sample], number: int) -> tuple[int, int]:
    """Which sample, and which of its tokens, the trained token with this number is."""
    for n, sample in enumerate(samples):
        if number < sample.action_tokens:
            return n, int(np.flatnonzero(sample.mask)[number])
        number -= sample.action_tokens
    raise IndexError(number)
