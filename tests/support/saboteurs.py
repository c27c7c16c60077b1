"""Plug-ins that kill their own process with SIGKILL in the middle of a step, once: a marker file remembers it."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from longloop.algos.loop import Loop
from longloop.envs.guess import Guess


def die_once(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


class KillingGuess(Guess):
    """Dies at the n-th action of the process: in the middle of collection."""

    actions = 0

    @dataclass(frozen=True, kw_only=True)
    class Options(Guess.Options):
        marker: str
        at: int

    async def step(self, action):
        KillingGuess.actions += 1
        if KillingGuess.actions == self.options.at:
            die_once(self.options.marker)
        return await super().step(action)


_LOSSES = 0


@dataclass(frozen=True, kw_only=True)
class KillingLoop(Loop):
    """Dies at the n-th loss of the process: after some of a step's updates have changed the weights."""

    marker: str
    at: int

    def loss(self, scored, batch):
        global _LOSSES
        _LOSSES += 1
        if self.at == _LOSSES:
            die_once(self.marker)
        return super().loss(scored, batch)
