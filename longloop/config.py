"""One typed tree: TOML files and dotted overrides. An unknown key is an error; the resolved file is saved with the run.

The tables `[env]`, `[algo]` and `[engine]` hold a `name` and the options of the class that it stands for. `options_for`
checks them, and `build.written_out` adds the defaults.
"""

import ast
import contextlib
import difflib
import inspect
import json
import tomllib
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from longloop.options import environment_options, options_of
from longloop.registry import ALGOS, ENGINES, ENVS
from longloop.types import SamplingParams, UserError

FORMAT = 1
"""Version of the config and of the run folder. Raised when an older longloop could not read them."""

SHIPPED = {path.stem: path for path in sorted((Path(__file__).parent / "configs").glob("*.toml"))}
"""The configs that come with the package, by name: `longloop train quickstart`."""

TABLES: dict[str, Mapping[str, str]] = {"env": ENVS, "algo": ALGOS, "engine": ENGINES}
"""The tables whose options are those of the class that their `name` stands for."""

GIVEN = {"engine": ("policy", "chat")}
"""Parameters of such classes that longloop fills in itself."""

RENAMED = {
    "rollout.enough": "rollout.straggler_cutoff",
    "rollout.least": "rollout.min_scored",
    "rollout.faults": "rollout.max_failure_share",
    "algo.normalise": "algo.normalize",
}
"""Old name -> new name of keys that were renamed since longloop 0.1. Old names are accepted, with a warning."""

REFUSED = {
    "rollout.top_p": "training samples from the whole distribution, because the learner cannot compute the log-probs "
    "of a truncated one. For evaluations there is eval.top_p.",
}
"""Keys that do not exist although one might expect them, and why."""

Count = Annotated[int, Field(gt=0)]
CountOrNone = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]


def _power_of_two(value: int) -> int:
    if value.bit_count() != 1:
        raise PydanticCustomError("power_of_two", "Input should be a power of two: 1, 2, 4, 8, ...")
    return value


PowerOfTwo = Annotated[int, Field(gt=0), AfterValidator(_power_of_two)]
T = TypeVar("T")

Overrides = Sequence[str] | Mapping[str, Any]
"""Settings that replace a config's: `key=value` words as on the command line, or dotted keys with values."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class ModelConfig(Section):
    path: str = "tiny"
    """`novice`, `tiny`, a folder with a Hugging Face causal LM, a name on the hub, or a run folder (or one of its
    checkpoints): the agent as it was trained there, adapters merged."""
    lora_rank: CountOrNone = 0
    """Rank of the LoRA adapters on all attention and MLP projections; 0 trains every weight."""
    lora_alpha: Count = 32
    """Scale of the adapters: their output is multiplied by lora_alpha / lora_rank."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the model: `auto` is float32 on CPU and bfloat16 on a GPU. The optimizer updates float32 weights."""
    quantize: Literal["", "nf4"] = ""
    """`nf4`: hold the frozen weights of all layers in 4 bits (QLoRA). Needs `lora_rank`, and bitsandbytes (`pip install
    'longloop[quantized]'`)."""
    device: str = ""
    """`cpu`, `cuda`, ...; empty for a GPU if there is one."""
    threads: CountOrNone = 0
    """CPU threads; 0 for torch's choice. Runs are equal bit for bit only with the same number."""
    chat_template: str = ""
    """A file with a chat template to use instead of the tokenizer's own."""
    hidden: Count = 64
    """Hidden size of `tiny`."""
    layers: Count = 2
    """Layers of `tiny`."""

    @field_validator("quantize")
    @classmethod
    def _frozen(cls, quantize: str, info: ValidationInfo) -> str:
        if quantize and not info.data.get("lora_rank", 1):
            raise PydanticCustomError("quantize", "Input should be empty where every weight is trained: set lora_rank")
        return quantize


