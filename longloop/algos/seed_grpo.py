"""SEED-GRPO (arXiv 2505.12346): advantages shrink where a task's attempts disagree about the answer.

    A_i = (R_i - mean R) max(0, 1 - alpha SE / log K)
    SE = -sum over clusters c of p_c log p_c,   p_c the share of the attempts whose outcome is c

Attempts are in one cluster when they have the same outcome key (`Outcome.info["key"]`, else the last action's text).

Differs from the paper: `estimate = "clusters"` is its -1/C sum log p_c, which may exceed log K; the default is
Shannon's, which may not. Clusters are equal keys, not a model's judgment of meaning. Its alpha was not seen: 0.5 is a
guess; the function of SE is the linear one. No code was published.
"""

from typing import Literal

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import Centered
from longloop.algos.parts.shape import SemanticEntropy


class SeedGrpo(Composed):
    alpha: float = 0.5
    """The share of the advantage that full disagreement takes away."""
    estimate: Literal["shannon", "clusters"] = "shannon"
    """How the entropy of outcomes is estimated."""

    def compose(self) -> Parts:
        return Parts(credit=Centered(), shape=(SemanticEntropy(self.alpha, self.estimate),))
