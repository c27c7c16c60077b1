"""Rewards: what each turn and each attempt is paid. They may replace what the environment paid, never overwrite it.

`Votes` and what compares attempts by their outcome use `outcome_key`. `Judged` and `Explored` need a credit of turns.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from statistics import fmean, median
from typing import Literal

import numpy as np

from longloop.algos.parts.part import Paid, Part, memory_of
from longloop.algos.reduce import refuse_conversations, to_samples
from longloop.protocols import Learner
from longloop.types import Group, Ids, Now, Sample, SampleSource, Task, Trajectory, Turn, UserError


class Rewards(Part):
    """The verifier's reward for the attempt, and what the environment paid for each turn."""

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        return [self.of_group(group) for group in groups]

    def of_group(self, group: Group) -> Paid:
        turns = [[turn.reward for turn in t.turns] for t in group.scored]
        return Paid(turns, [t.reward for t in group.scored])


class Votes(Rewards):
    """Label-free: an attempt is paid for having the outcome key of others, and nothing without one, or if no two agree.
    The verifier's rewards count 1 - w."""

    by: Literal["share", "majority"] = "share"
    """The share of the attempts that agree with it, or 1 for each attempt of the largest cluster (of each, if tied)."""
    w: float = 1.0

    def of_group(self, group: Group) -> Paid:
        paid = super().of_group(group)
        own = 1 - self.w
        outcomes = [own * r + self.w * vote for r, vote in zip(paid.outcomes, self.votes(group), strict=True)]
        return Paid([[own * r for r in turns] for turns in paid.turns], outcomes)

    def votes(self, group: Group) -> list[float]:
        keys = [outcome_key(t) for t in group.scored]
        sizes: Counter[str | None] = Counter(key for key in keys if key is not None)
        largest = max(sizes.values(), default=0)
        if largest < 2:
            return [0.0] * len(keys)
        if self.by == "majority":
            return [float(sizes[key] == largest) for key in keys]
        return [sizes[key] / len(keys) for key in keys]


class Economy(Rewards):
    """OTC's: a reward above 0 is multiplied by 1 - w + w * economy, by calls against the fewest so far; see otc.py."""

    w: float = 1.0
    c: float = 4.0
    calls: str = ""
    """A regular expression: each match in an action is a call. Empty: each turn is one."""

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        fewest = memory_of(self, now)
        for group in groups:
            for calls in (self.count(t) for t in group.scored if t.success):
                fewest[group.task.id] = min(calls, fewest.get(group.task.id, calls))
        return [self._paid(group, fewest.get(group.task.id)) for group in groups]

    def _paid(self, group: Group, fewest: int | None) -> Paid:
        paid = self.of_group(group)
        if fewest is None:
            return paid
        factors = [1 - self.w + self.w * economy(self.count(t), fewest, self.c) for t in group.scored]
        outcomes = [r * factor if r > 0 else r for r, factor in zip(paid.outcomes, factors, strict=True)]
        return Paid(paid.turns, outcomes)

    def count(self, trajectory: Trajectory) -> int:
        if not self.calls:
            return len(trajectory.turns)
        return sum(len(re.findall(self.calls, text)) for text in trajectory.action_texts)


class Discounted(Rewards):
    """EAPO's: turn u of U is paid gamma^(U - u) R, the last by its outcome, R, and `turn_weight` times its reward."""

    in_time = True
    gamma: float = 0.995
    turn_weight: float = 1.0

    def of_group(self, group: Group) -> Paid:
        paid = super().of_group(group)
        turns = [
            [
                self.turn_weight * r + (self.gamma ** (len(rewards) - u) * outcome if u < len(rewards) else 0.0)
                for u, r in enumerate(rewards, 1)
            ]
            for rewards, outcome in zip(paid.turns, paid.outcomes, strict=True)
        ]
        return Paid(turns, paid.outcomes)


class Judged(Rewards):
    """ReSeek's (arXiv 2510.00568) recipe: a turn that judges what it just read is paid for judging right.

    An action that says `JUDGE(useful)` or `JUDGE(not useful)` speaks of the messages that arrived before it. They are
    useful when they contain one of the task's answers (`Task.data["answers"]`). A right judgment pays `scale`, a wrong
    one costs it, each text counts once, and the scale falls to 0 in the course of the run. Differs from the paper,
    whose scales are not published: the usefulness of a passage is itself not paid.
    """

    in_time = True
    scale: float = 0.1
    limit: float = 0.5
    """The most that an attempt's turns gain or lose in total. Keep it below what a success is paid."""
    judgment: str = r"(?i)\bjudge\W{0,3}(useful|not)\b"
    """The regular expression of a judgment; its group begins with `not` for a negative one."""
    hooks = frozenset({"answers"})

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        scale = self.scale * (1 - (now.step - 1) / now.steps)
        return [more_for_turns(self.of_group(g), [self.judged(t, scale) for t in g.scored], self.limit) for g in groups]

    def judged(self, trajectory: Trajectory, scale: float) -> list[float]:
        answers = [_words(str(answer)) for answer in trajectory.task.data["answers"]]
        paid, seen = [], set()
        for turn in trajectory.turns:
            said = re.search(self.judgment, turn.action.content)
            text = _words(" ".join(message.content for message in turn.context))
            if said is None or text in seen:
                paid.append(0.0)
                continue
            seen.add(text)
            useful = any(answer in text for answer in answers)
            paid.append(scale if useful != said[1].lower().startswith("not") else -scale)
        return paid


