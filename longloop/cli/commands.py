"""What `train`, `eval`, `demos`, `export` and `models new` do once the command line has been read: call api.py, and
print what came of it."""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console

from longloop import api, build
from longloop import config as configs
from longloop.cli import run_summary
from longloop.config import Config
from longloop.model import hub
from longloop.registry import ENVS
from longloop.store.files import whole_folder
from longloop.store.model_card import card
from longloop.store.run_reader import read_facts, stored_config
from longloop.types import UserError

console = Console(highlight=False)

_REASONS = 3
"""How many of the reasons why an expert failed are printed, the most frequent first."""


def train(config_path: str | None, overrides: list[str], resume: Path | None) -> None:
    if resume is not None:
        config = api.resumed_config(resume, [*([config_path] if config_path else []), *overrides])
    elif config_path is not None:
        config = configs.load(Path(config_path), overrides)
    else:
        raise UserError(
            f"Name a config, a TOML file or one of {', '.join(configs.SHIPPED)}, or a run with --resume. Start with "
            "`longloop train quickstart`."
        )
    run_summary.show(api.trained(config, resume, console), console)


def engine_words(engine: str, url: str, model: str) -> list[str]:
    """The override for another engine: a table in place of the config's. None where none is named."""
    if not engine and (url or model):
        raise UserError("--url and --model are an endpoint's: add --engine openai.")
    chosen = {key: value for key, value in (("name", engine), ("url", url), ("model", model)) if value}
    table = ", ".join(f"{key} = {configs.as_toml(value)}" for key, value in chosen.items())
    return [f"engine={{{table}}}"] if engine else []


def evaluate(
    target: Path, overrides: list[str], splits: list[str], step: api.WhichStep, as_json: bool, out: Path | None
) -> None:
    if any(word.partition("=")[0].strip() == "split" for word in overrides):
        raise UserError("`split` is what a run trains on. Name the split to measure on with --split, or as eval.split.")
    config, checkpoint = api.subject(target, overrides, step)
    chosen = splits or [config.eval.split]
    for folder in [out / split for split in chosen] if out is not None else ():
        if folder.exists():  # said before anything is measured
            raise UserError(f"{folder} exists already. Give --out a folder that has no {folder.name} yet.")
    if checkpoint is not None and (said := api.other_version(target, config)):
        print(said, file=sys.stderr)
    if out is not None:
        _must_be_writable(out)
    with api.measuring(config, checkpoint, chosen) as measured:
        results = {split: result.to_json() for split, (result, _) in measured.items()}
        if as_json:
            print(json.dumps(results if splits else results[config.eval.split]))
        else:
            policy = config.engine["model"] if build.is_endpoint(config) else checkpoint or config.model.path
            subject = f"{policy} on {config.env['name']}"
            console.print(f"{subject}, {config.eval.attempts} attempts at each task")
            console.print(run_summary.table([result for result, _ in measured.values()], list(results)))
        if out is not None:
            api.write_measured(config, checkpoint, out, measured)


def demos(target: str, overrides: list[str], tasks: int | None, source: Path | None, min_reward: float) -> None:
    if Path(target).is_file() or target.endswith(".toml") or (target in configs.SHIPPED and target not in ENVS):
        config = configs.load(Path(target), overrides)
    else:
        # The novice's tokenizer can spell any text.
        tree = {"name": "demos", "env": {"name": target}, "model": {"path": "novice"}}
        config = configs.resolve(tree, f"the defaults for {target}", overrides)
    if source is not None:
        if said := api.doubts(source, config):
            console.print(said, soft_wrap=True, markup=False)
        folder, groups = api.select(config, source, min_reward)
        count = sum(len(group.trajectories) for group in groups)
        console.print(f"{folder}: {count} attempts at {len(groups)} tasks. {_imitate(folder)}", soft_wrap=True)
        return
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as bar:
        line = bar.add_task("demonstrating", total=None)
        folder, ends = api.demonstrate(config, tasks, lambda now, all: bar.update(line, completed=now, total=all))
    failed = {task: reason for task, reason in ends.items() if reason}
    reasons = Counter(failed.values()).most_common(_REASONS)
    examples = {reason: task for task, reason in reversed(failed.items())}
    why = "; ".join(f"{times} of them ({examples[reason]!r} for one): {reason}" for reason, times in reasons)
    if len(failed) == len(ends):
        raise UserError(
            f"{folder}: the expert failed at every task, so there is nothing to imitate: {why}. See whether "
            f"`longloop check {config.env['name']}` finds a fault, and whether the tokenizer of {config.model.path} "
            "can spell what the expert says."
        )
    console.print(
        f"{folder}: {len(ends) - len(failed)} successful demonstrations, {len(failed)} failed. {_imitate(folder)}",
        soft_wrap=True,
    )
    if failed:
        console.print(f"The expert failed, {why}.", soft_wrap=True, markup=False)


def _imitate(folder: Path) -> str:
    return f"Imitate them with algo.name=sft {quote(f'demos={folder}')}."


def export(
    run: Path, out: Path | None, step: api.WhichStep, dtype: str, adapter: bool, push: str, public: bool
) -> None:
    if out is None and not push:
        raise UserError("Say where the model goes: a folder with --out, OWNER/NAME on the hub with --push, or both.")
    if public and not push:
        raise UserError("--public is for a repository on the hub: name it with --push OWNER/NAME.")
    read_facts(run)
    config, checkpoint = stored_config(run), api.checkpoint_of(run, step)
    if out is not None:
        _must_be_new(out)
    with tempfile.TemporaryDirectory() as away:
        folder = out or Path(away) / "model"
        told = "as trained" if adapter else dtype
        with whole_folder(folder) as written:
            if adapter:
                api.export_adapter(config, checkpoint, written)
            else:
                api.export(config, checkpoint, written, dtype)
            (written / "README.md").write_text(card(run, int(checkpoint.name), told, adapter))
        if out is not None:
            console.print(f"{checkpoint} is now in {folder}, {told if adapter else f'in {dtype}'}.", soft_wrap=True)
        if push:
            console.print(f"{checkpoint} is now at {hub.push(folder, push, not public)}.", soft_wrap=True)


def new_model(folder: Path, env: str, options: list[str], source: Path | None, words: bool, **shape: int) -> None:
    _must_be_new(folder)
    if bool(env) == (source is not None):
        raise UserError("Name what the tokenizer is made from: an environment with --env, or a run with --from.")
    if shape["hidden"] % (2 * shape["heads"]):
        raise UserError(
            f"--hidden {shape['hidden']} cannot be divided among --heads {shape['heads']}, in two halves each: name a "
            f"multiple of {2 * shape['heads']}."
        )
    tree: dict[str, Any] = {"env": {"name": env}}
    for option in options:
        configs.override(tree, f"env.{option}")
    size = api.new_model(folder, source or Config.model_validate(tree), words, shape)
    console.print(f"{folder}: {size:,} weights. Train it with {quote(f'model.path={folder}')}.", soft_wrap=True)


def _must_be_writable(folder: Path) -> None:
    """Make a folder if there is none, and try whether files can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"Cannot write into {folder}: {error.strerror}. Give --out another folder.") from error


def _must_be_new(folder: Path) -> None:
    if folder.exists():
        raise UserError(f"{folder} exists already; name a folder that does not.")
