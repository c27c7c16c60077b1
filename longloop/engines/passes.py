"""One forward pass over a row, which ends with a token drawn for each of its spans.

Shapes: R spans in the row, T tokens in it, P numbers for each span (sampler.py), D hidden size.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from longloop.engines.equal_rows import USUAL, equal_rows
from longloop.engines.kv_cache import KVCache
from longloop.engines.reading import Reading
from longloop.engines.sampler import draw, truncates
from longloop.engines.slots import Row
from longloop.model.attention import Plan
from longloop.model.shards import Shards

_ROWS = 16 if torch.backends.mkl.is_available() else 32
"""With one thread, all matrix products of at least so many rows add up in the same order. Measured: MKL has other ways
for fewer than 16; on ARM torch decides by the number of multiplications, which asks for 32 in the smallest models."""

_STEP = 8
"""Rows are padded to multiples of this. Operations on single numbers work on 32 at a time and may compute what is left
at the end in another way, so that nothing must be left; widths are multiples of 4."""


class Model(Protocol):
    """What sampling needs of a policy."""

    version: int
    """Changes with the weights: keys and values of another version are not used."""
    layers: int

    @property
    def shards(self) -> Shards | None:
        """The ranks that make each pass together, if several hold the weights between them."""
        ...

    @property
    def device(self) -> torch.device: ...

    def hidden(self, ids_T: Tensor, position_T: Tensor, plan: Plan) -> Tensor: ...

    def logits(self, hidden_ND: Tensor) -> Tensor: ...

    def compiled(self) -> AbstractContextManager[None]:
        """Within it, `hidden` runs through torch.compile."""
        ...


class Pass(Protocol):
    ahead: int
    """How many passes may be under way when another begins."""

    def __call__(self, row: Row, numbers_PR: np.ndarray) -> "Drawn":
        """Begin a pass."""
        ...

    def release(self) -> None:
        """Give working memory back."""
        ...

    def close(self) -> None:
        """Give up what was recorded: no pass comes after."""
        ...


@dataclass(frozen=True)
class Drawn:
    """A token for each span and its log-prob, perhaps still being computed."""

    token_R: Tensor
    logp_R: Tensor
    ready: Callable[[], None] = lambda: None
    """Waits until they are computed."""

    def wait(self) -> tuple[np.ndarray, np.ndarray]:
        self.ready()
        return self.token_R.cpu().long().numpy(), self.logp_R.cpu().numpy()


class Eager:
    """The pass in plain torch, on any device.

    On a CPU it is row-invariant: a token's numbers depend, to the last bit, on its own conversation alone. The order in
    which a matrix product adds up depends on its shape: with one thread, it is the same for all products of at least
    _ROWS rows; with several, or with MKL's kernels for AVX2, only for equal numbers of rows (equal_rows.py). So rows
    are padded, or cut into equal parts. reading.Reading does the same for attention. A mixture of experts is not
    row-invariant: how many tokens an expert gets depends on the others.
    """

    ahead = 0

    def __init__(self, model: Model, cache: KVCache, slots: int) -> None:
        self._model, self._cache, self._slots = model, cache, slots

    def __call__(self, row: Row, numbers_PR: np.ndarray) -> Drawn:
        device, size = self._model.device, self._size()
        parts = [row] if size is None else row.cut(size)
        hidden_RD = torch.cat([self._ends(part, device, size) for part in parts])
        given, truncate = torch.from_numpy(numbers_PR).to(device), truncates(numbers_PR)
        drawn = [
            draw(self._model.logits(_padded(hidden, size))[: len(hidden)], *numbers, truncate=truncate)
            for hidden, *numbers in zip(*(x.split(size or len(x)) for x in (hidden_RD, *given)), strict=True)
        ]
        token_R, logp_R = (torch.cat(x) for x in zip(*drawn, strict=True))
        return Drawn(token_R, logp_R)

    def release(self) -> None: ...

    def close(self) -> None: ...

    def _size(self) -> int | None:
        """The number of rows that every product must have; None for any that is enough."""
        if self._model.device.type != "cpu":
            return None
        threads = torch.get_num_threads()
        rows = equal_rows(threads)
        if rows != USUAL:
            return rows
        return None if threads == 1 else min(-(-self._slots // USUAL), 2) * USUAL

    def _ends(self, row: Row, device: torch.device, size: int | None) -> Tensor:
        """The last hidden state of each span that ends in this part of the row."""
        ids_T, position_T = (torch.from_numpy(x).to(device) for x in (row.ids_T, row.position_T))
        plan = Reading(self._cache, row, device)
        hidden_TD = self._model.hidden(_padded(ids_T, size), _padded(position_T, size), plan)
        return hidden_TD.index_select(0, torch.from_numpy(row.last_R[row.whole_R]).to(device))


def _padded(x_T: Tensor, size: int | None) -> Tensor:
    """Zeros added at the end, up to `size` rows, or up to at least _ROWS and a multiple of _STEP."""
    more = (size or max(_ROWS, -(-len(x_T) // _STEP) * _STEP)) - len(x_T)
    return torch.cat([x_T, x_T.new_zeros(more, *x_T.shape[1:])]) if more else x_T
