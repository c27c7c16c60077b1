"""Methods with a setting of their own, for `longloop compare` to set beside one another."""

from dataclasses import dataclass

from longloop.algos.grpo import Grpo
from longloop.algos.loop import Loop
from longloop.algos.reduce import Unit


@dataclass(frozen=True, kw_only=True)
class Turn(Loop):
    ratio: Unit = "turn"


@dataclass(frozen=True, kw_only=True)
class Trajectory(Loop):
    ratio: Unit = "trajectory"


@dataclass(frozen=True, kw_only=True)
class Normalized(Loop):
    """LOOP RwNorm."""

    normalize: bool = True


@dataclass(frozen=True, kw_only=True)
class WithoutKl(Grpo):
    kl: float = 0.0
