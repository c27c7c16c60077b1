"""Crossroads with a policy that is a table of logits: all its attempts, their probabilities and their gradients.

At each fork the first token chooses l or r; r is followed by a second token, x or y, that the environment ignores. So
actions have one or two tokens, turns and attempts differ in length, and there are 13 possible attempts.

Two sides that share no arithmetic. `Exact` has the attempts as lists of decisions and knows probabilities and scores
in closed form. `TableLearner` stands where a learner would: it sees samples only, and looks log-probs up by token id.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations_with_replacement, product
from math import factorial, prod
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from longloop.envs.crossroads import ROADS, Crossroads
from longloop.learners.batching import PackedBatch, pack
from longloop.training import schedule
from longloop.types import Group, Message, Now, Sample, Scored, StopReason, Task, Trajectory, Turn
from tests.support.samples import NOW

FORKS = list(ROADS)
STATES = 2 * len(FORKS)
"""Rows of the table: a fork's first token, then (from len(FORKS) on) its second after r. Two choices in each."""
L, R, X, Y = range(len(FORKS), len(FORKS) + 4)
"""Token ids of the actions; ids below are the forks, which is all that the environment says."""
TASK = Task("crossroads", "train")
CPU = torch.device("cpu")

Decision = tuple[int, int]
"""State, choice."""


@dataclass(frozen=True)
class Path:
    """A complete attempt: for each fork passed, the decisions of its one or two tokens."""

    turns: tuple[tuple[Decision, ...], ...]
    reward: float

    @property
    def decisions(self) -> list[Decision]:
        return [decision for turn in self.turns for decision in turn]


def all_paths() -> Iterator[Path]:
    for forks, turns, reward in Crossroads.paths():
        places = [FORKS.index(fork) for fork in forks]
        options = [
            [((place, 0),)] if turn == "l" else [((place, 1), (len(FORKS) + place, second)) for second in (0, 1)]
            for place, turn in zip(places, turns, strict=True)
        ]
        for chosen in product(*options):
            yield Path(chosen, reward)


PATHS = list(all_paths())
REWARD = np.array([path.reward for path in PATHS])
TOKENS = np.array([len(path.decisions) for path in PATHS])
TURNS = np.array([len(path.turns) for path in PATHS])


class Exact:
    """What a table of logits says about every path, in closed form."""

    def __init__(self, logits: np.ndarray) -> None:
        self.logits = logits
        exp = np.exp(logits)
        self.p = exp / exp.sum(axis=1, keepdims=True)

    def logp(self, decision: Decision) -> float:
        return float(np.log(self.p[decision]))

    def score(self, decision: Decision) -> np.ndarray:
        """d log softmax(row)[choice] / d row = 1[choice] - p, and 0 for every other row."""
        state, choice = decision
        score = np.zeros((STATES, 2))
        score[state] = np.eye(2)[choice] - self.p[state]
        return score.ravel()

    @cached_property
    def probability(self) -> np.ndarray:
        """Of every path, [P]."""
        return np.exp([sum(map(self.logp, path.decisions)) for path in PATHS])

    @cached_property
    def scores(self) -> np.ndarray:
        """d log probability of every path, [P, C]."""
        return np.array([sum(map(self.score, path.decisions)) for path in PATHS])

    @property
    def expected_reward(self) -> float:
        return float(self.probability @ REWARD)

    def gradient_of_reward(self) -> np.ndarray:
        """Of J = sum over paths of p(x) R(x), by autograd on the list of all paths."""
        logits = torch.tensor(self.logits, requires_grad=True)
        logp = logits.log_softmax(-1)
        total = sum(path.reward * torch.exp(sum(logp[d] for d in path.decisions)) for path in PATHS)
        return torch.autograd.grad(total, logits)[0].numpy().ravel()


