"""An update, tried out and undone: it must change what the sampler says. On the way, how long one takes."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from longloop.diagnose.finding import Finding
from longloop.diagnose.sampling import Collection, agreement, collect
from longloop.learners.agreement import compare
from longloop.learners.local import LocalLearner
from longloop.rollout.groups import GroupRollouts
from longloop.types import Batch, Metrics, Minibatch, Sample, Scored

_FIRST, _TIMES = 3e-4, 12
"""The learning rate of the first try; each of so many is twice the last."""
_MOVED, _MOVED_BF16 = 0.05, 0.5
"""The mean change of a token's probability that is no rounding: a sampler that did not follow it is found out."""


@dataclass(frozen=True)
class Speed:
    """Tokens a second, those that are only read included."""

    update: float
    score: float


async def update(
    rollouts: GroupRollouts, learner: LocalLearner, before: Collection, turns: int
) -> tuple[Finding, Speed]:
    """Change much what the policy would say, and see whether the engine says it."""
    enough = _MOVED_BF16 if learner.policy.bf16 else _MOVED
    with learner.on_trial():
        moved, speed = _change(learner, before.samples(), enough)
        if moved <= enough:
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
        found, gap = agreement(after.samples(), learner)
    numbers = {"moved": moved, "mean": gap.mean, "p99": gap.p99}
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


def _change(learner: LocalLearner, samples: Sequence[Sample], enough: float) -> tuple[float, Speed]:
    """Updates until the samples' probabilities have changed; by how much, and how fast that was."""
    read = sum(len(sample.ids) for sample in samples)
    first = learner.logprobs(samples)
    start = [replace(sample, logprobs=row) for sample, row in zip(samples, first, strict=True)]
    now, moved, speed = start, 0.0, Speed(0.0, 0.0)
    for number in range(_TIMES):
        rate = _FIRST * 2**number / learner.needs.lr if learner.needs.lr else 0.0
        minibatch = Minibatch(now, norm=float(read), step=1, on_policy=False, lr_scale=rate)
        began = time.perf_counter()
        learner.update(minibatch, _surprise)
        updated = time.perf_counter()
        rows = learner.logprobs(samples)
        speed = Speed(read / (updated - began), read / (time.perf_counter() - updated))
        moved = compare(start, rows).mean
        if moved > enough and number:  # the first is slow for reasons of its own
            break
        now = [replace(sample, logprobs=row) for sample, row in zip(samples, rows, strict=True)]
    return moved, speed


def _surprise(scored: Scored, batch: Batch) -> tuple[torch.Tensor, Metrics]:
    """What was likely becomes unlikely, and the other way round: a change that is large for every model."""
    likely_N = batch.old_N > math.log(0.5)
    return torch.where(likely_N, scored.logp_N, -scored.logp_N).sum(), {}
