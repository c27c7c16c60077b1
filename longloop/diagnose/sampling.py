"""Check that what is trained on is what was sampled, id by id, and that the K attempts at a task differ.

A recording engine makes a real collection. Trajectories and samples are compared with its record of requests and
answers, not with anything derived from it.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import comb, log
from typing import Any

import numpy as np

from longloop.algos.base import Algorithm
from longloop.algos.reduce import to_samples
from longloop.config import RolloutConfig
from longloop.diagnose.finding import Finding
from longloop.diagnose.hopeless import HOPELESS, TELLING
from longloop.envs.contract import remarks
from longloop.learners.agreement import Agreement, check, compare
from longloop.protocols import Engine, Learner
from longloop.rollout.groups import GroupRollouts
from longloop.types import (
    Group,
    Mask,
    Now,
    Sample,
    Sampled,
    SamplingParams,
    Start,
    StopReason,
    Stretch,
    Task,
    Trajectory,
    UserError,
)

_NAME = "doctor"
"""Keeps the doctor's random numbers apart from the run's."""
_CHANCE = log(1e-4)
"""Log-probability below which K equal attempts are no accident."""
_RARE = 0.05
"""Significance level at which an observation on some tasks is extended to most."""
_COLD = 0.1
"""Temperature below which attempts hardly differ."""


@dataclass(frozen=True)
class Asked:
    """One request to the engine."""

    ids: list[int]
    seed: int
    sampled: Sampled


class Recorder:
    """An engine that records its requests and answers by session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked: dict[str, list[Asked]] = defaultdict(list)

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> Sampled:
        sampled = await self._engine.sample(ids, params, session=session)
        self.asked[session].append(Asked(list(ids), params.seed, sampled))
        return sampled

    def forget(self, session: str) -> None:
        self._engine.forget(session)

    def release(self) -> None:
        self._engine.release()


@dataclass(frozen=True)
class Collection:
    """K attempts at each of some tasks, with the engine's record of them."""

    groups: list[Group]
    record: dict[str, list[Asked]]
    seconds: float

    def asked(self, index: int, trajectory: Trajectory) -> list[Asked]:
        """What the engine was asked for an attempt, one conversation after the other."""
        session = f"{_NAME}/{index}/{trajectory.attempt}"
        return [one for name, asked in self.record.items() if f"{name}/".startswith(f"{session}/") for one in asked]

    @property
    def own(self) -> list[tuple[int, Trajectory]]:
        """(index of the group, attempt) of the scored attempts in which the policy acted."""
        return [
            (index, t) for index, group in enumerate(self.groups) for t in group.policy_trajectories if t.action_tokens
        ]

    def samples(self) -> list[Sample]:
        """All of the policy's actions, as samples."""
        return [sample for index, t in self.own for sample in to_samples(t, index, 1.0, "token")]


async def collect(rollouts: GroupRollouts, tasks: Sequence[Task], k: int, **limits: Any) -> Collection:
    """Make attempts as training does, with some limits lowered."""
    setting = rollouts.context
    recorder = Recorder(setting.engine)
    lower = setting.limits.model_copy(
        update={name: min(v, getattr(setting.limits, name)) for name, v in limits.items()}
    )
    apart = rollouts.fork_for_probe(_NAME, replace(setting, engine=recorder, limits=lower))
    began = time.perf_counter()
    groups = await apart.play([Start(task) for task in tasks], k, seed=0)
    return Collection(groups, recorder.asked, time.perf_counter() - began)


def tokens(collected: Collection, algo: Algorithm, learner: Learner, chat: Any) -> Finding:
    """Is what the algorithm would train on what was sampled, id by id?"""
    samples = collected.samples()
    if algo.on_policy:
        samples += algo.credit([_paid_differently(group) for group in collected.groups], learner, Now(1, 1))
    attempts = {(index, t.attempt): t for index, t in collected.own}
    for (index, number), trajectory in attempts.items():
        record = collected.asked(index, trajectory)
        fault = _where_ids_differ(trajectory, record)
        true = trajectory.stretches()
        for sample in samples:
            if sample.source == (index, number) and not fault:
                fault = _where_sample_differs(sample, true[sample.stretch])
        if fault:
            return Finding(
                "tokens",
                "fail",
                f"Attempt {number} at {trajectory.task.id!r}: {fault}. The update would change the odds of tokens that "
                "nobody chose.",
                "If the algorithm or the engine is your own, look at the mask and the ids it returns; else report it.",
            )
    if not attempts:
        return Finding(
            "tokens", "fail", f"No attempt could be looked at: {_why_none(collected)}.", "Mend the environment first."
        )
    longest = max(attempts.values(), key=lambda t: (len(t.turns), t.action_tokens))
    chosen, seen = (sum(map(size, collected.samples())) for size in (lambda s: s.action_tokens, lambda s: len(s.ids)))
    return Finding(
        "tokens",
        "pass",
        f"{len(attempts)} attempts of up to {len(longest.turns)} turns: the {chosen:,} tokens that are trained on are "
        f"those that were sampled, id by id; the other {seen - chosen:,} are only read.",
        numbers={"attempts": len(attempts), "turns": len(longest.turns), "trained": chosen, "read": seen - chosen},
        text=coloured(longest.stretches()[-1], chat),
    )


