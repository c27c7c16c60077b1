"""What can be done with a config or a run: train, evaluate, read, and what else the commands do. They are a thin layer
over this module; `longloop.train`, `longloop.evaluate` and `longloop.load_run` are its public functions.

Each function returns when its work is done, in a script as in a notebook, where an event loop runs already.
"""

import asyncio
import hashlib
import random
import signal
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rich.console import Console

from longloop import build
from longloop import config as configs
from longloop.analysis.rules import rules
from longloop.build import Training
from longloop.cache import cache_dir
from longloop.config import Config, Overrides
from longloop.printable import visible
from longloop.store.demonstrations import best_trajectories, good_trajectories, scored_trajectories
from longloop.store.lineage import lineage, pinned
from longloop.store.run import Run, changes_between, machine_facts, must_go_on, new_folder
from longloop.store.run_reader import (
    RunReader,
    checkpoints,
    load_run,
    read_facts,
    runs_beside,
    stored_config,
    version_in_words,
)
from longloop.store.trackers import Mirror, tracker_class
from longloop.types import Fault, Group, RankLost, SamplingParams, UserError

if TYPE_CHECKING:
    from longloop.diagnose.finding import Finding
    from longloop.evaluation import Evaluation
    from longloop.gateway.server import Server
    from longloop.memory.forecast import Ledger
    from longloop.model.shards import Shards
    from longloop.training import Report

ConfigLike = Config | Mapping[str, Any] | str | Path
"""A config, a tree of tables like that of a TOML file, a TOML file, or the name of a config that comes with longloop.

In a tree the `name` of an environment or an algorithm may be the class itself.
"""

_NO_ENV = "none"
"""In the place of an environment's name, where a model is served that knows none."""
_AT_ONCE = 200
"""Demonstrations written in one go."""

T = TypeVar("T")
WhichStep = int | Literal["best"] | None
"""One of a run's checkpoints: of this step, the one that was evaluated best, or (None) the newest."""


def train(
    config: ConfigLike | None = None,
    overrides: Overrides = (),
    *,
    resume: str | Path | None = None,
    progress: bool = True,
) -> RunReader:
    """Train an agent and return its run, which is a folder: `FOLDER/NAME` as the config says.

    `config` is a Config, a dict like the tables of a config file, a TOML file, or the name of a config that comes with
    longloop. `overrides` replace single settings: `{"steps": 50, "algo.lr": 1e-5}`. `resume` is the folder of a run to
    continue from its last finished step, by default with the config that it has.

    `progress` prints a line for each step. An interrupt (Ctrl-C, a notebook's stop button) raises KeyboardInterrupt;
    the run can then be resumed. A mistake in the config raises UserError before a folder is made.

        run = longloop.train("guess", {"steps": 20, "name": "first"})
        run.metrics[-1]["success"]
    """
    folder = None if resume is None else Path(resume)
    if config is not None:
        settings = resolved(config, overrides)
    elif folder is not None:
        settings = resumed_config(folder, overrides)
    else:
        raise UserError("Name a config to train with, or a run to resume.")
    console = Console(highlight=False, force_jupyter=False, quiet=not progress)
    return load_run(trained(settings, folder, console).folder)


def evaluate(
    run_or_config: RunReader | ConfigLike,
    split: str | None = None,
    overrides: Overrides = (),
    *,
    step: WhichStep = None,
) -> "Evaluation":
    """Measure an agent on the tasks of a split, `eval.split` by default: success, reward, pass@k, with intervals.

    `run_or_config` is a run, as `train` and `load_run` return it, or its folder; or a config as for `train`, which
    stands for the model before any training. `step` chooses one of the run's checkpoints, the newest by default, or
    "best": the one that was evaluated best while it trained.

        longloop.evaluate("runs/first", split="test", overrides={"eval.attempts": 4}).success
    """
    settings, checkpoint = subject(run_or_config, overrides, step)
    if checkpoint is not None and (said := other_version(checkpoint.parents[1], settings)):
        warnings.warn(said, stacklevel=2)
    split = split or settings.eval.split
    return measure(settings, checkpoint, [split])[split][0]


# --- Configs.


