"""ETTRL (arXiv 2508.11356): without labels. The majority's answer is taken for right; confident attempts count more.

    R_i = 1 if no outcome is more frequent in the group than i's, else 0
    A_i = (R_i - mean) / (std + 1e-6) * max(0, 1 + w (mean H - H_i) / mean H)

H_i is the mean entropy of an attempt's action tokens, its mean that of the group. Outcomes are equal as in `empo`, and
consensus on something wrong is rewarded as well.

Differs from the paper: its rollouts, which fork inside an answer where entropy is high, are not here. All largest
clusters win a tie, and nobody does when no two attempts agree.
"""

from longloop.algos.composed import Composed, Parts, Standardized, clipped
from longloop.algos.parts import rewards, shape


class Ettrl(Composed):
    votes: float = 1.0
    """The share of the reward that is the vote; the rest is the verifier's."""
    w: float = 1.0
    """How much confidence counts."""
    clip: float = 0.2

    def compose(self) -> Parts:
        votes, down = rewards.Votes("majority", self.votes), shape.EntropyDown(self.w)
        return Parts(rewards=votes, credit=Standardized(), shape=(down,), objective=clipped(self.clip))