def observations(collected: Collection, context: int) -> Finding:
    """Do the environment's messages fit into the context, and are they free of chat markup?"""
    everyone = [t for group in collected.groups for t in group.trajectories]
    full = [t for t in everyone if t.stop is StopReason.CONTEXT_FULL]
    if full:
        one = full[0]
        read = max((sum(len(turn.context_ids) + len(turn.action_ids) for turn in t.turns) for t in full), default=0)
        return Finding(
            "observations",
            "warning",
            f"{len(full)} of {len(everyone)} attempts ended because what step() returned no longer fitted: "
            f"rollout.context is {context:,} tokens, and the conversation had {read:,} before it, for instance after "
            f"{_turns(len(one.turns))} at {one.task.id!r}. Such an attempt is scored as it stands.",
            "Shorten what step() returns, or raise rollout.context.",
            {"full": len(full), "attempts": len(everyone)},
        )
    for t in everyone:
        said = [message for turn in t.turns for message in (*turn.context, turn.action)]
        for remark in remarks(said, len(t.turns[0].context) if t.turns else 0):
            return Finding("observations", "warning", f"At {t.task.id!r} {remark}.")
    return Finding("observations", "pass", "What the environment said fitted into the context.")


def success(groups: Sequence[Group]) -> Finding:
    """Does the policy ever succeed, and do rewards differ within a group?"""
    own = [group.policy_trajectories for group in groups if group.policy_trajectories]
    attempts = [t for some in own for t in some]
    if not attempts:
        seen = (
            "Not looked at: the method makes no attempts of its own, or a single one takes longer than the doctor does."
        )
        return Finding("success", "pass", seen)
    done = sum(t.success for t in attempts)
    differ = sum(len({t.reward for t in some}) > 1 for some in own)
    numbers = {"attempts": len(attempts), "successes": done, "groups": len(own), "groups_that_differ": differ}
    seen = f"{done} of {len(attempts)} attempts succeeded"
    if not differ and len(attempts) < TELLING:
        return Finding("success", "pass", f"{seen}; there was no time for more.", numbers=numbers)
    if not differ and not done:
        seen += f", and at each task all were paid the same: {HOPELESS}"
        return Finding("success", "warning", seen, numbers=numbers)
    if not differ and done == len(attempts):
        seen += ", so there is nothing left to learn here."
        return Finding("success", "warning", seen, "Take harder tasks.", numbers)
    seen += f"; in {differ} of {len(own)} groups some were paid more than others."
    return Finding("success", "pass", seen, numbers=numbers)


def template(collected: Collection, shown: Sequence[Trajectory] = ()) -> Finding:
    """Does the chat template leave earlier turns unchanged? `shown` are demonstrations."""
    trajectories = [*(t for _, t in collected.own), *shown]
    later = [turn for t in trajectories for turn in t.turns[1:]]
    fresh = sum(turn.restarts_context and not turn.rebuilt for turn in later)
    if not later:
        return Finding("template", "pass", "Every attempt had a single turn, so there was no history to rewrite.")
    if not fresh:
        return Finding("template", "pass", f"The chat template kept what was said before, in {len(later)} turns.")
    read = sum(len(stretch.ids) for t in trajectories for stretch in t.stretches())
    once = sum(len(t.stretches()[-1].ids) for t in trajectories if t.turns)
    return Finding(
        "template",
        "warning",
        f"The chat template rewrote earlier turns in {fresh} of {len(later)}: each such turn is trained on as a sample "
        f"of its own, which here makes {read / once:.1f} times the tokens to read, and the agent sees a past that it "
        "did not write.",
        "Set model.chat_template to a file with a template that leaves earlier messages as they are.",
        {"fresh": fresh, "turns": len(later), "times": round(read / once, 2)},
    )


