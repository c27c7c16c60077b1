"""ScalingInter-RL (arXiv 2509.08755): attempts are short at first, and may become longer as training goes on.

    max_turns(step) = rounds[min((step - 1) // every, last)]
    A_i = (R_i - mean) / (std + 1e-6)

Long attempts of an untrained policy are mostly noise. Evaluation keeps the run's `rollout.max_turns`, which no round
exceeds. An attempt that is cut off is scored as it stands: with graded rewards a short horizon changes what is best,
and a horizon too short for any success teaches nothing.

Differs from the paper: the horizon follows from the step alone, so that a resumed run has the right one (the authors'
scheduler counts by itself and may skip a stage). The paper has [8, 12, 15] every 80 steps for WebArena, [6, 13, 20] for
BabyAI and [5, 8, 10] for search.
"""

from dataclasses import field

from longloop.algos.composed import FromGrpo, Parts
from longloop.algos.parts.tasks import Horizon


class ScalingInter(FromGrpo):
    rounds: list[int] = field(default_factory=[10, 20, 30].copy)
    """The most turns of an attempt, stage by stage; none for the run's own limit."""
    every: int = 100
    """Steps of a stage."""

    def compose(self) -> Parts:
        return self.grpo(tasks=Horizon(tuple(self.rounds), self.every))
