"""An update, tried out and undone: it must change what the sampler says. On the way, how long one takes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from longloop.doctor.finding import Finding
from longloop.doctor.sampling import Collection, agreement, collect, credited
from longloop.learners.agreement import compare
from longloop.learners.local import LocalLearner
from longloop.rollout.groups import GroupRollouts
from longloop.types import Batch, Metrics, Minibatch, Sample, Scored

_FIRST, _TIMES = 3e-4, 12
"""The learning rate of the first try; each of so many is twice the last."""
_MOVED = 0.5
"""The mean change of a token's probability after which a sampler that did not follow cannot be overlooked."""


@dataclass(frozen=True)
class Speed:
    """Tokens a second, those that are only read included."""

    update: float
    score: float


async def update(
    rollouts: GroupRollouts, learner: LocalLearner, before: Collection, samples: Sequence[Sample], turns: int
) -> tuple[Finding, Speed]:
    """Make what was sampled unlikely, and see whether the engine stops saying it."""
    read = sum(len(sample.ids) for sample in samples)
    with learner.on_trial():
        moved, speed = _push_away(learner, samples, read)
        if moved <= _MOVED:
            return Finding(
                "update",
                "fail",
                f"{_TIMES} updates with ever larger steps changed the probability of what was sampled by {moved:.1e} "
                "on average: the model does not learn.",
                "See that its weights, or its adapters, are trainable.",
                {"moved": moved},
            ), speed
        tasks = [group.task for group in before.groups]
        after = await collect(rollouts, tasks, max(len(g.trajectories) for g in before.groups), max_turns=turns)
        found, gap = agreement(credited(after, learner.algo, learner), learner)
    numbers = {"moved": moved, "mean": gap.mean, "most": gap.most}
    if found.verdict == "fail":
        return Finding(
            "update",
            "fail",
            f"After an update the engine still samples from other weights than the learner's: they differ by "
            f"{gap.mean:.1e} of a token's probability on average, where the update had changed it by {moved:.1e}.",
            "Let the engine use the learner's weights, or hand them over after each update and drop its cache.",
            numbers,
        ), speed
    return Finding(
        "update",
        "pass",
        f"An update that changed probabilities by {moved:.1e} on average was seen by the sampler at once (the two then "
        f"differ by {gap.mean:.1e}); the weights are again as they were.",
        numbers=numbers,
    ), speed


def _push_away(learner: LocalLearner, samples: Sequence[Sample], read: int) -> tuple[float, Speed]:
    """Updates until the samples' probabilities have changed; by how much, and how fast that was."""
    first = learner.logprobs(samples)
    start = [replace(sample, logprobs=row) for sample, row in zip(samples, first, strict=True)]
    now, moved, speed = start, 0.0, Speed(0.0, 0.0)
    for number in range(_TIMES):
        rate = _FIRST * 2**number / learner.algo.lr if learner.algo.lr else 0.0
        minibatch = Minibatch(now, norm=float(read), step=1, on_policy=False, pace=rate)
        began = time.perf_counter()
        learner.update(minibatch, _unlikely)
        updated = time.perf_counter()
        rows = learner.logprobs(samples)
        speed = Speed(read / (updated - began), read / (time.perf_counter() - updated))
        moved = compare(start, rows).mean
        if moved > _MOVED:
            break
        now = [replace(sample, logprobs=row) for sample, row in zip(samples, rows, strict=True)]
    return moved, speed


def _unlikely(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
    return scored.logp_N.sum(), {}
