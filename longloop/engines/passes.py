"""One forward pass over a row, and one token drawn for each of its spans.

A token is the point where a random number falls in the distribution: a request that brings its own random numbers gets
the same tokens whatever else is sampled beside it.

Shapes: R spans in the row, V vocabulary.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from longloop.engines.kv_cache import Reading, Row, Slots
from longloop.model.attention import Plan

_TOGETHER = 256
"""Neighbours in the vocabulary whose probabilities are added up first."""


_ROWS = 32
"""Rows from which on, with one thread, a product is computed like larger ones. Measured: MKL takes other ways for fewer
than 16; on ARM torch decides by the number of multiplications, which in the smallest models asks for 32."""


class Model(Protocol):
    """The part of a policy that sampling needs."""

    version: int
    """Changes with the weights; what was read with other weights is forgotten."""
    layers: int

    @property
    def device(self) -> torch.device: ...

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Plan) -> Tensor: ...

    def logits(self, hidden_ND: Tensor) -> Tensor: ...

    def compiled(self) -> AbstractContextManager[None]:
        """Within it, `hidden` runs through torch.compile."""
        ...


class Pass(Protocol):
    ahead: int
    """How many passes may be begun before one has been looked at."""

    def __call__(self, row: Row, temperature_R: np.ndarray, uniform_R: np.ndarray) -> "Drawn": ...

    def release(self) -> None:
        """Give working memory back."""
        ...


@dataclass(frozen=True)
class Drawn:
    """Tokens and their log-probs, perhaps still being computed."""

    token_R: Tensor
    logp_R: Tensor
    ready: Callable[[], None] = lambda: None
    """Returns when they have been."""

    def wait(self) -> tuple[np.ndarray, np.ndarray]:
        self.ready()
        return self.token_R.cpu().long().numpy(), self.logp_R.cpu().numpy()


class Eager:
    """The pass in plain torch, on any device.

    On a CPU it is row-invariant: a token's numbers depend, to the last bit, on its own conversation alone. Products of
    matrices add up in an order that depends on their shape: with one thread, all with at least _ROWS rows in the same;
    with several, only those with equally many rows. So rows are padded, and with several threads cut into equal parts.
    Plans see to attention (cache.Reading). A mixture of experts is not row-invariant: how many tokens an expert gets
    depends on the others.
    """

    ahead = 0

    def __init__(self, model: Model, slots: Slots) -> None:
        self._model, self._slots = model, slots

    def __call__(self, row: Row, temperature_R: np.ndarray, uniform_R: np.ndarray) -> Drawn:
        device, size = self._model.device, self._size()
        parts = [row] if size is None else row.cut(size)
        hidden_RD = torch.cat([self._ends(part, device, size) for part in parts])
        given = (torch.from_numpy(x).to(device) for x in (temperature_R, uniform_R))
        drawn = [
            draw(self._model.logits(_padded(hidden, size)), *(_padded(x, size) for x in numbers))
            for hidden, *numbers in zip(*(x.split(size or len(x)) for x in (hidden_RD, *given)), strict=True)
        ]
        token_R, logp_R = (torch.cat(x)[: len(hidden_RD)] for x in zip(*drawn, strict=True))
        return Drawn(token_R, logp_R)

    def release(self) -> None: ...

    def _size(self) -> int | None:
        """The number of rows that every product has; None for any, so that there are at least _ROWS."""
        if self._model.device.type != "cpu" or torch.get_num_threads() == 1:
            return None
        return min(-(-self._slots.count // _ROWS), 2) * _ROWS

    def _ends(self, row: Row, device: torch.device, size: int | None) -> Tensor:
        """The last hidden state of each span that this part of the row has the end of."""
        slot_T, position_T = row.tokens()
        ids_T = torch.from_numpy(self._slots.ids[slot_T, position_T]).to(device)
        at_T = torch.from_numpy(position_T).to(device)
        plan = Reading(self._slots, row, device)
        hidden_TD = self._model.hidden(_padded(ids_T, size), _padded(at_T, size), plan)
        return hidden_TD[torch.from_numpy(row.last_R[row.whole_R]).to(device)]


def _padded(x_T: Tensor, size: int | None) -> Tensor:
    """With zeros behind it, up to `size` rows or a multiple of _ROWS."""
    more = (size - len(x_T)) if size else -len(x_T) % _ROWS
    return torch.cat([x_T, x_T.new_zeros(more, *x_T.shape[1:])]) if more else x_T


def draw(logits_RV: Tensor, temperature_R: Tensor, uniform_R: Tensor) -> tuple[Tensor, Tensor]:
    """A token of each row, where its number between 0 and 1 falls; at temperature 0 the likeliest.

    First among blocks of the vocabulary, then within the block: running sums over all of it would cost more than the
    rest together.
    """
    greedy_R = temperature_R == 0
    logits_RV = logits_RV / torch.where(greedy_R, 1.0, temperature_R).float()[:, None]
    if more := -logits_RV.shape[1] % _TOGETHER:
        logits_RV = pad(logits_RV, (0, more), value=-torch.inf)
    logits_RNB = logits_RV.unflatten(1, (-1, _TOGETHER))
    most_RN = logits_RNB.amax(-1)
    most_R1 = most_RN.amax(-1, keepdim=True)
    upto_RN = (logits_RNB - most_R1[:, :, None]).exp().sum(-1, dtype=torch.float64).cumsum(-1)
    all_R1 = upto_RN[:, -1:]
    place_R1 = uniform_R[:, None] * all_R1
    drawn_R1 = torch.searchsorted(upto_RN, place_R1, right=True).clamp(max=upto_RN.shape[1] - 1)
    block_R1 = torch.where(greedy_R[:, None], most_RN.argmax(-1, keepdim=True), drawn_R1)
    before_R1 = upto_RN.gather(1, (block_R1 - 1).clamp(min=0)) * (block_R1 > 0)
    logits_RB = logits_RNB.gather(1, block_R1[:, :, None].expand(-1, -1, _TOGETHER))[:, 0]
    inside_RB = (logits_RB - most_R1).exp().double().cumsum(-1)
    last_R1 = (inside_RB < inside_RB[:, -1:]).sum(1, keepdim=True)  # the last that has any probability
    drawn_R1 = torch.searchsorted(inside_RB, place_R1 - before_R1, right=True).minimum(last_R1)
    offset_R1 = torch.where(greedy_R[:, None], logits_RB.argmax(-1, keepdim=True), drawn_R1)
    logp_R1 = logits_RB.gather(1, offset_R1) - most_R1 - all_R1.log().float()
    return (block_R1 * _TOGETHER + offset_R1)[:, 0], logp_R1[:, 0]
