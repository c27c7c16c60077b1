"""What a run will cost: memory by forecast, time measured on a small collection and extrapolated."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from longloop.algos.base import Algorithm
from longloop.config import Config
from longloop.diagnose.finding import Finding
from longloop.diagnose.hopeless import TELLING
from longloop.diagnose.learning import Speed
from longloop.diagnose.sampling import Collection
from longloop.learners.local import LocalLearner
from longloop.memory import forecast as books
from longloop.memory.forecast import Ledger
from longloop.rollout.groups import GroupRollouts
from longloop.training import TaskStream
from longloop.types import Group, Now, StopReason, Task, UserError

_TIGHT = 0.9
"""Fraction of the free memory above which a forecast is tight: it does not see all that is allocated."""


def memory(config: Config, learner: LocalLearner) -> tuple[Finding, Ledger | None]:
    """Does the longest allowed trajectory fit into memory?"""
    room = books.available(learner.policy.device)
    try:
        book = books.check(learner, *books.limits(config), books.sampled_by(config.engine))
    except UserError as error:
        return Finding("memory", "fail", str(error), "`longloop doctor --memory` shows where it goes."), None
    numbers = {"peak": book.peak, "to_come": book.to_come, "free": room}
    seen = (
        f"The longest trajectory, {config.rollout.context:,} tokens, fits: at the worst moment {_gib(book.to_come)} "
        f"more are needed, and {_gib(room)} are free."
    )
    if book.to_come > _TIGHT * room:
        return Finding(
            "memory",
            "warning",
            f"{seen} That is tight: what an allocator keeps may be too much.",
            "`longloop doctor --memory` says what to lower.",
            numbers,
        ), book
    return Finding("memory", "pass", seen, numbers=numbers), book


@dataclass(frozen=True)
class Collected:
    """A timed collection: how long it took, and how long its attempts are."""

    tasks: int
    attempts: int
    seconds: float
    tokens: float
    """In all attempts together."""
    how: str
    groups: Sequence[Group] = ()
    """Attempts made as in training, at least `TELLING` if time allowed; empty where time allowed only shorter ones."""


def duration(
    config: Config,
    algo: Algorithm,
    some: Collected,
    speed: Speed,
    book: Ledger | None,
    evaluated: int,
    rescored: bool,
) -> Finding:
    """How long will a step and the run take? `evaluated` is the number of attempts in an evaluation."""
    times = config.tasks_per_step / some.tasks
    collect = some.seconds * times
    # One pass reads all heads; where there are several they are also fitted, to what another pass has read.
    again = rescored + algo.needs_reference + min(len(algo.heads), 2)
    update = some.tokens * times * (algo.epochs / speed.update + again / speed.score)
    step = collect + update
    evaluations = (
        math.ceil(config.steps / config.eval.every) + 1 if config.eval.every else 1
    )  # one follows the last step
    evaluating = evaluations * evaluated * some.seconds / max(some.attempts, 1)
    total = config.steps * step + evaluating
    peak = f" Peak memory: {_gib(book.peak)} (foreseen)." if book else ""
    return Finding(
        "time",
        "pass",
        f"A step will take about {_span(step)} (collect {_span(collect)}, update {_span(update)}), the run of "
        f"{config.steps} steps {_span(total)} with {evaluations} evaluations of "
        f"{evaluated} attempts.{peak} Measured: {some.how}; updates at {speed.update:,.0f} tokens a second, as if "
        "every attempt were trained on and none became longer.",
        numbers={
            "step": round(step, 3),
            "collect": round(collect, 3),
            "update": round(update, 3),
            "evaluations": round(evaluating, 3),
            "hours": round(total / 3600, 4),
            "peak": book.peak if book else 0,
        },
    )


async def collected(
    config: Config,
    rollouts: GroupRollouts,
    algo: Algorithm,
    tasks: Sequence[Task],
    short: Collection,
    budget: float,
) -> Collected:
    """Time the algorithm's own collection on as many tasks as fit into `budget` seconds; else extrapolate `short`."""
    limits = rollouts.context.limits
    tried = [t for group in short.groups for t in group.trajectories]
    turns = max((len(t.turns) for t in tried), default=1)
    cut = turns < limits.max_turns and any(t.stop is StopReason.MAX_TURNS for t in tried)
    longer = limits.max_turns / max(turns, 1) if cut else 1.0
    if short.seconds * longer > budget:
        how = f"{len(tried)} attempts" + f" of {turns} turns, as if all had {limits.max_turns}" * cut
        return Collected(len(short.groups), len(tried), short.seconds * longer, _read(short.groups) * longer, how)

    stream = TaskStream(tasks, config.seed)

    async def measured(n: int) -> Collected:
        began = time.perf_counter()
        probe = rollouts.fork_for_probe(f"doctor/{n}", rollouts.context)
        groups = await algo.collect(probe, stream, n, Now(1, config.steps))
        took = time.perf_counter() - began
        how = f"{n} of a step's {config.tasks_per_step} tasks collected in {_span(took)}"
        return Collected(n, sum(len(group.trajectories) for group in groups), took, _read(groups), how, groups)

    some = await measured(1)
    seen = list(some.groups)
    if (more := min(config.tasks_per_step, int(budget / some.seconds))) > 1:
        some = await measured(more)
        seen += some.groups
    own = sum(len(group.policy_trajectories) for group in seen)
    missing = math.ceil((TELLING - own) * len(seen) / own) if own else 0
    if missing > 0 and missing * some.seconds / some.tasks < budget / 3:
        seen += (await measured(missing)).groups
    return replace(some, groups=seen)


def _read(groups: Sequence[Group]) -> float:
    """Tokens of all attempts, where those without a score count as long as the average scored one."""
    lengths = [sum(len(s.ids) for s in t.stretches()) for group in groups for t in group.scored]
    return fmean(lengths or [0]) * sum(len(group.trajectories) for group in groups)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
