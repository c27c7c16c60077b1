"""Base class for preference methods (DPO and relatives): raise the likelihood of the better trajectory of each pair.

    for each iteration:
        attempts at n tasks, with the expert's where the method asks for it              collect
        pairs of a better and a worse one                                                pairs
        the log-probs of both under the reference policy, stored with them               credit
        for some epochs, minimize the mean over pairs of -log sigmoid(margin)            loss
            margin = beta * (sum over the better one's tokens of w_t log p/p_ref
                             - sum over the worse one's)

The reference policy is the policy at the start of the iteration, whose log-probs are stored; of a method that
`needs_reference`, the policy before training. With the first every margin is 0 at an iteration's first update, so beta
matters only if further updates follow (`epochs`, mini-batches). A token's advantage is the sign of its side.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor
from torch.nn.functional import logsigmoid

from longloop.algos.base import Algorithm, with_experts
from longloop.algos.reduce import sum_by, to_samples
from longloop.protocols import Learner, Rollouts, Tasks
from longloop.types import Batch, Group, Metrics, Now, Sample, Scored, Trajectory


class Preference(Algorithm):
    k: int = 1
    minibatch: int = 32
    """Pairs per gradient step, and what their sum is divided by; 0 for all of the step's at once."""
    lr: float = 1e-6
    beta: float = 0.1
    """Scale of the margin: the larger, the sooner a pair is settled and the less the policy moves."""
    weight_decay: float = 0.0
    warmup: float = 0.0
    """Fraction of an iteration's updates over which the learning rate rises to `lr`."""

    nothing = "no two attempts at a task differ enough to form a pair, so there was nothing to learn"
    on_policy = False
    whole_units = True

    @abstractmethod
    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        """Pairs of a better and a worse trajectory of a group."""

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        """The samples of all pairs, with their sides and the reference policy's log-probs."""
        pairs = [
            (index, pair)
            for index, group in enumerate(groups)
            for pair in self.pairs(group)
            if actions(pair[0]) != actions(pair[1])  # equal actions teach nothing
        ]
        samples = [
            replace(sample, advantages=side * sample.mask, pair=number)
            for number, (index, pair) in enumerate(pairs)
            for side, trajectory in zip((1.0, -1.0), pair, strict=True)
            for sample in self.to_samples(trajectory, index)
        ]
        return learner.read(samples, *self.reads) if self.reads else samples

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that `reference_logp` needs, beside what the samples have."""
        return ("reference",) if self.needs_reference else ("logprobs",)

    def to_samples(self, trajectory: Trajectory, group_index: int) -> list[Sample]:
        """A trajectory as samples; a method may give its tokens other weights than 1."""
        return to_samples(trajectory, group_index, 1.0, 1.0, own=self.on_policy)

    def lr_scale(self, now: Now, within: float = 0.5) -> float:
        return within / self.warmup if within < self.warmup else 1.0

    def strength(self, step: int) -> float:
        """Beta in an iteration."""
        return self.beta

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        change_N = batch.adv_N * batch.weight_N * (scored.logp_N - self.reference_logp(batch))
        margin_P = self.strength(batch.step) * sum_by(change_N, batch, "trajectory")
        said_P = margin_P.detach()
        metrics: Metrics = {"margin": (said_P.sum(), batch.units), "settled": ((said_P > 0).sum(), batch.units)}
        return self.penalty(margin_P, batch).sum(), metrics

    def reference_logp(self, batch: Batch) -> Tensor:
        """What log p is compared with, token by token."""
        return batch.columns[self.reads[0]]

    def penalty(self, margin_P: Tensor, batch: Batch) -> Tensor:
        """The loss of each pair."""
        return -logsigmoid(margin_P)


class AgainstExpert(Preference):
    """Pairs of the expert's attempt with the policy's own."""

    @property
    def attempts_per_task(self) -> int:
        return self.k + 1

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        return await with_experts(rollouts, tasks, n, self.k)

    def pairs(self, group: Group) -> Iterator[tuple[Trajectory, Trajectory]]:
        for own in group.policy_trajectories:
            if group.expert is not None:
                yield from self.against(group.expert, own)

    @abstractmethod
    def against(self, expert: Trajectory, own: Trajectory) -> Iterator[tuple[Trajectory, Trajectory]]:
        """The better and the worse one of the two, if they are to be a pair."""


def actions(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [turn.action_key for turn in trajectory.turns]