def agreement(samples: Sequence[Sample], learner: Any) -> tuple[Finding, Agreement]:
    """Do sampler and learner agree on the probabilities of the sampled tokens?"""
    found = compare(samples, learner.logprobs(samples))
    numbers = {name: getattr(found, name) for name in ("tokens", "mean", "unsure", "p99", "worst")}
    seen = (
        f"Sampler and learner differ by {found.mean:.1e} of a token's probability on average over {found.tokens:,} "
        f"tokens, by {found.unsure:.1e} where the sampler was unsure, 99 of 100 by less than {found.p99:.1e}, at most "
        f"{found.worst:.1e}."
    )
    try:
        check(found, learner.policy.bf16)
    except UserError as error:
        return Finding("agreement", "fail", str(error), "Look at the engine, and at finding `tokens`.", numbers), found
    if found.old == "learner":
        return Finding(
            "agreement",
            "warning",
            f"{seen} That is too far for ratios, so the learner computes its own: a forward pass more in each step.",
            "model.dtype=float32 makes them agree, where there is memory for it.",
            numbers,
        ), found
    return Finding("agreement", "pass", seen, numbers=numbers), found


async def variety(
    collected: Collection, rollouts: GroupRollouts, tasks: Sequence[Task], of: int, k: int, **limits: Any
) -> Finding:
    """Do the K attempts at a task differ?

    If those collected are equal, each of `tasks` (sampled from `of` tasks) is attempted once with the same limits: a
    task or two on which the model is certain say little about the others.
    """
    temperature = rollouts.context.sampling.temperature
    groups = [group for group in collected.groups if len(group.policy_trajectories) > 1]
    numbers = {"k": k, "temperature": temperature}
    if k < 2 or not groups:
        return Finding("variety", "pass", "There are no two attempts at a task to compare.", numbers=numbers)
    for index, group in enumerate(collected.groups):
        firsts = [record[0].seed for t in group.policy_trajectories if (record := collected.asked(index, t))]
        if len(set(firsts)) < len(firsts):
            return Finding(
                "variety",
                "fail",
                f"Attempts at {group.task.id!r} were sampled with the same seed, so they are the same attempt.",
                "Every attempt needs a seed of its own; look at what hands them to the engine.",
                numbers,
            )
    alike = [group for group in groups if len({_ids(t) for t in group.policy_trajectories}) == 1]
    distinct = sum(len({_ids(t) for t in group.policy_trajectories}) for group in groups)
    attempts = sum(len(group.policy_trajectories) for group in groups)
    numbers |= {"attempts": attempts, "distinct": distinct}
    # The first of each group may say anything; how likely was it that all the others say the same?
    odds = sum((len(group.policy_trajectories) - 1) * _logprob(group.policy_trajectories[0]) for group in groups)
    if len(alike) == len(groups) and odds < _CHANCE:
        return Finding(
            "variety",
            "fail",
            f"All {attempts} attempts are the same at each of their tasks, which by the sampler's own log-probs "
            f"had a chance of 10^{odds / log(10):.0f}: the engine draws the same random numbers every time.",
            "Let the engine use the seed that each request carries.",
            numbers,
        )
    if temperature < _COLD:
        return Finding(
            "variety",
            "warning",
            f"rollout.temperature is {temperature:g}: attempts will hardly differ, and equal ones teach nothing.",
            "1.0 is the usual choice.",
            numbers,
        )
    if len(alike) < len(groups):
        return Finding(
            "variety", "pass", f"{distinct} of {attempts} attempts are different ones ({k} at a task).", numbers=numbers
        )
    more = await collect(rollouts, tasks, 1, **limits)
    tried = [t for group in more.groups for t in group.policy_trajectories]
    sure = sum((k - 1) * _whole_logprob(t, rollouts.context.limits) > log(0.5) for t in tried)
    numbers |= {"tasks": len(tried), "sure": sure}
    seen = f"All {attempts} attempts are the same at each of their tasks, and at {sure} of {len(tried)} tasks"
    if sure > len(tried) / 2 and (len(tried) == of or _by_luck(sure, len(tried)) < _RARE):
        return Finding(
            "variety",
            "warning",
            f"{seen} the model is so sure of itself at temperature {temperature:g} that {k} attempts most likely are. "
            "A group of equal attempts teaches nothing.",
            "Raise rollout.temperature, or start from a model that is less sure.",
            numbers,
        )
    return Finding(
        "variety", "pass", f"{seen} it is likely that {k} of them are; elsewhere they differ.", numbers=numbers
    )


def coloured(stretch: Stretch, chat: Any) -> tuple[tuple[bool, str], ...]:
    """A stretch as (trained on?, text) pieces."""
    runs = groupby(zip(stretch.mask.tolist(), stretch.ids.tolist(), strict=True), key=lambda pair: pair[0])
    return tuple(
        (trained, chat.tokenizer.decode([id for _, id in run], skip_special_tokens=False)) for trained, run in runs
    )


