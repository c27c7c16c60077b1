"""Plug-ins that kill their own process with SIGKILL in the middle of a step, once: a marker file remembers it."""

import os
import signal
import time
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


def rank_sabotage(leader: int, plan: str, phase: str) -> None:
    """Let this rank die, or be slow for six seconds, if it is not the leader and the first file in the folder `plan`
    names the phase: `1-collect-KILL`, `2-update-SLOW`. The file is removed, so that it happens once."""
    todo = sorted(Path(plan).iterdir())
    if os.getpid() != leader and todo and todo[0].name.split("-")[1] == phase:
        todo[0].unlink(missing_ok=True)
        if todo[0].name.endswith("SLOW"):
            time.sleep(6)
        else:
            os.kill(os.getpid(), signal.SIGKILL)


class RankSabotagedGuess(Guess):
    """Its process dies while it plays."""

    @dataclass(frozen=True, kw_only=True)
    class Options(Guess.Options):
        leader: int
        plan: str

    async def step(self, action):
        rank_sabotage(self.options.leader, self.options.plan, "collect")
        return await super().step(action)


@dataclass(frozen=True, kw_only=True)
class RankSabotagedLoop(Loop):
    """Its process dies while it computes log-probs, or a gradient."""

    leader: int
    plan: str

    def loss(self, scored, batch):
        rank_sabotage(self.leader, self.plan, "credit" if batch.step == 10**9 else "update")
        return super().loss(scored, batch)
