"""DPO: direct preference optimization (arXiv 2305.18290) over whole attempts, the expert's against the policy's own.

    the expert's attempt at n tasks, and K of the policy's own              collect
    pairs: the expert's, and each own one that was paid less                pairs
    minimize -log sigmoid(beta (log p/p_ref of the expert's - of the own))  algos/preference.py

p_ref is the policy before training, in every iteration: with LoRA the model with its adapters off, otherwise a second
copy of the weights. One iteration over all tasks is the offline method; in more, the policy's attempts are renewed.

Differs from the paper: the preferences are not people's; attempts of an expert and of the policy are compared by their
rewards, as in StepAgent's comparison. AdamW at a constant rate (theirs: RMSprop, with a warm-up of 150 updates).
"""

from collections.abc import Iterator

from longloop.algos.preference import AgainstExpert
from longloop.types import Trajectory


class Dpo(AgainstExpert):
    minibatch: int = 64

    needs_reference = True

    def against(self, expert: Trajectory, own: Trajectory) -> Iterator[tuple[Trajectory, Trajectory]]:
        if own.reward < expert.reward:
            yield expert, own