def resolved(config: ConfigLike, overrides: Overrides = ()) -> Config:
    """The Config that something like a config stands for, with overrides."""
    if isinstance(overrides, Mapping):
        overrides = _names_for_classes(overrides)
    if isinstance(config, Config):
        return configs.resolve(config.model_dump(), "the config", overrides)
    if isinstance(config, Mapping):
        return configs.resolve(_names_for_classes(config), "the config", overrides)
    return configs.load(Path(config), overrides)


def _names_for_classes(value: Any) -> Any:
    """A tree in which every class is replaced by its name, `module:Class`."""
    if isinstance(value, Mapping):
        return {key: _names_for_classes(one) for key, one in value.items()}
    if not isinstance(value, type):
        return value
    if "." in value.__qualname__:
        raise UserError(f"{value.__qualname__} cannot be found by its name: define the class at the top of a module.")
    return f"{value.__module__}:{value.__qualname__}"


def resumed_config(folder: Path, overrides: Overrides = ()) -> Config:
    """The config of a run that is to be continued, with overrides and with the folder's name as it is now."""
    read_facts(folder)
    config = stored_config(folder, overrides)
    return config.model_copy(update={"folder": str(folder.parent), "name": folder.name})


def subject(
    target: RunReader | ConfigLike, overrides: Overrides = (), step: WhichStep = None
) -> tuple[Config, Path | None]:
    """What is to be measured: a config, and a checkpoint where the target is a run."""
    if isinstance(target, RunReader):
        target = target.folder
    if isinstance(target, str | Path) and Path(target).is_dir() and not _shipped_instead(Path(target)):
        run = load_run(target)
        config = stored_config(run.folder, overrides)
        if config.env_version == run.env_version:  # a run is measured in the version that is installed
            config = config.model_copy(update={"env_version": ""})
        return config, None if build.is_endpoint(config) else checkpoint_of(run.folder, step)
    if isinstance(target, str | Path) and len(Path(target).parts) > 1 and not Path(target).exists():
        raise UserError(f"There is neither a run nor a config {target}.{runs_beside(Path(target))}")
    if step is not None:
        raise UserError(f"A step can be chosen of a run folder, and {target} is not one.")
    return resolved(target, overrides), None


def _shipped_instead(folder: Path) -> bool:
    """Whether a folder that is no run has the name of a config that comes with longloop."""
    return str(folder) in configs.SHIPPED and not (folder / "run.json").is_file()


def checkpoint_of(folder: Path, step: WhichStep = None) -> Path:
    """The checkpoint of one of a run's steps, or the newest."""
    if step is None:
        import longloop.model.policy  # noqa: F401 - takes seconds, in which a run in training may delete the newest
    kept = sorted(checkpoints(folder))
    if not kept:
        raise UserError(f"{folder} has no checkpoint yet.")
    if step == "best" and (step := load_run(folder).best) is None:
        raise UserError(f"No checkpoint of {folder} was evaluated, so none is the best; it has {_listed(kept)}.")
    if step is not None and step not in kept:
        raise UserError(f"{folder} has no checkpoint of step {step}; it has {_listed(kept)}.")
    return folder / "checkpoints" / f"{step or kept[-1]:06d}"


def _listed(steps: Sequence[int]) -> str:
    return f"those of steps {', '.join(map(str, steps))}" if len(steps) > 1 else f"that of step {steps[0]}"


def other_version(folder: Path, config: Config) -> str:
    """A sentence, if a run was made in another version of the config's environment than the installed one."""
    run, environment = load_run(folder), build.environment_class(config.env)
    if run.env != config.env["name"] or run.env_version == environment.version:
        return ""
    made = f"{folder} was made in {version_in_words(run.env_version)} of {run.env}"
    return f"{made}, and {build.installed(environment)}. Scores of the two do not compare."


def doubts(demos: Path, config: Config) -> str:
    """What speaks against imitating a run's attempts with this config, in sentences; empty where nothing does."""
    run, wanted, known = load_run(demos), config.env["name"], configs.TABLES["env"]
    said = [other_version(demos, config)]
    if not run.trains and run.status != "finished":
        said.append(f"{demos} is not whole: its status is {run.status}, and attempts that were to come are missing.")
    if run.env and known.get(run.env, run.env) != known.get(wanted, wanted):
        said.append(f"{demos} was made in the environment {run.env}, and this config has {wanted}.")
    return " ".join(filter(None, said))


