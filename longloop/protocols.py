"""The protocols, and nothing else. What stands on either side of them knows no more than this.

Tensors appear only behind `Algorithm.loss` and inside learners and engines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from longloop.types import (
    Batch,
    Group,
    Metrics,
    Minibatch,
    Now,
    Sample,
    Sampled,
    SamplingParams,
    Scored,
    Start,
    Task,
    Trajectory,
    Update,
    Watch,
)

if TYPE_CHECKING:
    from torch import Tensor


class Engine(Protocol):
    """Samples from the policy: ids in; ids and log-probs out."""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        """Continue `ids`. Requests of one session extend one another: the engine keeps its work on the shared part.

        The result depends on `ids` and `params` alone, not on what else is being sampled. To cancel a request, cancel
        the task that awaits it.
        """
        ...

    def forget(self, session: str) -> None:
        """The session is over; its memory may be reused."""
        ...

    def release(self) -> None:
        """Give working memory back. Nothing may be in the course of being sampled."""
        ...


class WatchedEngine(Engine, Protocol):
    """An engine that shows tokens as they come: what `longloop serve` needs."""

    async def sample(
        self, ids: Sequence[int], params: SamplingParams, *, session: str, watch: Watch | None = None
    ) -> Sampled:
        """Continue `ids`, and tell `watch` each token."""
        ...


class How(TypedDict, total=False):
    """How attempts are played, where that is not as the run says."""

    temperatures: Sequence[float]
    """That of attempt i is the i-th, beginning again when there are fewer; without any, the run's."""
    single_action: bool
    """An attempt is one action at its start: no environment takes part and no reward is paid."""
    max_turns: int
    """The most turns of an attempt, those taken over included; 0 for the run's limit."""


class Rollouts(Protocol):
    """How an algorithm gets attempts at tasks from the policy being trained."""

    async def play(self, starts: Sequence[Start], k: int, seed: int, **how: Unpack[How]) -> list[Group]:
        """A group of K attempts from each start. `seed` must differ from call to call: `Tasks.taken` does."""
        ...

    async def trees(
        self, tasks: Sequence[Task], attempts: int, explore: float, seed: int, *, puct: bool = False
    ) -> list[Group]:
        """So many attempts at each task that branch off one another (rollout/search.py). With `puct` the policy's
        probabilities guide the search, and visits are counted: `Trajectory.info["visits"]`."""
        ...

    async def demonstrations(self, tasks: Sequence[Task]) -> list[Group]:
        """The attempt of the environment's expert at each task, or the stored ones."""
        ...

    def retokenize(self, trajectory: Trajectory) -> Trajectory:
        """The same messages in the policy's own tokens; the algorithm may have changed what was said."""
        ...

    def state(self) -> dict[str, Any]:
        """What later collections depend on besides the policy, as JSON: the tasks that are set aside."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's state."""
        ...


class Tasks(Protocol):
    """An endless shuffled stream of tasks. `taken` counts what was taken, and is all its state."""

    taken: int
    all: Sequence[Task]
    """The tasks that the stream is made of."""
    seed: int

    def take(self, n: int) -> list[Task]: ...


Loss = Callable[[Scored, Batch], tuple["Tensor", Metrics]]
"""A SUM over the micro-batch and its metrics; the learner divides by the mini-batch's one denominator."""


HeadsLoss = Callable[[Mapping[str, "Tensor"], Mapping[str, "Tensor"]], "Tensor"]
"""Of what the heads say, and what their slow copies do, which have no gradient: by name, at the masked positions of the
samples, which lie end to end, [N]."""

OfEach = Sequence[float]
"""A number for each sample."""


class Algorithm(Protocol):
    """How to get groups, what to make of their rewards, and what to minimize. algos/base.py gives the defaults."""

    async def collect(self, rollouts: Rollouts, tasks: Tasks, n: int, now: Now) -> list[Group]: ...

    def credit(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Sample]: ...

    def loss(self, scored: Scored, batch: Batch) -> tuple[Tensor, Metrics]: ...


class Learner(Protocol):
    """The only object that knows devices: scores samples, updates the weights, saves and loads."""

    def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
        """The samples with these columns filled in, 0 where the mask is off.

        `logprobs` and `entropy` of the policy as it is now; `reference`, the log-probs of the policy before training;
        any other name is that of a head, or of a number in `Needs.of_logits`. One forward pass fills all but
        `reference`, which takes one of its own.
        """
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of something that an agent might say, without the end of its turn."""
        ...

    def with_behavior_logprobs(
        self, epoch: Sequence[Minibatch], loss: Loss, tell: Callable[[str], None]
    ) -> list[Sample]:
        """The samples of a step's first epoch with the log-probs that ratios are taken against: the sampler's, or the
        learner's own."""
        ...

    def fit(
        self, head: str, samples: Sequence[Sample], targets: OfEach, weights: OfEach, lr: float, steps: int
    ) -> None:
        """Train a head from its beginning to say how likely each sample's one action is what it looks for.

        The targets are those likelihoods. The policy is read, and stays as it is to the bit.
        """
        ...

    def fit_heads(self, samples: Sequence[Sample], loss: HeadsLoss, lr: float, steps: int, slow: float) -> None:
        """Train all heads from their beginning.

        After each step their slow copies go a share `slow` of the way to them. The policy is read once, and stays as it
        is to the bit.
        """
        ...

    def judge(self, head: str, samples: Sequence[Sample]) -> list[list[float]]:
        """What a head that was fitted says of each of a sample's actions, as logits."""
        ...

    def update(self, minibatch: Minibatch, loss: Loss) -> Update: ...

    def peak_memory(self) -> dict[str, int]:
        """The most bytes in use: of `process` since it began, and of `card`, where there is one, since last asked."""
        ...

    def rank_times(self) -> dict[str, Any]:
        """Where several ranks learn, the entry `ranks` of a step's metrics: each one's seconds since last asked."""
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...
