"""The memory that holds the keys and values of the engine's sequences, in pages. Knows neither sequences nor attention.

Shapes: P pages, L layers, T tokens in a row, H query heads, K key/value heads, D head size.
"""

import time
import warnings

import numpy as np
import torch
from torch import Tensor

from longloop.engines.pages import PAGE

_PATIENCE = 60
"""Seconds to wait for memory on a full device."""


class KVCache:
    """Pages, each with the keys and values of PAGE tokens in all layers, [L, 2, K, PAGE, D]; many of them in a slab.

    like_KD: a key of all heads, from which dtype, sizes and device are taken.
    most: growing stops at so many pages, unless more are asked for.
    moves: keep all pages in one slab, which grows by half and is copied; in it, what a layer holds of all pages lies
        together. Else further slabs are added, each a sixteenth of what there is, and a page keeps its address.

    Unwritten memory is zero, never garbage: masked keys still take part in the arithmetic, and garbage may be NaN.
    """

    def __init__(self, like_KD: Tensor, layers: int, most: int, moves: bool = True) -> None:
        self._like, self._layer_count, self._most, self._moves = like_KD, layers, most, moves
        self.clear()

    def clear(self) -> None:
        """Give the memory back."""
        self._slabs: list[Tensor] = []
        self._layers: list[tuple[Tensor, Tensor]] = []
        self.address_P = np.zeros(0, dtype=np.int64)
        """The address of each page."""

    @property
    def heads(self) -> int:
        return len(self._like)

    @property
    def bytes(self) -> int:
        return sum(slab.nbytes for slab in self._slabs)

    def grow(self, pages: int, wait: bool) -> bool:
        """Make room for this many pages, and keep what is there. Returns False if the device is full.

        wait: another process may give memory back when it changes between sampling and learning. Try for a minute, then
        raise the device's error.
        """
        have = len(self.address_P)
        if pages <= have:
            return True
        grown = max(pages, min(self._most, have + have // (2 if self._moves else 16)))
        try:
            slab = self._allocated(grown if self._moves else grown - have, _PATIENCE if wait else 0)
        except torch.OutOfMemoryError:
            if wait:
                raise
            return False
        kept = have if self._moves else 0
        if kept:
            slab[:kept] = self._slabs.pop()
            self.address_P = self.address_P[:0]
        slab[kept:] = 0
        self._slabs.append(slab)
        if self._moves:
            self._layers = [_keys_and_values(slab, number) for number in range(self._layer_count)]
        address_N = slab.data_ptr() + np.arange(len(slab)) * slab.stride(0) * slab.itemsize
        self.address_P = np.concatenate([self.address_P, address_N])
        return True

    def copy(self, source: int, target: int) -> None:
        """Copy one page to another."""
        self.page(target).copy_(self.page(source))

    def page(self, number: int) -> Tensor:
        """[L, 2, K, PAGE, D]."""
        for slab in self._slabs:
            if number < len(slab):
                return slab[number]
            number -= len(slab)
        raise IndexError(number)

    def layer(self, number: int) -> tuple[Tensor, Tensor]:
        """The keys and the values of one layer in all pages of a cache that moves: [P, K, D, PAGE] and [P, K, PAGE, D].

        Keys lie with the tokens last: the product of a query with a page of them then takes half as long on a CPU.
        """
        return self._layers[number]

    def _allocated(self, pages: int, patience: int) -> Tensor:
        """A new slab. If the device is full, try again for so many seconds."""
        left = patience
        while True:
            try:
                return self._new_slab(pages)
            except torch.OutOfMemoryError:
                if not left:
                    raise
                if left == patience:
                    warnings.warn(f"The card is full: waiting up to {patience} s for another process.", stacklevel=2)
                left -= 1
                time.sleep(1.0)

    def _new_slab(self, pages: int) -> Tensor:
        """[P, L, 2, K, PAGE, D], in this order or with layers before pages; not yet zero."""
        K, D = self._like.shape
        if self._moves:
            return self._like.new_empty(self._layer_count, 2, pages, K, PAGE, D).permute(2, 0, 1, 3, 4, 5)
        return self._like.new_empty(pages, self._layer_count, 2, K, PAGE, D)


def _keys_and_values(slab: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    k_PKJD, v_PKJD = slab[:, layer, 0], slab[:, layer, 1]
    return k_PKJD.view(*k_PKJD.shape[:2], -1, PAGE), v_PKJD


class Probe:
    """The plan of a pass that only shows what keys are like. Its attention outputs are zero."""

    like_KD: Tensor
    group: int
    """Query heads that share a key head."""

    def attend(self, layer: int, q_HTD: Tensor, k_KTD: Tensor, v_KTD: Tensor, scale: float, window: int) -> Tensor:
        self.like_KD, self.group = k_KTD[:, 0].clone(), len(q_HTD) // len(k_KTD)
        return torch.zeros_like(q_HTD).transpose(0, 1)