# --- Training.


def prepared(config: Config, shards: "Shards | None" = None) -> Training:
    """The objects of a run. What the config names on disk, runs to begin with or to imitate, is read first. With
    `shards`, the policy is this rank's shard."""
    if config.ranks.shard > 1 and shards is None:
        raise UserError(
            "A model in shards exists only while a run trains it: set ranks.shard=1, with a model that fits on one "
            "card, or ask `longloop doctor --memory`."
        )
    demos = best_trajectories(Path(config.demos)) if config.demos else []
    return build.training(config, lineage(config), demos, shards)


def trained(config: Config, resume: Path | None, console: Console, **facts: Any) -> Run:
    """Train, and return the run. `resume` is a run folder to continue; `facts` are added to run.json.

    A run that loses a rank goes on from its last checkpoint, `ranks.restarts` times.
    """

    def tell(text: str) -> None:
        console.print(visible(text), soft_wrap=True, markup=False)

    folder, restarts = resume or Path(config.folder) / config.name, 0
    while True:
        try:
            return _trained(config, resume, console, tell, facts)
        except RankLost as lost:
            begun = (folder / "run.json").is_file()
            if restarts == config.ranks.restarts:
                how = (
                    f" Continue with `longloop train --resume {quote(str(folder))}`, on any number of ranks."
                    if begun
                    else ""
                )
                raise RankLost(f"{lost}{how}") from lost
            restarts += 1
            tell(f"{lost} Restart {restarts} of {config.ranks.restarts}, from the last checkpoint.")
            resume = folder if begun else resume


def _trained(
    config: Config, resume: Path | None, console: Console, tell: Callable[[str], None], facts: Mapping[str, Any]
) -> Run:
    from longloop.diagnose.preflight import preflight
    from longloop.memory import exhausted
    from longloop.progress import Progress

    if resume is not None:
        must_go_on(resume)
        _same_version(resume, config)
    else:
        new_folder(config)
    for name in config.track.to:
        tracker_class(name)  # what cannot be used is refused before anything else
    config = pinned(build.stamped(config))
    changed = changes_between(resume, build.written_out(stored_config(resume)), config) if resume is not None else {}
    with build.cluster(config, lineage(config), tell) as crew, ExitStack() as ends:
        if crew is not None:
            ends.enter_context(crew.explained())
        shards = None if crew is None else crew.shards
        parts = prepared(config, shards)
        ends.callback(parts.world.close)
        if crew is not None and shards is not None:  # no rank can make a pass alone
            parts.work_with(crew)
        if config.demos and (said := doubts(Path(config.demos), config)):
            tell(said)
        environment = parts.world.environment
        declared = environment.analysis
        rules(declared, source=f"{environment.__name__}.analysis")
        book = complete(preflight(config, parts.world, parts.rollouts, parts.algo, parts.learner, parts.tasks, tell))
        if crew is not None and shards is None:
            parts.work_with(crew)
        with Run.reopen(resume, changed) if resume is not None else Run.create(config, machine_facts()) as run:
            tell(f"{run.folder}: {config.algo['name']} on {config.env['name']} with {config.model.path}")
            if (done := run.next_step - 1) >= config.steps:
                tell(f"It has {done} step{'s' * (done > 1)} already. For more, set steps={2 * done} for instance.")
            for key, (before, after) in changed.items():
                tell(f"from step {run.next_step}: {key} = {after} (was {before})")
            run.note(analysis=declared, **facts)
            if book is not None:
                tell(f"memory: {book}")
                run.note(memory=book.to_json())
            try:
                with (
                    exhausted.told(run.folder),
                    Progress(config.steps, run.folder / "logs" / "train.log", console) as report,
                    Mirror(config.track.to, config.track.project, run.folder, report.note) as mirror,
                ):
                    run.metrics.mirror = mirror.write
                    parts.rollouts.progress = parts.evaluation.progress = report.attempts
                    parts.rollouts.tell = parts.evaluation.tell = report.note
                    if parts.world.pool is not None:
                        parts.world.pool.tell = report.note
                    complete(_until_terminated(run_loop(parts, run, report)))
            except (KeyboardInterrupt, asyncio.CancelledError):
                print(f"Stopped. Continue with `longloop train --resume {quote(str(run.folder))}`.", file=sys.stderr)
                raise KeyboardInterrupt from None
    return run


