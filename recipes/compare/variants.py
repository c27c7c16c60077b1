"""LOOP's two other ratios, as methods of their own for `longloop compare`."""

from dataclasses import dataclass

from longloop.algos.loop import Loop
from longloop.algos.reduce import Unit


@dataclass(frozen=True, kw_only=True)
class Turn(Loop):
    ratio: Unit = "turn"


@dataclass(frozen=True, kw_only=True)
class Trajectory(Loop):
    ratio: Unit = "trajectory"
