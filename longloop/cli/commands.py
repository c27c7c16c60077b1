"""What `train` and `eval` do once the command line has been read."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from longloop import config as configs
from longloop.config import Config
from longloop.store.run import Run, checkpoints, machine_facts, read_facts
from longloop.types import UserError

console = Console(highlight=False)


def train(config_path: str | None, overrides: list[str], resume: Path | None) -> None:
    if resume is not None:
        config = _resumed_config(resume, [*([config_path] if config_path else []), *overrides])
    elif config_path is not None:
        config = configs.load(Path(config_path), overrides)
    else:
        raise UserError("Name a config, for instance configs/quickstart.toml, or a run with --resume.")
    from longloop.build import training
    from longloop.cli.progress import Progress

    parts = training(config)
    book = asyncio.run(parts.preflight())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill is an interruption
    with Run.reopen(resume) if resume is not None else Run.create(config, machine_facts()) as run:
        console.print(f"{run.folder}: {config.algo['name']} on {config.env['name']} with {config.model.path}")
        if book is not None:
            console.print(f"memory: {book}")
        try:
            with Progress(config.steps, run.folder / "logs" / "train.log", console) as progress:
                parts.rollouts.progress = parts.evaluation.progress = progress.attempts
                asyncio.run(parts.run(run, progress))
        except KeyboardInterrupt:
            print(f"Stopped. Continue with `longloop train --resume {run.folder}`.", file=sys.stderr)
            raise
    _farewell(run)


def evaluate(target: Path, overrides: list[str], step: int | None, as_json: bool) -> None:
    if target.is_dir():
        read_facts(target)
        config = configs.load(target / "config.toml", overrides)
        folder: Path | None = _checkpoint(target, step)
    else:
        if step is not None:
            raise UserError(f"--step needs a run folder, and {target} is not one.")
        config, folder = configs.load(target, overrides), None
    from longloop.build import evaluation

    result, _ = asyncio.run(evaluation(config, folder))
    if as_json:
        print(json.dumps(result.to_json()))
        return
    console.print(f"{folder or config.model.path} on {config.env['name']}, split {config.eval.split}")
    console.print(_table(result.to_json()))


def _resumed_config(folder: Path, overrides: list[str]) -> Config:
    read_facts(folder)
    refused = [word for word in overrides if not word.startswith("steps=")]
    if refused:
        raise UserError(f"Only steps=N can be changed when a run is resumed, not {refused[0]!r}. Start a new run.")
    config = configs.load(folder / "config.toml", overrides)
    return config.model_copy(update={"folder": str(folder.parent), "name": folder.name})


def _checkpoint(folder: Path, step: int | None) -> Path:
    kept = sorted(checkpoints(folder))
    if not kept:
        raise UserError(f"{folder} has no checkpoint yet.")
    if step is not None and step not in kept:
        raise UserError(f"{folder} has no checkpoint of step {step}; it has {', '.join(map(str, kept))}.")
    return folder / "checkpoints" / f"{step or kept[-1]:06d}"


def _farewell(run: Run) -> None:
    """Before and after, side by side, and where everything is."""
    measured = [line for line in run.metrics.read() if "eval" in line]
    first_and_last = [measured[0], measured[-1]] if len(measured) > 1 else measured
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for line in first_and_last:
        table.add_column("before training" if line["step"] == 0 else f"after step {line['step']}")
    columns = [_cells(line["eval"]) for line in first_and_last]
    for name in columns[0]:
        table.add_row(name, *(cells[name] for cells in columns))
    console.print(table)
    console.print(f"\nEverything is in {run.folder}. Measure again with `longloop eval {run.folder}`.", soft_wrap=True)


def _table(evaluation: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, cell in _cells(evaluation).items():
        table.add_row(name, cell)
    return table


def _cells(e: dict[str, Any]) -> dict[str, str]:
    """An evaluation as a person reads it."""

    def with_interval(key: str, form: str) -> str:
        low, high = e[f"{key}_interval"]
        return f"{e[key]:{form}} [{low:{form}}, {high:{form}}]"

    cells = {
        "success [95%]": with_interval("success", ".1%"),
        "reward [95%]": with_interval("reward", ".3f"),
        "doing nothing": f"{e['floor_success']:.1%}, reward {e['floor_reward']:.3f}",
    }
    cells |= {f"pass@{k}": f"{value:.1%}" for k, value in e["pass_at"].items() if k != "1"}
    if e["scenarios"] is not None:
        cells["scenarios"] = f"{e['scenarios']:.1%}"
    spoiled = f", {e['unscored']} spoiled by the environment" if e["unscored"] else ""
    cells["tasks"] = f"{e['tasks']} x {e['attempts']} attempts{spoiled}"
    return cells
