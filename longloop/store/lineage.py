"""The models that a policy comes from: `model.path` may name a run, which may have begun with another run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from longloop.config import Config, ModelConfig
from longloop.store.run_reader import checkpoint_in, stored_config


@dataclass(frozen=True)
class Stage:
    """One model on the way to a policy. The first is loaded; each later one is the one before it, adapters merged."""

    model: ModelConfig
    seed: int
    """Of new adapters, and of the model itself where it is a random one."""
    adapters: Path | None = None
    """The checkpoint whose adapters the model has."""


Lineage = Sequence[Stage]


def lineage(config: Config, checkpoint: Path | None = None) -> Lineage:
    """How to get the policy that a config names; with `checkpoint`, that of a run with this config at that time."""
    if checkpoint is not None and not _has_adapters(checkpoint):  # what the run began with is not needed
        return [Stage(with_model(config, checkpoint / "model").model, config.seed)]
    start = checkpoint_in(Path(config.model.path))
    if start is None:
        return [Stage(config.model, config.seed, checkpoint)]
    if not _has_adapters(start):
        return [Stage(with_model(config, start / "model").model, config.seed, checkpoint)]
    then = stored_config(start.parents[1])
    here = config.model.model_dump(include={"device", "dtype", "threads"})
    then = then.model_copy(update={"model": then.model.model_copy(update=here)})
    return [*lineage(then, start), Stage(config.model, config.seed, checkpoint)]


def pinned(config: Config) -> Config:
    """The config with the checkpoint that a run in `model.path` has now: the run may go on, and have another later."""
    checkpoint = checkpoint_in(Path(config.model.path))
    return config if checkpoint is None else with_model(config, checkpoint)


def with_model(config: Config, path: Path) -> Config:
    """The config with another `model.path`."""
    return config.model_copy(update={"model": config.model.model_copy(update={"path": str(path)})})


def _has_adapters(checkpoint: Path) -> bool:
    """Whether a checkpoint holds adapters only, and so needs the model that they were trained on."""
    return (checkpoint / "model" / "adapter_config.json").is_file()
