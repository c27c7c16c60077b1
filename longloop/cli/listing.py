"""`longloop envs`, `algos` and `models`. Reads source files instead of importing them, so it answers at once."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longloop.config import nearest
from longloop.options import Option, document, environment_options, options_of
from longloop.registry import ALGOS, ENVS
from longloop.types import UserError

console = Console(highlight=False)

_ONE_ENVIRONMENT = "Name one environment: `longloop envs NAME` shows it, `longloop envs install NAME` builds it."


def envs(name: str | None, more: str | None = None) -> None:
    if more is not None:
        raise UserError(_ONE_ENVIRONMENT)
    if name is None:
        _list(ENVS, "env", "Your own: env.name=my_module:MyEnv, see docs/guides/environment.md.")
        return
    where = _where(ENVS, name, "environment")
    console.print(document(where), markup=False, soft_wrap=True)
    console.print()
    _options(name, "env", environment_options(where))
    from longloop.build import environment_class
    from longloop.cli.environments import environments, floors

    environment = environment_class({"name": name})
    if scenarios := environment.scenarios():
        console.print(_scenarios(scenarios))
    console.print()
    isolation = environment.isolation
    if isolation != "inline":
        own = f"a virtualenv of its own (`longloop envs install {name}`)" if isolation == "venv" else "worker processes"
        console.print(f"It runs in {own}. `longloop check {name}` shows what can be scored in it.", soft_wrap=True)
        return
    try:
        console.print(floors(environments(name, [])))
    except UserError as error:
        console.print(str(error), markup=False, soft_wrap=True)  # it needs a setting


def install_env(name: str | None) -> None:
    if name is None:
        raise UserError(_ONE_ENVIRONMENT)
    from longloop.build import named
    from longloop.isolation import virtualenv

    environment = named({"name": name}, ENVS, "env")
    folder = virtualenv.install(name, environment, lambda text: console.print(text, soft_wrap=True, markup=False))
    console.print(f"The virtualenv of {name} is {folder}.", soft_wrap=True, markup=False)


def algos(name: str | None) -> None:
    if name is None:
        _list(ALGOS, "algo", "Your own: algo.name=my_module:MyAlgorithm, see docs/guides/algorithm.md.")
        return
    where = _where(ALGOS, name, "algorithm")
    console.print(document(where), markup=False, soft_wrap=True)
    console.print()
    _options(name, "algo", options_of(where))


def get_model(name: str) -> None:
    from longloop.model import download

    folder = download.get(name, console.print)
    console.print(f"{name} is in {folder}. Use it with model.path={name}.", soft_wrap=True)


def models() -> None:
    from longloop.model import download

    table = Table(box=None, pad_edge=False)
    table.add_column("model.path", style="bold")
    table.add_column("what it is")
    table.add_row("novice", "1.5 million weights, trained on the language of Errands; the quick start begins with it")
    table.add_row("tiny", "80,000 random weights that read single characters; for tests and first environments")
    for name, wheel in download.KNOWN.items():
        here = download.model_folder(name).is_dir()
        table.add_row(name, wheel.about if here else f"{wheel.about} (`longloop models get {name}`)")
    table.add_row("FOLDER", "a Hugging Face causal LM: config.json, safetensors, tokenizer with a chat template")
    table.add_row("RUN", "a run folder or one of its checkpoints: the trained model, adapters merged")
    table.add_row("OWNER/NAME", "a model on the Hugging Face hub, or in its cache when offline")
    console.print(table)
    console.print("\nmodel.lora_rank=16 trains adapters; 0 (the default) trains every weight.")


def model(name: str) -> None:
    path = Path(name) / "config.json"
    try:
        shape = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        raise UserError(f"{name} is not a model folder: there is no readable {path}.") from None
    table = Table(box=None, show_header=False, pad_edge=False)
    for key in (
        "model_type",
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    ):
        table.add_row(key, str(shape.get(key, "-")))
    console.print(table)


def _list(known: Mapping[str, str], kind: str, hint: str) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{kind}.name", style="bold", no_wrap=True)
    table.add_column("what it is")
    for name, where in known.items():
        table.add_row(name, document(where).partition("\n")[0])
    console.print(table)
    console.print(f"\n`longloop {kind}s NAME` shows one in full. {hint}", markup=False)


def _scenarios(rows: Sequence[tuple[str, str, int, Sequence[str]]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("scenario", "split", "difficulty", "apps"):
        table.add_column(heading)
    for name, split, difficulty, apps in rows:
        table.add_row(name, split, str(difficulty), ", ".join(apps))
    return table


def _options(name: str, kind: str, options: Mapping[str, Option]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("setting", style="bold", no_wrap=True)
    table.add_column("type")
    table.add_column("default")
    table.add_column("")
    for key, option in options.items():
        table.add_row(*map(escape, (f"{kind}.{key}", option.type, option.default, option.meaning)))
    console.print(table if options else f"{name} has no settings.")


def _where(known: Mapping[str, str], name: str, kind: str) -> str:
    """The `module:Class` that a name stands for."""
    if name not in known and ":" not in name:
        raise UserError(
            f"There is no {kind} {name!r}.{nearest(name, known)} Known are {', '.join(known)}; your own is written as "
            "module:Class."
        )
    return known.get(name, name)