class Explored(Rewards):
    """ReEx-SQL's (arXiv 2505.12768) recipe: each different query that ran, the last turn's aside, pays `scale`.

    Whether a query ran is read from the messages that follow it. Differs from the paper, whose scales are unpublished:
    what it pays for the result is the verifier's reward, and what it pays for the format is not here.
    """

    in_time = True
    scale: float = 0.1
    limit: float = 0.5
    """The most that an attempt's turns gain in total. Keep it below what a success is paid."""
    query: str = r"(?is)```sql\s(.*?)```"
    """The regular expression of a query in an action, as its group."""
    error: str = r"(?i)\berror\b"
    """What the answer to a query that failed matches."""

    def of_group(self, group: Group) -> Paid:
        return more_for_turns(super().of_group(group), [self.explored(t) for t in group.scored], self.limit)

    def explored(self, trajectory: Trajectory) -> list[float]:
        paid, seen = [0.0] * len(trajectory.turns), set()
        for number, (turn, following) in enumerate(zip(trajectory.turns, trajectory.turns[1:], strict=False)):
            found = re.search(self.query, turn.action.content)
            query = " ".join(found[1].lower().split()) if found else ""
            failed = re.search(self.error, "\n".join(message.content for message in following.context))
            if query and query not in seen and not failed:
                seen.add(query)
                paid[number] = self.scale
        return paid


class TurnRewards(Rewards):
    """`weight` times what the environment paid for a turn, plus `failed` where it says that the action failed."""

    weight: float = 1.0
    failed: float = 0.0

    @property
    def in_time(self) -> bool:  # type: ignore[override]
        return bool(self.weight or self.failed)

    def of_group(self, group: Group) -> Paid:
        def paid(turn: Turn) -> float:
            return self.weight * turn.reward + (self.failed if turn.info.get("failed") else 0.0)

        return Paid([[paid(turn) for turn in t.turns] for t in group.scored], [t.reward for t in group.scored])


class Gains(Rewards):
    """IGPO's: a turn but the last is paid `weight` times by how much likelier it made the right answer; see igpo.py."""

    in_time = True
    prefix: str = ""
    weight: float = 1.0
    hooks = frozenset({"answers"})

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        prefix = learner.encode(self.prefix)
        samples = [
            _answering(context, prefix, answer)
            for group in groups
            for answer in [learner.encode(answer_of(group.task))]
            for trajectory in group.scored
            for context in map(trajectory.read_before, range(len(trajectory.turns)))
        ]
        read = learner.read(samples, "logprobs") if samples else []
        likely = iter([float(np.exp(s.columns["logprobs"][s.mask].mean())) for s in read])
        return [
            Paid([self.gains(islice(likely, len(t.turns))) for t in group.scored], [t.reward for t in group.scored])
            for group in groups
        ]

    def gains(self, p_U: Iterable[float]) -> list[float]:
        return [*(self.weight * (after - before) for before, after in pairwise(p_U)), 0.0]


class Effort(Rewards):
    """ARES's: R + e, where e makes successes at easy tasks hesitate less, and hesitation at hard ones pay; see ares.py.

    The threshold is the running mean of the steps' medians of the attempts' `quantile`s.
    """

    alpha: float = 0.5
    window: int = 4
    quantile: float = 0.95
    decay: float = 0.99

    def pay(self, groups: Sequence[Group], learner: Learner, now: Now) -> list[Paid]:
        samples = [s for i, g in enumerate(groups) for t in g.scored for s in to_samples(t, i, 0.0, 1.0)]
        entropies: dict[SampleSource, list[float]] = defaultdict(list)
        for sample in learner.read(samples, "entropy") if samples else []:
            for turn in np.unique(sample.turns[sample.mask]):
                column = sample.columns["entropy"][sample.mask & (sample.turns == turn)]
                entropies[sample.source] += [fmean(column[t : t + self.window].tolist()) for t in range(len(column))]
        memory = memory_of(self, now)
        if entropies:
            middle = median(float(np.quantile(values, self.quantile)) for values in entropies.values())
            memory["threshold"] = self.decay * memory.get("threshold", middle) + (1 - self.decay) * middle
        counts = [
            [sum(h > memory["threshold"] for h in entropies[SampleSource(i, t.attempt)]) for t in group.scored]
            for i, group in enumerate(groups)
        ]
        levels = [difficulty(group) for group in groups]
        of_level: dict[str, list[int]] = defaultdict(list)
        for level, of_group in zip(levels, counts, strict=True):
            of_level[level] += of_group
        return [
            self._paid(group, level, of_group, fmean(of_level[level]) if of_level[level] else 0.0)
            for group, level, of_group in zip(groups, levels, counts, strict=True)
        ]

    def _paid(self, group: Group, level: str, counts: Sequence[int], target: float) -> Paid:
        paid = self.of_group(group)
        extra = [effort(level, t.success, n, target, self.alpha) for t, n in zip(group.scored, counts, strict=True)]
        return Paid(paid.turns, [r + e for r, e in zip(paid.outcomes, extra, strict=True)])


