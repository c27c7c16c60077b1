"""`longloop envs`, `algos` and `models`. Reads source files instead of importing them, so it answers at once."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longloop.config import Config, ModelConfig
from longloop.model import SHIPPED
from longloop.options import Option, document, environment_options, options_of
from longloop.registry import ALGOS, ENVS, FAMILIES
from longloop.types import UserError

console = Console(highlight=False)

_BUILT_IN = (*SHIPPED, "tiny")
"""Models that need not be fetched; `tiny` is made when it is loaded."""
_ONE_ENVIRONMENT = "Name one environment: `longloop envs NAME` shows it, `longloop envs install NAME` builds it."


def envs(name: str | None, more: str | None = None) -> None:
    if more is not None:
        raise UserError(_ONE_ENVIRONMENT)
    if name is None:
        _list({"": ENVS}, "env", "Your own: env.name=my_module:MyEnv, see docs/guides/environment.md.")
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


def algos(name: str | None, other: str | None = None) -> None:
    if name is None:
        _list(FAMILIES, "algo", "Your own: algo.name=my_module:MyAlgorithm, see docs/guides/algorithm.md.")
        return
    where = _where(ALGOS, name, "algorithm")
    if other is not None:
        console.print(_differences(name, where, other, _where(ALGOS, other, "algorithm")))
        return
    console.print(document(where), markup=False, soft_wrap=True)
    console.print()
    if parts := _parts(where):
        console.print(parts)
        console.print()
    _options(name, "algo", options_of(where))


def _composed(where: str) -> Any:
    """The composition that a method is, with its own settings; None for one that is not made of parts."""
    from longloop.algos.composed import Composed
    from longloop.build import named

    kind = named({"name": where}, {}, "algo")
    return kind() if issubclass(kind, Composed) else None


def _parts(where: str) -> Table | None:
    """What a composed method changes of LOOP, and what it needs."""
    from longloop.algos.composed import Parts, differing

    made = _composed(where)
    if made is None:
        return None
    table = _table("", "")
    for slot, (mine, _) in differing(made.parts, Parts()).items():
        table.add_row(slot, escape(str(mine) if mine != () else "none"))
    needed = [*sorted(made.hooks), *(f"a head for {head}" for head in made.heads)]
    needed += ["the policy before training"] if made.needs_reference else []
    needed += [f"one more forward pass ({', '.join(made.parts.reads)})"] if made.parts.reads else []
    table.add_row("needs", escape(", ".join(needed) or "nothing more than LOOP"))
    table.add_row("attempts", f"{made.attempts_per_task} for each task, side rollouts included, with k = {made.k}")
    return table


def _differences(name: str, where: str, other: str, elsewhere: str) -> Table:
    """Two methods, slot by slot where they differ. LOOP is the composition without a change."""
    from longloop.algos.composed import Parts, differing

    made = []
    for one, at in ((name, where), (other, elsewhere)):
        algo = _composed(at)
        if algo is None and one != "loop":
            raise UserError(f"{one!r} is not made of parts, so it cannot be compared part by part; see its page.")
        made.append(Parts() if algo is None else algo.parts)
    table = _table("slot", name, other)
    for slot, values in differing(*made).items():
        table.add_row(slot, *(escape(str(value) if value != () else "none") for value in values))
    return table


def get_model(name: str) -> None:
    from longloop.model import download

    if name in _BUILT_IN:
        console.print(f"{name} comes with longloop. Use it with model.path={name}.", soft_wrap=True)
        return
    if name not in download.KNOWN:
        download.source(name)  # refuses a slip of the pen, instead of asking the hub for it
    folder = download.get(name, console.print)
    console.print(f"{name} is in {folder}. Use it with model.path={name}.", soft_wrap=True)


def models() -> None:
    from longloop.model import download

    table = _table("model.path", "what it is", first="bold")
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
    shape = _shape(name)
    table = _table("", "")
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


def _shape(name: str) -> Mapping[str, Any]:
    """The config.json of a model that `model.path` may name; of adapters, that of the model that they adapt."""
    from longloop.model import download
    from longloop.store.lineage import lineage

    loaded = lineage(Config(env={}, model=ModelConfig(path=name)))[0].model
    if loaded.path == "tiny":  # which is made when it is loaded
        from longloop.model import tiny

        return tiny.model(0, loaded.hidden, loaded.layers).config.to_dict()
    path = Path(download.source(loaded.path)) / "config.json"
    path = path if path.is_file() else download.cached(loaded.path) or path
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        names = ", ".join([*_BUILT_IN, *download.KNOWN])
        raise UserError(
            f"{name} is not a model folder: there is no readable {path}. Name {names}, a run folder or a model's "
            "folder; a model on the hub when `longloop models get` has fetched it."
        ) from error


def _list(families: Mapping[str, Mapping[str, str]], kind: str, hint: str) -> None:
    table = _table(f"{kind}.name", "what it is", first="bold")
    for family, known in families.items():
        if family:
            table.add_row("", "")
            table.add_row(f"[dim]{family}[/]", "")
        for name, where in known.items():
            table.add_row(name, document(where).partition("\n")[0])
    console.print(table)
    console.print(f"\n`longloop {kind}s NAME` shows one in full. {hint}", markup=False)


def _scenarios(rows: Sequence[tuple[str, str, int, Sequence[str]]]) -> Table:
    table = _table("scenario", "split", "difficulty", "apps")
    for name, split, difficulty, apps in rows:
        table.add_row(name, split, str(difficulty), ", ".join(apps))
    return table


def _options(name: str, kind: str, options: Mapping[str, Option]) -> None:
    table = _table("setting", "type", "default", "", first="bold")
    for key, option in options.items():
        table.add_row(*map(escape, (f"{kind}.{key}", option.type, option.default, option.meaning)))
    console.print(table if options else f"{name} has no settings.")


def _table(*headings: str, first: str = "") -> Table:
    """A table that breaks what is too wide for the terminal, and cuts nothing. `first` is its first column's style."""
    table = Table(box=None, pad_edge=False, show_header=any(headings))
    for column, heading in enumerate(headings):
        table.add_column(heading, style="" if column else first, overflow="fold")
    return table


def _where(known: Mapping[str, str], name: str, kind: str) -> str:
    """The `module:Class` that a name stands for."""
    if name not in known and ":" not in name:
        from longloop.build import meant

        raise UserError(
            f"There is no {kind} {name!r}.{meant(name, known)} Known are {', '.join(known)}; your own is written as "
            "module:Class."
        )
    return known.get(name, name)