def _where_ids_differ(trajectory: Trajectory, record: Sequence[Asked]) -> str:
    """How a trajectory's ids, mask or log-probs differ from the engine's record; empty if they do not."""
    if len(record) != len(trajectory.turns):
        return f"the engine was asked {len(record)} times for {len(trajectory.turns)} turns"
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    true: list[tuple[list[int], list[bool], list[float]]] = []
    for number, (turn, asked) in enumerate(zip(trajectory.turns, record, strict=True)):
        if turn.restarts_context:
            true.append((ids, mask, logprobs))
            ids, mask, logprobs = [], [], []
        if asked.ids[: len(ids)] != ids:
            return f"before turn {number} the model was shown other ids than those it had sampled"
        added = len(asked.ids) - len(ids)
        ids = asked.ids + asked.sampled.ids.tolist()
        mask = mask + [False] * added + [True] * len(asked.sampled.ids)
        logprobs = logprobs + [0.0] * added + asked.sampled.logprobs.tolist()
    true = [columns for columns in (*true, (ids, mask, logprobs)) if any(columns[1])]
    kept = [(s.ids.tolist(), s.mask.tolist(), s.logprobs.tolist()) for s in trajectory.stretches()]
    if len(kept) != len(true):
        return f"it has {len(kept)} stretches of tokens where {len(true)} were sampled"
    for ours, theirs in zip(kept, true, strict=True):
        columns: Any = zip(("id", "mask", "log-prob"), ours, theirs, strict=True)
        for name, a, b in columns:
            if a != b:
                position = next((i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), len(b))
                return f"the {name} of token {position} is not the sampled one"
    return ""


def _where_sample_differs(sample: Sample, stretch: Stretch) -> str:
    """How an algorithm's sample differs from its stretch; empty if it does not. It may drop actions, not add any."""
    if not np.array_equal(sample.ids, stretch.ids):
        return "the algorithm's sample has other ids than were sampled"
    for position in np.flatnonzero(sample.mask & ~stretch.mask):
        return f"the mask of the algorithm's sample marks token {position}, which the model did not choose"
    if not sample.mask.any():
        return "the mask of the algorithm's sample marks no token"
    actions = _actions(sample, stretch)
    for end, name in ((0, "first"), (-1, "last")):
        if actions and not any(marked[end] for marked in actions):
            return f"the mask of the algorithm's sample leaves out the {name} token of every action"
    for position in np.flatnonzero(sample.mask & (sample.logprobs != stretch.logprobs)):
        return f"the algorithm's sample has another log-prob at token {position} than was sampled"
    return ""


def _actions(sample: Sample, stretch: Stretch) -> list[Mask]:
    """The sample's mask over each action that it marks any token of."""
    masks = [sample.mask[stretch.mask & (stretch.turns == turn)] for turn in np.unique(stretch.turns)]
    return [mask for mask in masks if mask.any()]


def _paid_differently(group: Group) -> Group:
    """The group with rewards from 0 to 1, so that every attempt has an advantage."""
    last = max(len(group.trajectories) - 1, 1)
    return Group(group.task, tuple(replace(t, reward=n / last) for n, t in enumerate(group.trajectories)))


def _ids(trajectory: Trajectory) -> tuple[tuple[int, ...], ...]:
    return tuple(turn.action_key for turn in trajectory.turns)


def _logprob(trajectory: Trajectory) -> float:
    return sum(float(turn.action_logprobs.sum()) for turn in trajectory.turns)


def _whole_logprob(trajectory: Trajectory, limits: RolloutConfig) -> float:
    """The log-prob of an attempt. One that was cut short is extrapolated to the run's own limits."""
    turns = len(trajectory.turns)
    long = any(turn.finish == "length" and len(turn.action_ids) < limits.turn_tokens for turn in trajectory.turns)
    cut = long or (trajectory.stop is StopReason.MAX_TURNS and turns < limits.max_turns)
    return _logprob(trajectory) * (limits.max_turns / turns if cut and turns else 1)


def _by_luck(sure: int, tasks: int) -> float:
    """Sign test: the probability of at least `sure` certain tasks if the model were certain on half of all tasks."""
    return sum(comb(tasks, n) for n in range(sure, tasks + 1)) / 2**tasks


def _turns(n: int) -> str:
    return f"{n} turn{'s' * (n != 1)}"


def _why_none(collected: Collection) -> str:
    stopped = [t for group in collected.groups for t in group.trajectories]
    return next((t.error or t.stop.sentence for t in stopped if not t.stop.scored), "the policy said nothing")