class RolloutConfig(Section):
    temperature: Positive = 1.0
    """Sampling temperature in training, also that of the log-probs."""
    max_turns: Count = 40
    """Maximum number of actions in an episode; after the last one, the state reached is scored."""
    turn_tokens: Count = 1500
    """Maximum number of tokens in an action. A longer action is cut, and the episode goes on."""
    context: Annotated[int, Field(gt=1)] = 32000
    """Maximum number of tokens in a conversation, actions included."""
    step_seconds: Positive = 60.0
    """Deadline of each call to the environment, in seconds."""
    seconds: Positive = 1800.0
    """Deadline of an episode, in seconds."""
    concurrency: Count = 64
    """Number of episodes that run at once, on each rank."""
    max_failure_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Stop the run when more than this fraction of 100 episodes failed for reasons that are not the agent's."""
    straggler_cutoff: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Abandon stragglers: attempts that sampled more than twice as many tokens as this fraction of all attempts needed
    at most. Use 1.0 to wait for all; if failures take much longer than successes, too few are seen otherwise."""
    min_scored: Count = 4
    """Scored attempts of each task that must have ended as well before any are abandoned."""
    stop: list[str] = []
    """Strings that end an action, besides the model's own end token and the strings that the environment names."""

    @property
    def sampling(self) -> SamplingParams:
        """How training samples: always from the whole distribution, for the learner computes log-probs of no other."""
        return SamplingParams(temperature=self.temperature)


class WorkerConfig(Section):
    """How an environment is run. These settings are part of `[env]`, beside the environment's own options."""

    isolation: Literal["", "inline", "process", "venv"] = ""
    """Run the environment in this process, in worker processes, or in workers with its own virtualenv; empty for what
    its class says."""
    workers: CountOrNone = 0
    """Number of worker processes on each rank, each of which runs one attempt at a time; 0 for one per core, divided
    among the ranks that play, or with `hosts` for all that they offer."""
    hosts: bool = False
    """Run the environment's workers on the machines of the Ray cluster (`ranks.address`) that offer the resource
    `env_workers`, instead of on the ranks' own. Such machines may come and go during a run."""
    worker_memory: Count = 4000
    """Memory limit of a worker and its processes, in MB. A worker that uses half of it after an attempt is replaced."""
    worker_disk: Count = 2000
    """Limit in MB for the files in a worker's temporary folder, and for any single file that it writes."""
    worker_cpu: Positive = 1800.0
    """CPU time that a worker and its processes may use for one attempt, in seconds."""
    worker_episodes: Count = 100
    """Replace a worker after this many attempts."""


class LearnerConfig(Section):
    micro_tokens: Count = 8192
    """Tokens in a micro-batch (one forward and backward pass). Affects memory and speed, never the gradient."""
    checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more work."""
    compile: bool = False
    """Compile updates with torch.compile. Faster, but a run takes longer to start."""
    chunk: Count = 1024
    """Number of action tokens whose logits are in memory at once."""
    memory_check: bool = True
    """Check before the first step that the longest allowed trajectory fits into memory."""


class EvalConfig(Section):
    every: CountOrNone = 5
    """Steps between evaluations; 0 to evaluate only after the last step."""
    split: str = "dev"
    """The tasks to measure on."""
    tasks: CountOrNone = 0
    """Use only the first tasks of the split, this many; 0 for all."""
    attempts: Count = 1
    """Attempts per task; pass@k needs at least k."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature in evaluations; 0 for greedy decoding."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the fewest likeliest tokens whose probabilities add up to this (nucleus sampling); 1 for all."""

    @property
    def sampling(self) -> SamplingParams:
        """How evaluations sample."""
        return SamplingParams(temperature=self.temperature, top_p=self.top_p)


MEASURED = {
    "env_version",
    *(f"eval.{name}" for name in EvalConfig.model_fields if name != "every"),
    *(f"rollout.{name}" for name in ("max_turns", "turn_tokens", "context", "stop", "seconds", "step_seconds")),
}
"""Keys on which an evaluation's result depends: where one of them changed, results before and after do not compare."""


class SaveConfig(Section):
    every: Count = 1
    """Steps between checkpoints. A crash costs at most this many steps. A step that is evaluated has one, too."""
    keep: Count = 2
    """Number of checkpoints to keep, the newest; the one that was evaluated best stays besides (and the one that was it
    before a change of what is measured), others are deleted."""


