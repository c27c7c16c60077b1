"""The check before a run: refuse what can be known to be wrong before the first step."""

from collections.abc import Callable, Sequence
from contextlib import aclosing

from longloop.algos.base import Algorithm
from longloop.config import Config
from longloop.diagnose import checkup, environment
from longloop.isolation import confinement
from longloop.isolation.environments import Environments
from longloop.isolation.pool import Pool
from longloop.learners.local import LocalLearner
from longloop.memory import forecast
from longloop.memory.forecast import Ledger
from longloop.rollout.groups import GroupRollouts
from longloop.types import Task, UserError


async def preflight(
    config: Config,
    world: Environments,
    rollouts: GroupRollouts,
    algo: Algorithm,
    learner: LocalLearner,
    tasks: Sequence[Task],
    tell: Callable[[str], None],
) -> Ledger | None:
    """Try the environment, the memory and the tokens. Returns the memory forecast, unless `learner.memory_check` is
    off; raises UserError when the run could not succeed, and tells of what is only suspicious."""
    await environment.try_out(world.environment.__name__, rollouts.context, tasks[0])
    if isinstance(world.pool, Pool) and (missing := confinement.unprotected()):
        tell(f"warning (workers): {missing}")
    asked = *forecast.limits(config), forecast.sampled_by(config.engine)
    book = forecast.check(learner, *asked) if config.learner.memory_check else None
    if not config.doctor:
        return book
    async with aclosing(checkup.quick(rollouts, algo, learner, tasks)) as findings:
        async for finding in findings:
            if finding.verdict == "fail":
                raise UserError(f"{finding} `longloop doctor` says more; doctor=false trains anyway.")
            if finding.verdict == "warning":
                tell(f"warning ({finding.name}): {finding}")
    return book