def _same_version(folder: Path, config: Config) -> None:
    """Raise UserError if a run would go on in another version of its environment, and the config does not ask for
    that."""
    version = build.environment_class(config.env).version
    if config.env_version != version and (said := other_version(folder, config)):
        raise UserError(
            f"{said} Start a new run from its weights, with model.path={folder}; or continue it knowingly, with "
            f"env_version={version!r}, which the run records."
        )


async def run_loop(parts: Training, run: Run, report: "Report") -> None:
    """The training loop, with evaluations that are written into the run."""
    from longloop.evaluation import evaluate, floor
    from longloop.training import TaskStream, train

    config, version, floors = parts.config, parts.world.environment.version, None

    async def measured(step: int) -> "Evaluation":
        nonlocal floors
        if floors is None:
            floors = await floor(parts.evaluation.idle(), parts.eval_tasks)
        result, groups = await evaluate(parts.evaluation, parts.eval_tasks, config.eval.attempts, floors, version)
        run.evaluations.write(step, groups)
        return result

    tasks = TaskStream(parts.tasks, config.seed)
    await train(config, run, tasks, parts.rollouts, parts.algo, parts.learner, measured, report)


async def _until_terminated(work: Coroutine[Any, Any, None]) -> None:
    """Cancel the work on a polite kill (SIGTERM) as on Ctrl-C, unless the script handles SIGTERM itself.

    Processes that a shell starts in the background ignore Ctrl-C, so the two signals are kept apart.
    """
    this = asyncio.current_task()
    assert this is not None
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    await work


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end: in this thread, or in one of its own where an event loop runs in this one, as in a
    notebook. An interrupt cancels it in either case."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T] | None]] = Future()

    async def main() -> T:
        started.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(asyncio.run, main())
        try:
            while not done.done():
                wait([done], timeout=1.0)  # for an interrupt that does not wake a waiting thread
            return done.result()
        except KeyboardInterrupt:
            loop, task = started.result()
            assert task is not None
            loop.call_soon_threadsafe(task.cancel)
            raise  # when the thread has ended


# --- Measuring and checking.


def measure(
    config: Config, checkpoint: Path | None, splits: Sequence[str]
) -> "dict[str, tuple[Evaluation, list[Group]]]":
    """Evaluate a policy on each split: that of a checkpoint, the model before training, or an endpoint's."""
    with measuring(config, checkpoint, splits) as measured:
        return measured


@contextmanager
def measuring(
    config: Config, checkpoint: Path | None, splits: Sequence[str]
) -> "Iterator[dict[str, tuple[Evaluation, list[Group]]]]":
    """The same for a `with` block that writes down what was measured: the answers of an endpoint, which may have been
    paid for, are kept until it ends without an error."""
    if not build.is_endpoint(config):
        from longloop.memory import exhausted

        with exhausted.told():
            measured = complete(_measure(config, checkpoint, splits))
        yield measured
        return
    name = hashlib.blake2b(f"{config.to_toml()} {splits}".encode(), digest_size=12).hexdigest()
    kept = cache_dir() / "answers" / f"{name}.jsonl"
    yield complete(_measure(with_engine(config, answers=str(kept)), None, splits))
    kept.unlink(missing_ok=True)


def with_engine(config: Config, **options: Any) -> Config:
    """The config with other options of its engine."""
    return config.model_copy(update={"engine": config.engine | options})


async def _measure(
    config: Config, checkpoint: Path | None, splits: Sequence[str]
) -> "dict[str, tuple[Evaluation, list[Group]]]":
    world = build.world(config)
    tasks = {split: world.tasks(split)[: config.eval.tasks or None] for split in splits}
    from longloop.evaluation import evaluate, floor
    from longloop.rollout.groups import GroupRollouts

    endpoint = None
    if build.is_endpoint(config):
        context, endpoint = build.endpoint_context(config, world, config.eval.sampling)
    else:
        policy = build.policy_of(lineage(config, checkpoint))
        context = build.rollout_context(config, world, policy, config.eval.sampling)
    rollouts = GroupRollouts(context, f"{config.seed}/eval", abandon=False)
    attempts, version = config.eval.attempts, world.environment.version
    measured = {}
    try:
        for split, some in tasks.items():
            floors = await floor(rollouts.idle(), some)
            result, groups = await evaluate(rollouts, some, attempts, floors, version)
            measured[split] = result if endpoint is None else replace(result, usage=endpoint.spent()), groups
    finally:
        world.close()
        if endpoint is not None:
            await endpoint.close()
    return measured


