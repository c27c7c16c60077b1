"""The same rollouts without updates: success, pass@k, scenario completion, each with its interval, and the floor.

The floor is what an agent that does nothing is paid on the same tasks; a score means little without it.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from longloop.protocols import Rollouts
from longloop.types import Group, Start, Task


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found. Intervals are 95%."""

    tasks: int
    attempts: int
    """Per task."""
    unscored: int
    """Attempts that the environment spoiled; they count for nothing."""
    success: float
    """Mean over tasks of the share of attempts that succeeded (TGC when tasks have one attempt)."""
    success_interval: tuple[float, float]
    """Wilson's interval with the number of tasks as the number of trials: attempts at one task are not independent."""
    reward: float
    reward_interval: tuple[float, float]
    """Percentile bootstrap over tasks."""
    pass_at: dict[str, float]
    """k -> the chance that at least one of k attempts succeeds, for k = 1, 2, 4, ... attempts (unbiased)."""
    scenarios: float | None
    """Share of scenarios whose every task succeeded in every attempt (SGC); None when tasks have no scenarios."""
    floor_reward: float
    floor_success: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def evaluate(
    rollouts: Rollouts, tasks: Sequence[Task], attempts: int, floors: tuple[float, float]
) -> tuple[Evaluation, list[Group]]:
    """Every task, `attempts` times."""
    groups = await rollouts.play([Start(task) for task in tasks], attempts, seed=0)
    return summarize(groups, attempts, floors), groups


async def floor(idle: Rollouts, tasks: Sequence[Task]) -> tuple[float, float]:
    """(reward, success) of an agent that never acts: `idle` starts every task and has it scored at once."""
    scored = [t for group in await idle.play([Start(task) for task in tasks], 1, seed=0) for t in group.scored]
    return (fmean(t.reward for t in scored), fmean(t.success for t in scored)) if scored else (0.0, 0.0)


def summarize(groups: Sequence[Group], attempts: int, floors: tuple[float, float]) -> Evaluation:
    scored = [group for group in groups if group.scored]
    success = [fmean(t.success for t in group.scored) for group in scored]
    reward = [fmean(t.reward for t in group.scored) for group in scored]
    ks = sorted({min(2**i, attempts) for i in range(attempts.bit_length() + 1)})
    pass_at = {
        str(k): fmean(
            pass_at_k(len(g.scored), sum(t.success for t in g.scored), k) for g in scored if len(g.scored) >= k
        )
        for k in ks
        if any(len(g.scored) >= k for g in scored)
    }
    return Evaluation(
        tasks=len(groups),
        attempts=attempts,
        unscored=sum(len(g.trajectories) - len(g.scored) for g in groups),
        success=fmean(success) if success else 0.0,
        success_interval=wilson(fmean(success) if success else 0.0, len(success)),
        reward=fmean(reward) if reward else 0.0,
        reward_interval=bootstrap(reward),
        pass_at=pass_at,
        scenarios=_scenarios(groups),
        floor_reward=floors[0],
        floor_success=floors[1],
    )


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the unbiased estimate from n attempts of which c succeeded."""
    return 1 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def wilson(share: float, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval; it stays sensible at 0 and 1."""
    if trials == 0:
        return 0.0, 1.0
    middle = share + z * z / (2 * trials)
    reach = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def bootstrap(values: Sequence[float], draws: int = 1000) -> tuple[float, float]:
    """Percentile interval of the mean, over tasks drawn with replacement."""
    if not values:
        return 0.0, 0.0
    rng = random.Random(0)
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


def _scenarios(groups: Sequence[Group]) -> float | None:
    done: dict[str, bool] = {}
    for group in groups:
        if group.task.scenario:
            whole = bool(group.scored) and all(t.success for t in group.scored)
            done[group.task.scenario] = done.get(group.task.scenario, True) and whole
    return fmean(done.values()) if done else None
