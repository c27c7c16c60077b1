"""MCTS-IPL (arXiv 2405.00451): pairs of actions from tree search, with the noise of their labels by visits.

    for each iteration:
        a tree of attempts at each of n tasks                                        rollout/search.py
        Q and N of an action at a turn = mean reward and number of the distinct attempts that took it
        at each turn with several actions, the one with the largest Q and the one with the smallest       pairs
        s = N_worse / (N_better + N_worse), at most 1/2
        minimize -(1 - s) log sigmoid(beta D) - s log sigmoid(-beta D)                                    loss

D is the difference of log p/p_ref of the better and the worse action, p_ref the policy before training. An action that
was visited more often than the one it lost to may have lost by chance: the more so, the less the pair says.

Differs from the paper: nodes are chosen by UCB without the policy as a prior, and valued by the verifier's reward of
whole attempts; the paper adds the model's own evaluation, which in the authors' code is shown the solution. A node has
two children (rollout/search.py), and no search starts again from the most visited one. `gap` leaves out pairs that
differ less.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor
from torch.nn.functional import logsigmoid

from longloop.algos.reduce import mean_by, sum_by
from longloop.algos.tree_dpo import TreeDpo, mean_reward, taken_actions, up_to
from longloop.types import Batch, Group, Metrics, Sample, Scored, Trajectory


@dataclass(frozen=True, kw_only=True)
class MctsIpl(TreeDpo):
    epochs: int = 1
    minibatch: int = 64
    gap: float = 0.0

    @property
    def needs_reference(self) -> bool:
        return True

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        for said, actions in taken_actions(group).items():
            ranked = sorted(actions.values(), key=lambda attempts: (mean_reward(attempts), len(attempts)))
            worse, better = ranked[0], ranked[-1]
            if mean_reward(better) - mean_reward(worse) > self.gap:
                noise = {"noise": min(0.5, len(worse) / (len(better) + len(worse)))}
                yield replace(up_to(better[0], said), info=noise), replace(up_to(worse[0], said), info=noise)

    def to_samples(self, trajectory: Trajectory, group_index: int) -> list[Sample]:
        (sample,) = super().to_samples(trajectory, group_index)
        return [sample.with_columns(noise=np.full(len(sample.ids), trajectory.info["noise"]))]

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        margin_P = self.beta * sum_by(batch.adv_N * (scored.logp_N - batch.columns[self.anchor]), batch, "trajectory")
        noise_P = mean_by(batch.columns["noise"], batch, "trajectory")
        metrics: Metrics = {
            "margin": (margin_P.detach().sum(), batch.units),
            "settled": ((margin_P.detach() > 0).sum(), batch.units),
        }
        return -((1 - noise_P) * logsigmoid(margin_P) + noise_P * logsigmoid(-margin_P)).sum(), metrics