class RanksConfig(Section):
    count: PowerOfTwo = 1
    """Processes that share the work, this one among them: each has a copy of the model and, on GPUs, a card. Where all
    weights are trained, each holds a part of the optimizer's state. A power of two; more than 1 needs Ray (`pip install
    'longloop[cluster]'`)."""
    shard: PowerOfTwo = Field(default=1, validate_default=True)
    """Ranks that hold one copy of the model between them, each a part of every weight; not above `count`. For models
    that are too large for a card; adapters only (`model.lora_rank`)."""
    shares: PowerOfTwo = Field(default=8, validate_default=True)
    """Parts that the gradient of adapters is added up from, a power of two and not below `count`. Results depend on it
    in the last bits, and never on `count`."""
    address: str = ""
    """The Ray cluster to run on, such as `auto`; empty starts one on this machine for the time of the run."""
    timeout: Positive = 600.0
    """Seconds without a sign of life after which a rank is given up, and that a run waits for room on the cluster, or
    for a host of environments."""
    restarts: CountOrNone = 0
    """How often a run goes on by itself, from its last checkpoint, after it has lost a rank."""

    @property
    def players(self) -> int:
        """Ranks that play attempts: one for each copy of the model."""
        return self.count // self.shard

    @field_validator("shard")
    @classmethod
    def _within(cls, shard: int, info: ValidationInfo) -> int:
        if shard > info.data.get("count", shard):
            raise PydanticCustomError("shard", f"Input should be at most ranks.count, which is {info.data['count']}")
        return shard

    @field_validator("shares")
    @classmethod
    def _enough(cls, shares: int, info: ValidationInfo) -> int:
        if shares < info.data.get("count", 1):
            raise PydanticCustomError("shares", f"Input should be at least ranks.count, which is {info.data['count']}")
        return shares


ALONE = RanksConfig(shares=1)
"""One rank, whose gradients are added up in one part."""


class TrackConfig(Section):
    to: list[str] = []
    """Trackers that mirror the run's metrics: `tensorboard`, `wandb`, `trackio`, `mlflow`, or `module:Class` of your
    own. One that fails does not stop the run."""
    project: str = "longloop"
    """The project (with MLflow: the experiment) that the run belongs to there."""


class Config(Section):
    format: int = FORMAT
    """Version of the config format. longloop writes it."""
    name: str = "run"
    """Name of the run's folder."""
    folder: str = "runs"
    """The folder in which run folders are made."""
    seed: int = 0
    """Seed of every random number of the run."""
    steps: Count = 200
    """Steps to train for. Each collects attempts, credits them and updates the weights."""
    tasks_per_step: Count = 40
    """Tasks per step, each attempted algo.k times."""
    split: str = "train"
    """The split to train on, or several, separated by commas."""
    doctor: bool = True
    """Check environment, tokens and sampler before the first step, and refuse to start if one is broken."""
    demos: str = ""
    """A run folder whose best attempts at each task are imitated; empty asks the environment's own expert."""
    env: dict[str, Any]
    """The environment: `name` is one of `longloop envs` or `module:Class`, the rest are its options."""
    algo: dict[str, Any] = {"name": "loop"}
    """The algorithm: `name` is one of `longloop algos` or `module:Class`, the rest are its options. Without a name,
    LOOP."""
    env_version: str = ""
    """The version of the environment that the config is for; another one is refused. Empty for the one that is
    installed, which longloop then writes into the run's config."""
    engine: dict[str, Any] = {"name": "native"}
    """The engine that samples: `name`, the rest are its options. Without a name, longloop's own."""
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()
    learner: LearnerConfig = LearnerConfig()
    eval: EvalConfig = EvalConfig()
    save: SaveConfig = SaveConfig()
    ranks: RanksConfig = RanksConfig()
    track: TrackConfig = TrackConfig()

    @field_validator("algo", "engine")
    @classmethod
    def _named(cls, table: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return cls.model_fields[str(info.field_name)].default | table

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump())


def load(path: Path, overrides: Overrides = ()) -> Config:
    """Read a config, a file or one that is shipped, and apply overrides.

    Tables for single methods of a comparison are ignored.
    """
    tree = read(path)
    tree.pop("methods", None)
    return resolve(tree, str(path), overrides)


def read(path: Path) -> dict[str, Any]:
    """The tables of a config file, or of the shipped config with that name. A file takes precedence."""
    shipped = SHIPPED.get(str(path))
    try:
        tree = tomllib.loads((shipped if shipped and not path.is_file() else path).read_text())
    except OSError as error:
        raise UserError(
            f"Cannot read the config {path}: {error.strerror}.{nearest(str(path), SHIPPED)} Name a TOML file, or one "
            f"of those that come with longloop: {', '.join(SHIPPED)}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML, which is text in UTF-8: {error}.") from error
    written = tree.get("format", FORMAT)
    if isinstance(written, int) and written > FORMAT:
        raise UserError(
            f"{path} is in config format {written}; this longloop knows formats up to {FORMAT}. Upgrade longloop."
        )
    return tree


