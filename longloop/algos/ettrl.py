"""ETTRL (arXiv 2508.11356): without labels. The majority's answer is taken for right; confident attempts count more.

    R_i = 1 if no outcome is more frequent in the group than i's, else 0
    A_i = (R_i - mean) / (std + 1e-6) * max(0, 1 + w (mean H - H_i) / mean H)

H_i is the mean entropy of an attempt's action tokens, its mean that of the group. Outcomes are equal when their keys
are (`Outcome.info["key"]`, else the last action's text). Consensus on something wrong is rewarded as well: this adapts
a policy that is usually right, it teaches no new task.

Differs from the paper: its rollouts, which fork inside an answer where entropy is high, are not here; attempts are
independent. All largest clusters win a tie, and nobody does when no two attempts agree. The factor is at least 0.
`votes` below 1 mixes in the verifier's reward.
"""

from longloop.algos.composed import Composed, Parts, Standardized, clipped
from longloop.algos.parts import rewards, shape


class Ettrl(Composed):
    votes: float = 1.0
    """The share of the reward that is the vote; the rest is the verifier's."""
    w: float = 1.0
    """How much confidence counts."""
    clip: float = 0.2
    """The clip range is 1 - clip to 1 + clip."""

    def compose(self) -> Parts:
        votes, down = rewards.Votes("majority", self.votes), shape.EntropyDown(self.w)
        return Parts(rewards=votes, credit=Standardized(), shape=(down,), objective=clipped(self.clip))