def write_measured(
    config: Config, checkpoint: Path | None, out: Path, measured: "Mapping[str, tuple[Evaluation, list[Group]]]"
) -> None:
    """Write what was measured as run folders, one for each split."""
    config = build.stamped(config)
    declared = build.world(config).environment.analysis
    step = int(checkpoint.name) if checkpoint is not None else 0
    for split, (result, groups) in measured.items():
        here = config.model_copy(update={"folder": str(out), "name": split})
        with Run.create(here, machine_facts() | {"trains": False}) as run:
            policy = config.engine["model"] if build.is_endpoint(config) else checkpoint or config.model.path
            run.note(analysis=declared, measured=str(policy))
            run.evaluations.write(step, groups)
            run.metrics.write({"step": step, "eval": result.to_json()})


def cluster_findings(config: Config) -> "Iterator[Finding]":
    """Whether the cluster has what a config asks for, if it asks for one. Nothing waits, and no model is loaded."""
    from longloop.diagnose import cluster

    if config.ranks.count > 1:
        yield cluster.ranks(config)
    if configs.isolation(config.env)[0].hosts:
        yield cluster.hosts(config)


def checkup(parts: Training) -> "AsyncGenerator[Finding]":
    """All that the doctor can find, one finding after another."""
    from longloop.diagnose import checkup

    attempts = len(parts.eval_tasks) * parts.config.eval.attempts
    name = parts.world.environment.__name__
    return checkup.full(name, parts.config, parts.rollouts, parts.algo, parts.learner, parts.tasks, attempts)


def forecast(config: Config) -> "Ledger":
    """Where the memory of a run would go. No weight is read."""
    from longloop.memory import forecast, shapes

    build.check_shards(config)
    shape = shapes.shape_of(lineage(config)[0].model)
    asked = *forecast.limits(config), config.ranks, forecast.sampled_by(config.engine)
    return forecast.forecast(shape, config.model, config.learner, build.algorithm(config).needs, *asked)


def free_memory(config: Config) -> int:
    """Free bytes on the device that a config would train on."""
    from longloop.memory import forecast
    from longloop.model.policy import device_and_dtype

    return forecast.available(device_and_dtype(config.model)[0])


# --- Serving.


def server(
    target: str,
    overrides: Overrides = (),
    *,
    step: WhichStep = None,
    temperature: float | None = None,
    top_p: float = 1.0,
    key: str = "",
) -> "Server":
    """A policy behind the APIs of OpenAI and Anthropic: that of a run, or any model that `model.path` may name.

    Without a `key`, it answers only to the names of this machine's loopback interface.
    """
    from longloop.gateway.server import LOCAL, Server

    if (Path(target) / "run.json").is_file():
        config, checkpoint = subject(target, overrides, step)
    elif step is not None:
        raise UserError(f"A step can be chosen of a run folder, and {target} is not one.")
    else:
        tree = {"env": {"name": _NO_ENV}, "model": {"path": target}}
        config, checkpoint = configs.resolve(tree, "the defaults", overrides), None
    stop = config.rollout.stop if config.env["name"] == _NO_ENV else build.stop_texts(config)
    asked = config.rollout.temperature if temperature is None else temperature
    sampling = SamplingParams(asked, top_p, stop=tuple(stop))
    served = build.served(config, lineage(config, checkpoint), sampling, key)
    return Server(served.find, Path(target).resolve().name, names=() if key else LOCAL)


# --- Demonstrations and models.