def resolve(tree: dict[str, Any], source: str, overrides: Overrides = ()) -> Config:
    """A tree of tables with overrides, which are also put into the tree. `source` tells the user where it came from."""
    values = overrides if isinstance(overrides, Mapping) else dict(map(_parsed, overrides))
    _rename_keys(tree, source)
    for key, value in values.items():
        if key in RENAMED:
            _tell_renamed(key, "the overrides")
        put(tree, RENAMED.get(key, key), value)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        typed = not isinstance(overrides, Mapping)
        sources = {key: f"the command line ({key}=...)" if typed else "the overrides" for key in values}
        raise UserError(_explain(error, tree, source, sources)) from None


def _rename_keys(tree: dict[str, Any], source: str) -> None:
    """Rename keys of an earlier release. Where a key has both names, the new one counts."""
    for old, new in RENAMED.items():
        table, _, key = old.rpartition(".")
        found = tree.get(table)
        if isinstance(found, dict) and key in found:
            _tell_renamed(old, source)
            found.setdefault(new.rpartition(".")[2], found.pop(key))


def _tell_renamed(key: str, source: str) -> None:
    warnings.warn(f"{key!r} in {source} is now called {RENAMED[key]!r}.", FutureWarning, stacklevel=2)


def isolation(table: Mapping[str, Any]) -> tuple[WorkerConfig, dict[str, Any]]:
    """Split an `[env]` table into how the environment is run, and the environment's own options."""
    ours = {key: value for key, value in table.items() if key in WorkerConfig.model_fields}
    try:
        how = WorkerConfig.model_validate(ours)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UserError(f"env.{problem['loc'][0]} = {problem['input']!r}: {problem['msg']}.") from None
    return how, {key: value for key, value in table.items() if key not in ours}


