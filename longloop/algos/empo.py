"""EMPO (arXiv 2504.05812): without labels. An attempt is paid the share of its group that came to the same outcome.

    R_i = |{j: outcome_j = outcome_i}| / K;   0 without an outcome; 0 for all when every outcome differs
    A_i = (R_i - mean) / (std + 1e-6)

Outcomes are equal when their keys are (`Outcome.info["key"]`, else the last action's text). Consensus on something
wrong is rewarded as well: this adapts a policy that is usually right, it teaches no new task.

Differs from the paper: equal keys instead of a model's judgment of meaning, and no rule against answers copied from the
question. Its two reward functions (mathematics, free text) differ for empty answers; here these are paid 0. The
learning rate is LOOP's (the paper has 1e-6). `votes` below 1 mixes in the verifier's reward.
"""

from longloop.algos.composed import OneStep, Parts, Standardized, clipped
from longloop.algos.parts.rewards import Votes


class Empo(OneStep):
    k: int = 7
    votes: float = 1.0
    """The share of the reward that is the vote; the rest is the verifier's."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        return Parts(rewards=Votes("share", self.votes), credit=Standardized(), objective=clipped(self.clip))
