"""Base classes. `Algorithm` gives the settings and the collection that most methods share; `Grouped` adds the credit of
methods that give every attempt an advantage over the other attempts at its task.

An algorithm is a frozen dataclass (settings.py). Its fields are the options of the config's `[algo]` table. Their
defaults are the numbers of the method's paper or code, except where its page says otherwise; what these do not say is
LOOP's (K = 6, learning rate 5e-5), as is what LOOP's paper sets alike for the methods that it compares.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor

from longloop.algos.reduce import Unit, to_samples
from longloop.algos.settings import Settings
from longloop.protocols import Learner, Rollouts, Tasks
from longloop.types import Batch, Group, Metrics, Minibatch, Needs, Now, Sample, Scored, Start, UserError


class Algorithm(Settings, ABC):
    by_name = True

    k: int = 6
    """Attempts per task."""
    epochs: int = 1
    """Passes over the collected samples."""
    minibatch: int = 0
    """Trajectories per gradient step, and what their sum is divided by; 0 for all of the step's at once."""
    lr: float = 5e-5
    """Learning rate of AdamW."""
    weight_decay: float = 0.01
    """Of AdamW, decoupled from the gradient."""
    max_grad_norm: float = 1.0
    """Gradients with a larger norm are scaled down to it."""
    kl_guard: float = 20.0
    """Skip the rest of a step when the mean over trajectories of the summed log-ratio exceeds this."""

    min_scored: ClassVar[int] = 1
    """Scored attempts at a task below which the method learns nothing from it."""
    average: ClassVar[Literal["trajectories", "tokens"]] = "trajectories"
    """Whether the loss is a mean over trajectories or over tokens."""
    hooks: ClassVar[frozenset[str]] = frozenset()
    """What the environment must give besides what every environment does: see `Part.hooks`. The doctor looks."""
    needs_reference: ClassVar[bool] = False
    """Whether `Learner.read` is asked for `reference`."""
    heads: ClassVar[tuple[str, ...]] = ()
    """The names of the heads it needs: small networks on the policy's last hidden states."""
    nothing: ClassVar[str] = "there was nothing to learn"
    """Printed for a step that gave no samples."""
    on_policy: ClassVar[bool] = True
    """Whether it trains on actions of the current policy. If not, ratios and the KL guard do not apply."""

    def __post_init__(self) -> None:
        if self.k < self.min_scored:
            raise UserError(
                f"algo.k = {self.k}: {type(self).__name__} compares a task's attempts with each other and needs "
                f"algo.k >= {self.min_scored}."
            )

    @property
    def attempts_per_task(self) -> int:
        """Attempts per task and step, the expert's included. `compare` counts these against its budget."""
        return self.k

    @property
    def whole_units(self) -> bool:
        """Whether the loss needs all tokens of a trajectory, or of a pair, at once."""
        return False

    @property
    def needs(self) -> Needs:
        """What the learner must provide."""
        return Needs(
            lr=self.lr,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
            kl_guard=self.kl_guard,
            heads=self.heads,
            reference=self.needs_reference,
        )

    def lr_scale(self, now: Now, within: float = 0.5) -> float:
        """The factor on `lr` for an update; `within` is the fraction of the step's updates that lie before it."""
        return 1.0

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]:
        """K attempts at each of the next n tasks, from the policy being trained."""
        first = tasks.taken
        return await rollouts.play([Start(task) for task in tasks.take(n)], self.k, seed=first)

    @abstractmethod
    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        """The samples to train on: what each token earned."""

    def look(self, minibatch: Minibatch, learner: Learner, now: Now) -> Minibatch:
        """Look at a mini-batch as a whole before its update, and put what the loss must know of it into its `facts`."""
        return minibatch

    def denominator(self, groups: Sequence[Group], samples: Sequence[Sample]) -> int:
        """The number of trajectories or pairs that a step's loss is averaged over when `minibatch = 0` makes it one
        gradient step. Dropped units count too where dropping must not change the gradient of the others."""
        return len({sample.unit for sample in samples})

    @abstractmethod
    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]:
        """The weighted SUM over a micro-batch. The learner divides it by the mini-batch's norm and minimizes it."""


async def with_experts(rollouts: Rollouts, tasks: Tasks, n: int, k: int) -> list[Group]:
    """The expert's attempt at each of the next n tasks, and K of the policy's own."""
    first, taken = tasks.taken, tasks.take(n)
    shown = await rollouts.demonstrations(taken)
    own = await rollouts.play([Start(task) for task in taken], k, seed=first)
    return [one.merged_with(other) for one, other in zip(own, shown, strict=True)]


class Grouped(Algorithm):
    min_scored = 2
    nothing = "at every task all attempts were paid the same, so there was nothing to learn"

    @property
    def weights(self) -> Unit | float:
        """The weight of a token in the loss; see reduce.to_samples."""
        return "token"

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]:
        """Each scored attempt as samples that carry its advantage within its group."""
        return [
            sample
            for index, group in enumerate(groups)
            if len(group.scored) >= self.min_scored
            for t, advantage in zip(group.scored, self.advantages([t.reward for t in group.scored]), strict=True)
            if self.keep(advantage)
            for sample in to_samples(t, index, advantage, self.weights)
        ]

    def denominator(self, groups: Sequence[Group], samples: Sequence[Sample]) -> int:
        """All scored attempts, including those that `keep` drops."""
        return sum(len(group.scored) for group in groups)

    def keep(self, advantage: float) -> bool:
        """Whether to train on an attempt with this advantage."""
        return True

    @abstractmethod
    def advantages(self, rewards: Sequence[float]) -> list[float]:
        """Map the rewards of a group's scored attempts to their advantages."""