class TableLearner:
    """Scores samples with a table; `sampler`, `reference` and `value` are what those policies and the head would be."""

    def __init__(
        self,
        logits: np.ndarray,
        sampler: np.ndarray | None = None,
        reference: np.ndarray | None = None,
        value: np.ndarray | None = None,
    ) -> None:
        self.logits = torch.tensor(logits, requires_grad=True)
        self.value = torch.tensor(np.zeros(STATES) if value is None else value, requires_grad=True)
        self.sampler = Exact(logits if sampler is None else sampler)
        self._reference = torch.tensor(logits if reference is None else reference)
        self.trajectory = cache(self._trajectory)

    def _trajectory(self, path: int, number: int, failed: bool = False) -> Trajectory:
        turns = tuple(
            Turn(
                context=(Message("user", FORKS[decisions[0][0]]),),
                context_ids=(decisions[0][0],),
                action=Message("assistant", "lr"[decisions[0][1]]),
                action_ids=tuple((X if state >= len(FORKS) else L) + choice for state, choice in decisions),
                action_logprobs=tuple(map(self.sampler.logp, decisions)),
            )
            for decisions in PATHS[path].turns
        )
        if failed:
            return Trajectory(TASK, number, turns, 0.0, False, StopReason.ENV_ERROR)
        return Trajectory(TASK, number, turns, PATHS[path].reward, False, StopReason.FINISHED)

    def score(self, packed: PackedBatch, table: torch.Tensor) -> Scored:
        """The state follows from the ids: after a fork's id its first token, after r (one id later) its second."""
        before_N = packed.ids_T[packed.at_N]
        fork_N = packed.ids_T[(packed.at_N - 1).clamp(min=0)]
        second_N = before_N == R
        state_N = torch.where(second_N, len(FORKS) + fork_N, before_N)
        choice_N = packed.target_N - torch.where(second_N, X, L)
        logp_N = table.log_softmax(-1)[state_N, choice_N]
        return Scored(logp_N, torch.zeros_like(logp_N), {"value": self.value[state_N]})

    def read(self, samples: Sequence[Sample], *columns: str) -> list[Sample]:
        """The columns that these methods ask for: `reference`, and what the `value` head says."""
        if not samples:
            return []
        scored = self.score(pack(samples, 0, CPU), self._reference)
        known = {"reference": scored.logp_N} | dict(scored.heads)
        rows = [{name: np.zeros(len(sample.ids)) for name in columns} for sample in samples]
        for name in columns:
            numbers = iter(known[name].tolist())
            for sample, row in zip(samples, rows, strict=True):
                row[name][sample.mask] = [next(numbers) for _ in range(sample.action_tokens)]
        return [sample.with_columns(**row) for sample, row in zip(samples, rows, strict=True)]

    def gradient(self, algo: Any, groups: list[Group]) -> np.ndarray | None:
        """Of what the learner would maximize on these groups (minus the loss, over the mini-batch's one denominator).

        Everything is the algorithm's own: credit, the mini-batch with its denominator, pack, loss. None if it has
        nothing to learn from them.
        """
        config: Any = SimpleNamespace(seed=0, steps=1)
        objectives = []
        for minibatch in schedule(config, algo, groups, algo.credit(groups, self, NOW), Now(1, 1)):
            packed = pack(minibatch.samples, minibatch.step, CPU)
            objectives.append(-algo.loss(self.score(packed, self.logits), packed.batch)[0] / minibatch.norm)
        if not objectives:
            return None
        total = torch.stack(objectives).mean()
        parts = torch.autograd.grad(total, (self.logits, self.value), allow_unused=True, materialize_grads=True)
        return torch.cat([part.flatten() for part in parts[: 2 if algo.heads else 1]]).numpy()

    def group(self, paths: Sequence[int], failed: int = 0) -> Group:
        """Attempts that took these paths; so many more were spoilt by the environment."""
        attempts = [*paths, *[0] * failed]
        return Group(TASK, tuple(self.trajectory(path, n, n >= len(paths)) for n, path in enumerate(attempts)))


def expected(
    algo: Any,
    learner: TableLearner,
    *,
    k: int,
    failed: int = 0,
    prepare: Callable[[list[Group]], list[Group]] = lambda groups: groups,
) -> np.ndarray:
    """The exact mean of the gradients [C] that an algorithm makes of single groups of K attempts.

    Every group that can be drawn, times its probability; one that gives no update counts as zero. Attempts are
    independent, so a group stands for all orders of its attempts, in an order by lot. The last `failed` attempts are
    spoilt by the environment. `prepare` may tamper.
    """
    chance = random.Random(0)
    total: np.ndarray | float = 0.0
    for paths in combinations_with_replacement(range(len(PATHS)), k - failed):
        orders = factorial(len(paths)) / prod(map(factorial, Counter(paths).values()))
        probability = orders * learner.sampler.probability[list(paths)].prod()
        gradient = learner.gradient(algo, prepare([learner.group(chance.sample(paths, len(paths)), failed)]))
        if gradient is not None:
            total = total + probability * gradient
    return np.asarray(total)


def estimates(
    algo: Any, learner: TableLearner, *, k: int, groups: int, prepare: Callable[[list[Group]], list[Group]]
) -> np.ndarray:
    """Monte-Carlo gradients [100, C], each of one update on so many groups of K attempts, to which `prepare` adds more.

    For a method that draws more than its attempts, so that not every group can be listed.
    """
    chance = np.random.default_rng(0)
    rows = []
    for _ in range(100):
        drawn = chance.choice(len(PATHS), p=learner.sampler.probability, size=(groups, k)).tolist()
        rows.append(learner.gradient(algo, prepare([learner.group(row) for row in drawn])))
    return np.array(rows)


@dataclass(frozen=True)
class Verdict:
    """An estimator's mean held against an exact vector, coordinate by coordinate."""

    inside: bool
    """Every coordinate lies within its confidence interval."""
    error: float
    """|mean - exact| / |exact|, of the whole vector."""
    width: float
    """|half widths of the intervals| / |exact|."""


def compare(rows: np.ndarray, exact: np.ndarray, level: float = 0.999) -> Verdict:
    """Intervals that hold all coordinates at once with this probability (Bonferroni), from the spread of the batches.

    The t quantile is the normal one with its first correction in 1 / degrees of freedom.
    """
    batches, coordinates = rows.shape
    z = NormalDist().inv_cdf(1 - (1 - level) / coordinates / 2)
    t = z + (z**3 + z) / 4 / (batches - 1)
    off = np.abs(rows.mean(axis=0) - exact)
    half = t * rows.std(axis=0, ddof=1) / np.sqrt(batches)
    size = np.linalg.norm(exact)
    rounding = 1e-6 * size  # log-probs are kept in float32
    return Verdict(
        bool((off <= half + rounding).all()), float(np.linalg.norm(off) / size), float(np.linalg.norm(half) / size)
    )
