"""Agent Q (arXiv 2408.07199): DPO on search trees, whose actions the policy itself ranks besides their rewards.

    for each iteration:
        a tree of attempts at each of n tasks                                            rollout/search.py
        at each state with several actions, the policy is shown them and ranks them      parts/proposals.py
        Q = alpha Q_mc + (1 - alpha) Q_critic,   Q_mc the mean reward of the attempts that took the action,
            Q_critic from 1 for the best of the ranking to 0 for the last
        pairs of actions at one state whose Q differ by more than `gap`
        minimize -log sigmoid(beta (log p/p_ref of the better action - of the worse)), log p_ref as it was logged
            when the action was sampled

Where rewards are rare, most Q_mc are equal: the ranking tells actions apart. alpha = 1, logged = false is tree_dpo.

Differs from the paper: the ranking makes pairs, but the search goes by rewards alone. Actions are those that the tree
tried, not K drawn at once. Pairs are not kept for later iterations (see tree_dpo). alpha is not certain: a model whose
rankings say little learns faster with more weight on rewards (0.8 in the guessing game).
"""

from collections.abc import Sequence

from torch import Tensor

from longloop.algos.parts.proposals import ranked
from longloop.algos.parts.rollouts import apart
from longloop.algos.tree_dpo import TreeDpo, taken_actions
from longloop.protocols import Rollouts, Tasks
from longloop.types import Batch, Group, Now, Trajectory


class AgentQ(TreeDpo):
    alpha: float = 0.5
    """How much rewards count; the ranking counts 1 - alpha."""
    rankings: int = 1
    """Rankings that the policy is asked for at each state."""
    logged: bool = True
    """Whether the reference log-probs are those of the sampling; else they are computed again."""

    @property
    def attempts_per_task(self) -> int:
        return self.k + (self.rankings * (self.k - 1) if self.alpha < 1 else 0)

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.logged else super().reads

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        groups = await super().collect(rollouts, tasks, n, now)
        if self.alpha == 1:
            return groups
        proposals = [[(len(said), actions) for said, actions in taken_actions(group).items()] for group in groups]
        return await ranked(rollouts, groups, proposals, self.rankings, apart(now))

    def q(self, attempts: Sequence[Trajectory], turn: int) -> float:
        critic: float = attempts[0].turns[turn].info.get("critic", 0.5)
        return self.alpha * super().q(attempts, turn) + (1 - self.alpha) * critic

    def reference_logp(self, batch: Batch) -> Tensor:
        return batch.old_N if self.logged else super().reference_logp(batch)
