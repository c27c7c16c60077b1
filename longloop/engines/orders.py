"""Sampling with a model in shards: one rank schedules, the others that hold shards of the same copy take part in its
passes.

The first rank's engine tells them what each pass reads and what happens to the cache before, as an `Order`; they run
the same pass over their own shard, with keys and values of their own heads. They know neither requests nor sessions.
"""

import contextlib
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.distributed as dist

from longloop.engines.slots import Row


@dataclass(frozen=True)
class Order:
    """A pass, and what must be true of the cache before it."""

    pages: int
    """Pages that there is room for."""
    copies: list[tuple[int, int]]
    """(from page, to page), in this order."""
    row: Row
    numbers_PR: np.ndarray
    """What to draw with (sampler.py)."""


def telling(group: Any) -> Callable[[Order | None], None]:
    """Tells the other ranks of a group what the first does; None to give the cache's memory back."""
    return lambda order: dist.broadcast_object_list([order], group_src=0, group=group)


class Follower:
    """Takes part in passes, in a thread of its own, as long as the process lives."""

    def __init__(
        self, obey: Callable[[Order | None], object], group: Any, leave_word: Callable[[Exception], object]
    ) -> None:
        self._obey, self._group, self._leave_word = obey, group, leave_word
        self.ended = False
        """Set it when the run is over: the connection's end is then no fault."""
        threading.Thread(target=self._follow, daemon=True, name="passes").start()

    def _follow(self) -> None:
        box: list[Any] = [None]
        try:
            while True:
                dist.broadcast_object_list(box, group_src=0, group=self._group)
                self._obey(box[0])
        except Exception as error:
            if not self.ended:
                # The others wait for this rank in the middle of a pass. Its end is noticed at once; its silence is not.
                traceback.print_exc()
                with contextlib.suppress(Exception):  # the first rank may be gone
                    self._leave_word(error)
                os._exit(1)
