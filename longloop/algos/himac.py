"""HiMAC (arXiv 2603.00977): one policy plans and acts, and each of the two gets credit of its own.

    odd steps:   `plans` plans for each task, each carried out once at temperature 0; learn from the tokens of plans
    even steps:  K attempts at the same tasks, which read the plan that was paid most; learn from the tokens of actions
    A_k = (R_k - mean) / (std + 1e-6) over the plans, or over the attempts
    maximize the mean over them of the mean over their tokens of
        min(r_t A, clip(r_t, 1 - clip, 1 + clip) A) - kl * (exp(d_t) - d_t - 1),   d_t = log p_ref - log p

A plan that is judged by one attempt without chance is judged for itself; attempts that share a plan differ by what they
did. With `plans = 0` this is GRPO. To ask for a plan takes a first turn of the environment, which is thrown away.

Differs from the paper: no code was published, and this follows notes on it. Theirs shows one sub-goal at a time, to be
ticked off by the agent; here the whole plan is read at the beginning. K and the number of plans are not certain. A plan
that failed is followed too where none was better. Evaluations play without a plan.
"""

from longloop.algos.composed import FromGrpoTwice, Parts
from longloop.algos.parts.rollouts import Blueprints
from longloop.algos.parts.tasks import EveryTwice


class Himac(FromGrpoTwice):
    k: int = 8
    """Attempts that follow a task's best plan."""
    plans: int = 8
    """Plans for each task."""
    ask: str = Blueprints.ask
    """What is said to get a plan."""
    follow: str = Blueprints.follow
    """What is said before the plan to follow."""
    kl: float = 0.01

    def compose(self) -> Parts:
        plans = {"tasks": EveryTwice(), "rollouts": Blueprints(self.plans, self.ask, self.follow)}
        return self.grpo(**plans if self.plans else {})
