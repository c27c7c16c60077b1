"""The same rollouts without updates: success, pass@k, scenario completion, each with its interval, and the floor.

The floor is what an agent that does nothing is paid on the same tasks; a score means little without it.
"""

import math
from collections.abc import Sequence
from statistics import fmean

from longloop.protocols import Rollouts
from longloop.stats import mean_interval, wilson_interval
from longloop.store.metrics import Evaluation
from longloop.types import Group, Start, Task


async def evaluate(
    rollouts: Rollouts, tasks: Sequence[Task], attempts: int, floors: tuple[float, float], env_version: str
) -> tuple[Evaluation, list[Group]]:
    """Try every task `attempts` times."""
    groups = await rollouts.play([Start(task) for task in tasks], attempts, seed=0)
    return summarize(groups, attempts, floors, env_version), groups


async def floor(idle: Rollouts, tasks: Sequence[Task]) -> tuple[float, float]:
    """(reward, success) of an agent that never acts: `idle` starts every task and has it scored at once."""
    scored = [t for group in await idle.play([Start(task) for task in tasks], 1, seed=0) for t in group.scored]
    return (fmean(t.reward for t in scored), fmean(t.success for t in scored)) if scored else (0.0, 0.0)


def summarize(groups: Sequence[Group], attempts: int, floors: tuple[float, float], env_version: str = "") -> Evaluation:
    scored = [group for group in groups if group.scored]
    success = [fmean(t.success for t in group.scored) for group in scored]
    reward = [fmean(t.reward for t in group.scored) for group in scored]
    ks = sorted({min(2**i, attempts) for i in range(attempts.bit_length() + 1)})
    whole = [group for group in scored if len(group.scored) >= attempts]
    pass_at = {
        str(k): fmean(pass_at_k(len(g.scored), sum(t.success for t in g.scored), k) for g in whole)
        for k in (ks if whole else ())
    }
    return Evaluation(
        tasks=len(scored),
        attempts=attempts,
        unscored=sum(len(g.trajectories) - len(g.scored) for g in groups),
        success=fmean(success) if success else 0.0,
        success_interval=wilson_interval(fmean(success) if success else 0.0, len(success)),
        reward=fmean(reward) if reward else 0.0,
        reward_interval=mean_interval(reward),
        pass_at=pass_at,
        scenarios=_scenarios(groups),
        floor_reward=floors[0],
        floor_success=floors[1],
        env_version=env_version,
    )


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the unbiased estimate from n attempts of which c succeeded."""
    return 1 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def _scenarios(groups: Sequence[Group]) -> float | None:
    done: dict[str, bool] = {}
    for group in groups:
        if group.task.scenario and group.scored:
            whole = all(t.success for t in group.scored)
            done[group.task.scenario] = done.get(group.task.scenario, True) and whole
    return fmean(done.values()) if done else None
