"""MCTS-IPL (arXiv 2405.00451): pairs of actions from Monte Carlo tree search, their labels smoothed by visits.

    for each iteration:
        K visits of a search tree for each of n tasks, PUCT with the policy as prior          rollout/search.py
        Q and N of an action at a turn = mean reward and number of the visits that took it
        at each turn with several actions: the one with the largest Q, the one with the smallest         pairs
        s = smooth N_worse / (N_better + N_worse), at most 1/2
        minimize -(1 - s) log sigmoid(beta D) - s log sigmoid(-beta D)                         penalty

D is the difference of log p/p_ref of the better and the worse action, p_ref the policy before training. The search
comes back to what is good: an action that lost and was visited as often as its better may have lost by chance, and its
pair says nothing (s = 1/2). Visits therefore count where an attempt has ended, too. smooth = 0 is DPO.

Differs from the paper: a node is valued by the verifier's reward of attempts played on from it. The paper adds the
model's own evaluation, whose prompt in the authors' code contains the solution; without it the rewards of their edges
are 0 before the end, and Q is the mean. No search starts again from the most visited child. `gap` is ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from torch import Tensor
from torch.nn.functional import logsigmoid

from longloop.algos.reduce import mean_by
from longloop.algos.tree_dpo import TreeDpo, taken_actions, up_to
from longloop.types import Batch, Group, Sample, Trajectory


class MctsIpl(TreeDpo):
    k: int = 64
    """Visits per tree."""
    epochs: int = 1
    minibatch: int = 64
    gap: float = 0.0
    smooth: float = 1.0
    """How much the visits of the worse action count against its pair."""

    needs_reference = True
    puct = True

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        for said, actions in taken_actions(group).items():
            turn = len(said)
            ranked = sorted(
                (self.q(some, turn), float(some[0].turns[turn].action_logprobs.sum()), key)
                for key, some in actions.items()
            )
            (low, _, worst), (high, _, best) = ranked[0], ranked[-1]
            worse, better = actions[worst], actions[best]
            if high - low > self.gap:
                noise = {"noise": min(0.5, self.smooth * visits(worse) / (visits(better) + visits(worse)))}
                yield replace(up_to(better[0], said), info=noise), replace(up_to(worse[0], said), info=noise)

    def q(self, attempts: Sequence[Trajectory], turn: int) -> float:
        return fmean([t.reward for t in attempts], [visits([t]) for t in attempts])

    def to_samples(self, trajectory: Trajectory, group_index: int) -> list[Sample]:
        (sample,) = super().to_samples(trajectory, group_index)
        return [sample.with_columns(noise=trajectory.info["noise"])]

    def penalty(self, margin_P: Tensor, batch: Batch) -> Tensor:
        noise_P = mean_by(batch.columns["noise"], batch, "trajectory")
        return -(1 - noise_P) * logsigmoid(margin_P) - noise_P * logsigmoid(-margin_P)


def visits(attempts: Sequence[Trajectory]) -> int:
    return sum(t.info.get("visits", 1) for t in attempts)