def demonstrate(
    config: Config, max_tasks: int | None = None, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Path, dict[str, str]]:
    """Write the expert's attempts at the training tasks as a run folder; the folder, and by task why the attempt
    failed, empty where it succeeded. If there are more than `max_tasks` tasks, sample that many."""
    from longloop.rollout.demonstrations import why_failed, with_expert
    from longloop.rollout.groups import GroupRollouts

    config = build.stamped(config)
    world = build.world(config)
    tasks = world.tasks(config.split)
    if max_tasks is not None and max_tasks < len(tasks):
        tasks = random.Random(config.seed).sample(tasks, max_tasks)
    with_expert(world.guarded(config.rollout.step_seconds), tasks[0])  # before a folder is made for nothing
    policy = build.policy_of(lineage(config))
    rollouts = GroupRollouts(build.rollout_context(config, world, policy, SamplingParams()), "demos")

    async def write(run: Run) -> dict[str, str]:
        failures: dict[str, str] = {}
        for step, start in enumerate(range(0, len(tasks), _AT_ONCE)):
            groups = await rollouts.demonstrations(tasks[start : start + _AT_ONCE])
            run.trajectories.write(step, groups)
            failures |= {t.task.id: why_failed(t) for group in groups for t in group.trajectories}
            progress(min(start + _AT_ONCE, len(tasks)), len(tasks))
        return failures

    with Run.create(config, machine_facts() | {"trains": False}) as run:
        return run.folder, complete(write(run))


def select(config: Config, source: Path, min_reward: float) -> tuple[Path, list[Group]]:
    """Write the attempts of a run that were paid enough as a folder of demonstrations; the folder and the attempts."""
    config = build.stamped(config)
    read_facts(source)
    build.world(config)  # an environment that does not exist is refused now, not when its attempts are imitated
    groups = good_trajectories(source, min_reward)
    with Run.create(config, machine_facts() | {"trains": False}) as run:
        run.trajectories.write(0, groups)
    return run.folder, groups


def export(config: Config, checkpoint: Path, folder: Path, dtype: str) -> None:
    """Write a checkpoint's model as a plain Hugging Face folder, adapters merged."""
    from longloop.model.checkpoint import export

    *before, last = lineage(config, checkpoint)
    whole = replace(last, model=last.model.model_copy(update={"quantize": ""}))
    export(folder, build.policy_of([*before, whole]), dtype)


def export_adapter(config: Config, checkpoint: Path, folder: Path) -> None:
    """Write a checkpoint's adapters in peft's format, with the tokenizer of their model."""
    from longloop.model.checkpoint import export_adapter
    from longloop.model.download import source

    if not config.model.lora_rank:
        raise UserError(f"{checkpoint} has no adapters: the run trained all weights. Leave out --adapter.")
    stages = lineage(config, checkpoint)
    if stages[0].model.path == "tiny":
        raise UserError(
            f"The adapters of {checkpoint} were trained on `tiny`, whose random weights are in no file that peft could "
            "load. Leave out --adapter to get both, merged."
        )
    if len(stages) > 1:
        raise UserError(
            f"The adapters of {checkpoint} were trained on those of {config.model.path}, and are of no use without "
            "them. Leave out --adapter to get both, merged."
        )
    base = str(source(stages[0].model.path))
    export_adapter(folder, checkpoint, build.policy_of(stages).tokenizer, base)


def new_model(folder: Path, source: Config | Path, words: bool, shape: Mapping[str, int]) -> int:
    """Make a small model with a tokenizer for what an environment's expert says and hears, or the agent of a run;
    returns its number of weights."""
    from longloop.model import from_scratch

    if isinstance(source, Config):
        texts = complete(_expert_texts(source))
    else:
        turns = (turn for trajectory in scored_trajectories(source, f"--from {source}") for turn in trajectory.turns)
        texts = [message.content for turn in turns for message in (*turn.context, turn.action)]
    return from_scratch.make(folder, texts, words=words, **shape)


async def _expert_texts(config: Config) -> list[str]:
    from longloop.envs.play import play
    from longloop.rollout.demonstrations import with_expert

    world, texts = build.world(config), []
    for task in world.tasks(config.split):
        try:
            played = await play(*with_expert(world.guarded(config.rollout.step_seconds), task))
        except Fault as fault:
            raise UserError(f"The expert fails on task {task.id!r}: {fault}.") from fault
        texts += [message.content for message in played.messages]
    return texts
