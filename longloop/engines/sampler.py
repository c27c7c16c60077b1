"""Logits to tokens and their log-probs.

A token is where a uniform random number falls in the cumulative distribution: a request that brings its own random
numbers gets the same tokens, whatever is sampled beside it.

A further parameter of sampling is a field of `SamplingParams`, a row of `numbers`, and its effect in `draw`. Passes
(passes.py, cuda_graphs.py) hand the rows on without knowing what they mean.

Shapes: R spans in the row, P numbers for each, V vocabulary, N blocks of B neighbors in it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from longloop.types import SamplingParams

NUMBERS = 3
"""Rows of `numbers`."""

_BLOCK = 256
"""Neighbors in the vocabulary whose probabilities are summed up first."""


def numbers(params: Sequence[SamplingParams], uniform: Sequence[float]) -> np.ndarray:
    """What `draw` needs to know about each span, [P, R]."""
    return np.array([(p.temperature, p.top_p, u) for p, u in zip(params, uniform, strict=True)]).T


def truncates(numbers_PR: np.ndarray) -> bool:
    """Whether any token must not be drawn for any of the spans: `draw` has to sort the vocabulary then."""
    return bool((numbers_PR[1] < 1).any())


def draw(
    logits_RV: Tensor, temperature_R: Tensor, top_p_R: Tensor, uniform_R: Tensor, *, truncate: bool
) -> tuple[Tensor, Tensor]:
    """A token of each row and its log-prob; at temperature 0 the likeliest token, with its log-prob at 1.

    The log-prob is that of the whole distribution, which a learner can compute again, also if `truncate` leaves only a
    part of it to be drawn from. First a block of the vocabulary is drawn, then a token within it: running sums over the
    whole vocabulary would cost more than the rest together.
    """
    greedy_R1, top_p_R1, uniform_R1 = (temperature_R == 0)[:, None], top_p_R[:, None], uniform_R[:, None]
    logits_RV = logits_RV / torch.where(temperature_R == 0, 1.0, temperature_R).float()[:, None]
    if more := -logits_RV.shape[1] % _BLOCK:
        logits_RV = pad(logits_RV, (0, more), value=-torch.inf)
    logits_RNB = logits_RV.unflatten(1, (-1, _BLOCK))
    max_RN = logits_RNB.amax(-1)
    max_R1 = max_RN.amax(-1, keepdim=True)
    mass_RN = _cumulative_mass(logits_RNB, max_R1)
    log_total_R1 = mass_RN[:, -1:].log().float()
    if truncate:
        logits_RNB = _nucleus(logits_RV, top_p_R1).unflatten(1, (-1, _BLOCK))
        mass_RN = _cumulative_mass(logits_RNB, max_R1)
    point_R1 = uniform_R1 * mass_RN[:, -1:]
    drawn_R1 = torch.searchsorted(mass_RN, point_R1, right=True).clamp(max=mass_RN.shape[1] - 1)
    block_R1 = torch.where(greedy_R1, max_RN.argmax(-1, keepdim=True), drawn_R1)
    before_R1 = mass_RN.gather(1, (block_R1 - 1).clamp(min=0)) * (block_R1 > 0)
    logits_RB = logits_RNB.gather(1, block_R1[:, :, None].expand(-1, -1, _BLOCK))[:, 0]
    inside_RB = (logits_RB - max_R1).exp().double().cumsum(-1)
    last_R1 = (inside_RB < inside_RB[:, -1:]).sum(1, keepdim=True)  # the last that has any probability
    drawn_R1 = torch.searchsorted(inside_RB, point_R1 - before_R1, right=True).minimum(last_R1)
    offset_R1 = torch.where(greedy_R1, logits_RB.argmax(-1, keepdim=True), drawn_R1)
    logp_R1 = logits_RB.gather(1, offset_R1) - max_R1 - log_total_R1
    return (block_R1 * _BLOCK + offset_R1)[:, 0], logp_R1[:, 0]


def _cumulative_mass(logits_RNB: Tensor, max_R1: Tensor) -> Tensor:
    """The probability of all blocks up to each, not normalized."""
    return (logits_RNB - max_R1[:, :, None]).exp().sum(-1, dtype=torch.float64).cumsum(-1)


def _nucleus(logits_RV: Tensor, top_p_R1: Tensor) -> Tensor:
    """Keep the logits of the fewest likeliest tokens whose probabilities add up to top_p; the others become -inf.

    Tokens as likely as the last one are kept with it. A row whose top_p is 1 stays as it is.
    """
    sorted_RV = logits_RV.sort(-1, descending=True).values
    mass_RNB = sorted_RV.softmax(-1, dtype=torch.float64).unflatten(1, (-1, _BLOCK)).cumsum(-1)
    of_blocks_RN = mass_RNB[:, :, -1].cumsum(-1)
    mass_RNB = mass_RNB + (of_blocks_RN - mass_RNB[:, :, -1])[:, :, None]  # sums of a whole vocabulary do not compile
    last_R1 = (mass_RNB.flatten(1) < top_p_R1).sum(-1, keepdim=True).clamp(max=logits_RV.shape[1] - 1)
    least_R1 = torch.where(top_p_R1 < 1, sorted_RV.gather(1, last_R1), -torch.inf)
    return logits_RV.masked_fill(logits_RV < least_R1, -torch.inf)
