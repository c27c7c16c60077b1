"""THE loop: collect, credit, update; then evaluate, log, save. It reads like the paper's Algorithm 1.

No device, tokenizer or engine is named here, and nothing random is kept: every random choice follows from the seed and
the step, so a run that is killed and resumed is the run that was not.
"""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Protocol

from longloop.algos.base import Algorithm
from longloop.config import Config
from longloop.evaluation import Evaluation
from longloop.learners.batching import minibatches
from longloop.protocols import Learner, Rollouts
from longloop.store.run import Run
from longloop.types import Group, Minibatch, Now, Sample, StopReason, Task, Update


class Report(Protocol):
    """Whoever watches the run."""

    def phase(self, step: int, name: str) -> None: ...

    def step(self, metrics: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None: ...


class TaskStream:
    """Tasks in an endless sequence of shuffled epochs."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self.all, self.seed = tasks, seed
        self._order: tuple[int, list[Task]] | None = None
        self.taken = 0

    def take(self, n: int) -> list[Task]:
        return [self._next() for _ in range(n)]

    def _next(self) -> Task:
        epoch, index = divmod(self.taken, len(self.all))
        self.taken += 1
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, random.Random(f"{self.seed}/{epoch}").sample(self.all, len(self.all))
        return self._order[1][index]


async def train(
    config: Config,
    run: Run,
    tasks: TaskStream,
    rollouts: Rollouts,
    algo: Algorithm,
    learner: Learner,
    evaluate: Callable[[int], Awaitable[Evaluation]],
    report: Report,
) -> None:
    state = run.restore(config.save.keep, learner.load)
    memory: dict[str, Any] = {}
    if state is not None:
        tasks.taken = state["taken"]
        rollouts.restore(state["rollouts"])
        memory = state.get("memory", {})  # longloop 0.1 had none
    elif config.eval.every:
        report.phase(0, "evaluate")
        first: dict[str, Any] = {"step": 0, "eval": (await evaluate(0)).to_json()}
        run.metrics.write(first)
        report.step(first)

    for step in range(run.next_step, config.steps + 1):
        clock = Clock(step, report)
        now = Now(step, config.steps, memory, run.trajectories.read)
        with clock("collect"):
            groups = await algo.collect(rollouts, tasks, config.tasks_per_step, now)
        samples: list[Sample] = []
        updates: list[Update] = []
        try:
            with clock("credit"):
                samples = algo.credit(groups, learner, now)
                if not samples:
                    report.note(f"Step {step}: {algo.nothing}.")
                in_order = epoch(0, config, algo, groups, samples, now)
                samples = learner.with_behavior_logprobs(in_order, algo.loss, report.note)
            with clock("update"):
                for minibatch in schedule(config, algo, groups, samples, now):
                    updates.append(learner.update(algo.look(minibatch, learner, now), algo.loss))
                    if updates[-1].stop:
                        break
        finally:  # also where an update fails: what was collected can then be looked at
            run.trajectories.write(step, groups, samples, [scored for update in updates for scored in update.learned])
        metrics = {"step": step} | summarize(groups, samples, updates)
        if step == config.steps or (config.eval.every and step % config.eval.every == 0):
            with clock("evaluate"):
                metrics["eval"] = (await evaluate(step)).to_json()
        run.metrics.write(metrics | {"time": clock.seconds, "memory": learner.peak_memory()} | learner.rank_times())
        if step % config.save.every == 0 or step == config.steps or "eval" in metrics:
            report.phase(step, "save")
            state = {"step": step, "taken": tasks.taken, "rollouts": rollouts.state(), "memory": memory}
            run.save(step, config.save.keep, learner.save, state)
        report.step(metrics | {"time": clock.seconds})


def schedule(
    config: Config, algo: Algorithm, groups: Sequence[Group], samples: Sequence[Sample], now: Now
) -> Iterator[Minibatch]:
    """The step's gradient steps: epochs of shuffled mini-batches. None when nothing was learned from."""
    updates = [m for number in range(algo.epochs) for m in epoch(number, config, algo, groups, samples, now)]
    for number, minibatch in enumerate(updates):
        yield replace(minibatch, lr_scale=algo.lr_scale(now, (number + 0.5) / len(updates)))


def epoch(
    number: int, config: Config, algo: Algorithm, groups: Sequence[Group], samples: Sequence[Sample], now: Now
) -> list[Minibatch]:
    """All of the step's samples once, shuffled. The mini-batches are the same whatever log-probs the samples have."""
    if not samples:
        return []
    cut = minibatches(
        samples,
        algo.minibatch,
        average=algo.average,
        whole_units=algo.whole_units,
        step=now.step,
        epoch=number,
        seed=config.seed,
        denominator=algo.denominator(groups, samples),
    )
    return list(cut)


def summarize(groups: Sequence[Group], samples: Sequence[Sample], updates: Sequence[Update]) -> dict[str, Any]:
    """A step in numbers; docs/reference/run-format.md explains each."""
    everyone = [t for group in groups for t in group.trajectories]
    # An expert's attempts say nothing of the policy; where it made none of its own, they are all there is.
    tried = any(not t.expert and t.stop is not StopReason.PRACTISED for t in everyone)
    scored = [t for group in groups for t in (group.policy_trajectories if tried else group.scored)]
    asked = [group for group in groups if not group.trajectories or not all(t.side for t in group.trajectories)]
    stops = Counter(str(t.stop) for t in everyone)
    names = {name for update in updates for name in update.metrics}
    return {
        "success": fmean(t.success for t in scored) if scored else 0.0,
        "reward": fmean(t.reward for t in scored) if scored else 0.0,
        "groups": len(asked),
        "equal_groups": sum(len({t.reward for t in g.scored}) <= 1 for g in asked),
        "attempts": len(everyone),
        "demonstrations": sum(t.expert for t in everyone),
        "actions": sum(len(t.played) for t in everyone),
        "stops": dict(sorted(stops.items())),
        "turns": fmean(len(t.turns) for t in scored) if scored else 0.0,
        "action_tokens": sum(len(turn.action_ids) for t in everyone for turn in t.played),
        "cut_turns": sum(turn.finish == "length" for t in everyone for turn in t.turns),
        "trained_tokens": sum(sample.action_tokens for sample in samples),
        "trained_trajectories": len({sample.source for sample in samples}),
        "updates": sum(not update.stop for update in updates),
        "guard": next((update.stop for update in updates if update.stop), ""),
        "update": {
            name: fmean(update.metrics[name] for update in updates if name in update.metrics) for name in sorted(names)
        },
    }


@dataclass
class Clock:
    """Times the phases of a step and tells the report which one is on."""

    step: int
    report: Report
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self.report.phase(self.step, phase)
        start = time.perf_counter()
        yield
        self.seconds[phase] = round(time.perf_counter() - start, 4)
