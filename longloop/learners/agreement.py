"""Do sampler and learner give a token the same probability?

They run the same weights on the same ids, so they differ by the rounding of their kernels and nothing else: in float32
by less than 1e-4, in bfloat16 by a few percent of a token's probability. More means that ids, mask or weights are not
the ones that were sampled with, and such a run is refused. In between, in bfloat16, the sampler's log-probs are too far
off to take ratios against, and the learner computes its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from longloop.types import Sample, UserError

_EXACT = 1e-4
"""In float32, the largest gap there may be."""
_NEAR, _FAR, _TAIL = 0.05, 0.2, 0.9
"""In bfloat16: up to the first, on average, the sampler's log-probs are used; beyond the second the run is refused, and
also when one token in a hundred is further off than the third: rounding has no such tail, but a wrong mask has."""


@dataclass(frozen=True)
class Agreement:
    """How far sampler and learner are apart on the same tokens. A gap is abs(learner's probability / sampler's - 1)."""

    tokens: int
    mean: float
    most: float
    """99 of 100 tokens have a smaller gap."""
    worst: float
    where: str
    """Where the worst is."""
    old: Literal["sampler", "learner"]
    """Whose log-probs ratios are taken against."""

    def __str__(self) -> str:
        return (
            f"log-probs of sampler and learner: {self.mean:.1e} apart on average over {self.tokens} tokens, 99 of 100 "
            f"by less than {self.most:.1e}, at most {self.worst:.1e}; the {self.old}'s are used"
        )


def check(agreement: Agreement, bf16: bool) -> None:
    """Refuse to train on tokens that were not sampled by this policy."""
    if bf16:
        fine = agreement.mean <= _FAR and agreement.most <= _TAIL
        allowed = f"mean {agreement.mean:.2g}, may be {_FAR}; 99 of 100 below {agreement.most:.2g}, may be {_TAIL}"
    else:
        fine, allowed = agreement.worst <= _EXACT, f"may be {_EXACT:g}"
    if not fine:
        raise UserError(
            f"Engine and learner disagree, so this run cannot be trained. Worst at {agreement.where} (abs(ratio - 1) = "
            f"{agreement.worst:.2g}; {allowed}). The ids or the weights that were sampled with are not the ones being "
            "trained."
        )


def compare(samples: Sequence[Sample], rows: Sequence[Sequence[float]]) -> Agreement:
    """The log-probs that samples carry against the learner's rows, at the action tokens."""
    at = [(n, i) for n, sample in enumerate(samples) for i, chosen in enumerate(sample.mask) if chosen]
    if not at:
        return Agreement(0, 0.0, 0.0, 0.0, "", "sampler")
    sampled, learned = (np.array([column[n][i] for n, i in at]) for column in ([s.logprobs for s in samples], rows))
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.nan_to_num(np.abs(np.exp(learned - sampled) - 1), nan=np.inf)
        most = np.quantile(gaps, 0.99)
    n, i = at[int(gaps.argmax())]
    sample = samples[n]
    where = (
        f"group {sample.trajectory[0]}, attempt {sample.trajectory[1]}, turn {sample.turns[i]}, token {i} "
        f"(id {sample.ids[i]}): log-prob {sample.logprobs[i]:.5f} when sampled, {rows[n][i]:.5f} in the learner"
    )
    mean, most, worst = (float(x) for x in (gaps.mean(), most, gaps.max()))
    return Agreement(len(gaps), mean, most, worst, where, "sampler" if mean <= _NEAR else "learner")
