"""Config -> objects, and nothing else. The only place that names concrete classes, which it imports when needed.

What is done with the objects is elsewhere: api.py trains and measures, diagnose/ looks for what would spoil a run.
"""

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longloop.config import (
    TABLES,
    Config,
    WorkerConfig,
    defaults_of,
    isolation,
    make_options,
    nearest,
    options_for,
)
from longloop.envs.base import Environment
from longloop.envs.contract import check_class
from longloop.envs.user_code import raised_at
from longloop.isolation import virtualenv
from longloop.isolation.environments import Environments
from longloop.isolation.pool import Pool
from longloop.options import find_user_modules
from longloop.registry import ALGOS, ENGINES, ENVS
from longloop.store.lineage import Lineage
from longloop.store.run_reader import checkpoint_in
from longloop.types import Group, SamplingParams, Task, UserError

if TYPE_CHECKING:
    from longloop.algos.base import Algorithm
    from longloop.cluster.crew import Crew
    from longloop.cluster.exchange import Exchange
    from longloop.cluster.hosts import HostPool
    from longloop.cluster.rank import RankParts
    from longloop.engines.openai import OpenAIEngine
    from longloop.gateway.serving import Served
    from longloop.learners.local import LocalLearner
    from longloop.model.policy import Policy
    from longloop.model.shards import Shards
    from longloop.rollout.episode import RolloutContext
    from longloop.rollout.groups import GroupRollouts
    from longloop.tokens.chat import Chat


_FOLLOWING = {"native": {"slots": "concurrency", "context": "context"}, "vllm": {"context": "context"}}
"""Options of engines that are those of [rollout], unless they are set."""


def _known(known: Mapping[str, str], kind: str) -> str:
    """What there is: a few names, or the command that lists many."""
    return f"Known are {', '.join(known)}" if len(known) < 20 else f"`longloop {kind}s` lists what there is"


def meant(name: str, known: Iterable[str]) -> str:
    """What an unknown name may stand for, as a sentence: a file in this folder, or the nearest of the known names."""
    module = name.removesuffix(".py")
    if module.isidentifier() and Path(f"{module}.py").is_file():
        return f" There is a file {module}.py here: write its class as {module}:Class."
    return nearest(name, known)


def named(table: Mapping[str, Any], known: Mapping[str, str], kind: str) -> Any:
    """The class that a table's `name` stands for: one of ours, or `module:Class` of the user's."""
    name = table.get("name")
    if not isinstance(name, str):
        raise UserError(f"The [{kind}] table needs a name, for instance {kind}.name={next(iter(known))}.")
    where = known.get(name, name)
    module, colon, attribute = where.partition(":")
    if not colon:
        raise UserError(
            f"There is no {kind} {name!r}.{meant(name, known)} {_known(known, kind)}; your own is written as "
            "module:Class."
        )
    find_user_modules()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        where = f"in {Path.cwd()} or among the installed packages"
        raise UserError(f"{kind}.name = {name!r}: there is no module {error.name!r} {where}.") from error
    except Exception as error:
        said = f"importing {module} raised {type(error).__name__}: {error} ({raised_at(error)})".removesuffix(" ()")
        raise UserError(f"{kind}.name = {name!r}: {said}.") from error
    if not hasattr(found, attribute):
        raise UserError(f"{kind}.name = {name!r}: {module} has no {attribute!r}.")
    return getattr(found, attribute)


def environment_class(table: Mapping[str, Any]) -> type[Environment]:
    """Return the environment's class that an `[env]` table names."""
    return check_class(str(table.get("name")), named(table, ENVS, "env"))


def installed(environment: type[Environment]) -> str:
    """The version that is installed, in words."""
    return f"version {environment.version} is installed" if environment.version else "the installed one has no version"


def stop_texts(config: Config) -> tuple[str, ...]:
    """Texts at which an action ends in the config's environment. Whoever serves a policy may do without the
    environment, and then sets them."""
    try:
        return *environment_class(config.env).stop, *config.rollout.stop
    except UserError as error:
        warnings.warn(f"{error} If it ends actions at certain texts, set rollout.stop.", stacklevel=2)
        return tuple(config.rollout.stop)


