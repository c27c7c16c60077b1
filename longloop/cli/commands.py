"""What `train` and `eval` do once the command line has been read."""

import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console

from longloop import config as configs
from longloop.analysis.rules import rules
from longloop.cli import run_summary
from longloop.config import Config
from longloop.registry import ENVS
from longloop.store.attempts import good_attempts
from longloop.store.run import Run, changes_between, checkpoints, machine_facts, read_facts, stored_config
from longloop.types import UserError

console = Console(highlight=False)

_REASONS = 3
"""Why the expert failed: so many reasons are told, the most frequent ones."""


def train(config_path: str | None, overrides: list[str], resume: Path | None) -> None:
    if resume is not None:
        config = _resumed_config(resume, [*([config_path] if config_path else []), *overrides])
    elif config_path is not None:
        config = configs.load(Path(config_path), overrides)
    else:
        raise UserError(
            f"Name a config, a TOML file or one of {', '.join(configs.SHIPPED)}, or a run with --resume. Start with "
            "`longloop train quickstart`."
        )
    run_summary.show(trained(config, resume), console)


def trained(config: Config, resume: Path | None, **facts: Any) -> Run:
    """Train, and return the run folder; `resume` is the one to go on with, and `facts` go into its run.json."""
    from longloop.build import pinned, training, written_out
    from longloop.cli.progress import Progress

    config = pinned(written_out(config))
    changed = changes_between(resume, written_out(stored_config(resume)), config) if resume is not None else {}
    parts = training(config)
    environment = parts.world.environment
    declared = environment.analysis
    rules(declared, source=f"{environment.__name__}.analysis")
    book = asyncio.run(parts.preflight(lambda text: console.print(text, soft_wrap=True, markup=False)))
    with Run.reopen(resume, changed) if resume is not None else Run.create(config, machine_facts()) as run:
        console.print(
            f"{run.folder}: {config.algo['name']} on {config.env['name']} with {config.model.path}", soft_wrap=True
        )
        for key, (before, after) in changed.items():
            console.print(f"from step {run.next_step}: {key} = {after} (was {before})", soft_wrap=True, markup=False)
        run.note(analysis=declared, **facts)
        if book is not None:
            console.print(f"memory: {book}", soft_wrap=True)
            run.note(memory=book.to_json())
        try:
            with Progress(config.steps, run.folder / "logs" / "train.log", console) as progress:
                parts.rollouts.progress = parts.evaluation.progress = progress.attempts
                parts.rollouts.tell = parts.evaluation.tell = progress.note
                asyncio.run(_until_told_to_end(parts.run(run, progress)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            print(f"Stopped. Continue with `longloop train --resume {run.folder}`.", file=sys.stderr)
            raise KeyboardInterrupt from None
    return run


async def _until_told_to_end(work: Coroutine[Any, Any, None]) -> None:
    """A polite kill (SIGTERM) cancels the work, as asyncio.run does on Ctrl-C. The two are kept apart: a shell that
    starts a process in the background lets it ignore Ctrl-C."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    await work


def evaluate(
    target: Path, overrides: list[str], splits: list[str], step: int | None, as_json: bool, out: Path | None
) -> None:
    if target.is_dir():
        read_facts(target)
        config = stored_config(target, overrides)
        folder: Path | None = _checkpoint(target, step)
    else:
        if step is not None:
            raise UserError(f"--step needs a run folder, and {target} is not one.")
        config, folder = configs.load(target, overrides), None
    from longloop.build import evaluation, world, written_out

    chosen = splits or [config.eval.split]
    for place in [out / split for split in chosen] if out is not None else ():
        if place.exists():  # said before anything is measured
            raise UserError(f"{place} exists already. Give --out a folder that has no {place.name} yet.")
    measured = asyncio.run(evaluation(config, folder, chosen))
    results = {split: result.to_json() for split, (result, _) in measured.items()}
    if as_json:
        print(json.dumps(results if splits else results[config.eval.split]))
    else:
        console.print(
            f"{folder or config.model.path} on {config.env['name']}, {config.eval.attempts} attempts at each task"
        )
        console.print(run_summary.table(list(results.values()), list(results)))
    if out is None:
        return
    config = written_out(config)
    declared = world(config).environment.analysis
    at = int(folder.name) if folder is not None else 0
    for split, (_, groups) in measured.items():
        with Run.create(config.model_copy(update={"folder": str(out), "name": split}), machine_facts()) as run:
            run.note(analysis=declared, measured=str(folder or config.model.path))
            run.evaluations.write(at, groups)
            run.metrics.write({"step": at, "eval": results[split]})


def demos(target: str, overrides: list[str], tasks: int | None, source: Path | None, min_reward: float) -> None:
    if Path(target).is_file() or target.endswith(".toml") or (target in configs.SHIPPED and target not in ENVS):
        config = configs.load(Path(target), overrides)
    else:
        # The novice's tokenizer can spell any text.
        tree = {"name": "demos", "env": {"name": target}, "model": {"path": "novice"}}
        config = configs.resolve(tree, f"the defaults for {target}", overrides)
    from longloop.build import demonstrator, written_out

    config = written_out(config)
    if source is not None:
        _collected(config, source, min_reward)
        return
    from rich.progress import Progress as Bar

    write = demonstrator(config, tasks)  # before a folder is made for nothing
    with Run.create(config, machine_facts()) as run, Bar(console=console, transient=True) as bar:
        line = bar.add_task("demonstrating", total=None)
        ends = asyncio.run(write(run, lambda now, all: bar.update(line, completed=now, total=all)))
    failed = {task: reason for task, reason in ends.items() if reason}
    reasons = Counter(failed.values()).most_common(_REASONS)
    examples = {reason: task for task, reason in reversed(failed.items())}
    why = "; ".join(f"{times} of them ({examples[reason]!r} for one): {reason}" for reason, times in reasons)
    if len(failed) == len(ends):
        raise UserError(
            f"{run.folder}: the expert failed at every task, so there is nothing to imitate: {why}. See whether "
            f"`longloop check {config.env['name']}` finds a fault, and whether the tokenizer of {config.model.path} "
            "can spell what the expert says."
        )
    console.print(
        f"{run.folder}: {len(ends) - len(failed)} successful demonstrations, {len(failed)} failed. Imitate them with "
        f"algo.name=sft demos={run.folder}.",
        soft_wrap=True,
    )
    if failed:
        console.print(f"The expert failed, {why}.", soft_wrap=True, markup=False)


def _collected(config: Config, source: Path, min_reward: float) -> None:
    """A run's good attempts as a folder of demonstrations."""
    read_facts(source)
    from longloop.build import world

    world(config)  # an environment that does not exist is refused here, not when its attempts are imitated
    groups = good_attempts(source, min_reward)
    with Run.create(config, machine_facts()) as run:
        run.trajectories.write(0, groups)
    count = sum(len(group.trajectories) for group in groups)
    console.print(
        f"{run.folder}: {count} attempts at {len(groups)} tasks. Imitate them with algo.name=sft demos={run.folder}.",
        soft_wrap=True,
    )


def export(run: Path, folder: Path, step: int | None, dtype: str) -> None:
    read_facts(run)
    config = stored_config(run)
    checkpoint = _checkpoint(run, step)
    _must_be_new(folder)
    from longloop.build import exported
    from longloop.store.model_card import card

    partial = folder.with_name(folder.name + ".partial")
    exported(config, checkpoint, partial, dtype)
    (partial / "README.md").write_text(card(run, int(checkpoint.name), dtype))
    partial.replace(folder)
    console.print(f"{checkpoint} is now in {folder}, in {dtype}.", soft_wrap=True)


def new_model(folder: Path, env: str, options: list[str], source: Path | None, words: bool, **shape: int) -> None:
    _must_be_new(folder)
    if bool(env) == (source is not None):
        raise UserError("Name what the tokenizer is made from: an environment with --env, or a run with --from.")
    tree: dict[str, Any] = {"env": {"name": env}}
    for option in options:
        configs.override(tree, f"env.{option}")
    from longloop.build import fresh_model

    size = asyncio.run(fresh_model(folder, source or Config.model_validate(tree), words, shape))
    console.print(f"{folder}: {size:,} weights. Train it with model.path={folder}.", soft_wrap=True)


def _must_be_new(folder: Path) -> None:
    if folder.exists():
        raise UserError(f"{folder} exists already; name a folder that does not.")


def _resumed_config(folder: Path, overrides: list[str]) -> Config:
    """A run's config with overrides, and with the run's folder as it is called now."""
    read_facts(folder)
    config = stored_config(folder, overrides)
    return config.model_copy(update={"folder": str(folder.parent), "name": folder.name})


def _checkpoint(folder: Path, step: int | None) -> Path:
    kept = sorted(checkpoints(folder))
    if not kept:
        raise UserError(f"{folder} has no checkpoint yet.")
    if step is not None and step not in kept:
        raise UserError(f"{folder} has no checkpoint of step {step}; it has {', '.join(map(str, kept))}.")
    return folder / "checkpoints" / f"{step or kept[-1]:06d}"
