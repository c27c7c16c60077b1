"""IGPO (arXiv 2510.14967): a turn is paid by how much likelier it makes the right answer.

    p_u = exp(mean_j log p(a_j | what stood before turn u, prefix, a_<j)),   a = the tokens of the right answer
    reward_u = gain (p_{u+1} - p_u),   of the last turn: the outcome
    joint:  r = (reward - mean) / (std + 1e-6) over all turns of all attempts at the task
    split:  outcomes and gains are standardized apart
    A_u = sum_v>=u gamma^(v-u) r_v
    maximize the mean over attempts of the mean over action tokens of  min(r_t A, clip(r_t) A) - kl penalty

For questions: attempts that all failed still differ in what they found out. The answer is the first of
`Task.data["answers"]`. It costs a forward pass over what stood before every turn. gain = 0 with `split` is GRPO.

Differs from the paper: this is the paper's method; the authors' code takes its baseline at equal token positions and
divides by nothing. Their entropy bonus of 0.001 is left out. The prefix is that of `multihop_qa`. Long attempts have
more terms in A: `split` keeps the outcome from being drowned by them.
"""

from typing import Literal

from longloop.algos.composed import FromGrpoTwice, Parts
from longloop.algos.parts import credit, rewards


class Igpo(FromGrpoTwice):
    prefix: str = "Thought: I can answer now.\nAction: Finish["
    """What an agent writes before an answer."""
    gain: float = 1.0
    """How much the gains count beside the outcome."""
    gamma: float = 1.0
    """The discount of later gains and of the outcome, per turn; 1 for none."""
    normalize: Literal["joint", "split"] = "joint"
    """Whether outcomes and gains are standardized together."""

    def compose(self) -> Parts:
        paid = rewards.Gains(self.prefix, self.gain)
        return self.grpo(rewards=paid, credit=credit.NormalizedRewards(self.gamma, self.normalize))