def world(config: Config) -> Environments:
    """Return what makes the config's environments, in this process or in workers."""
    environment = environment_class(config.env)
    if config.env_version not in ("", environment.version):
        raise UserError(
            f"The config is for version {config.env_version} of {config.env['name']}, and {installed(environment)}. "
            f"Scores of the two do not compare. To use the installed one, set env_version={environment.version!r}."
        )
    how, table = isolation(config.env)
    options = make_options(environment.Options, table)
    if how.hosts:
        return Environments(environment, options, _host_pool(config, environment, how))
    virtualenv.check_programs(config.env["name"], environment)
    kind = how.isolation or environment.isolation
    return Environments(environment, options, None if kind == "inline" else pool(config))


def pool(config: Config) -> Pool:
    """Workers for the config's environment on this machine."""
    environment = environment_class(config.env)
    how, table = isolation(config.env)
    virtualenv.check_programs(config.env["name"], environment)
    own = (how.isolation or environment.isolation) == "venv"
    python = virtualenv.python(config.env["name"], environment) if own else sys.executable
    return Pool(
        environment,
        make_options(environment.Options, table),
        python=python,
        path=[] if own else sys.path,
        size=how.workers or max(1, (os.cpu_count() or 1) // config.ranks.players),
        memory=how.worker_memory,
        disk=how.worker_disk,
        cpu=how.worker_cpu,
        episodes=how.worker_episodes,
    )


def _host_pool(config: Config, environment: type[Environment], how: WorkerConfig) -> "HostPool":
    """Workers for the config's environment on other machines. What it needs besides Python must be there, not here."""
    from longloop.cluster.hosts import HostPool

    if how.isolation == "inline":
        raise UserError("env.hosts runs the environment in workers: leave env.isolation empty, or set env.hosts=false.")
    limits = {"most": how.workers, "memory": how.worker_memory, "episodes": how.worker_episodes}
    return HostPool(environment, config.ranks, partial(pool, config), **limits)


def algorithm(config: Config) -> "Algorithm":
    from longloop.algos.base import Algorithm

    algo = named(config.algo, ALGOS, "algo")
    if not (inspect.isclass(algo) and issubclass(algo, Algorithm)):
        raise UserError(
            f"algo.name = {config.algo['name']!r} is not an algorithm: derive your class from longloop.Algorithm "
            "(docs/guides/algorithm.md)."
        )
    return algo(**options_for(algo, config.algo, "algo"))


def policy_of(lineage: Lineage, shards: "Shards | None" = None) -> "Policy":
    """The policy at the end of a lineage, or this rank's shard of it."""
    from longloop.model.checkpoint import load_weights, merged
    from longloop.model.policy import load

    if shards is not None and len(lineage) > 1:
        raise UserError(
            "With ranks.shard > 1 a run cannot begin with another run's adapters: `longloop export` that run, and set "
            "model.path to the folder."
        )
    policy: Policy | None = None
    for stage in lineage:
        made = None if policy is None else (merged(policy), policy.tokenizer)
        quantize = stage.model.quantize if stage is lineage[-1] else ""  # adapters are merged into whole weights
        try:
            policy = load(stage.model.model_copy(update={"quantize": quantize}), stage.seed, made, shards)
            if stage.adapters is not None:
                load_weights(stage.adapters, policy)
        except Exception:
            checkpoint = stage.adapters or Path(stage.model.path).parent
            if checkpoint.parent.name == "checkpoints":
                checkpoint_in(checkpoint)  # raises if a run in training has deleted it
            raise
    assert policy is not None
    return policy


def is_endpoint(config: Config) -> bool:
    """Whether the engine is an endpoint: a policy of its own, which can be measured and not trained."""
    return config.engine["name"] == "openai"


def endpoint_context(
    config: Config, world: Environments, sampling: SamplingParams
) -> "tuple[RolloutContext, OpenAIEngine]":
    """What episodes with an endpoint's policy need, and the endpoint, which says itself how long a conversation may
    be."""
    from longloop.engines.openai import OpenAIEngine, text_chat
    from longloop.rollout.episode import RolloutContext

    chat = text_chat()
    engine = OpenAIEngine(None, chat, **options_for(OpenAIEngine, config.engine, "engine"))
    limits = config.rollout.model_copy(update={"context": sys.maxsize})
    return RolloutContext(world.make, chat, engine, limits, sampling, world.environment.stop), engine


def rollout_context(
    config: Config, world: Environments, policy: "Policy", sampling: SamplingParams
) -> "RolloutContext":
    """What episodes need: environments, chat, engine and limits."""
    from longloop.rollout.episode import RolloutContext

    engine, chat = _engine(config, policy)
    return RolloutContext(world.make, chat, engine, config.rollout, sampling, world.environment.stop)


def served(config: Config, lineage: Lineage, sampling: SamplingParams, key: str) -> "Served":
    """The policy at the end of a lineage, ready to answer calls."""
    from longloop.gateway.serving import Served

    engine, chat = _engine(config, policy_of(lineage))
    if "watch" not in inspect.signature(engine.sample).parameters:
        raise UserError(f"The engine {config.engine['name']!r} cannot serve; take engine.name=native.")
    return Served(engine, chat, sampling, config.rollout.turn_tokens, config.rollout.context, key)


def _engine(config: Config, policy: "Policy") -> "tuple[Any, Chat]":
    """The engine, and the chat that it decodes with."""
    from longloop.tokens.chat import Chat

    engine = named(config.engine, ENGINES, "engine")
    following = _FOLLOWING.get(config.engine["name"], {})
    options = {option: getattr(config.rollout, name) for option, name in following.items()}
    options |= options_for(engine, config.engine, "engine")
    if config.engine.get("batch_invariant") and config.model.quantize:
        raise UserError(
            "engine.batch_invariant=true cannot be kept with model.quantize: bitsandbytes chooses in which order it "
            "adds up. Leave one of them out."
        )
    if config.engine["name"] == "vllm":
        from longloop.engines.vllm import check_sampling

        check_sampling(config.rollout.sampling, config.eval.sampling)
    chat = Chat(policy.tokenizer, policy.end_ids)
    if policy.shards is None:
        return engine(policy, chat, **options), chat
    from longloop.model.shards import Reader

    if config.engine["name"] != "native":
        raise UserError("A model in shards (ranks.shard > 1) samples with engine.name=native.")
    return engine(Reader(policy), chat, **options), chat


@dataclass(frozen=True)
class Training:
    """The objects of a run."""

    config: Config
    world: Environments
    algo: "Algorithm"
    policy: "Policy"
    learner: "LocalLearner"
    rollouts: "GroupRollouts"
    evaluation: "GroupRollouts"
    tasks: list[Task]
    """To train on: those of the split, or those that have been demonstrated."""
    eval_tasks: list[Task]

    def work_with(self, crew: "Crew") -> None:
        """Divide the work among several ranks, of which this process is the first."""
        crew.sample_together(self.rollouts.context.engine)
        crew.join(self.learner)
        self.rollouts.replicas = self.evaluation.replicas = crew.replicas


def training(config: Config, lineage: Lineage, demos: Sequence[Group] = (), shards: "Shards | None" = None) -> Training:
    """The objects of a run: its policy comes from `lineage`, and `demos` are attempts to imitate. With `shards` each
    rank makes them at the same time.

    The cheap ones are built first: a mistake in the config shows before a model loads.
    """
    if is_endpoint(config):
        raise UserError(
            "engine.name=openai cannot train: an endpoint returns text, and training needs the tokens and log-probs of "
            "a policy in this process. Measure it with `longloop eval`, and train with engine.name=native."
        )
    algo = algorithm(config)
    environments = world(config)
    tasks, eval_tasks = environments.tasks(config.split), environments.tasks(config.eval.split)
    from longloop.rollout.groups import GroupRollouts

    learner, context = _learner_and_context(config, lineage, algo, environments, shards=shards)
    policy = learner.policy
    rollouts = GroupRollouts(context, f"{config.seed}/train", stored=demos)
    measured = replace(context, sampling=config.eval.sampling)
    return Training(
        config,
        environments,
        algo,
        policy,
        learner,
        rollouts=rollouts,
        evaluation=GroupRollouts(measured, f"{config.seed}/eval", abandon=False, faults=rollouts.faults),
        tasks=[group.task for group in demos] or tasks,
        eval_tasks=eval_tasks[: config.eval.tasks or None],
    )


def _learner_and_context(
    config: Config,
    lineage: Lineage,
    algo: "Algorithm",
    environments: Environments,
    rank: int = 0,
    shards: "Shards | None" = None,
) -> "tuple[LocalLearner, RolloutContext]":
    """What learns and what samples, with one policy, on one of the ranks."""
    from longloop.learners.local import LocalLearner

    policy = policy_of(lineage, shards)
    where = policy, algo.needs, config.learner, config.rollout.temperature, config.seed, config.ranks, rank
    learner = LocalLearner(*where, deterministic=bool(config.engine.get("batch_invariant")))
    return learner, rollout_context(config, environments, policy, config.rollout.sampling)


def check_shards(config: Config) -> None:
    """Raise UserError if a config asks for a model in shards and for what these cannot do."""
    if config.ranks.shard > 1 and (not config.model.lora_rank or config.learner.compile):
        raise UserError(
            "ranks.shard > 1 trains adapters, uncompiled: set model.lora_rank, and leave learner.compile out. All "
            "weights are trained with ranks.shard=1, where ranks divide the optimizer's state."
        )
    if config.ranks.shard > 1 and config.model.quantize:
        raise UserError("ranks.shard > 1 divides whole weights: leave model.quantize out, or set ranks.shard=1.")


@contextmanager
def cluster(config: Config, lineage: Lineage, tell: Callable[[str], None]) -> "Iterator[Crew | None]":
    """The other ranks of a run on several, and its connection to Ray, if it needs one; they end with the block."""
    check_shards(config)
    if config.ranks.count > 1:
        from longloop.cluster.crew import crew

        with crew(config.ranks, config.model.device, partial(rank_parts, config, lineage), tell) as made:
            yield made
    elif isolation(config.env)[0].hosts:
        from longloop.cluster.placement import connected

        with connected(config.ranks):
            yield None
    else:
        yield None


def rank_parts(config: Config, lineage: Lineage, rank: int, exchange: "Exchange | None") -> "RankParts":
    """The parts of a rank that is not the first. Called in its own process."""
    from longloop.cluster.rank import RankParts

    environments = world(config)
    shards = None if exchange is None else exchange.shards
    learner, context = _learner_and_context(config, lineage, algorithm(config), environments, rank, shards)
    return RankParts(learner, context, environments.close)


def written_out(config: Config) -> Config:
    """The config with every default written out that its [env], [algo] and [engine] tables leave to their classes."""
    classes = {section: named(getattr(config, section), known, section) for section, known in TABLES.items()}
    classes["env"] = check_class(str(config.env["name"]), classes["env"]).Options
    for section, found in classes.items():  # a misspelt option is refused here
        options_for(found, isolation(config.env)[1] if section == "env" else getattr(config, section), section)
    defaults = {section: defaults_of(found, section) for section, found in classes.items()}
    defaults["env"] |= WorkerConfig().model_dump()
    for name in _FOLLOWING.get(config.engine["name"], {}):
        del defaults["engine"][name]
    tables: dict[str, dict[str, Any]] = {
        section: {key: value for key, value in getattr(config, section).items() if value is not None}
        for section in TABLES
    }
    return config.model_copy(
        update={
            section: table | {key: value for key, value in defaults[section].items() if key not in table}
            for section, table in tables.items()
        }
    )


def stamped(config: Config) -> Config:
    """The config of a new run: every default written out, and with the version of its environment."""
    version = config.env_version or environment_class(config.env).version
    return written_out(config).model_copy(update={"env_version": version})