def outcome_key(trajectory: Trajectory) -> str | None:
    """What an attempt came to: `Outcome.info["key"]`, or its last action's text. None when that is nothing.

    Attempts at a task with equal keys mean the same, whatever they said.
    """
    if "key" in trajectory.info:
        key = trajectory.info["key"]
    else:
        refuse_conversations(
            [trajectory], "which action was its last is not known. Say in Outcome.info['key'] what it came to"
        )
        key = trajectory.turns[-1].action.content.strip() if trajectory.turns else ""
    return None if key is None or key == "" else str(key)


def economy(calls: int, fewest: int, c: float) -> float:
    """OTC's factor: 1 for as many calls as the fewest that solved the task, less for more of them, and for fewer."""
    if calls == fewest:
        return 1.0
    if fewest == 0:
        return math.cos(calls * math.pi / (2 * calls + c))
    return math.sin(calls * math.pi / (calls + fewest))


def difficulty(group: Group) -> str:
    """By the share of a task's attempts that succeed: easy from 2/3 on, medium from 1/3 on."""
    success = fmean(t.success for t in group.scored) if group.scored else 0.0
    return "easy" if success >= 2 / 3 else "medium" if success >= 1 / 3 else "hard"


_SHAPES = {"easy": (0.15, 2.0, 2.0, 1.0, 0.6), "medium": (0.25, 3.0, 2.5, 1.0, 0.8), "hard": (0.35, 4.0, 3.0, 1.2, 1.0)}
"""ARES's constants: margin as a share of the target, where the Huber penalty becomes linear, the softness of the bonus,
the scale of alpha, and that of failures' bonus."""


def effort(level: str, success: bool, n: float, target: float, alpha: float) -> float:
    """ARES's e for n hesitant tokens. 0 within the margin around the target, except for successes at hard tasks."""
    share, kappa, softness, scale, of_failure = _SHAPES[level]
    cap = alpha * scale
    margin = max(1.0, share * max(target, 1.0))
    over, under = max(n - target - margin, 0.0), max(target - n - margin, 0.0)

    def penalty(x: float) -> float:
        huber = x * x / (2 * kappa) if x <= kappa else x - kappa / 2
        return -min(cap, cap * huber / (margin + kappa))

    def bonus(x: float) -> float:
        return cap * math.tanh(x / (2 * softness))  # 2 sigmoid(x / softness) - 1

    if not success:
        return of_failure * bonus(over)
    if level == "easy":
        return penalty(over)
    if level == "medium":
        return penalty(over + under)
    return 0.5 * penalty(under) if under else bonus(n - target + margin)


def more_for_turns(paid: Paid, extra: Sequence[Sequence[float]], limit: float) -> Paid:
    """With the extra pay of each turn, an attempt's scaled down where its size adds up to more than the limit."""
    scales = [min(1.0, limit / size) if (size := math.fsum(map(abs, one))) else 1.0 for one in extra]
    turns = [
        [r + scale * e for r, e in zip(rewards, one, strict=True)]
        for rewards, one, scale in zip(paid.turns, extra, scales, strict=True)
    ]
    return Paid(turns, paid.outcomes)


def _words(text: str) -> str:
    """The words of a text in lower case, between spaces: whole words can be looked for."""
    words = re.findall(r"\w+", text.lower())
    return f" {' '.join(words)} "


def answer_of(task: Task) -> str:
    """The first of the right answers in a task's data."""
    answers = task.data.get("answers")
    if not answers:
        raise UserError(
            f"Task {task.id!r} has no answers in its data. IGPO pays turns for what they tell about the right answer: "
            'the environment must put it into the task, as in Task(..., data={"answers": ["Paris"]}).'
        )
    return str(answers[0])


def _answering(context: Ids, prefix: Sequence[int], answer: Sequence[int]) -> Sample:
    """A sample whose mask is on the answer alone."""
    ids = np.concatenate([context, np.array([*prefix, *answer], dtype=np.int64)])
    nothing, turns = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    mask = np.arange(len(ids)) >= len(ids) - len(answer)
    return Sample(ids=ids, mask=mask, logprobs=nothing, turns=turns, advantages=nothing, weights=nothing)