def options_for(target: Any, table: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return the options in a table (all but its `name`), checked against the parameters of a class."""
    parameters = inspect.signature(target).parameters
    hints = _hints(target)
    known = [name for name in parameters if name not in GIVEN.get(section, ()) and name != "self"]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    options = {}
    for key, value in table.items():
        if key == "name":
            continue
        if key not in known and not takes_any:
            raise UserError(
                _unknown(f"{section}.{key}", [f"{section}.{name}" for name in ("name", *known)], "the config")
            )
        try:
            options[key] = _checked(TypeAdapter(hints.get(key, Any)), value)
        except ValidationError as error:
            raise UserError(f"{section}.{key} = {value!r}: {error.errors()[0]['msg']}.") from None
    return options


def _checked(kind: TypeAdapter[Any], value: Any) -> Any:
    """A value of TOML as a type has it: a list may be a tuple or a set, and a text a path, as in JSON."""
    try:
        return kind.validate_python(value, strict=True)
    except ValidationError as error:
        with contextlib.suppress(TypeError, ValueError):
            return kind.validate_json(json.dumps(value), strict=True)
        raise error


def make_options(kind: type[T], table: Mapping[str, Any]) -> T:
    """Make an environment's `Options` from its part of the `[env]` table."""
    chosen = options_for(kind, table, "env")
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is parameter.empty and name not in chosen:
            raise UserError(f"env.{name} has no default: set it in the [env] table.")
    try:
        return kind(**chosen)
    except ValueError as error:  # from the class's own __post_init__
        raise UserError(f"The [env] table is refused: {error}.") from error


def defaults_of(target: Any, section: str) -> dict[str, Any]:
    """Return the defaults of a class's parameters, without those that a config file cannot hold, such as None."""
    hints = _hints(target)
    defaults = {name: parameter.default for name, parameter in inspect.signature(target).parameters.items()}
    if is_dataclass(target):
        defaults |= {one.name: one.default_factory() for one in fields(target) if one.default_factory is not MISSING}
    found = {}
    for name, default in defaults.items():
        if default is inspect.Parameter.empty or name in GIVEN.get(section, ()):
            continue
        with contextlib.suppress(TypeError, ValueError):  # not a value of TOML, or read back as another
            value = tomllib.loads(tomli_w.dumps({"value": default}))["value"]
            if TypeAdapter(hints.get(name, Any)).validate_python(value, strict=True) == default:
                found[name] = value
    return found


def _hints(target: Any) -> dict[str, Any]:
    return typing.get_type_hints(target.__init__ if inspect.isclass(target) and "__init__" in vars(target) else target)


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean ...?`, or an empty string. Finds a key without its table, such as `lr`, in all tables. Of words as
    near, one with the same letters in another order is meant."""
    known = list(known)
    close = [key for key in known if "." in key and key.rpartition(".")[2] == word.rpartition(".")[2]]
    likeness = {key: difflib.SequenceMatcher(None, key, word).ratio() for key in known}
    if not close and max(likeness.values(), default=0) >= 0.5:
        close = [max(known, key=lambda key: (likeness[key], sorted(key) == sorted(word), key))]
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def override(tree: dict[str, Any], word: str) -> None:
    """Put one `dotted.key=value` into a tree of tables. The value is as in TOML; a bare word is a string."""
    put(tree, *_parsed(word))


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in a tree of tables."""
    *tables, last = key.split(".")
    for number, name in enumerate(tables):
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise UserError(f"{key} cannot be set: {'.'.join(tables[: number + 1])} is a value, not a table.")
    tree[last] = value


def _parsed(word: str) -> tuple[str, Any]:
    """The key and the value of a `key=value` word."""
    key, equals, text = word.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UserError(f"{word!r} is not an override; write it as key=value, for instance algo.clip=0.2.")
    key = key.strip()
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text
    return key, text if key == "env_version" and not isinstance(value, str) else value  # 1.10 is not the number 1.1


def _explain(error: ValidationError, tree: Mapping[str, Any], file: str, sources: Mapping[str, str]) -> str:
    """What is wrong with each key, and where it was set: in one of `sources`, or in the file."""
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        source = sources.get(key, file)
        if problem["type"] == "extra_forbidden":
            lines.append(_unknown(key, [setting.key for setting in settings(tree)], source))
        elif problem["type"] == "missing":
            lines.append(f"{source} lacks the key {key!r}.")
        elif problem["type"] in ("dict_type", "model_type"):
            last = "name" if key in TABLES else "KEY"
            lines.append(f"{key!r} in {source} is a table of settings: write {key}.{last}={problem['input']}.")
        else:
            lines.append(f"{key!r} in {source}: {problem['msg']}, but it is {problem['input']!r}.")
    return "\n".join(lines)


def _unknown(key: str, known: Sequence[str], source: str) -> str:
    return f"Unknown key {key!r} in {source}" + (f": {REFUSED[key]}" if key in REFUSED else f".{nearest(key, known)}")


@dataclass(frozen=True)
class ConfigKey:
    """A key of a config."""

    key: str
    type: str
    default: str
    """As TOML writes it; empty where the key is required."""
    meaning: str


def settings(tree: Mapping[str, Any]) -> Iterator[ConfigKey]:
    """Every key of a config, with the options of the classes that its tables name."""
    for name, field in Config.model_fields.items():
        if name not in TABLES:
            yield from _settings(name, field)
            continue
        default = "" if field.is_required() else field.default["name"]
        table = tree.get(name, {})
        chosen = str(table.get("name", default)) if isinstance(table, Mapping) else ""
        yield ConfigKey(f"{name}.name", "str", as_toml(default) if default else "", _said(field))
        with contextlib.suppress(UserError):  # an unknown class is complained of elsewhere
            where = TABLES[name].get(chosen, chosen)
            read = environment_options if name == "env" else options_of
            for key, option in (read(where) if ":" in where else {}).items():
                if key not in GIVEN.get(name, ()):
                    yield ConfigKey(f"{name}.{key}", option.type, _from_source(option.default), option.meaning)
        if name == "env":
            for key, one in WorkerConfig.model_fields.items():
                yield from _settings(f"env.{key}", one)


def _settings(key: str, field: FieldInfo) -> Iterator[ConfigKey]:
    kind = field.annotation
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        for name, inner in kind.model_fields.items():
            yield from _settings(f"{key}.{name}", inner)
        return
    named = kind.__name__ if inspect.isclass(kind) and not typing.get_args(kind) else str(kind)
    yield ConfigKey(key, named.removeprefix("typing."), as_toml(field.default), _said(field))


def _said(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _from_source(default: str) -> str:
    """A default as TOML writes it; one that TOML has no way to write, as its source has it."""
    try:
        return as_toml(ast.literal_eval(default))
    except (SyntaxError, TypeError, ValueError):
        return default


def as_toml(value: Any) -> str:
    """A value as TOML writes it."""
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
