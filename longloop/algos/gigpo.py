"""GiGPO (arXiv 2505.10978): an attempt is compared with its group, each turn with the turns that began in its state.

    A_iu = (R_i - mean R) + w (G_iu - mean of G at the same state),    G_iu = sum_v gamma^(v-u) reward_v

reward_v is what the environment paid for turn v, the outcome added to the last. Equal states have equal keys, which the
environment gives (`Step.info["state"]`); a state that was met once has the second term 0, and with w = 0 this is GRPO
without the division. `history` observations before the state must agree as well (HGPO, arXiv 2602.22817, has up to 2).

Differs from the paper: the group term is not divided by the standard deviation (their `mean_norm`); the same state met
twice in one attempt counts twice, as in the authors' code.
"""

from dataclasses import dataclass

from longloop.algos.composed import Composed, Parts
from longloop.algos.parts.credit import Anchors
from longloop.algos.parts.hold import Kl
from longloop.algos.parts.objective import Clipped


@dataclass(frozen=True, kw_only=True)
class Gigpo(Composed):
    k: int = 8
    epochs: int = 1
    minibatch: int = 0
    w: float = 1.0
    """How much the comparison at equal states counts."""
    gamma: float = 0.95
    """The discount of later turns' rewards."""
    history: int = 0
    """Observations before the state that must agree as well."""
    clip: float = 0.2
    kl: float = 0.01

    @property
    def parts(self) -> Parts:
        return Parts(
            credit=Anchors(self.w, self.gamma, self.history),
            choose=(),
            objective=Clipped(low=1 - self.clip, high=1 + self.clip),
            hold=(Kl(self.kl),) if self.kl else (),
        )
