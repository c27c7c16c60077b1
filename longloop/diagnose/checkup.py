"""All checks in order: environment, sampled tokens, memory, an update, time.

`quick` runs before every training run: it tries no update and cuts attempts short. Neither form changes the run after
it: weights and the state of global random generators are restored.
"""

import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import torch

from longloop.algos.base import Algorithm
from longloop.config import Config
from longloop.diagnose import cost, environment, learning, sampling, tools
from longloop.diagnose.finding import Finding
from longloop.diagnose.trial import words
from longloop.learners.local import LocalLearner
from longloop.rollout.demonstrations import demonstrate
from longloop.rollout.groups import GroupRollouts
from longloop.types import Task, Trajectory, UserError

_TASKS, _SECONDS = 12, 10.0
"""Play up to this many tasks without a model, and start none after this many seconds."""
_QUICK_TASKS, _QUICK_SECONDS = 8, 1.0
_TURNS = 4
"""Turns of the attempts whose tokens are checked."""
_QUICK = {"max_turns": 2, "turn_tokens": 64}
_MAX_ATTEMPTS = 8
"""Attempts per task that are checked."""
_TIMED = 15.0
"""Seconds that the timed collection may take."""


async def quick(
    rollouts: GroupRollouts, algo: Algorithm, learner: LocalLearner, tasks: Sequence[Task]
) -> AsyncGenerator[Finding]:
    """The checks that take a moment."""
    context = rollouts.context
    with undisturbed():
        some = _some(tasks, _QUICK_TASKS)
        async for finding in _environment(environment.watched(context), some, _QUICK_SECONDS, everyone=False):
            yield finding
        if not algo.on_policy:
            return  # someone else chooses the actions
        short = await sampling.collect(rollouts, some[:1], _attempts(algo.k, 4), **_QUICK)
        given = await environment.hooks(environment.watched(context), algo.hooks, some, short.groups)
        yield given
        if given.verdict == "fail":
            return
        yield sampling.tokens(short, algo, learner, context.chat)
        yield sampling.observations(short, context.limits.context)
        yield sampling.template(short)
        if called := tools.tools([t for _, t in short.own], context.chat):
            yield called
        yield sampling.agreement(short.samples(), learner)[0]
        yield await sampling.variety(short, rollouts, some, len(tasks), algo.k, **_QUICK)
        yield await environment.replay(environment.watched(context), short.groups)


async def full(
    name: str,
    config: Config,
    rollouts: GroupRollouts,
    algo: Algorithm,
    learner: LocalLearner,
    tasks: Sequence[Task],
    evaluated: int,
) -> AsyncGenerator[Finding]:
    """All checks. `name` is the environment's name, `evaluated` the number of attempts in an evaluation."""
    context = rollouts.context
    make = environment.watched(context)
    with undisturbed():
        some = _some(tasks, _TASKS)
        sound = await environment.contract(name, context, some[0])
        yield sound
        if sound.verdict == "fail":
            return
        async for finding in _environment(make, some, _SECONDS, everyone=True):
            yield finding
        short = await sampling.collect(rollouts, some[:2], _attempts(algo.k, _MAX_ATTEMPTS), max_turns=_TURNS)
        given = await environment.hooks(make, algo.hooks, some, short.groups)
        yield given
        if given.verdict == "fail":
            return
        yield sampling.tokens(short, algo, learner, context.chat)
        if not short.own:
            return
        yield sampling.observations(short, context.limits.context)
        yield sampling.template(short, await _shown(rollouts, some[:2]))
        if called := tools.tools([t for _, t in short.own], context.chat):
            yield called
        agreed, gap = sampling.agreement(short.samples(), learner)
        yield agreed
        yield await sampling.variety(short, rollouts, some, len(tasks), algo.k, max_turns=_TURNS)
        yield await environment.replay(make, short.groups)
        fits, book = cost.memory(config, learner)
        yield fits
        moved, speed = await learning.update(rollouts, learner, short, _TURNS)
        yield moved
        rescored = gap.old == "learner" and algo.on_policy
        whole = await cost.collected(config, rollouts, algo, tasks, short, budget=_TIMED)
        yield sampling.success(whole.groups)
        yield cost.duration(config, algo, whole, speed, book, evaluated, rescored=rescored)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the global random generators of Python, numpy and torch afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


async def _environment(
    make: environment.Make, tasks: Sequence[Task], seconds: float, everyone: bool
) -> AsyncGenerator[Finding]:
    """The checks that need no model."""
    try:
        yield await environment.determinism(make, tasks[:3])
        yield await environment.separation(make, tasks[:2])
        found = await environment.paid(make, tasks, seconds, everyone)
        yield environment.reward(found, make())
        yield await environment.shortcut(make, tasks, found, seconds)
    except UserError:
        raise
    except Exception as error:  # of the environment, its expert or its baselines
        yield Finding(
            "contract",
            "fail",
            f"Playing without a model, by the expert or a baseline, ended with an error: {words(error)}.",
            "`longloop check` plays every task.",
        )


async def _shown(rollouts: GroupRollouts, tasks: Sequence[Task]) -> list[Trajectory]:
    """The expert's attempts in the policy's tokens; empty without an expert."""
    shown = []
    for task in tasks:
        with suppress(UserError):  # there is none for the task
            shown.append(await demonstrate(rollouts.context, task))
    return shown


def _attempts(k: int, maximum: int) -> int:
    return min(max(k, 2), maximum)


def _some(tasks: Sequence[Task], n: int) -> list[Task]:
    """A sample of `n` tasks, the same every time."""
    return random.Random(0).sample(tasks, min(n, len(tasks)))
