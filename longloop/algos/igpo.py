"""IGPO (arXiv 2510.14967): a turn is paid by how much likelier it makes the right answer.

    p_u = exp(mean_j log p(a_j | what stood before turn u, prefix, a_<j)),   a = the tokens of the right answer
    reward_u = gain (p_{u+1} - p_u),   of the last turn: the outcome
    joint:  r = (reward - mean) / (std + 1e-6) over all turns of all attempts at the task
    split:  outcomes and gains are standardized apart
    A_u = sum_v>=u gamma^(v-u) r_v
    maximize the mean over attempts of the mean over action tokens of  min(r_t A, clip(r_t) A) - kl penalty

For questions: attempts that all failed still differ in what they found out. The environment gives the answer in
`Task.data["answers"]`, of which the first counts. `prefix` is what an agent writes before an answer. It costs one
forward pass more, over what stood before every turn. With gain = 0 and `split` it is GRPO.

Differs from the paper: this is the paper's method; the authors' code takes its baseline at equal token positions and
divides by nothing. Their entropy bonus of 0.001 is left out. K, learning rate and mini-batches are LOOP's, the prefix
is that of `multihop_qa`. Long attempts have more terms in A: `split` keeps the outcome from being drowned by them.
"""

from dataclasses import dataclass
from typing import Literal

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import NormalizedRewards
from longloop.algos.parts.hold import Kl
from longloop.algos.parts.objective import Clipped
from longloop.algos.parts.turn_rewards import Gains


@dataclass(frozen=True, kw_only=True)
class Igpo(Composed):
    prefix: str = "Thought: I can answer now.\nAction: Finish["
    """What an agent writes before an answer."""
    gain: float = 1.0
    """How much the gains count beside the outcome."""
    gamma: float = 1.0
    normalize: Literal["joint", "split"] = "joint"
    """Whether outcomes and gains are standardized together."""
    clip: float = 0.2
    kl: float = 0.001

    @property
    def parts(self) -> Parts:
        return Parts(
            rewards=Gains(self.prefix, self.gain),
            credit=NormalizedRewards(self.gamma, self.normalize),
            choose=(),
            objective=Clipped(low=1 - self.clip, high=1 + self.clip),
            hold=(Kl(self.kl),) if self.kl else (),
        )
